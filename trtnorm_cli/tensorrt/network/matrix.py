"""Matrix products, Einstein sums and softmax."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from trtnorm_cli.tensorrt.network.context import LayerContext, axes_of


def matrix_multiply(layer: LayerContext) -> str:
    """``IMatrixMultiplyLayer``: each operand as it is, transposed in its last two axes, or as a collection of vectors."""
    operations = (layer.handle.op0.name, layer.handle.op1.name)
    a = _operand(layer, 0, operations[0], vector_axis=-2)
    b = _operand(layer, 1, operations[1], vector_axis=-1)
    product = layer.op("MatMul", a, b)
    extra = [axis for axis, operation in zip((-2, -1), operations, strict=True) if operation == "VECTOR"]
    return layer.narrow(layer.op("Squeeze", product, layer.ints(*extra)) if extra else product)


def _operand(layer: LayerContext, index: int, operation: str, vector_axis: int) -> str:
    x = layer.wide(index)
    if operation == "VECTOR":
        return layer.op("Unsqueeze", x, layer.ints(vector_axis))
    if operation == "TRANSPOSE":
        rank = layer.rank(index)
        return layer.op("Transpose", x, perm=[*range(rank - 2), rank - 1, rank - 2])
    return x


def einsum(layer: LayerContext) -> str:
    """``IEinsumLayer``: the equation has ONNX's syntax."""
    operands = [layer.wide(i) for i in range(len(layer.layer.inputs))]
    return layer.narrow(layer.op("Einsum", *operands, equation=layer.handle.equation))


def softmax(layer: LayerContext) -> str:
    """``ISoftMaxLayer`` along the one axis of its mask."""
    axes = axes_of(layer.handle.axes)
    if len(axes) != 1:
        raise layer.layer.refused(f"softmax over {len(axes)} axes")
    return layer.narrow(layer.op("Softmax", layer.wide(0), axis=axes[0]))


def ragged_softmax(layer: LayerContext) -> str:
    """``IRaggedSoftMaxLayer``: softmax of the first ``bounds`` elements of each row, zeros behind them."""
    x = layer.wide(0)
    steps = layer.op("Range", layer.scalar(0, TensorProto.INT64), _scalar_dim(layer, -1), layer.scalar(1, TensorProto.INT64))
    inside = layer.op("Less", steps, layer.int64(1))
    masked = layer.op("Where", inside, x, layer.array(-np.inf, np.float32))
    return layer.narrow(layer.op("Where", inside, layer.op("Softmax", masked, axis=-1), layer.scalar(0.0)))


def _scalar_dim(layer: LayerContext, axis: int) -> str:
    return layer.op("Squeeze", layer.dim(0, axis % layer.rank(0)), layer.ints(0))
