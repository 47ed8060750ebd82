"""How far float32 may be off in what is computed from constants alone, as runtimes and exporters fold it.

The error of each result follows from those of what it was computed from, with one rounding of its own: running error analysis,
Higham 2002, "Accuracy and Stability of Numerical Algorithms", section 3.3. The roundings of a sum of n products go to either
side, and gather √n of them: Higham and Mary 2019, "A New Approach to Probabilistic Rounding Error Analysis".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from trtnorm_cli.evaluate.float64.cost import multiply_adds
from trtnorm_cli.evaluate.float64.kernels import KERNELS, VIEWS
from trtnorm_cli.evaluate.float64.kernels.call import Call
from trtnorm_cli.evaluate.float64.kernels.elementwise import sigmoid
from trtnorm_cli.evaluate.float64.shape_arithmetic import KEPT

UNIT = 2.0**-24
# A function of a library is right to so many units.
_OF_FUNCTIONS = 8
# ONNX Runtime's sigmoid is right to so many units of 1.
_OF_SIGMOID = 4
_EXACT = np.zeros(())
# Runtimes add up at least so many sums of products beside each other.
_BESIDE = 16
# Errors are followed to first order, while they are so small a share of what is divided by, or whose logarithm is taken.
_SMALL = 1e-3
# Larger tables are not followed, nor are products that take longer than what they would save.
_MOST_ELEMENTS, _MOST_PRODUCTS = 1 << 18, 1 << 27
# Whole numbers up to here are exact in float32, in whatever order they are added.
_LARGEST_WHOLE = 2.0**24
_ON_WHOLE = frozenset(("Ceil", "CumSum", "Floor", "Range", "Round"))
_SIZES = frozenset(("ConstantOfShape", "Shape", "Size"))
# These give elements of their data on, and what else they read says which.
_MOVING = frozenset((*VIEWS, "Concat", "Expand", "Gather", "Slice", "Split", "Tile", "Transpose", "Where"))
_PRODUCTS = frozenset(("Conv", "Gemm", "MatMul"))


class _Unknown(Exception):
    """The error is not small enough to be followed."""


def _over(error: np.ndarray, divisor: np.ndarray) -> np.ndarray:
    """``error`` over ``divisor``, and 0 where nothing is divided."""
    return np.where(error == 0, 0.0, error / np.abs(divisor))


def _share(error: np.ndarray, value: np.ndarray) -> np.ndarray:
    """``error`` as a share of ``value``; raises ``_Unknown`` where it is no small one."""
    share = _over(error, value)
    if not np.all(share <= _SMALL):
        raise _Unknown
    return share


def _of_power(inputs: Sequence[Any], errors: Sequence[np.ndarray], result: np.ndarray) -> np.ndarray:
    base, exponent = inputs
    of_logarithm = np.where(errors[1] == 0, 0.0, np.abs(np.log(np.abs(base))) * errors[1])
    share = np.abs(exponent) * _share(errors[0], base) + of_logarithm
    return np.abs(result) * _share(np.broadcast_to(share, result.shape), np.ones(()))


def _within(function: Callable[[np.ndarray], np.ndarray]) -> _Of:
    """Of a function that goes up only, between the arguments on either side."""

    def error(inputs: Sequence[Any], errors: Sequence[np.ndarray], result: np.ndarray) -> np.ndarray:
        return np.maximum(function(inputs[0] + errors[0]) - result, result - function(inputs[0] - errors[0]))

    return error


def _of_chosen(choose: Callable[..., np.ndarray]) -> _Of:
    """Of the largest or the smallest of several, between those of their ends."""

    def error(inputs: Sequence[Any], errors: Sequence[np.ndarray], result: np.ndarray) -> np.ndarray:
        lower = _all(choose, (value - error for value, error in zip(inputs, errors, strict=True)))
        upper = _all(choose, (value + error for value, error in zip(inputs, errors, strict=True)))
        return np.maximum(upper - result, result - lower)

    return error


def _all(choose: Callable[..., np.ndarray], values: Iterable[np.ndarray]) -> np.ndarray:
    first, *others = values
    for other in others:
        first = choose(first, other)
    return first


_Of = Callable[[Sequence[Any], Sequence[np.ndarray], np.ndarray], np.ndarray]
# What comes of the errors of the inputs: inputs, errors, result. These round nothing themselves,
_EXACTLY: Mapping[str, _Of] = {
    "Abs": lambda x, e, y: e[0],
    "Max": _of_chosen(np.maximum),
    "Min": _of_chosen(np.minimum),
    "Neg": lambda x, e, y: e[0],
    "Relu": _within(lambda x: np.maximum(x, 0)),
}
# the result of these is rounded once,
_ROUNDED: Mapping[str, _Of] = {
    "Add": lambda x, e, y: e[0] + e[1],
    "Div": lambda x, e, y: _over(e[0], x[1]) + np.abs(y) * _share(e[1], x[1]),
    "Mul": lambda x, e, y: np.abs(x[1]) * e[0] + np.abs(x[0]) * e[1],
    "Reciprocal": lambda x, e, y: np.abs(y) * _share(e[0], x[0]),
    "Sqrt": lambda x, e, y: np.abs(y) * _share(e[0], x[0]),
    "Sub": lambda x, e, y: e[0] + e[1],
}
# and these are functions of libraries.
_FUNCTIONS: Mapping[str, _Of] = {
    "Cos": lambda x, e, y: _share(e[0], np.ones(())),
    "Exp": lambda x, e, y: 2 * np.abs(y) * _share(e[0], np.ones(())),
    "Log": lambda x, e, y: 2 * _share(e[0], x[0]),
    "Pow": _of_power,
    "Sigmoid": lambda x, e, y: _within(sigmoid)(x, e, y) + _OF_SIGMOID * UNIT,
    "Sin": lambda x, e, y: _share(e[0], np.ones(())),
    "Tanh": _within(np.tanh),
}


class RunningErrors:
    """The errors of the tensors of one evaluation that depend on constants alone, by name.

    ``is_weight`` tells the names of constants.
    """

    def __init__(self, is_weight: Callable[[str], bool]) -> None:
        self._is_weight = is_weight
        self._errors: dict[str, np.ndarray] = {}

    def of_results(self, node: onnx.NodeProto, call: Call, results: Sequence[Any]) -> Sequence[np.ndarray | None]:
        """The errors of the results of a node, which broadcast to these; None where nothing is known. They are remembered."""
        found = [_EXACT] if node.output[0].endswith(KEPT) else _errors(call, [self._of(name) for name in node.input], results)
        self._errors.update((name, error) for name, error in zip(node.output, found, strict=False) if error is not None)
        return found

    def _of(self, name: str) -> np.ndarray | None:
        return _EXACT if not name or self._is_weight(name) else self._errors.get(name)

    def forget(self, name: str) -> None:
        """Nobody reads the tensor any more."""
        self._errors.pop(name, None)


def _errors(call: Call, errors: Sequence[np.ndarray | None], results: Sequence[Any]) -> Sequence[np.ndarray | None]:
    unknown = [None] * len(results)
    if call.op_type in _SIZES or call.op_type == "Constant":
        return [_EXACT] * len(results)
    inputs = [one for one in call.inputs if one is not None]
    if any(not isinstance(one, np.ndarray) or one.size > _MOST_ELEMENTS for one in (*results, *inputs)):
        return unknown
    known = [error for error in errors if error is not None]
    if len(known) < len(errors):
        return unknown
    is_exact = not any(map(np.any, known))
    if is_exact and (call.op_type in _MOVING or all(result.dtype.kind not in "fc" for result in results)):
        return [_EXACT] * len(results)
    if call.op_type in _MOVING:
        return _moved(call, known, results)
    if len(results) != 1 or results[0].dtype.kind != "f":
        return unknown
    try:
        error = _of_result(call, known, results[0], is_exact)
    except _Unknown:
        return unknown
    return [error if error is None or np.isfinite(error).all() else None]


def _moved(call: Call, errors: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> Sequence[np.ndarray | None]:
    """Errors go where the elements go."""
    which = {"Concat": range(len(call.inputs)), "Where": range(1, 3)}.get(call.op_type, range(1))
    if any(np.any(error) for index, error in enumerate(errors) if index not in which):
        return [None] * len(results)
    inputs = list(call.inputs)
    for index in which:
        inputs[index] = np.broadcast_to(errors[index], np.shape(inputs[index])).astype(np.float64)
    return KERNELS[call.op_type](replace(call, inputs=tuple(inputs)))


def _of_result(call: Call, errors: Sequence[np.ndarray], result: np.ndarray, is_exact: bool) -> np.ndarray | None:
    kind, inputs, size = call.op_type, call.inputs, np.abs(result)
    if kind in _PRODUCTS:
        return _of_product(call, errors, size)
    if kind == "Cast":
        return errors[0] + _rounding(result)
    if kind in _EXACTLY:
        return _EXACTLY[kind](inputs, errors, result)
    if kind in _ROUNDED:
        return _ROUNDED[kind](inputs, errors, result) + (_rounding(result) if is_exact else UNIT * size)
    if kind in _FUNCTIONS:
        return _FUNCTIONS[kind](inputs, errors, result) + _OF_FUNCTIONS * UNIT * size
    is_whole = is_exact and kind in _ON_WHOLE and bool(np.all((result == np.rint(result)) & (size <= _LARGEST_WHOLE)))
    return _EXACT if is_whole else None


def _rounding(value: np.ndarray) -> np.ndarray:
    """The error of numbers that are rounded to float32 once."""
    return np.where(value.astype(np.float32) == value, 0.0, UNIT * np.abs(value))


def _of_product(call: Call, errors: Sequence[np.ndarray], size: np.ndarray) -> np.ndarray | None:
    """Partial sums are as large as the result, or as the root of the sum of the products' squares."""
    if multiply_adds(call) > _MOST_PRODUCTS or any(call[name] not in (None, 1.0) for name in ("alpha", "beta")):
        return None
    x, w, *bias = (np.abs(one) for one in call.inputs if one is not None)
    of_x, of_w, *of_bias = (np.broadcast_to(error, one.shape) for error, one in zip(errors, (x, w, *bias), strict=False))

    def product(*inputs: Any) -> np.ndarray:
        (found,) = KERNELS[call.op_type](replace(call, inputs=inputs))
        return np.asarray(found)

    terms = math.prod(w.shape[1:]) if call.op_type == "Conv" else x.shape[0 if call["transA"] else -1]
    spread = np.sqrt(product(*map(np.square, (x, w, *bias))))
    error = UNIT * math.sqrt(terms / _BESIDE + 1) * (size + spread)
    if np.any(of_x) or any(map(np.any, of_bias)):
        error = error + product(of_x, w, *of_bias)
    return error + product(x, of_w, *map(np.zeros_like, bias)) if np.any(of_w) else error
