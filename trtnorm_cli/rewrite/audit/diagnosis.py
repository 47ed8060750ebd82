"""Find normalizations whose parameters do not fit their data, and say which node made the channels.

TensorRT names the two counts ("shift weights has count 16 but 64 was expected") but neither the axis nor the culprit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.normalization_nodes import PARAMETERS
from trtnorm_cli.onnx_model.shapes import TensorType, format_shape
from trtnorm_cli.rewrite.audit.channel_origin import Origin, origin_of_axis
from trtnorm_cli.rewrite.pattern import describe

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

    from trtnorm_cli.onnx_model.surgery import Surgery

# Up to this opset GroupNormalization had one scale and bias per group, afterwards one per channel.
_PER_GROUP_UNTIL = 20
_SPATIAL_UNTIL = 8
OVER_CHANNELS = ("BatchNormalization", "InstanceNormalization", "GroupNormalization")


@dataclass(frozen=True)
class Finding:
    """A normalization whose parameters are not ``wanted`` values long. ``counts`` maps each parameter's role to its length.

    ``axis`` is the channel axis of the data, ``shape`` the data's shape as far as it is known.
    """

    node: str
    operator: str
    data: str
    shape: tuple[int | str | None, ...]
    axis: int
    wanted: int
    counts: dict[str, int]
    origin: Origin

    @property
    def misfits(self) -> dict[str, int]:
        """The parameters that do not fit, with their lengths."""
        return {role: count for role, count in self.counts.items() if count != self.wanted}

    @property
    def matching_axes(self) -> tuple[int, ...]:
        """The axes of the data that are as long as every parameter is."""
        lengths = set(self.counts.values())
        return tuple(axis for axis, size in enumerate(self.shape) if len(lengths) == 1 and size in lengths)

    def lines(self) -> list[str]:
        """The finding, for a reader: the counts, the axis, who made it, and which axes would fit."""
        lengths = sorted(set(self.misfits.values()))
        roles = listed(list(self.misfits))
        hold = "holds" if len(self.misfits) == 1 else "hold"
        counts = " and ".join(str(count) for count in lengths)
        said = f"axis {self.axis} of {self.data} {format_shape(self.shape)} has {self.wanted}"
        if len(self.shape) == 1:
            said = f"{self.data} {format_shape(self.shape)} is a batch of one channel"
        if self.operator == "GroupNormalization" and self.shape[self.axis] != self.wanted:
            said = f"the node has num_groups={self.wanted}, and this opset wants one value per group"
        found = [f"{roles} {hold} {counts} value{'s' if counts != '1' else ''}, but {said}"]
        if self.shape[self.axis] == self.wanted:
            found.append(f"the {self.wanted} come from {self.origin.text}")
        axes = self.matching_axes
        if len(lengths) == 1 and lengths[0] > 1:
            which = f"axis {' and axis '.join(map(str, axes))} of {self.data} has" if axes else f"no axis of {self.data} has"
            found.append(f"{which} {counts}")
        return found


def diagnose(node: gs.Node, surgery: Surgery, types: Mapping[str, TensorType]) -> Finding | None:
    """The finding about one node; None when its parameters fit, when lengths are not known, and for other operators."""
    if node.op not in OVER_CHANNELS or node.domain not in DEFAULT_DOMAINS or _is_per_element(node, surgery):
        return None
    data = node.inputs[0]
    kind = types.get(data.name)
    if kind is None or not kind.shape:
        return None
    counts = dict(_counts(node, surgery, types))
    axis = min(1, len(kind.shape) - 1)
    wanted = _wanted(node, surgery.opset, kind.shape, axis)
    if wanted is None or all(count == wanted for count in counts.values()):
        return None
    origin = origin_of_axis(data, axis, surgery, types)
    own = node.attrs.get("num_groups", 1)
    if isinstance(own, int) and own > 1:
        origin = replace(origin, groups=(own, *origin.groups))
    return Finding(describe(node), node.op, data.name, kind.shape, axis, wanted, counts, origin)


def _is_per_element(node: gs.Node, surgery: Surgery) -> bool:
    return surgery.opset <= _SPATIAL_UNTIL and node.attrs.get("spatial", 1) == 0


def _counts(node: gs.Node, surgery: Surgery, types: Mapping[str, TensorType]) -> Iterable[tuple[str, int]]:
    """Role and number of values of each parameter whose size is known."""
    for role, tensor in zip(PARAMETERS[node.op], node.inputs[1:], strict=False):
        value = surgery.constant(tensor) if tensor.name else None
        kind = types.get(tensor.name)
        if value is not None:
            yield role, value.size
        elif kind is not None and kind.shape is not None and len(kind.shape) == 1 and isinstance(kind.shape[0], int):
            yield role, kind.shape[0]


def _wanted(node: gs.Node, opset: int, shape: tuple[int | str | None, ...], axis: int) -> int | None:
    """How many values each parameter should have; a vector is a batch of one channel."""
    if node.op == "GroupNormalization" and opset <= _PER_GROUP_UNTIL:
        return int(node.attrs.get("num_groups", 0)) or None
    size = shape[axis] if len(shape) > 1 else 1
    return size if isinstance(size, int) else None


def listed(names: list[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
