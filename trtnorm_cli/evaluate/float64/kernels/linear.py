"""Matrix products, softmax and its relatives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from trtnorm_cli.evaluate.float64.kernels.call import Call, Kernel, one

COERCES_TO_2D_BEFORE = 13
"""Softmax, LogSoftmax and Hardmax work on a matrix of the axes before and from ``axis`` until opset 12."""


def gemm(call: Call) -> np.ndarray:
    a, b, c = call.inputs[0], call.inputs[1], call.input(2)
    a, b = (a.T if call["transA"] else a), (b.T if call["transB"] else b)
    product = a @ b if call["alpha"] == 1.0 else call["alpha"] * (a @ b)
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
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


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
    "MatMul": one(lambda call: np.matmul(call.inputs[0], call.inputs[1])),
    "Softmax": along_axis(softmax),
}
