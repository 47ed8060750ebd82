"""The shape that a Reshape gives other sizes than those that it was written for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from types import MappingProxyType

from trtnorm_cli.compare.sized_tensors import Shape

# Areas of positions are fewer than the positions in each, by this factor at least.
_MANY_MORE = 4
# Into how many axes one is split for windows.
_NUMBER_AND_SIZE = 2


def regrouped(
    before: Shape,
    own: Shape,
    now: Shape,
    grids: Mapping[Shape, Set[Shape]] = MappingProxyType({}),
    order: Sequence[int] | None = None,
    seen: Mapping[int, Set[int]] = MappingProxyType({}),
    may_guess: bool = True,
) -> Shape | None:
    """The shape that a Reshape from ``before`` to ``own`` gives ``now``: it merges axes, and splits those as long as before.

    One that is not is split as the ``grids`` say, by the lengths that it is split into in ``own``, if in one way alone. Where a
    Transpose follows, which puts axes into an ``order``, an axis of an image is split into as large windows: their number comes
    first there. Or else one of the lengths is ``seen`` to have changed elsewhere. Where one ``may_guess``, it is split into as
    few areas, if it has the positions of an image in a row or is an axis of one. None for others, or where the axes of both do
    not fall into groups.
    """
    if len(before) != len(now) or 0 in before or any(length != 1 for was, length in zip(before, now, strict=True) if was == 1):
        return None
    given = [(was, length) for was, length in zip(before, now, strict=True) if was != 1]
    is_image = sum(was != length for was, length in given) > 1
    axes, shape = [axis for axis, length in enumerate(own) if length != 1], [1] * len(own)
    while given and axes:
        merged, parts = 1, 1
        while (size := math.prod(was for was, _ in given[:merged])) != (
            wanted := math.prod(own[axis] for axis in axes[:parts])
        ):
            if size < wanted and merged < len(given):
                merged += 1
            elif wanted < size and parts < len(axes):
                parts += 1
            else:
                return None
        if parts == 1:
            shape[axes[0]] = math.prod(length for _, length in given[:merged])
        elif all(was == length for was, length in given[:merged]):
            for axis in axes[:parts]:
                shape[axis] = own[axis]
        else:
            size, split = math.prod(length for _, length in given[:merged]), tuple(own[axis] for axis in axes[:parts])
            found = [grid for grid in _grids_within(split, grids) if math.prod(grid) == size]
            if not found and is_image and merged == 1 and order is not None and parts == _NUMBER_AND_SIZE:
                found = _in_windows(split, size, [order[axis] for axis in axes[:parts]])
            found = found or _with_one_length(split, size, seen)
            is_one = (is_image and merged == 1) or any(math.prod(grid) == math.prod(split) for grid in grids)
            if not found and may_guess and is_one:
                found = _in_areas(split, size)
            if len(found) != 1:
                return None
            for axis, length in zip(axes[:parts], found[0], strict=True):
                shape[axis] = length
        given, axes = given[merged:], axes[parts:]
    return None if given or axes else tuple(shape)


def _grids_within(split: Shape, grids: Mapping[Shape, Set[Shape]]) -> list[Shape]:
    """The lengths of an axis that is split as a grid is, or so behind one that keeps its length, as the times of a video."""
    within = ((split[0], *grid) for grid in grids.get(split[1:], ()))
    return [*grids.get(split, ()), *within]


def _in_areas(split: Shape, size: int) -> list[Shape]:
    """The lengths of an axis of ``size`` positions in a row that is ``split`` into as few areas as at its own size."""
    few, *others, many = sorted(split)
    if others or few * _MANY_MORE > many or size % few:
        return []
    return [tuple(few if length == few else size // few for length in split)]


def _with_one_length(split: Shape, size: int, seen: Mapping[int, Set[int]]) -> list[Shape]:
    """The lengths of an axis of ``size`` that is ``split``, where one of them is ``seen`` to have changed so elsewhere."""
    found = list[Shape]()
    for place, was in enumerate(split):
        others = math.prod(split) // was
        if size % others == 0 and size // others in seen.get(was, ()):
            found.append((*split[:place], size // others, *split[place + 1 :]))
    return found


def _in_windows(split: Shape, size: int, order: Sequence[int]) -> list[Shape]:
    """The lengths of an axis of ``size`` that is ``split`` into windows and their number, which comes first in ``order``."""
    window = order.index(max(order))
    if size % split[window]:
        return []
    return [tuple(length if place == window else size // split[window] for place, length in enumerate(split))]
