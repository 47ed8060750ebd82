"""Positions that a constant hides, and whether a part of its numbers shows what all of them do.

A mask hides what it multiplies by zero, or what it adds a number to that is far from all others, as -100 or the largest float
are: behind a softmax, say, nothing of it is seen. What a model does with the rest must still be seen where some numbers alone
are taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import reduce
from itertools import chain, pairwise, product

import numpy as np

from trtnorm_cli.compare.sized_tensors import Shape, spread_places

# Numbers that are added to positions lie no further apart, but for those that mask some of them: the coordinates of a detector
# do not either, which may be that large.
_APART, _LARGEST = 8.0, 512.0
# Factors of positions, or both of a rotation together, are no larger than that either: detectors multiply by the strides of
# their feature maps, and by coordinates. Nor is their inverse larger than this, or the largest as a multiple of the smallest.
_LARGEST_INVERSE, _LARGEST_RATIO = 128.0, 128.0**2
# Of positions that a mask hides, as those at the border of a detector's image, there are few: at least such a part of all is
# let through.
_SHARE_LET_THROUGH = 0.9
# Where each row of the last axis is taken as a whole, as the positions of a window to which one of them attends, a mask may
# hide half of all, if it lets through such a part of each row: three axes that are shifted by half leave an eighth.
_SHARE_OF_ROWS, _SHARE_OF_A_ROW = 0.5, 1 / 16
# The strides of most kernels.
_STEPS = (2, 3, 4)
# Masks have one number that hides, or a few.
_MOST_KINDS = 8


def are_hidden(numbers: np.ndarray, are_factors: bool) -> np.ndarray:
    """Where ``numbers`` hide what they are added to or, as factors, what they multiply."""
    return np.asarray(numbers == 0) if are_factors else _are_far(numbers)


def may_be_taken_in_part(numbers: np.ndarray, hidden: np.ndarray, lengths: Shape, are_factors: bool) -> bool:
    """True for moderate ``numbers``, of which ``lengths`` are taken, that hide few positions, or some of each row."""
    if numbers.dtype.kind != "f" or not numbers.size or np.isnan(numbers).any():
        return False
    return (not are_factors or _are_factors(numbers[~hidden])) and _are_enough(~hidden, lengths)


def shows_the_whole(numbers: np.ndarray, hidden: np.ndarray, lengths: Shape, are_factors: bool) -> bool:
    """True where as many ``lengths`` of ``numbers`` show what all of them do.

    None are equal along the axes of which a part is taken where others are not, some are ``hidden`` wherever some are, by as
    many kinds of numbers, at least half as large a share is shown, and numbers that are added lie as near to each other.
    """
    part, hidden_part = part_of(numbers, lengths), part_of(hidden, lengths)
    if not part.size or (not are_factors and not np.array_equal(_are_far(part), hidden_part)):
        return False
    # One factor of a rotation may make small what is there, but not zero.
    shown = np.abs(numbers) >= 1 / _LARGEST_INVERSE if are_factors else ~hidden
    kinds = [hidden] if are_factors else _kinds_of_far(numbers, hidden)
    axes = _axes_in_part(numbers.shape, lengths)
    is_enough = are_factors or _are_enough(~hidden_part, lengths)
    if not is_enough or kinds is None or not _are_as_many(shown, kinds, lengths):
        return False
    return not np.any((np.ptp(part, axes) == 0) & (np.ptp(numbers, axes) > 0))


def show_enough_together(masks: Sequence[tuple[np.ndarray, Shape]]) -> bool:
    """False where the positions that several masks hide, by the lengths that are taken of them, are too many, or other ones.

    Each may show what it does, and all of them nothing. So it is false where it is not known which axis of one is which of
    another.
    """
    short = [(hidden.squeeze(), without_ones(lengths)) for hidden, lengths in masks]
    for some in (masks, short):
        if len({hidden.ndim for hidden, _ in some}) == 1:
            with suppress(ValueError):  # no lengths that go together
                hidden = reduce(np.logical_or, [hidden for hidden, _ in some])
                lengths = np.broadcast_shapes(*(lengths for _, lengths in some))
                is_enough = all(_are_enough(~each, lengths) for each in (hidden, part_of(hidden, lengths)))
                return is_enough and _are_as_many(~hidden, [hidden], lengths) and steps_meet_some(~hidden, lengths)
    return len(masks) < 2


def steps_meet_some(shown: np.ndarray, lengths: Shape) -> bool:
    """True where steps over all positions, as those of a kernel with strides, meet some that are ``shown`` in the part, too."""
    if shown.all():
        return True
    part = part_of(shown, lengths)
    steps = ([[slice(first, None, step) for first in range(min(step, size))] for size in part.shape] for step in _STEPS)
    indices = chain.from_iterable(product(*each) for each in steps)
    return all(part[index].any() or not shown[index].any() for index in indices)


def without_ones(lengths: Shape) -> Shape:
    return tuple(length for length in lengths if length != 1)


def part_of(values: np.ndarray, lengths: Shape) -> np.ndarray:
    """As many ``lengths`` of ``values``, from all over them."""
    places = spread_places(values.shape, lengths)
    return values[np.ix_(*(places.get(axis, range(length)) for axis, length in enumerate(values.shape)))]


def _axes_in_part(shape: Shape, lengths: Shape) -> Shape:
    return tuple(axis for axis, (length, taken) in enumerate(zip(shape, lengths, strict=True)) if taken < length)


def _are_as_many(shown: np.ndarray, kinds: Sequence[np.ndarray], lengths: Shape) -> bool:
    """True where, along the axes of which a part is taken, half as many are ``shown`` there, and some of each of ``kinds``."""
    axes = _axes_in_part(shown.shape, lengths)
    for kind in kinds:
        if np.any(kind.any(axes) & ~part_of(kind, lengths).any(axes)):
            return False  # what becomes of a position that is hidden
    # Of a mask that blends two tensors, say, the part may show one of them alone.
    return not np.any(2 * np.mean(part_of(shown, lengths), axes) < np.mean(shown, axes))


def _kinds_of_far(numbers: np.ndarray, hidden: np.ndarray) -> list[np.ndarray] | None:
    """Where numbers hide, by those that are near to each other: a bound may cut off some. None for more than a few kinds."""
    values = np.unique(numbers[hidden])
    if not values.size:
        return []
    with np.errstate(over="ignore"):  # from one end of all floats to the other
        first = [0, *(np.flatnonzero(np.diff(values) > _APART) + 1), len(values)]
    if len(first) - 1 > _MOST_KINDS:
        return None
    return [hidden & (numbers >= values[low]) & (numbers <= values[high - 1]) for low, high in pairwise(first)]


def _are_factors(numbers: np.ndarray) -> bool:
    """False for numbers that are not finite, and for those near zero, which keep data from what follows."""
    sizes = np.abs(numbers)
    largest, smallest = float(sizes.max(initial=0)), float(sizes.min(initial=np.inf))
    return largest <= min(_LARGEST, _LARGEST_RATIO * smallest) and smallest >= 1 / _LARGEST_INVERSE


def _are_few(hidden: np.ndarray) -> bool:
    return float(np.mean(hidden)) <= 1 - _SHARE_LET_THROUGH


def _are_far(added: np.ndarray) -> np.ndarray:
    """Where numbers are far from zero and from all between: what is added to them is not seen beside them."""
    near = np.abs(added) <= _LARGEST
    steps = np.append(added[near], np.zeros(1, added.dtype))
    if np.abs(steps).max() > _APART:
        steps = np.unique(steps)
        gaps, zero = np.flatnonzero(np.diff(steps) > _APART), int(np.searchsorted(steps, 0))
        below, above = gaps[gaps < zero], gaps[gaps >= zero]
        near &= added >= (steps[below[-1] + 1] if below.size else steps[0])
        near &= added <= (steps[above[0]] if above.size else steps[-1])
    return np.asarray(~near)


def _are_enough(shown: np.ndarray, lengths: Shape) -> bool:
    """True where nearly all is ``shown``, or half of it and a part of each row that is taken as a whole."""
    if _are_few(~shown):
        return True
    is_row_whole = bool(lengths) and lengths[-1] == shown.shape[-1] > 1
    return is_row_whole and float(np.mean(shown)) >= _SHARE_OF_ROWS and bool(np.all(np.mean(shown, -1) >= _SHARE_OF_A_ROW))
