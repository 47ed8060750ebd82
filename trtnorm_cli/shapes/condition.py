"""Conditions on sizes, and what depends on them: the larger of two, a choice, the size that two are broadcast to.

A condition is a size too: 1 where it holds, 0 elsewhere. One that is decided by the bounds of its symbols is a plain integer.
"""

from __future__ import annotations

from collections.abc import Iterable

from trtnorm_cli.shapes.expression import Expr, Size, apply, lower_bound, single_atom


def maximum(*values: Size) -> Size:
    """The largest of ``values``."""
    return _extreme("max", values)


def minimum(*values: Size) -> Size:
    """The smallest of ``values``."""
    return _extreme("min", values)


def _extreme(op: str, values: Iterable[Size]) -> Size:
    kept: list[Size] = []
    for value in dict.fromkeys(values):
        _keep_extreme(op, kept, value)
    if len(kept) == 1:
        return kept[0]
    if all(isinstance(value, int) for value in kept):
        return max(kept) if op == "max" else min(kept)  # type: ignore[type-var]
    lows = [lower_bound(value) for value in kept]
    known = [low for low in lows if low is not None]
    low = max(known, default=None) if op == "max" else (min(known) if len(known) == len(lows) else None)
    return apply(op, *sorted(kept, key=_place), low=low)


def _keep_extreme(op: str, kept: list[Size], value: Size) -> None:
    """Add ``value`` unless one that is there beats it wherever they differ, and drop those that it beats."""
    for other in list(kept):
        low, reverse = lower_bound(value - other), lower_bound(other - value)
        above, below = low is not None and low >= 0, reverse is not None and reverse >= 0
        if (op == "max" and below) or (op == "min" and above):
            return
        if (op == "max" and above) or (op == "min" and below):
            kept.remove(other)
    kept.append(value)


def broadcast_size(a: Size, b: Size) -> Size:
    """The size that ``a`` and ``b`` are broadcast to, which is the other's where one is 1."""
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    if isinstance(a, int):
        return a
    if isinstance(b, int):
        return b
    return apply("broadcast", a, b, low=min(lower_bound(a) or 0, lower_bound(b) or 0))


def equal(a: Size, b: Size) -> Size:
    """1 where ``a`` is ``b``, else 0."""
    return _compare("eq", *_sides(a, b))


def different(a: Size, b: Size) -> Size:
    """1 where ``a`` is not ``b``, else 0."""
    return _compare("ne", *_sides(a, b))


def _sides(a: Size, b: Size) -> tuple[Size, Size]:
    """Both in an order of their own, so that ``a == b`` and ``b == a`` are one condition. Numbers come last."""
    if isinstance(a, int) or isinstance(b, int):
        return (b, a) if isinstance(a, int) else (a, b)
    return (a, b) if _place(a) <= _place(b) else (b, a)


def _place(value: Size) -> tuple[object, ...]:
    """Numbers first, then expressions by what was made first. This order costs nothing."""
    if isinstance(value, int):
        return (0, value)
    return (1, tuple((tuple(atom.serial for atom in atoms), coefficient) for atoms, coefficient in value.terms))


def at_most(a: Size, b: Size) -> Size:
    """1 where ``a`` ≤ ``b``, else 0."""
    return _compare("le", a, b)


def below(a: Size, b: Size) -> Size:
    """1 where ``a`` < ``b``, else 0."""
    return _compare("lt", a, b)


def _compare(op: str, a: Size, b: Size) -> Size:
    difference = b - a
    if isinstance(difference, int):
        return int({"eq": difference == 0, "ne": difference != 0, "le": difference >= 0, "lt": difference > 0}[op])
    low = lower_bound(difference)
    if low is not None and (low > 0 or (low == 0 and op == "le")):
        return int(op != "eq")
    reverse = lower_bound(-difference)
    if reverse is not None and (reverse > 0 or (reverse == 0 and op == "lt")):
        return int(op == "ne")
    return apply(op, a, b, low=0)


def both(*conditions: Size) -> Size:
    """1 where every condition holds."""
    return _combined("and", conditions, neutral=1)


def either(*conditions: Size) -> Size:
    """1 where some condition holds."""
    return _combined("or", conditions, neutral=0)


def _combined(op: str, conditions: Iterable[Size], neutral: int) -> Size:
    left = [c for c in dict.fromkeys(conditions) if not (isinstance(c, int) and bool(c) == bool(neutral))]
    if any(isinstance(c, int) for c in left):
        return 1 - neutral
    if len(left) < 2:
        return left[0] if left else neutral
    return apply(op, *left, low=0)


def negation(condition: Size) -> Size:
    """1 where ``condition`` is 0."""
    if isinstance(condition, int):
        return int(not condition)
    return apply("not", condition, low=0)


def choice(condition: Size, yes: Size, no: Size) -> Size:
    """``yes`` where ``condition`` holds, else ``no``."""
    if isinstance(condition, int):
        return yes if condition else no
    return yes if yes == no else apply("where", condition, yes, no)


def is_choice(value: object) -> bool:
    """True for what is one thing under a condition and another otherwise."""
    atom = single_atom(value) if isinstance(value, Expr) else None
    return atom is not None and atom.op == "where"
