"""Prove optimization profiles before the build, with every size in the model at min, opt and max, and the rules behind them.

Without a GPU TensorRT checks a profile's opt alone, and a size that fits nowhere shows only when the engine runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache

import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.fixed_inputs import unread_inputs
from trtnorm_cli.profile.conflicts import Conflict, conflict_problems, notes_between, sizes_at
from trtnorm_cli.profile.edits import Corners, EntryEdit, edited, edits_for
from trtnorm_cli.profile.facts import fixed_inputs
from trtnorm_cli.profile.fit import FittedProfile, FittedProfiles, fit
from trtnorm_cli.profile.memory import MemoryEstimate, MemoryRecord, estimate_memory, memory_problem
from trtnorm_cli.profile.model import BuildProfile
from trtnorm_cli.profile.model_input import ModelInput
from trtnorm_cli.profile.problems import Problem, refusal
from trtnorm_cli.profile.shape_inputs import missing_values
from trtnorm_cli.record import Record
from trtnorm_cli.shapes.condition import equal
from trtnorm_cli.shapes.constraint import Constraint
from trtnorm_cli.shapes.evaluate import values_at
from trtnorm_cli.shapes.expression import Size, modulo, symbol
from trtnorm_cli.shapes.propagate import Propagation, propagate
from trtnorm_cli.shapes.repair import repaired, solve_each
from trtnorm_cli.shapes.solve import LegalSizes, SizeRule, solve
from trtnorm_cli.shapes.symbols import axis_symbol, value_symbol
from trtnorm_cli.shapes.tensor import SymbolicTensor

_FIRST_DEMANDS = 3


@dataclass(frozen=True)
class SizeRecord(Record):
    """An open size in one optimization profile, and the values that it may have by itself.

    ``legal`` is their rule, None where they follow no simple one, and ``text`` says it in words. ``demands`` are those of the
    first nodes that ask for it.
    """

    profile: str
    name: str
    min: int
    opt: int
    max: int
    legal: SizeRule | None
    text: str
    demands: tuple[str, ...]


@dataclass(frozen=True)
class ProofRecord(Record):
    """A ``Proof`` as the manifest has it: its notes, the memory that each optimization profile implies, and the open sizes."""

    notes: tuple[str, ...]
    memory: dict[str, MemoryRecord]
    sizes: tuple[SizeRecord, ...] = ()


@dataclass(frozen=True)
class Proof:
    """A profile whose sizes fit the model at min, opt and max of every optimization profile.

    ``profile`` and ``fitted`` hold the sizes after snapping. ``notes`` list the snapped sizes, and sizes inside a range that do
    not fit. ``constraints`` are the model's demands. ``memory`` has one estimate for each optimization profile.
    ``tensors`` are the model's, as expressions of its sizes.
    """

    profile: BuildProfile | None
    fitted: FittedProfiles
    notes: tuple[str, ...] = ()
    memory: tuple[MemoryEstimate, ...] = ()
    constraints: tuple[Constraint, ...] = field(default=(), repr=False)
    inputs: tuple[ModelInput, ...] = field(default=(), repr=False)
    tensors: Mapping[str, SymbolicTensor] | None = field(default=None, repr=False)

    def record(self) -> ProofRecord:
        sizes = tuple(
            self._size(one.name, *each) for one in self.fitted.profiles for each in sizes_of(one, self.inputs).items()
        )
        return ProofRecord(self.notes, {estimate.profile: estimate.record() for estimate in self.memory}, sizes)

    def _size(self, profile: str, name: str, corners: Corners) -> SizeRecord:
        own = [constraint for constraint in self.constraints if constraint.symbols == {name}]
        legal = _legal(tuple(constraint.condition for constraint in own), name, max(corners))
        demands = dict.fromkeys(f"{constraint.place}: {constraint.demand}" for constraint in own)
        return SizeRecord(profile, name, *corners, legal.rule(), legal.text(), tuple(demands)[:_FIRST_DEMANDS])

    def nearest_legal(self, name: str, size: int, least: int, most: int) -> int:
        """A size of the symbol ``name`` from ``least`` to ``most`` that fits by itself, or ``size`` where there is none."""
        legal = _legal(tuple(c.condition for c in self.constraints if c.symbols == {name}), name, most)
        above = legal.at_least(size, most)
        below = legal.at_most(size, least) if above is None else above
        return size if below is None else below

    def fits(self, shapes: Mapping[str, Sequence[int]]) -> bool:
        """True where inputs of these shapes break nothing that the model demands."""
        sizes = {}
        for model_input in self.inputs:
            for axis, dim in enumerate(model_input.shape):
                if not isinstance(dim, int):
                    sizes[dim or axis_symbol(model_input.name, axis)] = int(shapes[model_input.name][axis])
        return all(constraint.holds(sizes) for constraint in self.constraints)


@lru_cache(maxsize=64)
def _legal(conditions: tuple[Size, ...], name: str, most: int) -> LegalSizes:
    return solve(conditions, name, most)


def prove(
    model: onnx.ModelProto,
    inputs: Sequence[ModelInput],
    profile: BuildProfile | None,
    fitted: FittedProfiles,
    snap: bool = False,
) -> Proof:
    """Check the sizes of ``fitted`` in every node of ``model``. With ``snap``, move sizes that do not fit to ones that do.

    Raises one ProfileError with every conflict. Each has node, sizes, line, the rule that legal sizes follow, and the lines to
    paste. It also raises one for inputs without values that decide sizes, and for a profile that needs more memory than is
    allowed.
    """
    lows = _lows(fitted, inputs)
    found = propagate(model, lows)
    given = profile or BuildProfile()
    if problems := missing_values(found, given, fitted, [sizes_of(one, inputs) for one in fitted.profiles]):
        raise refusal(problems, given.positions)
    notes: list[str] = []
    problems, edits = _conflicts(found, given, fitted, inputs)
    if problems and snap and edits is not None:
        notes = [f"snapped: {_described(edit, given)}" for edit in edits]
        given = edited(given, edits)
        fitted = fit(given, inputs)
        problems, _ = _conflicts(found, given, fitted, inputs)
    if problems:
        raise refusal(problems, given.positions)
    notes += unread_inputs(fixed_inputs(fitted))
    notes += _between(found, given, fitted, inputs)
    memory = tuple(estimate_memory(model, found, one.name, sizes_of(one, inputs)) for one in fitted.profiles)
    too_large = [p for index, m in enumerate(memory) if (p := memory_problem(m, given, index)) is not None]
    if too_large:
        raise refusal(too_large, given.positions)
    constraints = tuple(found.constraints)
    return Proof(profile and given, fitted, tuple(dict.fromkeys(notes)), memory, constraints, tuple(inputs), found.tensors)


def sizes_of(profile: FittedProfile, inputs: Sequence[ModelInput]) -> dict[str, Corners]:
    """Min, opt and max of every symbol.

    Dimensions go by name, ``x[2]`` for those without one, and ``x.values[0]`` for elements.
    """
    found: dict[str, Corners] = {}
    for model_input in inputs:
        shapes = profile.shapes[model_input.name]
        for axis, dim in enumerate(model_input.shape):
            if not isinstance(dim, int):
                name = dim or axis_symbol(model_input.name, axis)
                found[name] = (shapes.min[axis], shapes.opt[axis], shapes.max[axis])
    for name, values in profile.values.items():
        for index, corners in enumerate(zip(*values, strict=True)):
            low, opt, high = corners
            found[value_symbol(name, index)] = (low, opt, high)
    return found


def _lows(fitted: FittedProfiles, inputs: Sequence[ModelInput]) -> dict[str, int]:
    """The symbols that can be 0. All others are at least 1."""
    return {name: 0 for one in fitted.profiles for name, corners in sizes_of(one, inputs).items() if min(corners) == 0}


def _conflicts(
    found: Propagation, profile: BuildProfile, fitted: FittedProfiles, inputs: Sequence[ModelInput]
) -> tuple[list[Problem], list[EntryEdit] | None]:
    """The problems, and the edits that solve them, or None where none were found."""
    problems: list[Problem] = []
    edits: list[EntryEdit] | None = []
    for index, one in enumerate(fitted.profiles):
        sizes = sizes_of(one, inputs)
        conditions = [c.condition for c in found.constraints]
        corners = [values_at(conditions, sizes_at(sizes, corner)) for corner in range(3)]
        broken = [c for c, values in zip(found.constraints, zip(*corners, strict=True), strict=True) if 0 in values]
        if not broken:
            continue
        legal = solve_each(conditions, sizes)
        better = repaired([*conditions, *_multiples(one)], sizes)
        own_edits = None if better is None else edits_for(profile, index, inputs, better, _new_multiples(legal, better, one))
        edits = (
            None if edits is None or own_edits is None else list({edit.path: edit for edit in [*edits, *own_edits]}.values())
        )
        conflict = Conflict(one, sizes, broken, legal)
        problems += conflict_problems(conflict, own_edits, profile.positions, len(fitted.profiles) > 1)
    return problems, edits


def _multiples(profile: FittedProfile) -> list[Size]:
    """The profile's own demands on its sizes, as conditions."""
    return [equal(modulo(symbol(name), dim.multiple_of), 0) for name, dim in profile.dims.items() if dim.multiple_of]


def _new_multiples(legal: Mapping[str, LegalSizes], sizes: Mapping[str, Corners], profile: FittedProfile) -> dict[str, int]:
    """The number that a dimension's legal values are multiples of, where the profile does not say so already."""
    found = {}
    for name, (low, _, high) in sizes.items():
        rule = legal[name].rule()
        stated = profile.dims[name].multiple_of if name in profile.dims else None
        if rule is not None and rule.multiple_of and (stated or 1) % rule.multiple_of and low < high:
            found[name] = rule.multiple_of
    return found


def _described(edit: EntryEdit, profile: BuildProfile) -> str:
    return edit.line(profile.positions)


def _between(found: Propagation, profile: BuildProfile, fitted: FittedProfiles, inputs: Sequence[ModelInput]) -> Iterable[str]:
    for one in fitted.profiles:
        sizes = sizes_of(one, inputs)
        yield from notes_between(one, sizes, found.constraints, solve_each([c.condition for c in found.constraints], sizes))
