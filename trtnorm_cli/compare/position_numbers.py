"""Constants with numbers for each position of an image, of which some numbers are taken at a smaller one.

Nothing is seen of the numbers that are left out, so that they have to be the same in every model: to the bit where both store
them. What a model works out in float32 is rounded elsewhere than in float64, and than what another one stores of it. A change
may have multiplied all of them by a factor, as the scale of an attention.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cached_property
from pathlib import Path

import numpy as np

from trtnorm_cli.compare.hidden_positions import (
    are_hidden,
    may_be_taken_in_part,
    part_of,
    show_enough_together,
    shows_the_whole,
    steps_meet_some,
    without_ones,
)
from trtnorm_cli.compare.sized_tensors import ConstantInPart, NotTheSame, Shape, SizedTensors
from trtnorm_cli.errors import ModelError
from trtnorm_cli.evaluate.float64 import Float64Model, ReferenceUnavailable, evaluate_float64
from trtnorm_cli.light_dataclass import dataclass

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
    are_factors: bool
    is_a_sum: bool = False

    def is_same_as(self, other: _Numbers) -> bool:
        """True where the ``other`` has the same numbers but for rounding."""
        if not self._is_like(other) or not (self.is_worked_out or other.is_worked_out):
            return False
        if not np.array_equal(self._hiding, other._hiding):
            return False
        return bool(np.all(np.abs(self._shown - other._shown) <= self._allowed(other)))

    def is_multiple_of(self, other: _Numbers) -> bool:
        """True where the ``other`` has the same numbers but for one factor, and rounding.

        A wrong factor shows at the positions that are taken.
        """
        if not self._is_like(other) or not np.any(other.values) or np.any(self._hiding) or np.any(other._hiding):
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
            return np.asarray(_ROUNDING * np.abs(self._shown))
        axes = tuple(
            axis for axis, (whole, taken) in enumerate(zip(self.values.shape, self.lengths, strict=True)) if taken < whole
        )
        return np.asarray(_ROUNDING * np.abs(self._shown).max(axes, keepdims=True))

    @cached_property
    def _shown(self) -> np.ndarray:
        """The numbers, and zeros where these hide what they are added to."""
        if self.are_factors:
            return self.values
        return np.where(are_hidden(self.values, are_factors=False), np.zeros_like(self.values), self.values)

    @cached_property
    def _hiding(self) -> np.ndarray:
        """The other numbers, and zeros elsewhere."""
        return np.where(self._shown == self.values, np.zeros_like(self.values), self.values)


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
        all numbers are equal along the axes that are shorter, or masks hide too much together; and ``NotTheSame`` where no
        part does, as too many numbers keep data from what follows.
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
        masks: dict[Shape, dict[bytes, tuple[np.ndarray, Shape]]] = {}
        for one in ones:
            if one not in found:
                whole = values[one.name]
                hidden, lost = _hidden_by(one, values)
                for taken in {pair for pair in zip(whole.shape, one.lengths, strict=True) if pair[1] < pair[0] and lost.any()}:
                    masks.setdefault(taken, {})[_digest(lost, one.lengths)] = lost, one.lengths
                found[one] = _digest(whole, one.lengths)
                # How far a number is from others shows no more than that it hides.
                part = part_of(np.where(hidden & (not one.is_factor), np.float32(np.inf), whole), one.lengths)
                if of_parts.setdefault(_digest(part, one.lengths), found[one]) != found[one]:
                    raise NotTheSameInPart(one.name)
            key, is_worked_out = found[one], sized.is_worked_out(one.name)
            before = numbers.get(key)
            times, is_worked_out = (1, is_worked_out) if before is None else (before.times + 1, before.is_worked_out)
            is_a_sum = sized.is_worked_out(one.name, sums_alone=True) or (before is not None and before.is_a_sum)
            are_factors = one.is_factor and (before is None or before.are_factors)
            lengths = without_ones(one.lengths)
            numbers[key] = _Numbers(key, values[one.name].squeeze(), lengths, is_worked_out, times, are_factors, is_a_sum)
        if not all(show_enough_together(list(some.values())) for some in masks.values()):
            raise NotTheSameInPart("masks")
        return PositionNumbers(list(numbers.values()))


def _hidden_by(one: ConstantInPart, values: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The positions that a constant hides, and those that nothing comes through: of the factors of a rotation one may be zero.

    Raises ``NotTheSame`` and ``NotTheSameInPart`` as ``PositionNumbers.of``.
    """
    read = values[one.name] if one.keeps is None else (values[one.name] == one.keeps).astype(np.float32)
    hidden = are_hidden(read, one.is_factor)
    turned = read if one.turned_with is None else _rotation(read, values[one.turned_with])
    lost = hidden if turned is read else are_hidden(turned, one.is_factor)
    if not may_be_taken_in_part(turned, lost, one.lengths, one.is_factor):
        raise NotTheSame(one.name)
    if not steps_meet_some(~lost, one.lengths) or not shows_the_whole(read, hidden, one.lengths, one.is_factor):
        raise NotTheSameInPart(one.name)
    return hidden, lost


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
    """How much both numbers of each rotation let through together."""
    return np.hypot(one, other) if one.shape == other.shape else one


def _digest(value: np.ndarray, lengths: Shape) -> bytes:
    """A digest of the elements in order, and of the ``lengths`` that are taken of them, whatever axes of one lie between."""
    found = hashlib.blake2b(np.ascontiguousarray(value).data, digest_size=20)
    found.update(str(without_ones(lengths)).encode())
    return found.digest()
