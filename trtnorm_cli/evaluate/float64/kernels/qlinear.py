"""ONNX Runtime's operators on integers with a scale and a zero point each: dequantised, computed, and rounded once.

They have no schema in ONNX, so that attributes which are left out have no value here; the defaults are ONNX Runtime's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from trtnorm_cli.evaluate.float64.kernels.call import Call, Kernel, NotImplementedHere, one
from trtnorm_cli.evaluate.float64.kernels.pooling import average_pool
from trtnorm_cli.evaluate.float64.kernels.quantization import saturated


def _floats(call: Call, first: int) -> np.ndarray:
    """The tensor at input ``first``, whose scale and zero point follow."""
    x, scale, zero = call.inputs[first], call.inputs[first + 1], call.input(first + 2)
    return (x.astype(np.float64) - _single(zero)) * _single(scale)


def _single(parameter: np.ndarray | None) -> Any:
    if parameter is None:
        return 0.0
    if parameter.size != 1:
        raise NotImplementedHere(f"a parameter of shape {list(parameter.shape)}")
    return np.float64(parameter.reshape(()))


def _rounded(call: Call, y: np.ndarray, scale: int, dtype: Any) -> np.ndarray:
    """``y`` in steps of the scale at input ``scale``, with the zero point behind it."""
    return saturated(np.rint(y / _single(call.inputs[scale])) + _single(call.input(scale + 1)), dtype)


def _of_two(function: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Kernel:
    return one(lambda call: _rounded(call, function(_floats(call, 0), _floats(call, 3)), 6, call.x.dtype))


def _of_one(function: Callable[[Call, np.ndarray], np.ndarray]) -> Kernel:
    return one(lambda call: _rounded(call, function(call, _floats(call, 0)), 3, call.x.dtype))


def _leaky_relu(call: Call, x: np.ndarray) -> np.ndarray:
    alpha = np.float64(np.float32(0.01 if call["alpha"] is None else call["alpha"]))
    return np.where(x >= 0, x, alpha * x)


def _sigmoid(call: Call, x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def _spatial_mean(call: Call, x: np.ndarray) -> np.ndarray:
    axes = tuple(range(1, x.ndim - 1)) if call["channels_last"] else tuple(range(2, x.ndim))
    return x.mean(axis=axes, keepdims=True)


def _average_pool(call: Call, x: np.ndarray) -> np.ndarray:
    if call["channels_last"]:
        x = np.moveaxis(x, -1, 1)
    y = average_pool(replace(call, inputs=(x,)))
    return np.moveaxis(y, 1, -1) if call["channels_last"] else y


def concat(call: Call) -> np.ndarray:
    """Scale and zero point of the result come first."""
    parts = [_floats(call, index) for index in range(2, len(call.inputs), 3)]
    return _rounded(call, np.concatenate(parts, axis=call["axis"]), 0, call.inputs[2].dtype)


def where(call: Call) -> np.ndarray:
    y = np.where(call.x, _floats(call, 1), _floats(call, 4))
    return _rounded(call, y, 7, call.inputs[1].dtype)


def gemm(call: Call) -> np.ndarray:
    """α · (A · B + C), where C counts in steps of the product; floats where no scale of the result is given."""
    alpha = 1.0 if call["alpha"] is None else float(call["alpha"])
    a = call.x.astype(np.float64) - _single(call.input(2))
    b = call.inputs[3].T.astype(np.float64) if call["transB"] else call.inputs[3].astype(np.float64)
    zero, bias = call.input(5), call.input(6)
    total = (a.T if call["transA"] else a) @ (b - (0.0 if zero is None else zero.astype(np.float64)))
    scale = alpha * _single(call.inputs[1]) * call.inputs[4].astype(np.float64)
    y = (total if bias is None else total + bias) * scale
    return y if call.input(7) is None else _rounded(call, y, 7, call.x.dtype)


CONTRIBUTED: dict[str, Kernel] = {
    "QGemm": one(gemm),
    "QLinearAdd": _of_two(np.add),
    "QLinearAveragePool": _of_one(_average_pool),
    "QLinearConcat": one(concat),
    "QLinearGlobalAveragePool": _of_one(_spatial_mean),
    "QLinearLeakyRelu": _of_one(_leaky_relu),
    "QLinearMul": _of_two(np.multiply),
    "QLinearSigmoid": _of_one(_sigmoid),
    "QLinearWhere": one(where),
}
