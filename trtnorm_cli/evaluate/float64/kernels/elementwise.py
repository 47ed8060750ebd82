"""Elementwise operators, with NumPy's broadcasting, which is ONNX's since opset 7."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from trtnorm_cli.evaluate.float64.kernels.call import Call, Kernel, NotImplementedHere, one
from trtnorm_cli.evaluate.float64.kernels.error_function import erf


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Never overflows: exp is taken of a number that is not positive."""
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, e) / (1.0 + e)


def softplus(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def truncated_quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """C's division: integers are rounded toward zero."""
    if not np.issubdtype(a.dtype, np.integer):
        return a / b
    quotient = a // b
    return quotient + ((a % b != 0) & ((a < 0) != (b < 0))).astype(a.dtype)


def modulo(call: Call) -> np.ndarray:
    a, b = call.inputs
    return np.fmod(a, b) if call["fmod"] else np.mod(a, b)


def power(call: Call) -> np.ndarray:
    """The result has the type of the base, whatever the type of the exponent."""
    base, exponent = call.inputs
    if np.issubdtype(base.dtype, np.integer) and np.issubdtype(exponent.dtype, np.integer):
        if np.any(exponent < 0):
            return np.power(base.astype(np.float64), exponent).astype(base.dtype)
        return np.power(base, exponent.astype(base.dtype))
    return np.power(base, exponent).astype(base.dtype)


def clip(call: Call) -> np.ndarray:
    low = call.input(1) if call.input(1) is not None else call["min"]
    high = call.input(2) if call.input(2) is not None else call["max"]
    x = call.x
    if low is not None:
        x = np.maximum(x, np.asarray(low, x.dtype))
    if high is not None:
        x = np.minimum(x, np.asarray(high, x.dtype))
    return x


def gelu(call: Call) -> np.ndarray:
    x = call.x
    if call["approximate"] == "tanh":
        return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1.0 + erf(x / math.sqrt(2.0)))


def elu(call: Call) -> np.ndarray:
    return np.where(call.x >= 0, call.x, call["alpha"] * np.expm1(np.minimum(call.x, 0)))


def selu(call: Call) -> np.ndarray:
    x, gamma = call.x, call["gamma"]
    return np.where(x > 0, gamma * x, gamma * call["alpha"] * np.expm1(np.minimum(x, 0)))


def celu(call: Call) -> np.ndarray:
    alpha = call["alpha"]
    return np.maximum(call.x, 0) + np.minimum(0, alpha * np.expm1(np.minimum(call.x / alpha, 0)))


def shrink(call: Call) -> np.ndarray:
    x, bias, threshold = call.x, call["bias"], call["lambd"]
    result = np.where(x < -threshold, x + bias, np.where(x > threshold, x - bias, 0))
    return result.astype(x.dtype)


def is_inf(call: Call) -> np.ndarray:
    found = np.zeros(call.x.shape, bool)
    if call["detect_positive"]:
        found |= np.isposinf(call.x)
    if call["detect_negative"]:
        found |= np.isneginf(call.x)
    return found


def bit_shift(call: Call) -> np.ndarray:
    """Shifts by the type's width or more leave nothing, or the sign of a number shifted to the right."""
    a, b = call.inputs
    width = 8 * a.dtype.itemsize
    if call["direction"] == "RIGHT":
        beyond = np.where(a < 0, np.array(-1 if a.dtype.kind == "i" else 0, a.dtype), np.array(0, a.dtype))
        return np.where(b < width, np.right_shift(a, b), beyond)
    return np.where(b < width, np.left_shift(a, b), np.array(0, a.dtype))


def dropout(call: Call) -> tuple[Any, ...]:
    training = call.input(2)
    ratio = call.input(1)
    if training is not None and bool(np.ravel(training)[0]) and (ratio is None or float(np.ravel(ratio)[0]) != 0.0):
        raise NotImplementedHere("Dropout in training mode is random")
    return call.x, np.ones(call.x.shape, bool)


def prelu(call: Call) -> np.ndarray:
    x, slope = call.inputs
    return np.where(x < 0, slope * x, x)


