"""The facts about a model's tensors, and the axes over which its reductions and poolings work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.shapes import TensorType

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

    from trtnorm_cli.onnx_model.surgery import Surgery
    from trtnorm_cli.rewrite.borders import Borders

Shape = tuple[int | str | None, ...]


@dataclass(frozen=True)
class Known:
    """The model and what is known of its tensors."""

    surgery: Surgery
    types: Mapping[str, TensorType]
    borders: Borders

    @cached_property
    def tensors(self) -> dict[str, gs.Tensor]:
        """Every tensor that a node reads or makes, by name."""
        return {t.name: t for node in self.borders.nodes for t in (*node.inputs, *node.outputs)}

    def shape(self, tensor: gs.Tensor) -> Shape | None:
        """The shape as far as it is known; None when the rank is not."""
        if self.surgery.is_constant(tensor):
            value = self.surgery.constant(tensor)
            return None if value is None else value.shape
        kind = self.types.get(tensor.name)
        return None if kind is None else kind.shape

    def type_of(self, tensor: gs.Tensor) -> TensorType | None:
        return self.types.get(tensor.name)

    def dtype(self, tensor: gs.Tensor) -> int:
        """The element type, 0 when it is not known."""
        kind = self.types.get(tensor.name)
        return 0 if kind is None else kind.dtype

    def integers(self, tensor: gs.Tensor) -> list[int] | None:
        value = self.surgery.constant(tensor)
        return None if value is None else [int(v) for v in value.reshape(-1)]


def axes_of(node: gs.Node, known: Known) -> tuple[int, ...] | None:
    """The axes of a reduction, counted from the front; None when they or the rank are not known."""
    shape = known.shape(node.inputs[0])
    if shape is None:
        return None
    stated = node.attrs.get("axes")
    if stated is None and len(node.inputs) > 1 and node.inputs[1].name:
        stated = known.integers(node.inputs[1])
        if stated is None:
            return None
    if not stated:
        return () if node.attrs.get("noop_with_empty_axes", 0) else tuple(range(len(shape)))
    return counted(stated, len(shape))


def counted(axes: Iterable[int], rank: int) -> tuple[int, ...] | None:
    """``axes`` in order, counted from the front; None where there is no such axis."""
    stated = [int(axis) for axis in axes]
    return tuple(sorted(axis % rank for axis in stated)) if all(-rank <= axis < rank for axis in stated) else None


def pooled_axes(node: gs.Node, known: Known) -> tuple[int, ...] | None:
    """The axes over which a pooling takes the mean of the whole plane; None when it does not."""
    shape = known.shape(node.inputs[0])
    if shape is None or len(shape) < 3:
        return None
    plane = tuple(range(2, len(shape)))
    if node.op == "GlobalAveragePool":
        return plane
    kernel = node.attrs.get("kernel_shape")
    plain = not any(node.attrs.get("pads", [])) and node.attrs.get("auto_pad", "NOTSET") in ("NOTSET", "VALID", b"NOTSET")
    whole = kernel is not None and tuple(kernel) == shape[2:]
    return plane if node.op == "AveragePool" and plain and whole else None
