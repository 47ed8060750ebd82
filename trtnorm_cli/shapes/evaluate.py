"""Values of expressions at given sizes: one at a time with Python's integers, or many at once with numpy's."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from trtnorm_cli.shapes.expression import Atom, Expr, Size

Values = Mapping[str, Any]
# int64 holds products up to this; above, numpy computes with Python's own integers.
_SAFE = 2**62


class Undefined(Exception):
    """The expression has no value here: a symbol without one, or a division by zero."""


def value_at(value: Size, sizes: Mapping[str, int]) -> int | None:
    """``value`` where the symbols have ``sizes``, or None where it is undefined."""
    return values_at([value], sizes)[0]


def values_at(values: Iterable[Size], sizes: Mapping[str, int]) -> list[int | None]:
    """Each of ``values`` where the symbols have ``sizes``. Common parts are evaluated once."""
    memory: dict[Atom, Any] = {}
    found: list[int | None] = []
    for value in values:
        result = _value(value, sizes, memory)
        found.append(None if result is None else int(result))
    return found


def holds_over(
    condition: Size, names: str | Sequence[str], sizes: np.ndarray, fixed: Mapping[str, int] | None = None
) -> np.ndarray:
    """True for each of the ``sizes`` (int64) at which ``condition`` holds or cannot be evaluated.

    The sizes are those of one symbol, or of several that are equal. Other symbols have ``fixed`` values.
    """
    moving = [names] if isinstance(names, str) else names
    others = fixed or {}
    undefined = np.zeros(len(sizes), dtype=bool)
    if isinstance(condition, int):
        return np.full(len(sizes), condition != 0)
    largest = {**others, **dict.fromkeys(moving, int(np.max(np.abs(sizes), initial=0)))}
    exact = sizes if _magnitude(condition, largest) < _SAFE else sizes.astype(object)
    result = _value(condition, {**others, **dict.fromkeys(moving, exact)}, {}, undefined)
    if result is None:
        return np.ones(len(sizes), dtype=bool)
    return np.broadcast_to(np.not_equal(result, 0).astype(bool), sizes.shape) | undefined


def values_together(value: Size, sizes: Mapping[str, np.ndarray]) -> np.ndarray:
    """``value`` for each row of ``sizes``, which has an int64 array for every symbol, all of one length.

    Raises ``Undefined`` where it has no value for one of them.
    """
    length = len(next(iter(sizes.values()))) if sizes else 1
    if isinstance(value, int):
        return np.full(length, value)
    largest = {name: int(np.max(np.abs(held), initial=0)) for name, held in sizes.items()}
    safe = _magnitude(value, largest) < _SAFE
    undefined = np.zeros(length, dtype=bool)
    result = _value(value, {name: held if safe else held.astype(object) for name, held in sizes.items()}, {}, undefined)
    if result is None or undefined.any():
        raise Undefined(f"{value} cannot be evaluated")
    return np.broadcast_to(np.asarray(result), (length,))


def broken_somewhere(conditions: Sequence[Size], points: Mapping[str, np.ndarray]) -> list[bool]:
    """True for each condition that is 0 at one of the points. ``points`` has the same number of sizes for each symbol."""
    largest = {name: int(np.max(np.abs(sizes), initial=0)) for name, sizes in points.items()}
    memory: dict[Atom, Any] = {}
    exact: dict[Atom, Any] = {}
    undefined = np.zeros(len(next(iter(points.values()), ())), dtype=bool)
    found = []
    for condition in conditions:
        small = isinstance(condition, int) or _magnitude(condition, largest) < _SAFE
        sizes = points if small else {name: values.astype(object) for name, values in points.items()}
        result = _value(condition, sizes, memory if small else exact, undefined)
        found.append(result is not None and bool(np.any(np.equal(result, 0) & ~undefined)))
    return found


def _value(value: Size, sizes: Values, memory: dict[Atom, Any], undefined: np.ndarray | None = None) -> Any:
    """The value, or None. Of many sizes at once, those without a value are marked in ``undefined`` instead."""
    if isinstance(value, int):
        return value
    for atom in _in_order(value, memory):
        memory[atom] = _atom_value(atom, sizes, memory, undefined)
    return _polynomial_value(value, memory)


def _in_order(value: Expr, known: Mapping[Atom, Any]) -> list[Atom]:
    """The atoms in ``value`` that are not known, arguments first. It does not recurse, because models are deep."""
    found: set[Atom] = set()
    stack = [atom for atoms, _ in value.terms for atom in atoms]
    while stack:
        atom = stack.pop()
        if atom in found or atom in known:
            continue
        found.add(atom)
        stack += [inner for a in atom.args if isinstance(a, Expr) for atoms, _ in a.terms for inner in atoms]
    return sorted(found, key=lambda atom: atom.serial)


def _polynomial_value(value: Expr, memory: Mapping[Atom, Any]) -> Any:
    total: Any = 0
    for atoms, coefficient in value.terms:
        product: Any = coefficient
        for atom in atoms:
            if memory[atom] is None:
                return None
            product = product * memory[atom]
        total = total + product
    return total


def _atom_value(atom: Atom, sizes: Values, memory: Mapping[Atom, Any], undefined: np.ndarray | None) -> Any:
    if atom.op == "symbol":
        return sizes.get(str(atom.args[0]))
    if atom.op not in FUNCTIONS:
        return None
    args = [_polynomial_value(a, memory) if isinstance(a, Expr) else a for a in atom.args]
    if any(a is None for a in args):
        return None
    if undefined is not None and atom.op in _PARTIAL:
        position, is_defined, instead = _PARTIAL[atom.op]
        defined = np.asarray(is_defined(args[position])).astype(bool)
        if not defined.all():
            undefined |= ~defined
            args[position] = np.where(defined, args[position], instead)
    try:
        with np.errstate(all="ignore"):
            return FUNCTIONS[atom.op](*args)
    except (ZeroDivisionError, OverflowError, ValueError):
        return None


def _divisor(value: Any) -> Any:
    if not isinstance(value, np.ndarray) and value == 0:
        raise ZeroDivisionError
    return value


def _is_not_zero(value: Any) -> Any:
    return np.not_equal(value, 0)


def _truncated(a: Any, b: Any) -> Any:
    quotient = abs(a) // abs(_divisor(b))
    return np.where((a < 0) != (b < 0), -quotient, quotient) if _is_array(a, b) else int(math.copysign(1, a * b)) * quotient


def _is_array(*values: Any) -> bool:
    return any(isinstance(value, np.ndarray) for value in values)


def _select(condition: Any, yes: Any, no: Any) -> Any:
    if not _is_array(condition, yes, no):
        return yes if condition else no
    return np.where(np.asarray(condition).astype(bool), yes, no)


def _extreme(which: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda *args: reduce(which, args)


def _float(value: Any, kind: str) -> Any:
    return np.asarray(value).astype(_FLOATS[kind])[()]


def _float_operation(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """A function of two numbers, rounded to the type that the model computes in."""
    return lambda a, b, kind: function(_float(a, kind), _float(b, kind))


def _whole(value: Any) -> Any:
    if not np.all(np.isfinite(value)):
        raise OverflowError
    return np.trunc(value).astype(np.int64) if _is_array(value) else int(value)


def _comparison(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda a, b: np.asarray(function(a, b)).astype(np.int64)[()]


def _logical(conditions: tuple[Any, ...], which: Any) -> Any:
    return np.asarray(reduce(which, [np.not_equal(c, 0) for c in conditions])).astype(np.int64)[()]


_FLOATS = {"float16": np.float16, "float32": np.float32, "float64": np.float64}

# Functions that are not defined everywhere: of which argument, where, and what is computed with instead.
_PARTIAL: dict[str, tuple[int, Callable[[Any], Any], int]] = {
    "floordiv": (1, _is_not_zero, 1),
    "mod": (1, _is_not_zero, 1),
    "truncdiv": (1, _is_not_zero, 1),
    "to_int": (0, np.isfinite, 0),
}

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "floordiv": lambda a, b: a // _divisor(b),
    "mod": lambda a, b: a % _divisor(b),
    "truncdiv": _truncated,
    "mul": operator.mul,
    "power": operator.pow,
    "abs": abs,
    "max": _extreme(lambda a, b: np.maximum(a, b) if _is_array(a, b) else max(a, b)),
    "min": _extreme(lambda a, b: np.minimum(a, b) if _is_array(a, b) else min(a, b)),
    "broadcast": lambda a, b: _select(np.equal(a, 1), b, a),
    "where": _select,
    "eq": _comparison(np.equal),
    "ne": _comparison(np.not_equal),
    "le": _comparison(np.less_equal),
    "lt": _comparison(np.less),
    "and": lambda *c: _logical(c, np.logical_and),
    "or": lambda *c: _logical(c, np.logical_or),
    "not": lambda c: np.asarray(np.equal(c, 0)).astype(np.int64)[()],
    # Floating-point numbers as a model computes them; the last argument is their type.
    "to_float": _float,
    "float_add": _float_operation(np.add),
    "float_sub": _float_operation(np.subtract),
    "float_mul": _float_operation(np.multiply),
    "float_div": _float_operation(np.divide),
    "float_pow": _float_operation(np.power),
    "float_floor": np.floor,
    "float_ceil": np.ceil,
    "float_round": np.rint,
    "float_sqrt": np.sqrt,
    "float_exp": np.exp,
    "float_log": np.log,
    "float_abs": np.abs,
    "float_neg": np.negative,
    "to_int": _whole,
}


def bound_of(value: Size, largest: Mapping[str, int]) -> int | None:
    """No smaller than ``value`` in size, wherever each symbol is at most ``largest`` in size; None where none is known.

    That is where a symbol has no largest size, and where fractions are computed with.
    """
    if isinstance(value, int):
        return abs(value)
    if not value.symbols <= largest.keys() or any(atom.op.startswith("float") for atom in _in_order(value, {})):
        return None
    return _magnitude(value, largest)


def _magnitude(value: Size, largest: Mapping[str, int]) -> int:
    """A bound of every integer that evaluating ``value`` meets, where each symbol is at most ``largest`` in size."""
    if isinstance(value, int):
        return abs(value)
    bounds: dict[Atom, int] = {}

    def of(expr: Argument) -> int:
        if not isinstance(expr, Expr):
            return int(abs(expr)) + 1 if isinstance(expr, (int, float)) and math.isfinite(expr) else 1
        return sum(abs(c) * math.prod(bounds[a] for a in atoms) for atoms, c in expr.terms)

    worst = 1
    for atom in _in_order(value, {}):
        args = [of(a) for a in atom.args]
        if atom.op == "symbol":
            bounds[atom] = largest.get(str(atom.args[0]), 1)
        else:
            growing = atom.op in ("mul", "float_mul", "power", "float_pow", "float_exp")
            bounds[atom] = math.prod(args) if growing else sum(args)
        worst = max(worst, bounds[atom], *args) if args else worst
    return max(worst, of(value))


Argument = Any
