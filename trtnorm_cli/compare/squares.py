"""Sizes of tensors and of their differences, as a whole and by slice, in pieces that stay in the processor's caches.

A comparison measures hundreds of tensors of megabytes, each several times. Arrays of temporary results as large as these take
most of that time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import numpy as np

from trtnorm_cli.light_dataclass import dataclass

_PIECE = 1 << 15


class Sizes:
    """The sizes of a tensor that are asked for again and again, measured once."""

    def __init__(self, values: np.ndarray) -> None:
        self._values = values

    @property
    def largest(self) -> float:
        """The largest absolute value."""
        return self._measured[0]

    @property
    def square(self) -> float:
        """The sum of all squares."""
        if "_measured" in self.__dict__ and self.squares:
            return float(next(iter(self.squares.values())).sum())
        return self._square

    @cached_property
    def _square(self) -> float:
        return sum(float(np.dot(piece, piece)) for (piece,) in _pieces(self._values))

    @property
    def squares(self) -> dict[int, np.ndarray]:
        """The sum of squares of each slice, by axis."""
        return self._measured[1]

    @cached_property
    def _measured(self) -> tuple[float, dict[int, np.ndarray]]:
        largest = list[float]()
        squares = _by_axis(self._values, None, lambda part: largest.append(float(part.max())))
        if squares:
            return math.sqrt(float(np.max(largest))), squares
        return max((float(np.abs(piece).max()) for (piece,) in _pieces(self._values)), default=0.0), squares


def differences(one: np.ndarray, other: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """``other`` − ``one`` and the part of ``one`` that it belongs to, piece by piece."""
    for piece, other_piece in _pieces(one, other):
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
    if values.size <= 1:
        return {}
    axes = _by_stride(values)
    arrays = _laid((values,) if minus is None else (values, minus), axes)
    shape = [values.shape[axis] for axis in axes]
    width = shape[-1]
    arrays = [array.reshape(-1, width) for array in arrays] if _is_flat(arrays) else arrays
    ones = np.ones(_PIECE)
    last, of_rows, row = np.zeros(width), np.zeros(values.size // width), 0
    for part in _parts(arrays[0].shape):
        columns = part[-1]
        pieces = [array[part].reshape(-1, columns.stop - columns.start) for array in arrays]
        squares = np.square(pieces[0]) if minus is None else _squared(pieces[0] - pieces[1])
        look(squares)
        # A product with ones is the fastest sum over either axis.
        last[columns] += ones[: len(squares)] @ squares
        of_rows[row : row + len(squares)] += squares @ ones[: squares.shape[1]]
        row += len(squares) if columns.stop == width else 0
    rest = of_rows.reshape(shape[:-1])
    places = range(rest.ndim)
    sums = {axes[place]: rest.sum(tuple(other for other in places if other != place)) for place in places}
    return dict(sorted({**sums, axes[-1]: last}.items()))


def _squared(difference: np.ndarray) -> np.ndarray:
    return np.square(difference, out=difference)


def _pieces(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """The elements of arrays of one shape, so many at a time, in the order in which those of the first lie in memory.

    Most that do not lie in order are transposed: to copy these as a whole takes ten times as long as to measure them.
    """
    laid = _laid(arrays, _by_stride(arrays[0]))
    laid = [array.reshape(-1) for array in laid] if _is_flat(laid) else laid
    return (tuple(array[part].reshape(-1) for array in laid) for part in _parts(laid[0].shape))


def _by_stride(values: np.ndarray) -> list[int]:
    """The axes longer than one, the last of which has neighbours in memory."""
    axes = (axis for axis, length in enumerate(values.shape) if length != 1)
    return sorted(axes, key=lambda axis: -abs(values.strides[axis]))


def _laid(arrays: Sequence[np.ndarray], axes: Sequence[int]) -> list[np.ndarray]:
    """The arrays with these axes alone, in this order."""
    shorter = [axis for axis in range(arrays[0].ndim) if axis not in axes]
    return [array.transpose(*shorter, *axes)[(0,) * len(shorter)] for array in arrays]


def _is_flat(arrays: Sequence[np.ndarray]) -> bool:
    return all(array.flags.c_contiguous for array in arrays)


def _parts(shape: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """Where the parts of an array of this shape are, in order: each some of one axis, and all of those after it."""
    if 0 in shape:
        return
    axis, inner = len(shape) - 1, 1
    while axis > 0 and inner * shape[axis] <= _PIECE:
        inner *= shape[axis]
        axis -= 1
    if axis < 0:
        yield ()
        return
    step = max(_PIECE // inner, 1)
    whole = tuple(slice(0, length) for length in shape[axis + 1 :])
    for place in itertools.product(*map(range, shape[:axis])):
        before = tuple(slice(at, at + 1) for at in place)
        for start in range(0, shape[axis], step):
            yield (*before, slice(start, min(start + step, shape[axis])), *whole)
