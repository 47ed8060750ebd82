"""Guards that torch.export puts on sizes, read as text and solved over the sizes that were asked for.

A guard such as ``Eq(Mod(((H - 1)//4) - 1, 2), 0)`` holds for some sizes of a range. They are found by evaluating it for every
size. An optimization profile can state a range and a multiple, so that is what is looked for.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterable, Mapping
from functools import reduce

import numpy as np

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.shapes.evaluate import Undefined, value_at, values_together
from trtnorm_cli.shapes.expression import Size
from trtnorm_cli.shapes.parse import NotAnExpression, is_function, parse_expression

# Beyond this many sizes the range is cut: guards of real models repeat with a period far below.
_MOST_SIZES = 1 << 16
_LOOKED_BEYOND = 1 << 12
# A multiple that loses less than this part of the range at its ends is preferred to a larger one that loses nothing.
_KEPT = 0.9
_LARGEST_MULTIPLE = 4096


class UnreadableGuard(ValueError):
    """The guard's text is not an expression of sizes."""


@dataclass(frozen=True)
class Guard:
    """A condition on sizes. ``names`` are the dimensions that it is about."""

    text: str
    names: tuple[str, ...]
    condition: Size

    def holds(self, sizes: Mapping[str, np.ndarray]) -> np.ndarray:
        """True for each row of ``sizes`` where it holds.

        A guard without a value there, as after a division by zero, does not.
        """
        try:
            return values_together(self.condition, sizes).astype(bool)
        except Undefined:
            rows = ({name: int(held[i]) for name, held in sizes.items()} for i in range(len(next(iter(sizes.values())))))
            return np.array([bool(value_at(self.condition, row)) for row in rows])


@dataclass(frozen=True)
class Sizes:
    """The sizes that an optimization profile can describe, which are multiples of ``multiple_of`` from ``low`` to ``high``."""

    low: int
    high: int
    multiple_of: int = 1


def read_guard(text: str) -> Guard:
    """Parse a guard as PyTorch writes it.

    Raises ``UnreadableGuard`` for anything but integer arithmetic, comparisons and the functions that SymPy prints.
    """
    plain = text.strip().rstrip(".")
    try:
        condition = parse_expression(plain)
        names = [node.id for node in ast.walk(ast.parse(plain, mode="eval")) if isinstance(node, ast.Name)]
    except NotAnExpression as error:
        raise UnreadableGuard(text) from error
    return Guard(plain, tuple(dict.fromkeys(name for name in names if not is_function(name))), condition)


def legal_sizes(guards: Iterable[Guard], low: int, high: int, wanted: int) -> Sizes | None:
    """The multiples within ``low`` … ``high`` that satisfy every one-dimensional guard, as many of the range as possible.

    ``wanted`` is the size that must stay inside, up to a multiple. A multiple that is legal beyond the range as well is
    preferred, since others can be legal by chance in a short range. None when no size of the range is legal, or the legal ones
    are no multiples of one number.
    """
    sizes, legal = _tried(guards, low, max(high, low + _LOOKED_BEYOND))
    if legal[sizes <= high].all():
        return Sizes(low, high)
    if not legal[sizes <= high].any() or legal.sum() == 1:
        return None
    found = [(m, run) for m in _multiples(low, high) if (run := _run(sizes, legal, m, wanted, high)) is not None]
    lasting = [(m, run) for m, run in found if run[1] + m > int(sizes[legal][-1])]
    within = _inside(lasting, high) or [entry for entry in _inside(found, high) if entry[2] > entry[1]]
    if not within:
        return None
    widest = max(last - first for _, first, last in within)
    if widest == 0 and wanted <= high and legal[wanted - low]:  # one size, and not the one that is wanted
        within = [entry for entry in _inside(found, high) if entry[1] <= wanted <= entry[2]] or within
        widest = max(last - first for _, first, last in within)
    multiple, first, last = next(entry for entry in within if entry[2] - entry[1] >= _KEPT * widest)
    return Sizes(first, last if high < int(sizes[-1]) else max(last, high // multiple * multiple), multiple)


def _tried(guards: Iterable[Guard], low: int, high: int) -> tuple[np.ndarray, np.ndarray]:
    """The sizes from ``low`` to ``high``, or to the last that is tried, and where all guards, of one dimension each, hold."""
    sizes = np.arange(low, min(high, low + _MOST_SIZES) + 1, dtype=np.int64)
    legal = np.ones(sizes.shape, dtype=bool)
    for guard in guards:
        (name,) = guard.names
        legal &= guard.holds({name: sizes})
    return sizes, legal


def _inside(runs: Iterable[tuple[int, tuple[int, int]]], high: int) -> list[tuple[int, int, int]]:
    """Each multiple with the first and last of its run that are not above ``high``."""
    return [(m, run[0], min(run[1], high // m * m)) for m, run in runs]


def residues(guards: Iterable[Guard], multiple: int, low: int, high: int) -> tuple[int, ...]:
    """The remainders modulo ``multiple`` that are legal for every size of the range with that remainder."""
    sizes, legal = _tried(guards, low, high)
    return tuple(r for r in range(multiple) if (sizes % multiple == r).any() and legal[sizes % multiple == r].all())


def _multiples(low: int, high: int) -> range:
    return range(1, min(high, max(high - low, 1), _LARGEST_MULTIPLE) + 1)


def _run(sizes: np.ndarray, legal: np.ndarray, multiple: int, wanted: int, high: int) -> tuple[int, int] | None:
    """First and last of the legal multiples in a row around the one in the range that is nearest to ``wanted``.

    None where none in the range is legal.
    """
    start = int(-sizes[0] % multiple)
    steps, fine = sizes[start::multiple], legal[start::multiple]
    inside = steps[steps <= high]
    if not inside.size:
        return None
    allowed = np.flatnonzero(fine[: inside.size])
    if not allowed.size:
        return None
    at = int(allowed[np.argmin(np.abs(inside[allowed] - wanted))])
    wrong = np.flatnonzero(~fine)
    before, after = wrong[wrong < at], wrong[wrong > at]
    first = int(before[-1]) + 1 if before.size else 0
    last = int(after[0]) - 1 if after.size else len(steps) - 1
    return int(steps[first]), int(steps[last])


def counterexample(guard: Guard, ranges: Mapping[str, Sizes], seed: int = 0, draws: int = 4096) -> dict[str, int] | None:
    """Sizes within ``ranges`` for which ``guard`` does not hold, the smallest of those tried.

    Corners and random sizes are tried.

    None if none is found.
    """
    rng = np.random.default_rng(seed)
    tried = {}
    for name in guard.names:
        s = ranges[name]
        first, last = -(-s.low // s.multiple_of), s.high // s.multiple_of
        tried[name] = np.concatenate([[first, last, first, last], rng.integers(first, last + 1, draws)]) * s.multiple_of
    if len(guard.names) > 1:  # the corner at which one is smallest and another largest
        tried[guard.names[-1]][2:4] = tried[guard.names[-1]][[1, 0]]
    wrong = np.flatnonzero(~guard.holds(tried))
    if not wrong.size:
        return None
    volume = reduce(operator.mul, (values[wrong].astype(np.float64) for values in tried.values()))
    return {name: int(values[wrong[np.argmin(volume)]]) for name, values in tried.items()}


def only_size(guard: Guard, low: int, high: int) -> int | None:
    """The one size of a range for which ``guard`` holds, or None when there are none or several."""
    sizes, holds = _tried([guard], low, high)
    legal = sizes[holds]
    return int(legal[0]) if legal.size == 1 else None
