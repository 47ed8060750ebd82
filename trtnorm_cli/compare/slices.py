"""The places that a Slice takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trtnorm_cli.compare.sized_tensors import Shape

# The first one, the one behind the last, and the step from one to the next, counted from the front. What a step of less than
# zero leads behind the last one may be -1.
Places = tuple[int, int, int]


def places_by_axis(numbers: Sequence[Sequence[Any] | None], shape: Shape) -> dict[int, Places] | None:
    """The places that a Slice takes of each axis of ``shape``, by its ``numbers``: starts, ends, axes and steps.

    None where starts or ends are not known. Raises ``ArithmeticError``, ``TypeError`` or ``ValueError`` for what is malformed.
    """
    starts, ends, axes, steps = numbers
    if starts is None or ends is None:
        return None
    found = {axis: (0, length, 1) for axis, length in enumerate(shape)}
    along = range(len(starts)) if axes is None else axes
    for axis, start, end, step in zip(along, starts, ends, steps or [1] * len(starts), strict=True):
        at = int(axis) % len(shape)
        found[at] = slice(int(start), int(end), int(step)).indices(shape[at])
    return found
