"""How far float32 may be off in what is computed from constants alone, as runtimes and exporters fold it.

The error of each result follows from those of what it was computed from, with one rounding of its own: running error analysis,
Higham 2002, "Accuracy and Stability of Numerical Algorithms", section 3.3. Sums of n products gather 4·√n roundings: Higham and
Mary 2019, "A New Approach to Probabilistic Rounding Error Analysis".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from trtnorm_cli.evaluate.float64.cost import multiply_adds
from trtnorm_cli.evaluate.float64.kernels import KERNELS, VIEWS
from trtnorm_cli.evaluate.float64.kernels.call import Call
from trtnorm_cli.evaluate.float64.shape_arithmetic import KEPT

UNIT = 2.0**-24
_GATHERED = 4
# A function of a library is right to so many units.
_OF_FUNCTIONS = 8
_EXACT = np.zeros(())
# Larger tables are not followed, nor are products that take longer than what they would save.
_MOST_ELEMENTS, _MOST_PRODUCTS = 1 << 18, 1 << 27
# Whole numbers up to here are exact in float32, in whatever order they are added.
_LARGEST_WHOLE = 2.0**24
_ON_WHOLE = frozenset(("Ceil", "CumSum", "Floor", "Range", "Round"))
_SIZES = frozenset(("ConstantOfShape", "Shape", "Size"))
# These give elements of their data on, and what else they read says which.
_MOVING_ALL = frozenset(("Concat", "Where"))
_MOVING_FIRST = frozenset((*VIEWS, "Expand", "Gather", "Slice", "Split", "Tile", "Transpose"))
_PRODUCTS = frozenset(("Conv", "Gemm", "MatMul"))

_WITHOUT_ROUNDING = frozenset(("Abs", "Max", "Min", "Neg", "Relu"))


def _over(error: np.ndarray, divisor: np.ndarray) -> np.ndarray:
    """``error`` over ``divisor``, and 0 where nothing is divided."""
    return np.where(error == 0, 0.0, error / np.abs(divisor))


def _of_power(inputs: Sequence[Any], errors: Sequence[np.ndarray], result: np.ndarray) -> np.ndarray:
    base, exponent = inputs
    of_base, of_exponent = errors
    of_logarithm = np.where(of_exponent == 0, 0.0, np.abs(np.log(np.abs(base))) * of_exponent)
    return np.abs(result) * (np.abs(exponent) * _over(of_base, base) + of_logarithm)


_Of = Callable[[Sequence[Any], Sequence[np.ndarray], np.ndarray], np.ndarray]
# What comes of the errors of the inputs, where the result is rounded once: inputs, errors, result.
_CARRIED: Mapping[str, _Of] = {
    "Add": lambda x, e, y: e[0] + e[1],
    "Div": lambda x, e, y: _over(e[0] + np.abs(y) * e[1], x[1]),
    "Mul": lambda x, e, y: np.abs(x[1]) * e[0] + np.abs(x[0]) * e[1],
    "Reciprocal": lambda x, e, y: np.square(y) * e[0],
    "Sqrt": lambda x, e, y: _over(e[0], 2 * y),
    "Sub": lambda x, e, y: e[0] + e[1],
}
# The derivative of a function, or the most that it can be: of its argument and its value.
_SLOPES: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "Cos": lambda x, y: np.ones_like(x),
    "Exp": lambda x, y: y,
    "Log": lambda x, y: np.abs(1 / x),
    "Sigmoid": lambda x, y: np.full_like(x, 0.25),
    "Sin": lambda x, y: np.ones_like(x),
    "Tanh": lambda x, y: np.ones_like(x),
}
# The error of these has a part that does not get smaller with the result.
_ABSOLUTE = frozenset(("Cos", "Sigmoid", "Sin", "Tanh"))


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


def _errors(call: Call, errors: Sequence[np.ndarray | None], results: Sequence[Any]) -> Sequence[np.ndarray | None]:
    unknown = [None] * len(results)
    if call.op_type in _SIZES or call.op_type == "Constant":
        return [_EXACT] * len(results)
    if any(not isinstance(one, np.ndarray) or one.size > _MOST_ELEMENTS for one in (*results, *_arrays(call.inputs))):
        return unknown
    known = [error for error in errors if error is not None]
    if len(known) < len(errors):
        return unknown
    is_exact = not any(map(np.any, known))
    if is_exact and all(result.dtype.kind not in "fc" for result in results):
        return [_EXACT] * len(results)
    if call.op_type in _MOVING_ALL or call.op_type in _MOVING_FIRST:
        return [_EXACT] * len(results) if is_exact else _moved(call, known, results)
    if len(results) != 1 or results[0].dtype.kind != "f":
        return unknown
    error = _of_result(call, known, results[0], is_exact)
    return [error if error is None or np.isfinite(error).all() else None]


def _arrays(inputs: Sequence[Any]) -> list[Any]:
    return [one for one in inputs if one is not None]


def _moved(call: Call, errors: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> Sequence[np.ndarray | None]:
    """Errors go where the elements go."""
    data = len(call.inputs) if call.op_type == "Concat" else 1
    which = range(1, 3) if call.op_type == "Where" else range(data)
    if any(np.any(error) for index, error in enumerate(errors) if index not in which):
        return [None] * len(results)
    inputs = list(call.inputs)
    for index in which:
        inputs[index] = np.broadcast_to(errors[index], np.shape(inputs[index])).astype(np.float64)
    return KERNELS[call.op_type](replace(call, inputs=tuple(inputs)))


def _of_result(call: Call, errors: Sequence[np.ndarray], result: np.ndarray, is_exact: bool) -> np.ndarray | None:
    kind, inputs, size = call.op_type, call.inputs, np.abs(result)
    if kind in _PRODUCTS:
        return _of_product(call, errors)
    if kind == "Cast":
        return errors[0] + _rounding(result)
    if kind in _WITHOUT_ROUNDING:
        return np.asarray(sum(errors, np.zeros(result.shape)))
    if kind in _CARRIED:
        return _CARRIED[kind](inputs, errors, result) + (_rounding(result) if is_exact else UNIT * size)
    if kind in _SLOPES:
        return _SLOPES[kind](inputs[0], result) * errors[0] + _OF_FUNCTIONS * UNIT * (size + (kind in _ABSOLUTE))
    if kind == "Pow":
        return _of_power(inputs, errors, result) + _OF_FUNCTIONS * UNIT * size
    is_whole = is_exact and kind in _ON_WHOLE and bool(np.all((result == np.rint(result)) & (size <= _LARGEST_WHOLE)))
    return _EXACT if is_whole else None


def _rounding(value: np.ndarray) -> np.ndarray:
    """The error of numbers that are rounded to float32 once."""
    return np.where(value.astype(np.float32) == value, 0.0, UNIT * np.abs(value))


def _of_product(call: Call, errors: Sequence[np.ndarray]) -> np.ndarray | None:
    if multiply_adds(call) > _MOST_PRODUCTS or (call["alpha"] or 0) < 0 or (call["beta"] or 0) < 0:
        return None
    x, w, *bias = map(np.abs, _arrays(call.inputs))
    of_x, of_w, *of_bias = (np.broadcast_to(error, one.shape) for error, one in zip(errors, (x, w, *bias), strict=False))

    def product(*inputs: Any) -> np.ndarray:
        (found,) = KERNELS[call.op_type](replace(call, inputs=inputs))
        return np.asarray(found)

    terms = math.prod(w.shape[1:]) if call.op_type == "Conv" else x.shape[0 if call["transA"] else -1]
    error = product(x, w, *bias) * _GATHERED * math.sqrt(terms + 1) * UNIT
    if np.any(of_x) or any(map(np.any, of_bias)):
        error = error + product(of_x, w, *of_bias)
    if np.any(of_w):
        error = error + product(x, of_w, *map(np.zeros_like, bias))
    return error
