"""Axes of a region's tensors, which of them have one length, and how short they may be without proving less.

A convolution does the same at every position: a proof needs positions that reach every weight, and those at either border. A
normalization does the same for every row. So axes are shortened that no operator sums over and no constant has. Axes that a
normalization reduces keep their length, since constants such as 1/n come from it; so do channels, which weights have.

Shortening the input of a convolution of stride s by s·m shortens its output by m. Lengths are therefore solved for together:
each set of axes that hang together is shortened by m times a rate for each axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

# The least length of a batch, and of any other axis; two axes that are shortened stay different in length where they can.
_BATCH, _POSITIONS = 2, 3


class NotShortened(Exception):
    """An operator for which positions cannot be left out, or of which that is not known."""


class Axes:
    """The axes met so far, by number. With ``may_split`` one that is split, or that others become, may be shortened, too."""

    def __init__(self, may_split: bool = False) -> None:
        self.sizes: list[int] = []
        self.may_split = may_split
        self._needs: list[int] = []
        self._links: list[list[tuple[int, int | Fraction]]] = []
        self._found: list[tuple[dict[int, int], int]] | None = None

    def new(self, size: int, need: int = 1) -> int:
        """A further axis. ``need`` is how short it may get."""
        if size < 1:
            raise NotShortened
        self.sizes.append(size)
        self._needs.append(min(need, size))
        self._links.append([])
        self._found = None
        return len(self.sizes) - 1

    def fed(self, shape: Sequence[int]) -> list[int]:
        """The axes of a tensor that may be shortened as far as its readers let it."""
        return [self.new(size, _POSITIONS if place else _BATCH) for place, size in enumerate(shape)]

    def made(self, size: int) -> int:
        """An axis that an operator makes of others, which may be shortened as far as its readers let it."""
        return self.new(size, _POSITIONS)

    def fixed(self, shape: Iterable[int]) -> list[int]:
        return [self.new(size, size) for size in shape]

    def keep(self, axes: Iterable[int]) -> None:
        """These keep their length."""
        for axis in axes:
            self.need(axis, self.sizes[axis])

    def need(self, axis: int, size: int) -> None:
        self._needs[axis] = min(max(self._needs[axis], size), self.sizes[axis])
        self._found = None

    def link(self, axis: int, other: int, rate: int = 1) -> None:
        """Where ``other`` is shortened by one, ``axis`` is shortened by ``rate``."""
        if axis != other:
            self._found = None
            # Nearly all rates are 1, and whole numbers are many times as fast as fractions.
            self._links[other].append((axis, rate))
            self._links[axis].append((other, 1 if rate == 1 else Fraction(1, rate)))

    def same(self, axes: Sequence[int]) -> int:
        """The one axis that all of these are; those of length one are repeated along it."""
        long = [axis for axis in axes if self.sizes[axis] > 1]
        for axis in long[1:]:
            if self.sizes[axis] != self.sizes[long[0]]:
                raise NotShortened
            self.link(axis, long[0])
        return long[0] if long else axes[0]

    def shortened(self, further: int = 0) -> list[int]:
        """The length of every axis: as short as it may be, and ``further`` steps."""
        sizes = list(self.sizes)
        number = 0
        for rates, most_steps in self._sets():
            steps = max(most_steps - further, 0)
            if steps:
                # Every other set is a step longer: lengths that differ show what was swapped.
                steps -= number % 2
                number += 1
            for each, rate in rates.items():
                sizes[each] -= steps * rate
        return sizes

    def _sets(self) -> list[tuple[dict[int, int], int]]:
        """Each set of axes that are shortened together, with the most steps for it; found once for all lengths."""
        if self._found is None:
            done: set[int] = set()
            self._found = []
            for axis in range(len(self.sizes)):
                if axis not in done:
                    rates = self._hanging_together(axis)
                    done.update(rates)
                    steps = min((self.sizes[each] - self._needs[each]) // rate for each, rate in rates.items())
                    self._found.append((rates, steps))
        return self._found

    def _hanging_together(self, axis: int) -> dict[int, int]:
        """The axes that are shortened with ``axis``, and by how much in one step: whole numbers.

        Raises ``NotShortened`` where two ways lead to different rates.
        """
        rates: dict[int, int | Fraction] = {axis: 1}
        waiting = [axis]
        while waiting:
            current = waiting.pop()
            for other, rate in self._links[current]:
                expected = rates[current] * rate
                if other not in rates:
                    rates[other] = expected
                    waiting.append(other)
                elif rates[other] != expected:
                    raise NotShortened
        whole = math.lcm(*(rate.denominator for rate in rates.values()))
        return {other: int(rate * whole) for other, rate in rates.items()}
