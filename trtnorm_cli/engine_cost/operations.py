"""Arithmetic operations of ONNX nodes, a multiply-add counted as two."""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx

from trtnorm_cli.engine_cost.facts import ModelFacts
from trtnorm_cli.records.engine_parts import Sizes

Shapes = list[Sizes | None]
# These compute nothing: they move, select or rename.
_MOVES = frozenset({
    "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Concat", "Split", "Slice", "Gather",
    "GatherElements", "GatherND", "Expand", "Tile", "Pad", "Shape", "Size", "Constant", "ConstantOfShape", "Range", "Cast",
    "CastLike", "Dropout", "DepthToSpace", "SpaceToDepth", "ScatterND", "ScatterElements", "Where", "EyeLike", "Trilu",
})  # fmt: skip


def operations(node: onnx.NodeProto, facts: ModelFacts) -> int:
    """The operations of ``node``; 0 where the sizes of its tensors are not known."""
    if node.op_type in _MOVES:
        return 0
    shapes = [facts.shape(name) for name in node.input]
    output = facts.shape(node.output[0]) if node.output else None
    counted = PRODUCTS.get(node.op_type)
    if counted is not None:
        return counted(node, shapes, output)
    return max((math.prod(shape) for shape in (*shapes, output) if shape is not None), default=0)


def _convolution(node: onnx.NodeProto, shapes: Shapes, output: Sizes | None) -> int:
    weight = _at(shapes, 1)
    return 0 if weight is None or output is None else 2 * math.prod(output) * math.prod(weight[1:])


def _transposed_convolution(node: onnx.NodeProto, shapes: Shapes, output: Sizes | None) -> int:
    x, weight = _at(shapes, 0), _at(shapes, 1)
    return 0 if x is None or weight is None else 2 * math.prod(x) * math.prod(weight[1:])


def _matrix_product(node: onnx.NodeProto, shapes: Shapes, output: Sizes | None) -> int:
    a = _at(shapes, 0)
    return 0 if not a or output is None else 2 * math.prod(output) * a[-1]


def _gemm(node: onnx.NodeProto, shapes: Shapes, output: Sizes | None) -> int:
    a = _at(shapes, 0)
    if a is None or len(a) != 2 or output is None:
        return 0
    transposed = any(attribute.name == "transA" and attribute.i for attribute in node.attribute)
    return 2 * math.prod(output) * a[0 if transposed else 1]


def _einsum(node: onnx.NodeProto, shapes: Shapes, output: Sizes | None) -> int:
    equation = next((one.s.decode() for one in node.attribute if one.name == "equation"), "").replace(" ", "")
    sizes: dict[str, int] = {}
    for term, shape in zip(equation.split("->")[0].split(","), shapes, strict=False):
        if shape is None or len(term) != len(shape):
            return 0
        sizes.update(zip(term, shape, strict=True))
    return 2 * math.prod(sizes.values())


def _attention(node: onnx.NodeProto, shapes: Shapes, output: Sizes | None) -> int:
    """Two products of each query with all keys. Sequences are the next to last axis, or the second of three."""
    query, key = _at(shapes, 0), _at(shapes, 1)
    if query is None or key is None or len(key) < 3:
        return 0
    return 4 * math.prod(query) * key[-2]


def _recurrent(node: onnx.NodeProto, shapes: Shapes, output: Sizes | None) -> int:
    x, weight, recurrence = _at(shapes, 0), _at(shapes, 1), _at(shapes, 2)
    if x is None or weight is None or recurrence is None:
        return 0
    return 2 * math.prod(x[:-1]) * (math.prod(weight) + math.prod(recurrence))


def _at(shapes: Shapes, index: int) -> Sizes | None:
    return shapes[index] if index < len(shapes) else None


# The operators that multiply matrices.
PRODUCTS: dict[str, Callable[[onnx.NodeProto, Shapes, Sizes | None], int]] = {
    "Conv": _convolution,
    "ConvInteger": _convolution,
    "DeformConv": _convolution,
    "ConvTranspose": _transposed_convolution,
    "MatMul": _matrix_product,
    "MatMulInteger": _matrix_product,
    "Gemm": _gemm,
    "Einsum": _einsum,
    "Attention": _attention,
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
}
