"""A build profile against a model's inputs. Every optimization profile becomes three shapes for every input.

TensorRT demands that dimensions of one name are equal, in all inputs and at min, opt and max. Without a GPU its builder checks
only opt, and drops a bad second profile without a word. So everything is checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.profile.dims import CORNERS, MinOptMax, Shape, entry_text
from trtnorm_cli.profile.messages import indexed
from trtnorm_cli.profile.mismatches import data_problems, rank_fault, static_faults, unknown_dims, unknown_input, value_fault
from trtnorm_cli.profile.model import BuildProfile, DimRange, OptimizationProfile, ShapeRange
from trtnorm_cli.profile.model_input import ModelInput, meant_by, symbols_of
from trtnorm_cli.profile.paste import Start, default_ranges, dim_line, input_line, paste_block
from trtnorm_cli.profile.positions import KeyPath, Positions, format_path
from trtnorm_cli.profile.problems import Problem, refusal
from trtnorm_cli.record import LEFT_OUT_BY_DEFAULT, Record
from trtnorm_cli.shapes.symbols import axis_symbol, value_symbol
from trtnorm_cli.suggest import listing

# Numbers to start from, where some dimensions have values already.
Suggest = Callable[[Mapping[str, DimRange]], Start]

__all__ = ["FittedProfile", "FittedProfiles", "ModelInput", "fit"]


@dataclass(frozen=True)
class FittedProfile:
    """One optimization profile with min, opt and max of every input, static ones included.

    ``dims`` holds the values of every symbolic dimension, and its ``multiple_of`` where the profile gives one, for
    whoever draws shapes in between. ``origins`` says where min, opt and max of each stand, and of each dimension without a
    name, which is called ``x[2]``. ``values`` are those of inputs that hold sizes. ``weight`` says how often it runs beside
    the others.
    """

    name: str
    shapes: Mapping[str, MinOptMax]
    dims: Mapping[str, DimRange]
    origins: Mapping[str, tuple[KeyPath, ...]] = field(default_factory=dict)
    values: Mapping[str, MinOptMax] = field(default_factory=dict)
    weight: float = 1.0

    def at(self, corner: str) -> dict[str, Shape]:
        """The shape of every input at ``min``, ``opt`` or ``max``."""
        return {name: getattr(shapes, corner) for name, shapes in self.shapes.items()}

    def values_at(self, corner: str) -> dict[str, Shape]:
        """The elements of every input that holds sizes at ``min``, ``opt`` or ``max``."""
        return {name: getattr(values, corner) for name, values in self.values.items()}


@dataclass(frozen=True)
class RangeRecord(Record):
    """Min, opt and max of an input: its shape or its elements."""

    min: Shape
    opt: Shape
    max: Shape


@dataclass(frozen=True)
class ProfileRecord(Record):
    """One optimization profile: the shapes of every input, and the elements of those that hold sizes."""

    name: str
    inputs: dict[str, RangeRecord]
    values: dict[str, RangeRecord] = field(default_factory=dict, metadata=LEFT_OUT_BY_DEFAULT)


@dataclass(frozen=True)
class FittedProfiles:
    """Every optimization profile of a build, at least one, and the inputs that TensorRT needs a profile for."""

    profiles: tuple[FittedProfile, ...]
    dynamic_inputs: tuple[str, ...]

    def records(self) -> tuple[ProfileRecord, ...]:
        """Each profile as the manifest has it."""
        return tuple(ProfileRecord(one.name, _records(one.shapes), _records(one.values)) for one in self.profiles)


def _records(ranges: Mapping[str, MinOptMax]) -> dict[str, RangeRecord]:
    return {name: RangeRecord(*corners) for name, corners in ranges.items()}


def fit(profile: BuildProfile | None, inputs: Sequence[ModelInput], suggest: Suggest | None = None) -> FittedProfiles:
    """The shapes of every input in every optimization profile.

    An input's own entry gives its shapes. Symbolic dimensions of other inputs take their values from the profile's ``dims``,
    then the file's ``dims``, then from an entry that fixes the same name. Static inputs come from the model.

    Where sizes are missing, ``suggest`` makes those that the message proposes. By default they follow from the names and places
    of the dimensions.

    Raises one ProfileError with every problem in the order of the file. A problem is an input or a dimension that the model
    does not have, a wrong rank, a dimension that the model fixes, one name with two values, or a dimension without values.
    """
    dynamic = tuple(model_input.name for model_input in inputs if model_input.is_dynamic)
    if dynamic and (profile is None or not (profile.optimization_profiles or profile.dims)):
        raise _no_shapes(profile, inputs, suggest)
    profile = profile or BuildProfile()
    names = profile.profile_names() or ("default",)
    fits = [_Fit(profile, index, inputs, suggest) for index in range(len(names))]
    problems = [*data_problems(profile, inputs), *unknown_dims(profile.dims, ("dims",), inputs)]
    fitted = []
    for name, one in zip(names, fits, strict=True):
        shapes, values = one.shapes(), one.values()
        problems += one.problems
        fitted.append(FittedProfile(name, shapes, one.ranges, one.origins, values, one.weight))
    if problems:
        positions = profile.positions
        raise refusal([_located(problem, positions) for problem in problems], positions)
    return FittedProfiles(tuple(fitted), dynamic)


class _Fit:
    """One optimization profile while it is being fitted."""

    def __init__(self, profile: BuildProfile, index: int, inputs: Sequence[ModelInput], suggest: Suggest | None) -> None:
        self._suggest = suggest
        self._profile = profile
        self._positions = profile.positions
        self._inputs = {model_input.name: model_input for model_input in inputs}
        declared = profile.optimization_profiles
        self._own = declared[index] if declared else OptimizationProfile()
        self._path: KeyPath = ("optimization_profiles", index) if declared else ()
        self._dims_path: KeyPath = ("dims",) if profile.dims else (*self._path, "dims") if self._own.dims else ()
        self.problems = unknown_dims(self._own.dims, (*self._path, "dims"), inputs)
        self.ranges: dict[str, DimRange] = {}
        # For each symbolic dimension the key paths that gave its min, opt and max.
        self.origins: dict[str, tuple[KeyPath, ...]] = {}
        self._take_dims(profile.dims, ("dims",), {})
        self._take_dims(self._own.dims, (*self._path, "dims"), profile.dims)
        # With a misspelled name or a wrong entry, what is missing elsewhere would be its consequence and no news.
        self._suspect = any(not meant_by(name, inputs) for dims in (profile.dims, self._own.dims) for name in dims)

    @property
    def weight(self) -> float:
        return self._own.weight

    def shapes(self) -> dict[str, MinOptMax]:
        """The shapes of every input in the model's order. What could not be fitted is left out."""
        entries: dict[str, ShapeRange] = {}
        for name, entry in self._own.inputs.items():
            if self._entry_fits(name, entry):
                entries[name] = entry
                self._agree_on_symbols(self._inputs[name], entry)
            else:
                self._suspect = True
        missing = [
            model_input
            for name, model_input in self._inputs.items()
            if name not in self._own.inputs and not self._is_filled(model_input)
        ]
        if missing and not self._suspect:
            self._report_missing(missing)
        return {
            name: entries[name].corners() if name in entries else self._filled(model_input)
            for name, model_input in self._inputs.items()
            if name in entries or (name not in self._own.inputs and model_input not in missing)
        }

    def values(self) -> dict[str, MinOptMax]:
        """The values of the inputs that hold sizes, the profile's own before the file's."""
        found = {}
        for path, section in ((("values",), self._profile.values), ((*self._path, "values"), self._own.values)):
            for name, entry in section.items():
                if (fault := value_fault((*path, name), entry, name, self._inputs)) is not None:
                    self.problems.append(fault)
                    continue
                found[name] = entry.corners()
                for index in range(len(entry.min)):
                    self.origins[value_symbol(name, index)] = tuple((*path, name, corner, index) for corner in CORNERS)
        return found

    def _take_dims(self, dims: Mapping[str, DimRange], path: KeyPath, general: Mapping[str, DimRange]) -> None:
        for name, values in dims.items():
            if values.multiple_of is None and name in general:
                values = values.model_copy(update={"multiple_of": general[name].multiple_of})
            for dimension in meant_by(name, self._inputs.values()):
                self.ranges[dimension] = values
                self.origins[dimension] = tuple((*path, name, corner) for corner in CORNERS)

    def _entry_fits(self, name: str, entry: ShapeRange) -> bool:
        path = (*self._path, "inputs", name)
        model_input = self._inputs.get(name)
        if model_input is None:
            self.problems.append(unknown_input(path, name, list(self._inputs.values())))
            return False
        if len(entry.min) != len(model_input.shape):
            self.problems.append(rank_fault(path, entry, model_input))
            return False
        faults = static_faults(path, entry, model_input)
        self.problems += faults
        return not faults

    def _agree_on_symbols(self, model_input: ModelInput, entry: ShapeRange) -> None:
        for axis, symbol in enumerate(model_input.dimensions):
            values = tuple(shape[axis] for shape in entry.corners())
            paths = tuple((*self._path, "inputs", model_input.name, corner, axis) for corner in CORNERS)
            if not isinstance(symbol, str):
                self.origins[axis_symbol(model_input.name, axis)] = paths
            elif symbol in self.ranges:
                self._compare(model_input, entry, symbol, zip(values, paths, strict=True))
            else:
                self.ranges[symbol] = DimRange(min=values[0], opt=values[1], max=values[2])
                self.origins[symbol] = paths

    def _compare(self, model_input: ModelInput, entry: ShapeRange, symbol: str, corners: Iterable[tuple[int, KeyPath]]) -> None:
        """Report the first of min, opt and max in which two places disagree about one symbolic dimension."""
        known = self.ranges[symbol].corners()
        for (here, path), there, origin in zip(corners, known, self.origins[symbol], strict=True):
            if here != there:
                held, _ = self._positions.resolve(origin)
                line = self._positions.line(origin)
                other = format_path(held) + (f" (line {line})" if line else "")
                message = f"{symbol} is {here} here but {there} in {other}"
                equal = entry_text(self._with_known_symbols(model_input, entry))
                one_name = "TensorRT demands that dimensions of one name are equal: "
                why = one_name if symbol in model_input.symbols else ""
                hint = f"{why}write {equal}, or change the other"
                self.problems.append(Problem(path, message, hint))
                return

    def _with_known_symbols(self, model_input: ModelInput, entry: ShapeRange) -> MinOptMax:
        """The shapes of ``entry`` with the values that its symbolic dimensions have elsewhere."""
        columns = list(zip(*entry.corners(), strict=True))
        for axis, symbol in enumerate(model_input.dimensions):
            if isinstance(symbol, str) and symbol in self.ranges:
                columns[axis] = self.ranges[symbol].corners()
        return MinOptMax(*(tuple(column[corner] for column in columns) for corner in range(3)))

    def _is_filled(self, model_input: ModelInput) -> bool:
        return all(isinstance(dim, int) or dim in self.ranges for dim in model_input.dimensions)

    def _filled(self, model_input: ModelInput) -> MinOptMax:
        columns = [(dim, dim, dim) if isinstance(dim, int) else self.ranges[dim].corners() for dim in model_input.dimensions]
        return MinOptMax(*(tuple(column[corner] for column in columns) for corner in range(3)))

    def _report_missing(self, missing: Sequence[ModelInput]) -> None:
        hint = self._missing_hint(missing)
        path = (*self._path, "inputs") if self._own.inputs else self._path or ("dims",)
        for model_input in missing:
            lacks = [symbol for symbol in model_input.symbols if symbol not in self.ranges]
            unnamed = [axis for axis, dim in enumerate(model_input.shape) if dim is None]
            lacks += [f"dimension {i} (no name)" for i in unnamed if axis_symbol(model_input.name, i) not in self.ranges]
            message = f"no values for {', '.join(lacks)} of the dynamic input {model_input}"
            self.problems.append(Problem(path, message, hint))

    def _missing_hint(self, missing: Sequence[ModelInput]) -> str:
        """The lines to add, as shapes of inputs or as dimensions, whichever the profile already uses."""
        start = self._suggest(self.ranges).ranges if self._suggest else default_ranges(list(self._inputs.values()))
        ranges = {**start, **self.ranges}
        by_shape = [m for m in missing if None in m.shape or (self._own.inputs and not self._dims_path)]
        symbols = [s for s in symbols_of(m for m in missing if m not in by_shape) if s not in self.ranges]
        inputs_path = (*self._path, "inputs") if self._path else ()
        shape_lines = [input_line(model_input, ranges) for model_input in by_shape]
        dims_lines = [dim_line(symbol, ranges[symbol]) for symbol in symbols]
        blocks = [
            _lines_to_add(inputs_path, shape_lines, ["optimization_profiles:", "  - inputs:"], " " * 6),
            _lines_to_add(self._dims_path, dims_lines, ["dims:"], " " * 2),
        ]
        return "\n".join(block for block in blocks if block)


