"""The error budget: nodes are raised to float32, most harmful first, until every output holds it.

What a group of nodes does is measured by making it alone low. Rounding errors of different nodes are independent, so that
squares add: this gives the order and a first guess of how many groups must be raised, and evaluations of the whole decide.
Inside the harmful groups the search goes on by halves.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import onnx

from trtnorm_cli.errors import ProfileError
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.precision.emulate import Emulator
from trtnorm_cli.precision.output_errors import OutputErrors
from trtnorm_cli.precision.plan import key_of, name_of
from trtnorm_cli.precision.units import Unit
from trtnorm_cli.records.precision import Kept

_GROUPS = 32
# A part with less than this share of all harm is raised as it is.
_WORTH_DIVIDING = 1 / 16
# Parts whose harm per node differs by less than this are alike, and dividing them further gains nothing.
_ALIKE = 2.0
# A run whose error is this share of the worst one stands for it, where it costs less.
_AS_BAD = 0.5


@dataclass(frozen=True)
class Settled:
    """The outcome of a budget: the nodes that it raised, the errors then and before, and how many runs it took."""

    kept: Mapping[str, Kept]
    errors: OutputErrors
    before: OutputErrors
    evaluations: int


@dataclass(frozen=True)
class _Part:
    """Units and single nodes that follow each other. ``harm`` is the squared error over the budget when they alone are low."""

    atoms: tuple[frozenset[str], ...]
    harm: float

    @property
    def keys(self) -> frozenset[str]:
        return frozenset().union(*self.atoms)

    @property
    def density(self) -> float:
        return self.harm / len(self.keys)


def settle(
    emulator: Emulator,
    model: onnx.ModelProto,
    units: Iterable[Unit],
    max_error: float,
    kept: Collection[str] = (),
    feeds: Sequence[int] | None = None,
) -> Settled:
    """Raise nodes of ``model`` until each output is within ``max_error`` at all inputs, or those with the numbers ``feeds``.

    The nodes ``kept`` are float32 already. Raises ``ProfileError`` where the budget cannot be held in the low type.
    """
    started = emulator.evaluations
    low = emulator.keys - frozenset(kept)
    before = emulator.errors(low, feeds)
    if before.largest <= max_error:
        return Settled({}, before, before, emulator.evaluations - started)
    _require_possible(emulator, feeds, max_error)
    search = _Search(emulator, _atoms(emulator, units, low), max_error, feeds)
    raised = search.raised()
    errors = emulator.errors(low - frozenset().union(*(part.keys for part in raised)), feeds)
    nodes = {key_of(node): node for node in model.graph.node}
    records = {
        key: _record(nodes[key], part, emulator, max_error) for part in raised for key in emulator.order if key in part.keys
    }
    # A quantised model has its precision in its integers, and what is between them may well be all float32.
    is_quantised = any(node.op_type == "QuantizeLinear" for node in model.graph.node)
    if errors.largest > max_error or (len(records) == len(low) and not is_quantised):
        raise _out_of_reach(emulator, before, max_error)
    return Settled(records, errors, before, emulator.evaluations - started)


def _require_possible(emulator: Emulator, feeds: Sequence[int] | None, max_error: float) -> None:
    errors = emulator.errors((), feeds)
    if errors.largest > max_error:
        raise ProfileError(
            f"max_error {max_error:g} cannot be held: rounding the inputs and outputs to {emulator.low.name} alone costs "
            f"{errors.largest:.2g}",
            _worst_output(errors),
            "leave the inputs and outputs float32 (io: keep), or allow more with max_error",
        )


def _out_of_reach(emulator: Emulator, before: OutputErrors, max_error: float) -> ProfileError:
    name = emulator.low.name
    return ProfileError(
        f"max_error {max_error:g} cannot be held in {name}: it would take every node in float32",
        f"{_worst_output(before)}: {before.largest:.2g} with all nodes in {name} that can be",
        "allow more with max_error, or build with precision: fp32",
    )


def _worst_output(errors: OutputErrors) -> str:
    return f"output {max(errors.judged, key=lambda name: errors.judged[name], default='')}"


def _atoms(emulator: Emulator, units: Iterable[Unit], low: frozenset[str]) -> list[frozenset[str]]:
    """Units and single nodes, each raised only as a whole, in the order of execution."""
    unit_of = {key: unit.keys & low for unit in units for key in unit.keys}
    return list(dict.fromkeys(unit_of.get(key, frozenset({key})) for key in emulator.order if key in low))


class _Search:
    """The search for the parts to raise."""

    def __init__(
        self, emulator: Emulator, atoms: Sequence[frozenset[str]], max_error: float, feeds: Sequence[int] | None
    ) -> None:
        self._emulator, self._atoms, self._max_error, self._feeds = emulator, atoms, max_error, feeds
        self._low = frozenset().union(*atoms)
        self._telling = self._telling_feed()

    def _telling_feed(self) -> int:
        """The cheapest of the inputs at which the error is about as large as at the worst: harm is measured there."""
        errors = [one.largest for one in self._emulator.errors_by_feed(self._low, self._feeds)]
        numbers = self._feeds or range(len(errors))
        bad = [number for number, error in zip(numbers, errors, strict=True) if error >= max(errors) * _AS_BAD]
        return min(bad, key=self._emulator.cost_of)

    def raised(self) -> list[_Part]:
        """The parts to raise, most harmful first, and the smaller the more of the harm is in them."""
        parts = self._ordered([self._part(atoms) for atoms in _chunks(self._atoms, _GROUPS)])
        while True:
            count = self._guess(parts)
            worth = sum(part.harm for part in parts) * _WORTH_DIVIDING
            finer = [half for part in parts[:count] for half in (self._halves(part) if part.harm >= worth else [part])]
            if len(finer) == count:
                return parts[: self._enough(parts, count)]
            parts = self._ordered([*finer, *parts[count:]])

    def _part(self, atoms: Sequence[frozenset[str]]) -> _Part:
        keys = frozenset().union(*atoms)
        errors = self._emulator.errors(keys, [self._telling])
        return _Part(tuple(atoms), (errors.largest / self._max_error) ** 2)

    def _halves(self, part: _Part) -> list[_Part]:
        """The part in two where one half does more harm, or else as it is."""
        middle = len(part.atoms) // 2
        if middle == 0:
            return [part]
        # Both are measured: a tensor between them is rounded by either, and to raise one alone would change nothing.
        first, second = self._part(part.atoms[:middle]), self._part(part.atoms[middle:])
        densities = sorted((first.density, second.density))
        alike = math.isfinite(densities[1]) and densities[1] <= _ALIKE * densities[0]
        return [part] if alike else [first, second]

    @staticmethod
    def _ordered(parts: Iterable[_Part]) -> list[_Part]:
        return sorted(parts, key=lambda part: -part.density)

    def _guess(self, parts: Sequence[_Part]) -> int:
        """How many of the first parts must be raised if squares of errors add."""
        total = (self._emulator.errors(self._low, [self._telling]).largest / self._max_error) ** 2
        together = sum(part.harm for part in parts)
        scale = total / together if math.isfinite(total) and math.isfinite(together) and together > 0 else 1.0
        left = 0.0
        for count in range(len(parts), 0, -1):
            left += parts[count - 1].harm * scale
            if not left <= 1.0:
                return count
        return 0

    def _enough(self, parts: Sequence[_Part], guess: int) -> int:
        """The smallest number of first parts with which the budget holds when they are raised, looked for around ``guess``."""
        fails, holds, step = -1, len(parts), 1
        at = guess
        while holds - fails > 1:
            at = min(max(at, fails + 1), holds - 1)
            if self._holds(parts[:at]):
                holds = at
            else:
                fails = at
            # Away from the guess in longer and longer steps, and by halves once there are two ends.
            at = holds - step if fails < 0 else fails + step if holds == len(parts) else (fails + holds) // 2
            step *= 2
        return holds

    def _holds(self, raised: Sequence[_Part]) -> bool:
        low = self._low - frozenset().union(*(part.keys for part in raised))
        if self._emulator.errors(low, [self._telling]).largest > self._max_error:
            return False
        return self._emulator.errors(low, self._feeds).largest <= self._max_error


def _chunks(atoms: Sequence[frozenset[str]], most: int) -> list[Sequence[frozenset[str]]]:
    """``atoms`` in at most so many runs of about one length."""
    count = min(most, len(atoms))
    borders = [round(index * len(atoms) / count) for index in range(count + 1)] if count else [0]
    return [atoms[begin:end] for begin, end in itertools.pairwise(borders)]


def _record(node: onnx.NodeProto, part: _Part, emulator: Emulator, max_error: float) -> Kept:
    others = len(part.keys) - 1
    alone = "alone" if others == 0 else f"with {others} node{'s' if others > 1 else ''} beside it"
    error = math.sqrt(part.harm) * max_error
    moved = f"moves an output by {error:.2g}" if math.isfinite(error) else "makes an output infinite or NaN"
    reason = f"{emulator.low.name} here, {alone}, {moved}; {max_error:g} is allowed in all"
    share = error / math.sqrt(len(part.keys))
    return Kept(name_of(node), key_of(node), node.op_type, "budget", reason, error=share if math.isfinite(share) else None)
