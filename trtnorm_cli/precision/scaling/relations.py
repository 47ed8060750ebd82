"""The scale of a node's result where its data are held as a power of two of themselves.

A function f is positively homogeneous where f(s x) = s f(x) for s > 0: ReLU, sums, maxima, means, and what moves values. A
product with constants is so as well, and its constants can take another scale in. In binary arithmetic a power of two changes
the exponents of numbers alone, so that nothing is rounded otherwise, as long as nothing overflows or becomes subnormal.
"""

from __future__ import annotations

from enum import Enum

import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.walk import subgraphs
from trtnorm_cli.precision.float_graph import FloatGraph, is_op

# f(s x) = s f(x) in the first input; the others are shapes, axes or slopes.
_OF_THE_FIRST = frozenset({
    "Abs", "AveragePool", "DepthToSpace", "Expand", "Flatten", "Gather", "GlobalAveragePool", "GlobalMaxPool", "Identity",
    "LeakyRelu", "MaxPool", "Neg", "PRelu", "ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "Relu",
    "Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
})  # fmt: skip
# f(s x, s y) = s f(x, y): constants among the inputs are scaled as well.
_OF_ALL = frozenset({"Add", "Clip", "Concat", "Max", "Mean", "Min", "Sub", "Sum"})
# f(s x) = f(x), where ε becomes s² ε.
_NORMS = frozenset({"GroupNormalization", "InstanceNormalization", "LayerNormalization", "RMSNormalization"})
# Results between −1 and 1, which stay so when their input is bounded to where they have reached these.
SATURATING = frozenset({"Erf", "HardSigmoid", "Sigmoid", "Tanh"})
_BOUNDED = SATURATING | {"Softmax"}


class Kind(Enum):
    """The way in which the scale of a result depends on that of the data.

    ALIKE: it is the same one, and that of ``biases``. FREE: any, as ``weights`` take the quotient in and ``biases`` have that
    of the result. NORMALIZED: the result is as it was, whatever that of the data. OPAQUE: data and result are as they were.
    """

    ALIKE = "alike"
    FREE = "free"
    NORMALIZED = "normalized"
    OPAQUE = "opaque"


@dataclass(frozen=True)
class Relation:
    """The relation of one node: the places of its ``data``, of constants that take part, and of a ``mean`` like the data."""

    kind: Kind
    data: tuple[int, ...] = ()
    weights: tuple[int, ...] = ()
    biases: tuple[int, ...] = ()
    means: tuple[int, ...] = ()


_OPAQUE = Relation(Kind.OPAQUE)


def relation_of(node: onnx.NodeProto, graph: FloatGraph) -> Relation:
    """The relation between the scales of what ``node`` reads and makes."""
    if any(True for _ in subgraphs(node)):
        return _OPAQUE
    if is_op(node, *_OF_THE_FIRST):
        return Relation(Kind.ALIKE, (0,)) if _is_float(node, 0, graph) else _OPAQUE
    if is_op(node, "Resize", "Upsample"):
        crops = any(attribute.s == b"tf_crop_and_resize" for attribute in node.attribute)
        return Relation(Kind.ALIKE, (0,)) if _is_float(node, 0, graph) and not crops else _OPAQUE
    if is_op(node, *_OF_ALL):
        return _of_all(node, graph, range(len(node.input)))
    if is_op(node, "Where"):
        return _of_all(node, graph, (1, 2))
    if is_op(node, "Pad"):
        return _pad(node, graph)
    if is_op(node, "Conv", "ConvTranspose", "Gemm"):
        return _product(node, graph, (0, 1), biases=(2,))
    if is_op(node, "Mul", "MatMul"):
        return _product(node, graph, (0, 1)) if _has_constant(node, graph) else _gated(node, graph)
    if is_op(node, "BatchNormalization"):
        return _batchnorm(node, graph)
    if is_op(node, *_NORMS):
        return Relation(Kind.NORMALIZED, (0,))
    return _OPAQUE


def _is_float(node: onnx.NodeProto, place: int, graph: FloatGraph) -> bool:
    """True for a float32 tensor that is computed."""
    name = node.input[place]
    return bool(name) and graph.is_float(name) and not graph.is_constant(name)


def _is_constant(node: onnx.NodeProto, place: int, graph: FloatGraph) -> bool:
    return graph.is_float(node.input[place]) and graph.constant(node.input[place]) is not None


def _has_constant(node: onnx.NodeProto, graph: FloatGraph) -> bool:
    return any(graph.is_constant(name) for name in node.input)


def _of_all(node: onnx.NodeProto, graph: FloatGraph, places: range | tuple[int, ...]) -> Relation:
    if any(attribute.name in ("min", "max") for attribute in node.attribute):  # of an old Clip
        return _OPAQUE
    data = tuple(place for place in places if node.input[place] and _is_float(node, place, graph))
    rest = tuple(place for place in places if node.input[place] and place not in data)
    if not data or not all(_is_constant(node, place, graph) for place in rest):
        return _OPAQUE
    return Relation(Kind.ALIKE, data, biases=rest)


def _pad(node: onnx.NodeProto, graph: FloatGraph) -> Relation:
    if any(attribute.name == "value" and attribute.f for attribute in node.attribute):
        return _OPAQUE
    value = tuple(place for place in (2,) if len(node.input) > place and node.input[place])
    if not _is_float(node, 0, graph) or not all(_is_constant(node, place, graph) for place in value):
        return _OPAQUE
    return Relation(Kind.ALIKE, (0,), biases=value)


def _product(node: onnx.NodeProto, graph: FloatGraph, factors: tuple[int, int], biases: tuple[int, ...] = ()) -> Relation:
    given = tuple(place for place in biases if len(node.input) > place and node.input[place])
    for data, weights in (factors, factors[::-1]):
        constants = (weights, *given)
        if _is_float(node, data, graph) and all(_is_constant(node, place, graph) for place in constants):
            return Relation(Kind.FREE, (data,), (weights,), given)
    return _OPAQUE


def _gated(node: onnx.NodeProto, graph: FloatGraph) -> Relation:
    """A product of data with what lies between −1 and 1: attention of values, gates and Swish."""
    for data, gate in ((0, 1), (1, 0)):
        if _is_bounded(node.input[gate], graph) and _is_float(node, data, graph):
            return Relation(Kind.ALIKE, (data,))
    return _OPAQUE


def _is_bounded(name: str, graph: FloatGraph) -> bool:
    maker = graph.producers.get(name)
    return maker is not None and is_op(maker, *_BOUNDED)


def _batchnorm(node: onnx.NodeProto, graph: FloatGraph) -> Relation:
    is_alone = len([name for name in node.output if name]) == 1
    trains = any(attribute.name == "training_mode" and attribute.i for attribute in node.attribute)
    if trains or not is_alone or not all(_is_constant(node, place, graph) for place in (1, 2, 3)):
        return _OPAQUE
    return Relation(Kind.FREE, (0,), (1,), (2,), (3,))
