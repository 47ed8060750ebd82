"""A box of positions that a Reshape leaves where they are, in the axes of its result."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from trtnorm_cli.compare.axis_links import Range
from trtnorm_cli.compare.sized_tensors import Shape


def regrouped_ranges(ranges: Sequence[Range], before: Shape, after: Shape) -> tuple[Range, ...] | None:
    """Ranges of axes ``after`` a Reshape within which all is that was in the ``ranges`` of those ``before``, if not always all.

    Of axes that are merged, positions in a row count; of one that is split, whole parts, or those within one. None where the
    axes do not fall into groups.
    """
    found = [(0, length) for length in after]
    held = [axis for axis, length in enumerate(before) if length == 1 and ranges[axis] != (0, 1)]
    groups = list(_groups(before, after))
    if held or sum(len(made) for _, made in groups) < sum(length != 1 for length in after):
        return None
    for given, made in groups:
        row = _in_a_row([ranges[axis] for axis in given], [before[axis] for axis in given])
        for axis, one in zip(made, _box(row, [after[axis] for axis in made]), strict=True):
            found[axis] = one
    return tuple(found)


def _groups(before: Shape, after: Shape) -> Iterator[tuple[list[int], list[int]]]:
    """Axes of both shapes that have as many elements, those of one position left out."""
    given, made = ([axis for axis, length in enumerate(shape) if length != 1] for shape in (before, after))
    while given and made:
        some, others = 1, 1
        while (left := math.prod(before[axis] for axis in given[:some])) != (
            right := math.prod(after[axis] for axis in made[:others])
        ):
            some, others = (some + 1, others) if left < right else (some, others + 1)
            if some > len(given) or others > len(made):
                return
        yield given[:some], made[:others]
        given, made = given[some:], made[others:]


def _in_a_row(ranges: Sequence[Range], lengths: Sequence[int]) -> Range:
    """Positions in a row, when these axes are one, that lie in all ``ranges``."""
    (first, stop), size = ranges[-1], lengths[-1]
    for (low, high), length in zip(ranges[-2::-1], lengths[-2::-1], strict=True):
        is_whole = (first, stop) == (0, size)
        first, stop = (low * size, high * size) if is_whole else (low * size + first, low * size + stop)
        size *= length
    return first, stop


def _box(row: Range, lengths: Sequence[int]) -> list[Range]:
    """The ranges of axes of these ``lengths`` in which all lies within a ``row`` of positions."""
    found = list[Range]()
    for axis in range(len(lengths)):
        part, (first, stop) = math.prod(lengths[axis + 1 :]), row
        whole = -(-first // part), stop // part
        if whole[0] < whole[1] or first >= stop:
            return [*found, whole, *((0, length) for length in lengths[axis + 1 :])]
        # It lies in one part, or in two of which neither is whole.
        parts = [(at, (max(first - at * part, 0), min(stop - at * part, part))) for at in {first // part, (stop - 1) // part}]
        at, row = max(parts, key=lambda one: one[1][1] - one[1][0])
        found.append((at, at + 1))
    return found
