"""Sizes of tensors and of their differences, as a whole and by slice, in pieces that stay in the processor's caches.

A comparison measures hundreds of tensors of megabytes, each several times. Arrays of temporary results as large as these take
most of that time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np

from trtnorm_cli.light_dataclass import dataclass

_PIECE = 1 << 15


class Sizes:
    """The sizes of a tensor that are asked for again and again, measured once."""

    def __init__(self, values: np.ndarray) -> None:
        self._values = values

    @cached_property
    def largest(self) -> float:
        """The largest absolute value."""
        return max((float(max(piece.max(), -piece.min())) for piece in _pieces(self._values)), default=0.0)

    @property
    def square(self) -> float:
        """The sum of all squares."""
        if "squares" in self.__dict__ and self.squares:
            return float(next(iter(self.squares.values())).sum())
        return self._square

    @cached_property
    def _square(self) -> float:
        return sum(float(np.dot(piece, piece)) for piece in _pieces(self._values))

    @cached_property
    def squares(self) -> dict[int, np.ndarray]:
        """The sum of squares of each slice, by axis."""
        return squares_by_axis(self._values)


def differences(one: np.ndarray, other: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """``other`` − ``one`` and the part of ``one`` that it belongs to, piece by piece."""
    for piece, other_piece in zip(_pieces(one), _pieces(other), strict=True):
        yield other_piece - piece, piece


def furthest_and_square(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """The largest distance of two elements, and the sum of the squares of all; infinite where one is not finite."""
    furthest = square = 0.0
    for difference, _ in differences(one, other):
        most = float(max(difference.max(), -difference.min()))
        if not math.isfinite(most):
            return math.inf, math.inf
        furthest = max(furthest, most)
        square += float(np.dot(difference, difference))
    return furthest, square


@dataclass(frozen=True)
class Apart:
    """How far a tensor is from another: the largest distance of two elements, the sum of the squares of all, and by axis those
    of each slice, as :func:`squares_by_axis` has them. Where one is not finite, all is infinitely far, and no slices are told.
    """

    furthest: float
    square: float
    squares: dict[int, np.ndarray]


def apart(one: np.ndarray, other: np.ndarray) -> Apart:
    """The distances of ``other`` from ``one``, which has the same shape; all in one pass over both."""
    largest = list[float]()
    squares = _by_axis(other, one, lambda part: largest.append(float(part.max())))
    if not squares:
        return Apart(*furthest_and_square(one, other), {})
    if not np.all(np.isfinite(largest)):
        return Apart(math.inf, math.inf, {})
    return Apart(math.sqrt(max(largest)), float(next(iter(squares.values())).sum()), squares)


def first_apart(one: np.ndarray, other: np.ndarray) -> float:
    """The largest distance of two elements in the first piece that differs; 0 where none does."""
    for difference, _ in differences(one, other):
        most = float(np.maximum(difference.max(), -difference.min()))
        if most != 0:
            return most
    return 0.0


def squares_by_axis(values: np.ndarray, minus: np.ndarray | None = None) -> dict[int, np.ndarray]:
    """The sum of the squares of ``values``, or of their difference from ``minus``, over all axes but one.

    By that axis, for each that is longer than one; its sums have shape ``(values.shape[axis],)``.
    """
    return _by_axis(values, minus, lambda part: None)


def _by_axis(values: np.ndarray, minus: np.ndarray | None, look: Callable[[np.ndarray], object]) -> dict[int, np.ndarray]:
    """``look`` is shown the squares of each piece."""
    axes = [axis for axis, length in enumerate(values.shape) if length > 1]
    if not axes or not values.size:
        return {}
    width = values.shape[axes[-1]]
    rows = values.reshape(-1, width)
    others = None if minus is None else minus.reshape(-1, width)
    step = max(_PIECE // width, 1)
    ones = np.ones(max(step, width))
    last, of_rows = np.zeros(width), np.empty(len(rows))
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        part = part if others is None else part - others[start : start + step]
        squares = np.square(part, out=None if others is None else part)
        look(squares)
        # A product with ones is the fastest sum over either axis.
        last += ones[: len(part)] @ squares
        of_rows[start : start + step] = squares @ ones[:width]
    rest = of_rows.reshape([values.shape[axis] for axis in axes[:-1]])
    places = range(rest.ndim)
    sums = {axes[place]: rest.sum(tuple(other for other in places if other != place)) for place in places}
    return {**sums, axes[-1]: last}


def _pieces(values: np.ndarray) -> Iterator[np.ndarray]:
    flat = values.reshape(-1)
    return (flat[start : start + _PIECE] for start in range(0, flat.size, _PIECE))
