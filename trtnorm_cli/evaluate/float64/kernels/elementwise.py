"""Elementwise operators, with NumPy's broadcasting, which is ONNX's since opset 7."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from trtnorm_cli.evaluate.float64.kernels.call import Call, Kernel, NotImplementedHere, one
from trtnorm_cli.evaluate.float64.kernels.error_function import erf

# Elements at a time: what lies between the argument and the result stays in the processor's caches.
_BLOCK = 1 << 15
# An array is large beside another of a part of its elements.
_FEW = 16


def in_blocks(function: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> np.ndarray:
    """``function``, which works element by element in several steps, of ``x``."""
    if x.size <= _BLOCK:
        return np.asarray(function(x))
    values = np.ascontiguousarray(x).reshape(-1)
    first = function(values[:_BLOCK])
    found = np.empty(values.size, first.dtype)
    found[:_BLOCK] = first
    for start in range(_BLOCK, values.size, _BLOCK):
        found[start : start + _BLOCK] = function(values[start : start + _BLOCK])
    return found.reshape(x.shape)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Never overflows: exp is taken of a number that is not positive."""
    e = np.exp(-np.abs(x))
    return np.maximum(e, x >= 0) / (1.0 + e)  # 1 for what is not negative, as e is at most that; a choice takes longer


def leaky_relu(x: np.ndarray, alpha: float) -> np.ndarray:
    """``alpha`` times what is below zero: the larger of both, where that is a smaller number."""
    return np.maximum(x, alpha * x) if 0 < alpha <= 1 else np.where(x < 0, alpha * x, x)


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


# Any power takes 50 ns a number, and a product 1: GELU in terms of tanh has a third power.
_PRODUCTS_OF_ITSELF: dict[float, Callable[[np.ndarray], np.ndarray]] = {
    2.0: lambda x: x * x,
    3.0: lambda x: x * x * x,
    4.0: lambda x: np.square(x * x),
}


def power(call: Call) -> np.ndarray:
    """The result has the type of the base, whatever the type of the exponent."""
    base, exponent = call.inputs
    if np.issubdtype(base.dtype, np.integer) and np.issubdtype(exponent.dtype, np.integer):
        if np.any(exponent < 0):
            return np.power(base.astype(np.float64), exponent).astype(base.dtype)
        return np.power(base, exponent.astype(base.dtype))
    if base.dtype == np.float64 and exponent.size == 1 and exponent.ndim <= base.ndim:
        product = _PRODUCTS_OF_ITSELF.get(float(exponent.reshape(-1)[0]))
        if product is not None:
            return in_blocks(product, base)
    return np.power(base, exponent).astype(base.dtype)


def clip(call: Call) -> np.ndarray:
    low = call.input(1) if call.input(1) is not None else call["min"]
    high = call.input(2) if call.input(2) is not None else call["max"]
    x = call.x
    lowest, highest = (None if bound is None else np.asarray(bound, x.dtype) for bound in (low, high))
    if all(bound is None or bound.size == 1 for bound in (lowest, highest)):
        return in_blocks(lambda part: _between(part, lowest, highest), x)
    return _between(x, lowest, highest)


def _between(x: np.ndarray, lowest: np.ndarray | None, highest: np.ndarray | None) -> np.ndarray:
    """``x`` within bounds, the upper of which counts where they cross."""
    x = x if lowest is None else np.maximum(x, lowest)
    return x if highest is None else np.minimum(x, highest)


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1.0 + erf(x / math.sqrt(2.0)))


def gelu_by_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def elu(x: np.ndarray, alpha: float) -> np.ndarray:
    return np.maximum(x, 0) + alpha * np.expm1(np.minimum(x, 0))


def selu(x: np.ndarray, alpha: float, gamma: float) -> np.ndarray:
    return gamma * np.maximum(x, 0) + gamma * alpha * np.expm1(np.minimum(x, 0))


def celu(x: np.ndarray, alpha: float) -> np.ndarray:
    return np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(np.minimum(x / alpha, 0)))


