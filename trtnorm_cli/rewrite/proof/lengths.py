"""Numbers that are lengths of axes: what Shape gives, and what is picked of it, joined and computed.

A number that is computed from the length of an axis holds at that length alone, so that the axis keeps it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

import numpy as np

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.rewrite.proof.axes import Axes

# No shape is longer.
_MOST_NUMBERS = 16
_PICKING = frozenset({"Gather", "Slice"})
_PASSED_ON = frozenset({"Cast", "Identity", "Squeeze", "Unsqueeze"})
_ARITHMETIC: dict[str, Callable[[int, int], int]] = {"Add": operator.add, "Mul": operator.mul, "Sub": operator.sub}


@dataclass(frozen=True)
class Length:
    """The length of ``axis``, whatever it is."""

    axis: int


@dataclass(frozen=True)
class Stated:
    """The number that stands at ``place`` of the constant ``name``."""

    value: int
    name: str
    place: int


# A tensor of integers without axes, or along one.
Numbers = list["int | Length | Stated"]


def numbers_of(name: str, value: np.ndarray) -> Numbers | None:
    """The integers of a constant; None of what is no shape."""
    if value.dtype.kind not in "iu" or value.ndim > 1 or value.size > _MOST_NUMBERS:
        return None
    return [Stated(int(one), name, place) for place, one in enumerate(value.ravel())]


def value_of(number: int | Length | Stated, sizes: Sequence[int]) -> int:
    """The number at the lengths ``sizes`` of all axes."""
    if isinstance(number, Length):
        return sizes[number.axis]
    return number.value if isinstance(number, Stated) else number


def lengths(axes: Sequence[int], start: int, end: int | None) -> Numbers:
    """The result of Shape."""
    return [Length(axis) for axis in axes[start:end]]


def computed(operator_name: str, given: Sequence[Numbers | None], axes: Axes, used: set[Stated]) -> Numbers | None:
    """The result of an operator on numbers that are all known; None where they are not, or the operator is not known.

    What is computed or picked with is added to those ``used``, which may not be stated anew.
    """
    known = [one for one in given if one is not None]
    if len(known) != len(given) or not known:
        return None
    if operator_name in _PASSED_ON:
        return known[0]
    if operator_name == "Concat":
        return [one for numbers in known for one in numbers]
    if operator_name in _PICKING:
        used.update(one for numbers in known[1:] for one in numbers if isinstance(one, Stated))
        places = _picked(operator_name, len(known[0]), known[1:])
        return None if places is None else [known[0][place] for place in places]
    arithmetic = _ARITHMETIC.get(operator_name)
    if arithmetic is None or len(known) != 2 or len(known[0]) != len(known[1]):
        return None
    axes.keep(one.axis for numbers in known for one in numbers if isinstance(one, Length))
    used.update(one for numbers in known for one in numbers if isinstance(one, Stated))
    pairs = zip(*([value_of(one, axes.sizes) for one in numbers] for numbers in known), strict=True)
    return [arithmetic(a, b) for a, b in pairs]


def _picked(operator_name: str, length: int, given: Sequence[Numbers]) -> Sequence[int] | None:
    """The places, of so many, that a Gather or Slice takes; None where these are not stated."""
    if any(isinstance(one, Length) for numbers in given for one in numbers):
        return None
    stated = [[value_of(one, ()) for one in numbers] for numbers in given]
    if operator_name == "Gather":
        return stated[0] if all(-length <= one < length for one in stated[0]) else None
    start, end, _, step = [*stated, [0], [1]] if len(stated) == 2 else [*stated, [1]] if len(stated) == 3 else stated
    return range(length)[start[0] : end[0] : step[0]]
