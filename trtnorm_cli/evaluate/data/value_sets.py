"""Sets of numbers as unions of closed intervals, whose ends may be infinite."""

from __future__ import annotations

import math
from collections.abc import Iterable

from trtnorm_cli.light_dataclass import dataclass

Number = int | float
_INFINITE = math.inf


@dataclass(frozen=True)
class Values:
    """A union of closed intervals, ascending and apart."""

    parts: tuple[tuple[Number, Number], ...]

    @property
    def empty(self) -> bool:
        return not self.parts

    @property
    def low(self) -> Number:
        return self.parts[0][0]

    @property
    def high(self) -> Number:
        return self.parts[-1][1]

    @property
    def bounded(self) -> bool:
        return not self.empty and math.isfinite(self.low) and math.isfinite(self.high)

    def contains(self, value: Number) -> bool:
        return any(low <= value <= high for low, high in self.parts)

    def includes(self, low: Number, high: Number) -> bool:
        """True where the whole interval lies within one part."""
        return any(a <= low and high <= b for a, b in self.parts)

    def intersect(self, other: Values) -> Values:
        pairs = ((max(a, c), min(b, d)) for a, b in self.parts for c, d in other.parts)
        return union(pair for pair in pairs if pair[0] <= pair[1])

    def unite(self, other: Values) -> Values:
        return union((*self.parts, *other.parts))

    def shift(self, by: Number) -> Values:
        return Values(tuple((low + by, high + by) for low, high in self.parts))

    def scale(self, factor: Number) -> Values:
        """Every value times ``factor``, which is not zero."""
        return union(_ordered(low * factor, high * factor) for low, high in self.parts)

    def whole(self) -> Values:
        """The whole numbers within, as Python's integers where they are finite."""
        rounded = ((_up(low), _down(high)) for low, high in self.parts)
        return union(pair for pair in rounded if pair[0] <= pair[1])


def between(low: Number, high: Number) -> Values:
    return Values(((low, high),) if low <= high else ())


EVERYTHING = between(-_INFINITE, _INFINITE)
NOT_NEGATIVE = between(0, _INFINITE)


def union(parts: Iterable[tuple[Number, Number]]) -> Values:
    """The intervals in order, with those that overlap joined."""
    joined: list[tuple[Number, Number]] = []
    for low, high in sorted(parts):
        if joined and low <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return Values(tuple(joined))


def _ordered(a: Number, b: Number) -> tuple[Number, Number]:
    return (a, b) if a <= b else (b, a)


# Bounds that went through a division and back miss a whole number by rounding only.
_ROUNDING = 1e-9


def _up(value: Number) -> Number:
    return math.ceil(value - _ROUNDING * max(1.0, abs(value))) if isinstance(value, float) and math.isfinite(value) else value


def _down(value: Number) -> Number:
    return math.floor(value + _ROUNDING * max(1.0, abs(value))) if isinstance(value, float) and math.isfinite(value) else value
