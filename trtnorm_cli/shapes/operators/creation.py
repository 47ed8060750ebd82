"""Operators that make tensors from sizes, and sizes from tensors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from trtnorm_cli.shapes import floating
from trtnorm_cli.shapes.condition import maximum
from trtnorm_cli.shapes.expression import Expr, Size, ceil_divide
from trtnorm_cli.shapes.node import Node, like
from trtnorm_cli.shapes.tensor import MOST_ELEMENTS, SymbolicTensor, tensor_of, vector_of

INT64 = onnx.TensorProto.INT64


def shape(node: Node) -> list[SymbolicTensor]:
    source = node.input(0).shape
    if source is None:
        return [SymbolicTensor(INT64, (None,))]
    start, end = node.attributes.get("start", 0), node.attributes.get("end")
    return [vector_of(source[start:end])]


def size(node: Node) -> list[SymbolicTensor]:
    elements = np.empty((), dtype=object)
    elements[()] = node.input(0).size
    return [SymbolicTensor(INT64, (), elements)]


def constant_of_shape(node: Node) -> list[SymbolicTensor]:
    value = node.attributes.get("value")
    dtype = int(value.data_type) if value is not None else int(onnx.TensorProto.FLOAT)
    sizes = node.input(0).as_shape()
    if sizes is None:
        return [SymbolicTensor(dtype)]
    made = SymbolicTensor(dtype, sizes)
    filled = 0 if value is None else onnx.numpy_helper.to_array(value).reshape(-1)[0].item()
    known = [s for s in sizes if isinstance(s, int)]
    if len(known) < len(sizes) or not made.holds_sizes or int(np.prod(known, dtype=np.float64)) > MOST_ELEMENTS:
        return [made]
    number = float(filled) if made.floating else int(filled)
    return [tensor_of(dtype, np.full(known, number, dtype=object))]


def range_(node: Node) -> list[SymbolicTensor]:
    dtype = node.input(0).dtype
    ends = [node.input(i).vector() for i in range(3)]
    if any(end is None or len(end) != 1 or end[0] is None for end in ends):
        return [SymbolicTensor(dtype, (None,))]
    start, limit, step = (end[0] for end in ends if end is not None)
    if node.input(0).floating:
        return [SymbolicTensor(dtype, (_float_range(start, limit, step),))]
    if isinstance(start, int) and isinstance(limit, int) and isinstance(step, int) and step:
        values = range(start, limit, step)
        return [vector_of(list(values), dtype) if len(values) <= MOST_ELEMENTS else SymbolicTensor(dtype, (len(values),))]
    if not isinstance(step, int) or step == 0:
        return [SymbolicTensor(dtype, (None,))]
    count = ceil_divide(limit - start, step) if step > 0 else ceil_divide(start - limit, -step)
    counts_up = step > 0 and isinstance(start, int) and start >= 0
    return [SymbolicTensor(dtype, (maximum(count, 0),), largest=start + (count - 1) * step if counts_up else None)]


def _float_range(start: object, limit: object, step: object) -> Size | None:
    """The number of elements of a Range of floating-point numbers, where all three are whole."""
    first, last, by = floating.whole(start), floating.whole(limit), floating.whole(step)
    if first is None or last is None or not isinstance(by, int) or by <= 0:
        return None
    return maximum(ceil_divide(last - first, by), 0)


def one_hot(node: Node) -> list[SymbolicTensor]:
    indices, depth = node.input(0), node.input(1).vector()
    dtype = node.input(2).dtype
    if indices.shape is None:
        return [SymbolicTensor(dtype)]
    rank = len(indices.shape) + 1
    axis = node.axis(rank, -1)
    classes = depth[0] if depth and isinstance(depth[0], (int, Expr)) and not node.input(1).floating else None
    return [SymbolicTensor(dtype, (*indices.shape[:axis], classes, *indices.shape[axis:]))]


def non_zero(node: Node) -> list[SymbolicTensor]:
    return [SymbolicTensor(INT64, (node.input(0).rank, None))]


def eye_like(node: Node) -> list[SymbolicTensor]:
    return [like(node.input(0), dtype=int(node.attributes.get("dtype", 0)) or None)]


RULES: dict[str, Callable[[Node], list[SymbolicTensor]]] = {
    "Shape": shape,
    "Size": size,
    "ConstantOfShape": constant_of_shape,
    "Range": range_,
    "OneHot": one_hot,
    "NonZero": non_zero,
    "EyeLike": eye_like,
}
