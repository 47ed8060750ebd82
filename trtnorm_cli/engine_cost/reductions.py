"""The rows that ONNX nodes reduce: normalizations, reductions, pooling over the whole plane, softmax."""

from __future__ import annotations

import math

import onnx

from trtnorm_cli.engine_cost.facts import ModelFacts
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.records.engine_parts import Sizes

_PLANES = frozenset({"GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", "InstanceNormalization"})
_FROM_AXIS = frozenset({
    "LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization", "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization", "EmbedLayerNormalization",
})  # fmt: skip
_ALONG_AXIS = {
    "Softmax": -1,
    "LogSoftmax": -1,
    "Hardmax": -1,
    "LpNormalization": -1,
    "ArgMax": 0,
    "ArgMin": 0,
    "TopK": -1,
    "CumSum": 0,
}


@dataclass(frozen=True)
class Reduction:
    """``count`` rows of ``length`` elements each. ``innermost`` is true where a row holds the last axis of its tensor."""

    count: int
    length: int
    innermost: bool


def reduction(node: onnx.NodeProto, facts: ModelFacts) -> Reduction | None:
    """The rows that ``node`` reduces; None where it reduces nothing, or the sizes are not known."""
    shape = facts.shape(node.input[0]) if node.input else None
    if not shape or 0 in shape:
        return None
    if node.op_type in _PLANES:
        return _of(shape, tuple(range(2, len(shape))))
    if node.op_type == "GroupNormalization":
        groups = _integer(node, "num_groups", 1)
        count = shape[0] * groups
        return Reduction(count, math.prod(shape) // count, True)
    if node.op_type in _FROM_AXIS:
        first = _integer(node, "axis", -1) % len(shape)
        return _of(shape, tuple(range(first, len(shape))))
    if node.op_type in _ALONG_AXIS:
        return _of(shape, (_integer(node, "axis", _ALONG_AXIS[node.op_type]) % len(shape),))
    if node.op_type.startswith("Reduce") or node.op_type == "MeanVarianceNormalization":
        return _reduced(node, shape, facts)
    return None


def _reduced(node: onnx.NodeProto, shape: Sizes, facts: ModelFacts) -> Reduction | None:
    axes = next((tuple(one.ints) for one in node.attribute if one.name == "axes"), None)
    if axes is not None:
        return _of(shape, tuple(axis % len(shape) for axis in axes))
    output = facts.shape(node.output[0])
    if output is None:
        return None
    if len(output) == len(shape):
        return _of(shape, tuple(axis for axis, (a, b) in enumerate(zip(shape, output, strict=True)) if a != b))
    kept = math.prod(output)
    return Reduction(kept, math.prod(shape) // kept, not output or output[-1] != shape[-1]) if kept else None


def _of(shape: Sizes, axes: tuple[int, ...]) -> Reduction | None:
    length = math.prod(shape[axis] for axis in axes)
    return Reduction(math.prod(shape) // length, length, len(shape) - 1 in axes) if length > 1 else None


def _integer(node: onnx.NodeProto, name: str, default: int) -> int:
    return next((one.i for one in node.attribute if one.name == name), default)
