"""Constants with numbers for each position of an image, of which some numbers are taken at a smaller one.

Nothing is seen of the numbers that are left out, so that they have to be the same in every model: to the bit where both store
them. What a model works out in float32 is rounded elsewhere than in float64, and than what another one stores of it. A change
may have multiplied all of them by a factor, as the scale of an attention.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path

import numpy as np

from trtnorm_cli.compare.sized_tensors import ConstantInPart, NotTheSame, Shape, SizedTensors, spread_places
from trtnorm_cli.errors import ModelError
from trtnorm_cli.evaluate.float64 import Float64Model, ReferenceUnavailable, evaluate_float64
from trtnorm_cli.light_dataclass import dataclass

# Numbers that are added to positions lie no further apart, but for those that mask some of them: the coordinates of a detector
# do not either, which may be that large.
_APART, _LARGEST = 8.0, 512.0
# Nor is any factor of a position, or its inverse, or both factors of a rotation together. Detectors multiply by the strides of
# their feature maps.
_LARGEST_FACTOR = 128.0
# Of positions that a mask hides, as those at the border of a detector's image, there are few: at least such a part of all is
# let through.
_SHARE_LET_THROUGH = 0.9
# What is worked out differs by such a part of itself at most, or of the largest number of its channel: the sine of an angle of
# up to 64, rounded to float32.
_ROUNDING = 2.0**-18
# A number that was multiplied by a factor differs by such a part of itself. A factor differs from one by more than a defect.
_ROUNDED_ONCE, _NO_FACTOR = 2.0**-22, 2.0**-10
# So many of all constants are kept, and worked out at once in float64.
_MOST_NUMBERS, _NUMBERS_AT_ONCE = 1 << 26, 1 << 23


@dataclass(frozen=True)
class _Numbers:
    """One constant, of which as many of its ``lengths`` are taken so many ``times``."""

    digest: bytes
    values: np.ndarray
    lengths: Shape
    is_worked_out: bool
    times: int
    is_a_sum: bool = False

    def is_same_as(self, other: _Numbers) -> bool:
        """True where the ``other`` has the same numbers but for rounding."""
        if not self._is_like(other) or not (self.is_worked_out or other.is_worked_out):
            return False
        if not np.array_equal(_hiding(self.values), _hiding(other.values)):
            return False
        return bool(np.all(np.abs(_shown(self.values) - _shown(other.values)) <= self._allowed(other)))

    def is_multiple_of(self, other: _Numbers) -> bool:
        """True where the ``other`` has the same numbers but for one factor, and rounding.

        A wrong factor shows at the positions that are taken.
        """
        if (
            not self._is_like(other)
            or not np.any(other.values)
            or np.any(_hiding(self.values))
            or np.any(_hiding(other.values))
        ):
            return False
        one, their = self.values.astype(np.float64), other.values.astype(np.float64)
        factor = float(np.vdot(one, their) / np.vdot(their, their))
        if abs(factor - 1) < _NO_FACTOR:
            return False
        is_worked_out = self.is_worked_out or other.is_worked_out
        return bool(
            np.all(np.abs(one - factor * their) <= (self._allowed(other) if is_worked_out else _ROUNDED_ONCE * np.abs(one)))
        )

    def _is_like(self, other: _Numbers) -> bool:
        return self.lengths == other.lengths and self.values.shape == other.values.shape

    def _allowed(self, other: _Numbers) -> np.ndarray:
        """A part of each number, or where sums are rounded, of the largest along the axes of which some positions are taken."""
        if not (self.is_a_sum or other.is_a_sum):
            return np.asarray(_ROUNDING * np.abs(_shown(self.values)))
        axes = tuple(
            axis for axis, (whole, taken) in enumerate(zip(self.values.shape, self.lengths, strict=True)) if taken < whole
        )
        return np.asarray(_ROUNDING * np.abs(_shown(self.values)).max(axes, keepdims=True))


class NotTheSameInPart(NotTheSame):
    """Numbers of which this part might not show what the whole does. A larger one may."""


class PositionNumbers:
    """The constants that a model reads in part."""

    def __init__(self, ones: Sequence[_Numbers]) -> None:
        self._ones = ones

    def __len__(self) -> int:
        return sum(one.times for one in self._ones)

    def are_those_of(self, other: PositionNumbers) -> bool:
        """True where the ``other`` model has the same numbers, as often."""
        left = {one.digest: one.times for one in other._ones}
        wanted = list(self._ones)
        # What is another's multiple may be the very numbers of a third one.
        for is_alike in (lambda one, their: one.digest == their.digest, _Numbers.is_same_as, _Numbers.is_multiple_of):
            rest = list[_Numbers]()
            for one in wanted:
                same = next((each for each in other._ones if one.times <= left[each.digest] and is_alike(one, each)), None)
                if same is None:
                    rest.append(one)
                else:
                    left[same.digest] -= one.times
            wanted = rest
        return not wanted and not any(left.values())

    @staticmethod
    def of(sized: SizedTensors, folder: Path | None, known: dict[str, np.ndarray] | None = None) -> PositionNumbers:
        """The constants that a model reads in part. Values that were worked out are ``known``.

        Raises ``NotTheSameInPart`` where this part might not show what the whole does: parts of two constants are the same, or
        all numbers are equal along the axes that are shorter; and ``NotTheSame`` where no part does, as some numbers are as
        large as those that keep data from what follows.
        """
        ones = list(sized.constants_in_part())
        values = {} if known is None else known
        names = {name for one in ones for name in (one.name, one.turned_with) if name}
        _require_few(sized, names)
        for some in _in_turns(sized, sorted(names - values.keys())):
            values |= _evaluated(sized, some, folder)
        found: dict[ConstantInPart, bytes] = {}
        numbers: dict[bytes, _Numbers] = {}
        of_parts: dict[bytes, bytes] = {}
        for one in ones:
            if one not in found:
                whole = values[one.name]
                part = _part(whole, one.lengths)
                turned = whole if one.turned_with is None else _rotation(whole, values[one.turned_with])
                turned = turned if one.keeps is None else (whole == one.keeps).astype(np.float32)
                factors = turned if one.is_factor else None
                if not _may_be_taken_in_part(whole, factors):
                    raise NotTheSame(one.name)
                shown = whole if one.keeps is None else turned
                if not _shows_the_whole(_part(shown, one.lengths), shown, factors):
                    raise NotTheSameInPart(one.name)
                found[one] = _digest(whole, one.lengths)
                if of_parts.setdefault(_digest(part, one.lengths), found[one]) != found[one]:
                    raise NotTheSameInPart(one.name)
            key, is_worked_out = found[one], sized.is_worked_out(one.name)
            before = numbers.get(key)
            times, is_worked_out = (1, is_worked_out) if before is None else (before.times + 1, before.is_worked_out)
            is_a_sum = sized.is_worked_out(one.name, sums_alone=True) or (before is not None and before.is_a_sum)
            numbers[key] = _Numbers(key, values[one.name].squeeze(), _without_ones(one.lengths), is_worked_out, times, is_a_sum)
        return PositionNumbers(list(numbers.values()))


def _require_few(sized: SizedTensors, names: Set[str]) -> None:
    if sum(_elements(sized, name) for name in names) > _MOST_NUMBERS:
        raise NotTheSame("too many numbers for each position")


def _elements(sized: SizedTensors, name: str) -> int:
    return math.prod(sized.known_shape(name) or ())


def _in_turns(sized: SizedTensors, names: Sequence[str]) -> Iterator[Set[str]]:
    """Constants that are worked out together, as many may come from one; no more than there is memory for."""
    some, count = set[str](), 0
    for name in names:
        if some and count + _elements(sized, name) > _NUMBERS_AT_ONCE:
            yield some
            some, count = set(), 0
        some.add(name)
        count += _elements(sized, name)
    if some:
        yield some


def _evaluated(sized: SizedTensors, names: Set[str], folder: Path | None) -> Mapping[str, np.ndarray]:
    """The values of constants, in float32 where they are stored so, or rounded anyway."""
    try:
        found = evaluate_float64(Float64Model(sized.maker(names), folder), {}).outputs
    except (ModelError, ReferenceUnavailable) as error:  # for others to say
        raise NotTheSame(", ".join(sorted(names))) from error
    return {name: _short(value, sized.is_worked_out(name)) for name, value in found.items()}


def _short(value: np.ndarray, is_rounded: bool) -> np.ndarray:
    if value.dtype == bool:
        return value.astype(np.float32)
    if value.dtype != np.float64:
        return value
    with np.errstate(over="ignore", invalid="ignore"):
        short = value.astype(np.float32)
    return short if is_rounded or np.array_equal(short, value) else value


def _rotation(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """How much both numbers of each rotation let through together: one of them may be zero."""
    return np.hypot(one, other) if one.shape == other.shape else one


def _may_be_taken_in_part(whole: np.ndarray, factors: np.ndarray | None) -> bool:
    """True for moderate numbers, beside which a few may hide what is at their positions.

    ``factors`` is how much is let through at each position, and None where they are added.
    """
    if whole.dtype.kind != "f" or not whole.size:
        return False
    if factors is not None:
        return _are_few(factors == 0) and _are_factors(factors[factors != 0])
    is_shown = _is_shown(whole)
    return _are_few(~is_shown) and _are_steady(whole[is_shown]) and not np.isnan(whole).any()


def _shows_the_whole(part: np.ndarray, whole: np.ndarray, factors: np.ndarray | None) -> bool:
    """True where no numbers are equal along the axes of which a part is taken, and others not, and where they are steady."""
    is_shown = _is_shown(part) if factors is None else _lets_through(part)
    if not part.size or (factors is None and not (_are_few(~is_shown) and _are_steady(part[is_shown]))):
        return False
    axes = tuple(axis for axis, (length, taken) in enumerate(zip(whole.shape, part.shape, strict=True)) if taken < length)
    hides, would_hide = (np.any(_hides(each, factors is not None), axes) for each in (part, whole))
    if np.any(would_hide & ~hides):
        return False  # what becomes of a position that is hidden
    are_shown = _is_shown(whole) if factors is None else _lets_through(whole)
    if np.any(2 * np.mean(is_shown, axes) < np.mean(are_shown, axes)):
        return False  # of a mask that blends two tensors, say, the part may show one of them alone
    return not np.any((np.ptp(part, axes) == 0) & (np.ptp(whole, axes) > 0))


def _part(whole: np.ndarray, lengths: Shape) -> np.ndarray:
    places = spread_places(whole.shape, lengths)
    return whole[np.ix_(*(places.get(axis, range(length)) for axis, length in enumerate(whole.shape)))]


def _hides(values: np.ndarray, are_factors: bool) -> np.ndarray:
    return np.asarray(values == 0) if are_factors else ~_is_shown(values)


def _lets_through(factors: np.ndarray) -> np.ndarray:
    return np.asarray(np.abs(factors) >= 1 / _LARGEST_FACTOR)


def _is_shown(added: np.ndarray) -> np.ndarray:
    """Where what a number is added to still shows: beside the largest float it does not."""
    return np.asarray(np.abs(added) <= _LARGEST)


def _shown(added: np.ndarray) -> np.ndarray:
    return np.where(_is_shown(added), added, np.zeros_like(added))


def _hiding(added: np.ndarray) -> np.ndarray:
    return np.where(_is_shown(added), np.zeros_like(added), added)


def _are_few(hidden: np.ndarray) -> bool:
    """True where nearly all positions are let through."""
    return float(np.mean(hidden)) <= 1 - _SHARE_LET_THROUGH


def _are_factors(values: np.ndarray) -> bool:
    """False for numbers that are not finite, and for those near zero, which keep data from what follows."""
    sizes = np.abs(values)
    return bool(sizes.max() <= _LARGEST_FACTOR and sizes.min() >= 1 / _LARGEST_FACTOR)


def _are_steady(values: np.ndarray) -> bool:
    """False for numbers that are not finite, or of which some are far from all others, with zero among these."""
    largest = np.abs(values).max()
    if largest <= _APART:
        return True
    return bool(largest <= _LARGEST and np.diff(np.unique(np.append(values, 0.0))).max() <= _APART)


def _digest(value: np.ndarray, lengths: Shape) -> bytes:
    """A digest of the elements in order, and of the ``lengths`` that are taken of them, whatever axes of one lie between."""
    found = hashlib.blake2b(np.ascontiguousarray(value).data, digest_size=20)
    found.update(str(_without_ones(lengths)).encode())
    return found.digest()


def _without_ones(lengths: Shape) -> Shape:
    return tuple(length for length in lengths if length != 1)