def _lines_to_add(path: KeyPath, lines: Sequence[str], header: Sequence[str], indent: str) -> str:
    """The advice to put ``lines`` under ``path``, or under ``header`` where the file lacks that."""
    if not lines:
        return ""
    place = f"under {format_path(path)} " if path else ""
    shown = [f"{indent}{line}" for line in lines]
    return "\n".join([f"add {place}and adjust the numbers:", *([] if path else header), *shown])


def _no_shapes(profile: BuildProfile | None, inputs: Sequence[ModelInput], suggest: Suggest | None) -> Exception:
    dynamic = [str(model_input) for model_input in inputs if model_input.is_dynamic]
    why = "no build profile was given" if profile is None else "the build profile gives no shapes"
    message = f"the model has dynamic inputs, but {why}: {listing(dynamic)}"
    action = "add this and adjust the numbers"
    if profile is None:
        action = "save this as cfg.yaml, adjust the numbers, and build with --profile cfg.yaml"
    positions = profile.positions if profile is not None else Positions()
    return refusal([Problem((), message, f"{action}:\n\n{paste_block(inputs, suggest and suggest({})).rstrip()}")], positions)


def _located(problem: Problem, positions: Positions) -> Problem:
    prefix = indexed(problem.path, positions)
    return Problem(problem.path, prefix + problem.message, problem.hint, problem.line)