def shrink(x: np.ndarray, bias: float, threshold: float) -> np.ndarray:
    return np.where(x < -threshold, x + bias, np.where(x > threshold, x - bias, 0)).astype(x.dtype)


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
    if np.all(np.isfinite(slope)):
        return np.maximum(x, 0) + slope * np.minimum(x, 0)
    return np.where(x < 0, slope * x, x)


def _unary(function: Callable[[np.ndarray], Any]) -> Kernel:
    return lambda call: (np.asarray(function(call.x)),)


def _formula(function: Callable[..., np.ndarray], *attributes: str) -> Kernel:
    """``function`` of an array and of attributes, in several steps."""

    def kernel(call: Call) -> tuple[np.ndarray]:
        values = [call[name] for name in attributes]
        return (in_blocks(lambda x: function(x, *values), call.x),)

    return kernel


def _binary(function: Callable[[np.ndarray, np.ndarray], Any]) -> Kernel:
    return lambda call: (np.asarray(function(call.inputs[0], call.inputs[1])),)


def _sum(call: Call) -> tuple[np.ndarray]:
    """A sum; of a large array and a few zeros it is the array itself, as those are the biases of an untrained network."""
    for x, few in (call.inputs[:2], call.inputs[1::-1]):
        if few.size * _FEW <= x.size and not few.any() and _is_unmoved(x, few):
            return (x,)
    return (np.asarray(np.add(*call.inputs[:2])),)


def _is_unmoved(x: np.ndarray, zeros: np.ndarray) -> bool:
    """True where the sum of both has the bits of ``x``: minus zero and zero are zero."""
    if x.dtype != zeros.dtype or np.broadcast_shapes(x.shape, zeros.shape) != x.shape or not x.flags.c_contiguous:
        return False
    if not np.issubdtype(x.dtype, np.floating):
        return True
    flat = x.reshape(-1)
    blocks = (flat[start : start + _BLOCK] for start in range(0, flat.size, _BLOCK))
    return all(np.count_nonzero(block) == block.size or not np.signbit(block[block == 0]).any() for block in blocks)


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
    "HardSwish": _formula(lambda x: x * np.clip(x / 6.0 + 0.5, 0, 1)),
    "Identity": lambda call: (call.inputs[0],),
    "IsNaN": _unary(np.isnan),
    "Log": _unary(np.log),
    "Mish": _formula(lambda x: x * np.tanh(softplus(x))),
    "Neg": _unary(np.negative),
    "Not": _unary(np.logical_not),
    "Reciprocal": _unary(lambda x: 1 / x),
    "Relu": _unary(lambda x: np.maximum(x, 0)),
    "Round": _unary(np.rint),
    "Sigmoid": _formula(sigmoid),
    "Sign": _unary(np.sign),
    "Sin": _unary(np.sin),
    "Sinh": _unary(np.sinh),
    "Softplus": _formula(softplus),
    "Softsign": _formula(lambda x: x / (1 + np.abs(x))),
    "Sqrt": _unary(np.sqrt),
    "Tan": _unary(np.tan),
    "Tanh": _unary(np.tanh),
    "Add": _sum,
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
    "Celu": _formula(celu, "alpha"),
    "Clip": one(clip),
    "Dropout": dropout,
    "Elu": _formula(elu, "alpha"),
    "Gelu": lambda call: (in_blocks(gelu_by_tanh if call["approximate"] == "tanh" else gelu, call.x),),
    "HardSigmoid": _formula(lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1), "alpha", "beta"),
    "IsInf": one(is_inf),
    "LeakyRelu": _formula(leaky_relu, "alpha"),
    "Mod": one(modulo),
    "PRelu": one(prelu),
    "Pow": one(power),
    "Selu": _formula(selu, "alpha", "gamma"),
    "Shrink": _formula(shrink, "bias", "lambd"),
    "Swish": _formula(lambda x, alpha: x * sigmoid(alpha * x), "alpha"),
    "ThresholdedRelu": _formula(lambda x, alpha: np.where(x > alpha, x, np.zeros_like(x)), "alpha"),
}
