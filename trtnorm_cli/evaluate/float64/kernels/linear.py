"""Matrix products, softmax and its relatives."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from trtnorm_cli.evaluate.float64.kernels.call import Call, Kernel, one
from trtnorm_cli.evaluate.float64.kernels.working_memory import copied, working_memory

COERCES_TO_2D_BEFORE = 13
"""Softmax, LogSoftmax and Hardmax work on a matrix of the axes before and from ``axis`` until opset 12."""


RAISED_ELEMENTS = 1 << 20
"""A weight in a lower type is raised in pieces of so many elements (8 MiB), which take the same memory one after the other."""


SOFTMAX_ELEMENTS = 1 << 15
"""Rows of so many elements at a time stay in the processor's caches."""


def matrix_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``a`` [..., M, K] times ``b`` [..., K, N]. ``b`` may be of a lower type than ``a``: its numbers are taken exactly."""
    if b.dtype == a.dtype:
        return np.matmul(a, b)
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2] or b.shape[:-2] != (1,) * (b.ndim - 2):
        return np.matmul(a, b.astype(a.dtype))
    inner, columns = b.shape[-2], b.shape[-1]
    further, b = max(b.ndim - a.ndim, 0), b.reshape(inner, columns)
    rows = a.reshape(math.prod(a.shape[:-1]), inner)
    result = np.empty((*(1,) * further, *a.shape[:-1], columns), a.dtype)
    made = result.reshape(len(rows), columns)
    # To add products up takes a pass over the result for each piece: where that is large, columns that lie apart cost less.
    fill = _fill_by_columns if b.T.flags.c_contiguous or made.size > RAISED_ELEMENTS else _fill_by_rows
    fill(rows, b, made)
    return result


def _fill_by_columns(rows: np.ndarray, b: np.ndarray, made: np.ndarray) -> None:
    """Put ``rows`` times ``b`` into ``made``, raising some columns of ``b`` at a time."""
    wide, is_turned = max(1, RAISED_ELEMENTS // max(len(b), 1)), b.T.flags.c_contiguous
    for first in range(0, b.shape[1], wide):
        part = slice(first, first + wide)
        raised = copied(b.T[part], "weight", rows.dtype).T if is_turned else copied(b[:, part], "weight", rows.dtype)
        np.matmul(rows, raised, out=made[:, part])


def _fill_by_rows(rows: np.ndarray, b: np.ndarray, made: np.ndarray) -> None:
    """The same with some rows of ``b`` at a time, whose products add up."""
    deep = max(1, RAISED_ELEMENTS // max(b.shape[1], 1))
    np.matmul(rows[:, :deep], copied(b[:deep], "weight", rows.dtype), out=made)
    for first in range(deep, len(b), deep):
        part = slice(first, first + deep)
        product = working_memory("product", made.shape, rows.dtype)
        made += np.matmul(rows[:, part], copied(b[part], "weight", rows.dtype), out=product)


def gemm(call: Call) -> np.ndarray:
    a, b, c = call.inputs[0], call.inputs[1], call.input(2)
    a, b = (a.T if call["transA"] else a), (b.T if call["transB"] else b)
    product = matrix_product(a, b)
    product = product if call["alpha"] == 1.0 else call["alpha"] * product
    if c is not None:
        product = product + (c if call["beta"] == 1.0 else call["beta"] * c)
    return product.astype(a.dtype)


def einsum(call: Call) -> np.ndarray:
    return np.einsum(call["equation"].replace(" ", ""), *call.inputs, optimize=True)


def along_axis(function: Callable[[np.ndarray, int], np.ndarray]) -> Kernel:
    """``function(x, axis)`` on the axis as each opset means it."""

    def kernel(call: Call) -> tuple[np.ndarray]:
        x, axis = call.x, call["axis"]
        if call.opset >= COERCES_TO_2D_BEFORE:
            return (function(x, axis),)
        axis += x.ndim if axis < 0 else 0
        matrix = x.reshape(int(np.prod(x.shape[:axis])), -1) if x.size else x
        return (function(matrix, -1).reshape(x.shape),)

    return kernel


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    if not x.size:
        return x
    if axis % x.ndim < x.ndim - 1 or not x.flags.c_contiguous:
        return _fill_softmax(x, np.empty_like(x), axis)
    rows, made = x.reshape(-1, x.shape[-1]), np.empty_like(x)
    filled, step = made.reshape(rows.shape), max(SOFTMAX_ELEMENTS // x.shape[-1], 1)
    for first in range(0, len(rows), step):
        part = slice(first, first + step)
        _fill_softmax(rows[part], filled[part], 1)
    return made


def _fill_softmax(x: np.ndarray, made: np.ndarray, axis: int) -> np.ndarray:
    np.subtract(x, x.max(axis=axis, keepdims=True), out=made)
    np.exp(made, out=made)
    made /= made.sum(axis=axis, keepdims=True)
    return made


def log_softmax(x: np.ndarray, axis: int) -> np.ndarray:
    if not x.size:
        return x
    shifted = x - x.max(axis=axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


def hardmax(x: np.ndarray, axis: int) -> np.ndarray:
    result = np.zeros_like(x)
    np.put_along_axis(result, np.expand_dims(x.argmax(axis=axis), axis), 1, axis)
    return result


KERNELS: dict[str, Kernel] = {
    "Det": one(lambda call: np.linalg.det(call.x)),
    "Einsum": one(einsum),
    "Gemm": one(gemm),
    "Hardmax": along_axis(hardmax),
    "LogSoftmax": along_axis(log_softmax),
    "MatMul": one(lambda call: matrix_product(call.inputs[0], call.inputs[1])),
    "Softmax": along_axis(softmax),
}