def _unary(function: Callable[[np.ndarray], Any]) -> Kernel:
    return lambda call: (np.asarray(function(call.x)),)


def _binary(function: Callable[[np.ndarray, np.ndarray], Any]) -> Kernel:
    return lambda call: (np.asarray(function(call.inputs[0], call.inputs[1])),)


def _variadic(function: Callable[[Any, Any], Any]) -> Kernel:
    return lambda call: (functools.reduce(function, call.inputs),)


KERNELS: dict[str, Kernel] = {
    "Abs": _unary(np.abs),
    "Acos": _unary(np.arccos),
    "Acosh": _unary(np.arccosh),
    "Asin": _unary(np.arcsin),
    "Asinh": _unary(np.arcsinh),
    "Atan": _unary(np.arctan),
    "Atanh": _unary(np.arctanh),
    "BitwiseNot": _unary(np.invert),
    "Ceil": _unary(np.ceil),
    "Cos": _unary(np.cos),
    "Cosh": _unary(np.cosh),
    "Erf": _unary(erf),
    "Exp": _unary(np.exp),
    "Floor": _unary(np.floor),
    "HardSwish": _unary(lambda x: x * np.clip(x / 6.0 + 0.5, 0, 1)),
    "Identity": lambda call: (call.inputs[0],),
    "IsNaN": _unary(np.isnan),
    "Log": _unary(np.log),
    "Mish": _unary(lambda x: x * np.tanh(softplus(x))),
    "Neg": _unary(np.negative),
    "Not": _unary(np.logical_not),
    "Reciprocal": _unary(lambda x: 1 / x),
    "Relu": _unary(lambda x: np.maximum(x, 0)),
    "Round": _unary(np.rint),
    "Sigmoid": _unary(sigmoid),
    "Sign": _unary(np.sign),
    "Sin": _unary(np.sin),
    "Sinh": _unary(np.sinh),
    "Softplus": _unary(softplus),
    "Softsign": _unary(lambda x: x / (1 + np.abs(x))),
    "Sqrt": _unary(np.sqrt),
    "Tan": _unary(np.tan),
    "Tanh": _unary(np.tanh),
    "Add": _binary(np.add),
    "And": _binary(np.logical_and),
    "BitwiseAnd": _binary(np.bitwise_and),
    "BitwiseOr": _binary(np.bitwise_or),
    "BitwiseXor": _binary(np.bitwise_xor),
    "Div": _binary(truncated_quotient),
    "Equal": _binary(np.equal),
    "Greater": _binary(np.greater),
    "GreaterOrEqual": _binary(np.greater_equal),
    "Less": _binary(np.less),
    "LessOrEqual": _binary(np.less_equal),
    "Mul": _binary(np.multiply),
    "Or": _binary(np.logical_or),
    "Sub": _binary(np.subtract),
    "Xor": _binary(np.logical_xor),
    "Max": _variadic(np.maximum),
    "Min": _variadic(np.minimum),
    "Sum": _variadic(np.add),
    "Mean": one(lambda call: functools.reduce(np.add, call.inputs) / len(call.inputs)),
    "Where": one(lambda call: np.where(*call.inputs)),
    "BitShift": one(bit_shift),
    "Celu": one(celu),
    "Clip": one(clip),
    "Dropout": dropout,
    "Elu": one(elu),
    "Gelu": one(gelu),
    "HardSigmoid": one(lambda call: np.clip(call["alpha"] * call.x + call["beta"], 0, 1)),
    "IsInf": one(is_inf),
    "LeakyRelu": one(lambda call: np.where(call.x < 0, call["alpha"] * call.x, call.x)),
    "Mod": one(modulo),
    "PRelu": one(prelu),
    "Pow": one(power),
    "Selu": one(selu),
    "Shrink": one(shrink),
    "Swish": one(lambda call: call.x * sigmoid(call["alpha"] * call.x)),
    "ThresholdedRelu": one(lambda call: np.where(call.x > call["alpha"], call.x, np.zeros_like(call.x))),
}
