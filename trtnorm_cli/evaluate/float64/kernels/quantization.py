"""Quantization, whose rounding is a part of the model and not of its arithmetic, and products of integers.

A product of 8-bit integers is exact in float64, so that integer convolutions and matrix products use BLAS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from onnx.helper import tensor_dtype_to_np_dtype

from trtnorm_cli.evaluate.float64.kernels.call import Call, Kernel, NotImplementedHere, one
from trtnorm_cli.evaluate.float64.kernels.casting import converted
from trtnorm_cli.evaluate.float64.kernels.convolution import convolution
from trtnorm_cli.evaluate.float64.kernels.windows import windows_of


def _spread(values: np.ndarray, x: np.ndarray, axis: int, block: int) -> np.ndarray:
    """Per tensor, per axis, or per block of ``block`` elements along the axis: as an array that broadcasts over ``x``."""
    if values.ndim == 0 or (values.size == 1 and not block):
        return values.reshape(())
    axis %= x.ndim
    if block:
        return np.take(np.repeat(values, block, axis=axis), np.arange(x.shape[axis]), axis=axis)
    return values.reshape((-1,) + (1,) * (x.ndim - axis - 1))


def _integer_range(dtype: Any) -> tuple[int, int]:
    try:
        limits = ml_dtypes.iinfo(dtype)
    except ValueError as error:
        raise NotImplementedHere(f"quantization to {np.dtype(dtype).name}") from error
    return int(limits.min), int(limits.max)


def saturated(values: np.ndarray, dtype: Any) -> np.ndarray:
    """Rounded half to even and clamped to the integer type."""
    low, high = _integer_range(dtype)
    return np.clip(np.rint(values), low, high).astype(np.int32).astype(dtype)


def quantize(call: Call) -> np.ndarray:
    x, scale, zero = call.x, call.inputs[1], call.input(2)
    dtype, axis, block = _quantized_type(call), *_layout(call)
    if _is_narrow_float(dtype):
        return converted(x / _spread(scale, x, axis, block), dtype, call["saturate"] != 0)
    offset = 0.0 if zero is None else _spread(zero.astype(np.float64), x, axis, block)
    return saturated(np.rint(x / _spread(scale, x, axis, block)) + offset, dtype)


def rounding_of(call: Call) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """The data of a QuantizeLinear in steps of the quantized type, and how it is rounded to that type."""
    x, zero, dtype = call.x, call.input(2), _quantized_type(call)
    axis, block = _layout(call)
    steps = np.asarray(x / _spread(call.inputs[1], x, axis, block), np.float64)
    if _is_narrow_float(dtype):
        return steps, lambda values: converted(values, dtype, call["saturate"] != 0)
    offset = 0.0 if zero is None else _spread(zero.astype(np.float64), x, axis, block)
    return steps + offset, lambda values: saturated(values, dtype)


def _quantized_type(call: Call) -> np.dtype:
    zero, number = call.input(2), call["output_dtype"]
    return zero.dtype if zero is not None else np.dtype(tensor_dtype_to_np_dtype(number) if number else np.uint8)


def _layout(call: Call) -> tuple[int, int]:
    """The axis of the scales, and the size of a block, 0 where there are none."""
    return call["axis"] if call["axis"] is not None else 1, call["block_size"] or 0


def _is_narrow_float(dtype: np.dtype) -> bool:
    return dtype.name.startswith(("float8", "float4"))


def dequantize(call: Call) -> np.ndarray:
    x, scale, zero = call.x, call.inputs[1], call.input(2)
    axis, block = _layout(call)
    values = x.astype(np.float64)
    if zero is not None:
        values = values - _spread(zero.astype(np.float64), x, axis, block)
    return values * _spread(scale, x, axis, block)


def dynamic_quantize(call: Call) -> tuple[Any, ...]:
    x = call.x
    low, high = min(float(x.min()), 0.0), max(float(x.max()), 0.0)
    scale = np.asarray((high - low) / 255.0, x.dtype)
    zero = saturated(np.asarray(-low / scale if scale else 0.0), np.uint8)
    return saturated(np.rint(x / scale if scale else x) + zero, np.uint8), scale, zero


def _centred(x: np.ndarray, zero: np.ndarray | None, row_axis: int | None) -> np.ndarray:
    """x - zero in float64; a zero point per row or column lies along ``row_axis``."""
    values = x.astype(np.float64)
    if zero is None:
        return values
    zero = zero.astype(np.float64)
    if zero.ndim == 1 and zero.size > 1 and row_axis is not None:
        zero = zero.reshape((-1,) + (1,) * (-1 - row_axis))
    return values - (zero if zero.size > 1 else zero.reshape(()))


def matmul_integer(call: Call) -> np.ndarray:
    a, b = _centred(call.inputs[0], call.input(2), -2), _centred(call.inputs[1], call.input(3), -1)
    return np.matmul(a, b).astype(np.int32)


def conv_integer(call: Call) -> np.ndarray:
    x, weight = call.inputs[:2]
    windows = windows_of(call, x.shape[2:], weight.shape[2:])
    weight = _centred(weight, call.input(3), -weight.ndim)
    return convolution(_centred(x, call.input(2), None), weight, windows, call["group"]).astype(np.int32)


def qlinear_matmul(call: Call) -> np.ndarray:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = call.inputs
    product = np.matmul(_centred(a, a_zero, -2), _centred(b, b_zero, -1))
    scale = _row(a_scale, -2) * _row(b_scale, -1) / _row(y_scale, -2)
    return saturated(np.rint(product * scale) + _row(y_zero, -2).astype(np.float64), y_zero.dtype)


def _row(values: np.ndarray, axis: int) -> np.ndarray:
    """A single value without an axis, one value per row or column along ``axis``, anything else as it is."""
    if values.size == 1:
        return values.reshape(())
    return values.reshape((-1,) + (1,) * (-1 - axis)) if values.ndim == 1 else values


def qlinear_conv(call: Call) -> np.ndarray:
    x, x_scale, x_zero, weight, w_scale, w_zero, y_scale, y_zero = call.inputs[:8]
    bias = call.input(8)
    windows = windows_of(call, x.shape[2:], weight.shape[2:])
    total = convolution(_centred(x, x_zero, None), _centred(weight, w_zero, -weight.ndim), windows, call["group"])
    if bias is not None:
        total = total + bias.reshape((-1,) + (1,) * (x.ndim - 2))
    scale = x_scale.reshape(()) * _row(w_scale, 1 - x.ndim) / y_scale.reshape(())
    return saturated(np.rint(total * scale) + float(y_zero.reshape(())), y_zero.dtype)


KERNELS: dict[str, Kernel] = {
    "ConvInteger": one(conv_integer),
    "DequantizeLinear": one(dequantize),
    "DynamicQuantizeLinear": dynamic_quantize,
    "MatMulInteger": one(matmul_integer),
    "QLinearConv": one(qlinear_conv),
    "QLinearMatMul": one(qlinear_matmul),
    "QuantizeLinear": one(quantize),
}
# ONNX Runtime has the two in its own domain as well, for types that ONNX added to them later.
CONTRIBUTED: dict[str, Kernel] = {op: KERNELS[op] for op in ("DequantizeLinear", "QuantizeLinear")}
