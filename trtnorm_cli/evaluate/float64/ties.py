"""Values that are rounded to steps and lie next to a tie, where the last bit of what comes before decides.

A step of 8-bit quantisation is a percent of the value. Two computations that agree to seven digits may fall to different sides
of a tie, and then all that follows is a step away: through a few layers nearly every value is. That tells nothing of the
candidate. So where a candidate chose the other side of a tie, it goes on with the side that the reference chose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np
from onnx import NodeProto

from trtnorm_cli.evaluate.float64.kernels.call import Call
from trtnorm_cli.evaluate.float64.kernels.quantization import dequantize, rounding_of
from trtnorm_cli.light_dataclass import dataclass

# So many units in the last place beside a tie, of the value or of the root mean square of all: sums cancel. For types that are
# coarse themselves no more than this share, so that an error of a step is not taken for a tie.
_ULPS, _FEWEST_ULPS, _MOST = 32.0, 2.0, 2.0**-9
# Scales differ by a rounding, so that the same step is not the same number in float64.
_SAME_STEP = 0.01
_QUANTIZE, _DEQUANTIZE, _ROUND = "QuantizeLinear", "DequantizeLinear", "Round"


def nearness(ulp: float) -> float:
    """How near to a tie roundings of the unit ``ulp`` can move a value, relative to it."""
    return max(_FEWEST_ULPS * ulp, min(_ULPS * ulp, _MOST))


@dataclass(frozen=True)
class Tie:
    """Elements of a tensor next to a tie, by flat index: what they were rounded to, and the other side.

    ``source`` is the tensor that the rounding made, which may have been dequantised since.
    """

    indices: np.ndarray
    own: np.ndarray
    other: np.ndarray
    source: str = ""


def next_to_ties(
    node: NodeProto, attributes: Mapping[str, Any], inputs: Sequence[Any], value: np.ndarray, relative: float
) -> Tie | None:
    """The elements of ``value`` next to a tie. None where ``node`` does not round to steps, or nothing is next to one."""
    if node.op_type not in (_QUANTIZE, _ROUND):
        return None
    position, rounded = _position(node, attributes, inputs)
    # Of the rounded values: what lies far beyond the range that they have says nothing of the others.
    steps = value.astype(np.float64)
    size = float(np.sqrt(np.mean(np.square(steps[np.isfinite(steps)])))) if steps.size else 0.0
    reach = relative * np.maximum(np.abs(position), size)
    low, high = rounded(position - reach), rounded(position + reach)
    indices = np.flatnonzero((low != high) & np.isfinite(position))
    if indices.size == 0:
        return None
    own, low, high = (array.reshape(-1)[indices] for array in (value, low, high))
    return Tie(indices, own, np.where(own == low, high, low))


def _position(
    node: NodeProto, attributes: Mapping[str, Any], inputs: Sequence[Any]
) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """The data in steps, and how it is rounded to whole ones."""
    if node.op_type == _ROUND:
        return np.asarray(inputs[0], np.float64), np.rint
    return rounding_of(Call(_QUANTIZE, 0, tuple(inputs), attributes))


@dataclass
class Ties:
    """The elements next to ties in one run, by tensor. ``relative`` is the nearness."""

    relative: float
    found: dict[str, Tie] = field(default_factory=dict)

    def learn(self, node: NodeProto, attributes: Mapping[str, Any], inputs: Sequence[Any], name: str, value: Any) -> None:
        """Remember the elements next to a tie of a result; what DequantizeLinear makes of such ones goes on being theirs."""
        if not isinstance(value, np.ndarray):
            return
        if node.op_type == _DEQUANTIZE and node.input[0] in self.found:
            before = self.found[node.input[0]]
            changed = np.array(inputs[0])
            changed.reshape(-1)[before.indices] = before.other
            other = dequantize(Call(_DEQUANTIZE, 0, (changed, *inputs[1:]), attributes))
            own, far = (np.asarray(array).reshape(-1)[before.indices] for array in (value, other))
            self.found[name] = Tie(before.indices, own, far, before.source)
            return
        tie = next_to_ties(node, attributes, inputs, value, self.relative)
        if tie is not None:
            self.found[name] = replace(tie, source=name)

    def follow(self, name: str, value: Any) -> Any:
        """``value`` of the tensor ``name`` of another run, with the sides of ties that this run chose."""
        return Follower(self).follow(name, value)


@dataclass
class Follower:
    """Another run that follows ``ties``. ``reached`` are the roundings whose results it has, by the same steps."""

    ties: Ties
    reached: set[str] = field(default_factory=set)

    @property
    def has_all(self) -> bool:
        """False where the other run has some roundings under no name, or its steps mean something else."""
        return {tie.source for tie in self.ties.found.values()} <= self.reached

    def follow(self, name: str, value: Any) -> Any:
        tie = self.ties.found.get(name)
        if tie is None or not isinstance(value, np.ndarray) or value.size <= tie.indices[-1]:
            return value
        there = value.reshape(-1)[tie.indices].astype(np.float64)
        own, other = tie.own.astype(np.float64), tie.other.astype(np.float64)
        steps = (there - own) / (other - own)
        if value.dtype != np.float64 or bool(np.all(np.abs(steps - np.rint(steps)) <= _SAME_STEP)):
            self.reached.add(tie.source)
        is_other = np.abs(there - other) <= _SAME_STEP * np.abs(other - own)
        if not is_other.any():
            return value
        followed = np.array(value)
        followed.reshape(-1)[tie.indices[is_other]] = tie.own[is_other].astype(value.dtype)
        return followed
