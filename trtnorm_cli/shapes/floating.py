"""Sizes that a model computes in floating point, as in ``Floor(Cast(H) * 2.0)``. They are exact where the numbers are.

Whole numbers below 2^24 are exact in float32, and the quotient of two such numbers has the right floor and ceiling. All else is
kept as the operations of its type and evaluated in that type.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable

import numpy as np

from trtnorm_cli.shapes.expression import Expr, Size, apply, ceil_divide, floor_divide

Value = float | Expr
_EXACT = frozenset({"float32", "float64"})
_PYTHON = {"float_add": operator.add, "float_sub": operator.sub, "float_mul": operator.mul, "float_div": operator.truediv}
_SINGLE = struct.Struct("f")


def from_size(value: Size, kind: str) -> Value:
    """The size as a number of the floating type ``kind``."""
    return float(np.dtype(kind).type(value)) if isinstance(value, int) else apply("to_float", value, kind)


def to_size(value: Value) -> Size:
    """The number without its fraction."""
    if isinstance(value, float):
        return int(value)
    exact = whole(value)
    return apply("to_int", value) if exact is None else exact


def add(a: Value, b: Value, kind: str) -> Value:
    return _combined("float_add", a, b, kind, lambda x, y: x + y)


def subtract(a: Value, b: Value, kind: str) -> Value:
    return _combined("float_sub", a, b, kind, lambda x, y: x - y)


def multiply(a: Value, b: Value, kind: str) -> Value:
    for number, other in ((a, b), (b, a)):
        if isinstance(number, float) and _is_inverse_power_of_two(number):
            return divide(other, 1 / number, kind)
    return _combined("float_mul", a, b, kind, lambda x, y: x * y)


def divide(a: Value, b: Value, kind: str) -> Value:
    if isinstance(a, float) and isinstance(b, float):
        return _rounded("float_div", a, b, kind)
    return a if b == 1.0 else apply("float_div", a, b, kind)


def floor(value: Value) -> Value:
    return _rounded_to_whole("float_floor", value, floor_divide, math.floor)


def ceil(value: Value) -> Value:
    return _rounded_to_whole("float_ceil", value, ceil_divide, math.ceil)


def round_half_even(value: Value) -> Value:
    if isinstance(value, float):
        return float(np.rint(value))
    return value if whole(value) is not None else apply("float_round", value)


def plain(op: str, value: Value) -> Value:
    """``op`` of a number without any simplification."""
    return apply(op, value)


def _rounded_to_whole(op: str, value: Value, quotient: Callable[[Size, Size], Size], exact: Callable[[float], int]) -> Value:
    if isinstance(value, float):
        return float(exact(value)) if math.isfinite(value) else value
    if whole(value) is not None:
        return value
    atom = _atom(value, "float_div")
    if atom is not None and atom[2] in _EXACT:
        numerator, divisor = whole(atom[0]), whole(atom[1])
        if numerator is not None and divisor is not None:
            return from_size(quotient(numerator, divisor), str(atom[2]))
    return apply(op, value)


def _combined(op: str, a: Value, b: Value, kind: str, exact: Callable[[Size, Size], Size]) -> Value:
    if isinstance(a, float) and isinstance(b, float):
        return _rounded(op, a, b, kind)
    left, right = whole(a), whole(b)
    if left is not None and right is not None and kind in _EXACT:
        return from_size(exact(left, right), kind)
    return apply(op, a, b, kind)


def _rounded(op: str, a: float, b: float, kind: str) -> float:
    """The result in the type ``kind``. Python's own numbers take a tenth of the time of NumPy's, and a grid has thousands.

    Twice as many digits and two more round an operation of float32 as it would be rounded at once (Figueroa 1995).
    """
    if kind in _EXACT and (op != "float_div" or b != 0):
        if kind == "float64":
            return _PYTHON[op](a, b)
        return _single(_PYTHON[op](_single(a), _single(b)))
    functions = {"float_add": np.add, "float_sub": np.subtract, "float_mul": np.multiply, "float_div": np.divide}
    with np.errstate(all="ignore"):
        number = np.dtype(kind).type
        return float(functions[op](number(a), number(b)))


def _single(value: float) -> float:
    """The nearest number of float32."""
    try:
        rounded: float = _SINGLE.unpack(_SINGLE.pack(value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded


def whole(value: object) -> Size | None:
    """The size that ``value`` is, where it certainly is a whole number."""
    if isinstance(value, float):
        return int(value) if math.isfinite(value) and value == int(value) else None
    atom = _atom(value, "to_float")
    return atom[0] if atom is not None and isinstance(atom[0], (int, Expr)) else None


def _atom(value: object, op: str) -> tuple[object, ...] | None:
    """The arguments of the function ``op``, where ``value`` is that and nothing else."""
    if not isinstance(value, Expr) or len(value.terms) != 1:
        return None
    atoms, coefficient = value.terms[0]
    return atoms[0].args if coefficient == 1 and len(atoms) == 1 and atoms[0].op == op else None


def _is_inverse_power_of_two(number: float) -> bool:
    return 0 < number < 1 and math.frexp(number)[0] == 0.5
