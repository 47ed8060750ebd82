"""The build profile against a module's inputs, which tells the axes to be dynamic and their sizes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from trtnorm_cli.export.child.sizes.guards import Sizes
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.shapes import format_shape
from trtnorm_cli.profile.dims import CORNERS
from trtnorm_cli.profile.model import BuildProfile, DimRange
from trtnorm_cli.profile.positions import KeyPath
from trtnorm_cli.profile.problems import Problem, refusal
from trtnorm_cli.profile.yaml_keys import yaml_key
from trtnorm_cli.suggest import did_you_mean, listing

# Where a dimension stands when the build profile only names it: the layouts of PyTorch's own layers.
_BATCH = re.compile(r"n|b|bs|.*batch.*", re.IGNORECASE)
_HEIGHT = re.compile(r"h|.*height.*", re.IGNORECASE)
_WIDTH = re.compile(r"w|.*width.*", re.IGNORECASE)
_DEPTH = re.compile(r"d|.*depth.*", re.IGNORECASE)
_SEQUENCE = re.compile(r"[tls]|.*(seq|len|token|time).*", re.IGNORECASE)


@dataclass(frozen=True)
class TensorInput:
    """One tensor that the module takes. A dimension is a size, or the name of a ``Dimension``."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    def sized(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(sizes[dim] if isinstance(dim, str) else dim for dim in self.shape)

    def __str__(self) -> str:
        return f"{self.name}: {format_shape(self.shape)}"


@dataclass(frozen=True)
class Dimension:
    """The sizes of one dynamic dimension that were asked for, and those that remain of them.

    ``opt`` is the size at which the module is traced. ``named`` tells whether the user gave the name.
    """

    name: str
    sizes: Sizes
    opt: int
    asked: tuple[int, int, int]
    places: tuple[tuple[str, int], ...]
    named: bool = True
    reasons: tuple[str, ...] = ()

    def narrowed(self, sizes: Sizes, reasons: Iterable[str] = ()) -> Dimension:
        """Fewer sizes, and ``opt`` moved to the nearest of them."""
        known = tuple(dict.fromkeys((*self.reasons, *reasons)))
        return replace(self, sizes=sizes, opt=nearest_size(self.opt, sizes), reasons=known)


@dataclass(frozen=True)
class Requested:
    """The inputs of an export with their dimensions by name, and what was assumed about them."""

    inputs: dict[str, TensorInput]
    dimensions: dict[str, Dimension]
    notes: tuple[str, ...] = ()

    def sizes(self) -> dict[str, int]:
        """The size of each dimension at which the module is traced."""
        return {name: dimension.opt for name, dimension in self.dimensions.items()}


def nearest_size(size: int, sizes: Sizes) -> int:
    """The legal size nearest to ``size``."""
    m = sizes.multiple_of
    first, last = -(-sizes.low // m) * m, sizes.high // m * m
    return min(max(round(size / m) * m, first), last)


def requested(
    profile: BuildProfile, examples: Mapping[str, TensorInput], required: Sequence[str], default_dtype: str, model: str
) -> Requested:
    """Fit ``profile`` to the inputs of a module.

    ``examples`` are the example inputs that the user's callable gave, ``required`` the parameters of ``forward`` without a
    default. Raises ``ProfileError`` for names that the module does not have, inputs and dimensions without sizes.
    """
    return _Request(profile, examples, required, default_dtype, model).result()


@dataclass
class _Request:
    profile: BuildProfile
    examples: Mapping[str, TensorInput]
    required: Sequence[str]
    default_dtype: str
    model: str
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    dimensions: dict[str, Dimension] = field(default_factory=dict)

    def result(self) -> Requested:
        inputs = {name: self._input(name) for name in self._names()}
        if not self.problems:
            self._place_by_convention(inputs)
        if self.problems:
            raise refusal(self.problems, self.profile.positions)
        return Requested(inputs, self.dimensions, tuple(self.notes))

    def _names(self) -> list[str]:
        """The inputs in the order of the signature. Whatever the profile says of others is a problem."""
        said: dict[str, KeyPath] = {name: ("export", "inputs", name) for name in self.profile.export.inputs}
        for index, one in enumerate(self.profile.optimization_profiles):
            said.update({name: ("optimization_profiles", index, "inputs", name) for name in one.inputs if name not in said})
        if self.examples:
            for name in [name for name in said if name not in self.examples]:
                self._unknown_input(said.pop(name), name)
            return list(self.examples)
        missing = [name for name in self.required if name not in said]
        if missing or not said:
            self.problems.append(self._no_inputs(missing or list(self.required)))
        return [*(name for name in self.required if name in said), *(name for name in said if name not in self.required)]

    def _unknown_input(self, path: KeyPath, name: str) -> None:
        names = list(self.examples)
        message = f"the model has no input {name!r}{did_you_mean(name, names)}"
        self.problems.append(Problem(path, message, f"inputs of the model: {listing(map(str, self.examples.values()))}"))

    def _no_inputs(self, missing: Sequence[str]) -> Problem:
        lines = [f"    {yaml_key(name)}: [N, 3, H, W]" for name in missing] or ["    x: [N, 3, H, W]"]
        text = "\n".join(["export:", "  inputs:", *lines, "dims:", "  N: {min: 1, opt: 8, max: 32}", "  H: …", "  W: …"])
        message = f"{self.model} comes without example inputs, and the build profile has no shape for {listing(missing)}"
        return Problem((), message, f"return (module, example_inputs) from the callable, or add, with your shapes:\n{text}")

    def _input(self, name: str) -> TensorInput:
        settings = self.profile.export.inputs.get(name)
        example = self.examples.get(name)
        dtype = (settings and settings.dtype) or (example.dtype if example else self._dtype(name))
        entries = [(i, one.inputs[name]) for i, one in enumerate(self.profile.optimization_profiles) if name in one.inputs]
        shape: tuple[int | str, ...] = (
            settings.shape if settings else entries[0][1].opt if entries else example.shape if example else ()
        )
        ranks = {len(entry.opt) for _, entry in entries} | {len(shape)} | ({len(example.shape)} if example else set())
        if len(ranks) > 1:
            path: KeyPath = ("export", "inputs", name) if settings else ("optimization_profiles", entries[0][0], "inputs", name)
            other = f"the example input {example}" if example else "another entry"
            self.problems.append(Problem(path, f"{format_shape(shape)} has {len(shape)} dimensions, {other} has not"))
            return TensorInput(name, dtype, shape)
        dims = [self._dim((name, axis), dim, entries, settings is not None) for axis, dim in enumerate(shape)]
        return TensorInput(name, dtype, tuple(dims))

    def _dtype(self, name: str) -> str:
        data = self.profile.data.get(name)
        return "int64" if data is not None and data.distribution == "integers" else self.default_dtype

    def _dim(self, place: tuple[str, int], dim: int | str, entries: Sequence[tuple[int, object]], said: bool) -> int | str:
        """The entry at one axis. A dynamic one is added to the dimensions."""
        name, axis = place
        values = [tuple(getattr(entry, corner)[axis] for corner in CORNERS) for _, entry in entries]
        if isinstance(dim, str):
            ranges = self._ranges(dim) or values
            if not ranges:
                path: KeyPath = ("export", "inputs", name, axis)
                hint = f"add under dims:\n  {yaml_key(dim)}: {{min: 1, opt: 8, max: 32}}"
                self.problems.append(Problem(path, f"the dimension {dim} has no sizes", hint))
                return dim
            return self._enter(dim, place, ranges)
        sizes = {value for corners in values for value in corners}
        if said and sizes - {dim}:
            path = ("optimization_profiles", entries[0][0], "inputs", name)
            self.problems.append(Problem(path, f"dimension {axis} is {dim} under export.inputs and {sorted(sizes)} here"))
        if len(sizes) <= 1:
            return dim
        return self._enter(f"{name}_{axis}", place, values, named=False)

    def _ranges(self, dim: str) -> list[tuple[int, int, int]]:
        """min, opt and max of a named dimension in each optimization profile."""
        general = self.profile.dims.get(dim)
        own = [one.dims.get(dim, general) for one in self.profile.optimization_profiles] or [general]
        return [values.corners() for values in own if values is not None]

    def _multiple(self, dim: str) -> int:
        held: list[DimRange | None] = [self.profile.dims.get(dim)]
        held += [one.dims.get(dim) for one in self.profile.optimization_profiles]
        return max((values.multiple_of or 1 for values in held if values is not None), default=1)

    def _enter(self, dim: str, place: tuple[str, int], ranges: Sequence[tuple[int, ...]], named: bool = True) -> int | str:
        low, opt, high = min(r[0] for r in ranges), ranges[0][1], max(r[2] for r in ranges)
        low = max(low, 1)
        if low == high:
            return low
        known = self.dimensions.get(dim)
        if known is not None:
            self.dimensions[dim] = replace(known, places=(*known.places, place))
            return dim
        sizes = Sizes(low, high, self._multiple(dim) if named else 1)
        # PyTorch takes a size of 1 for a constant.
        traced = nearest_size(max(opt, 2), sizes)
        self.dimensions[dim] = Dimension(dim, sizes, traced, (low, opt, high), (place,), named)
        return dim

    def _place_by_convention(self, inputs: dict[str, TensorInput]) -> None:
        """Find the axes of dimensions that the profile names without saying where they are."""
        everywhere = {**self.profile.dims}
        for one in self.profile.optimization_profiles:
            everywhere.update(one.dims)
        free = [name for name in everywhere if name not in self._mentioned()]
        placed: set[str] = set()
        for name, held in inputs.items():
            if name in self.profile.export.inputs or any(name in one.inputs for one in self.profile.optimization_profiles):
                continue
            axes = {axis: dim for dim in free if (axis := conventional_axis(dim, held)) is not None}
            shape = [axes.get(axis, size) for axis, size in enumerate(held.shape)]
            placed.update(axes.values())
            dims = [self._dim((name, axis), dim, (), True) for axis, dim in enumerate(shape)]
            inputs[name] = TensorInput(name, held.dtype, tuple(dims))
            if axes:
                self.notes.append(f"{name} is taken as {format_shape(shape)}; write export.inputs to say otherwise")
        for dim in [dim for dim in free if dim not in placed]:
            self.problems.append(self._unplaced(dim, inputs))

    def _mentioned(self) -> set[str]:
        return {dim for entry in self.profile.export.inputs.values() for dim in entry.shape if isinstance(dim, str)}

    def _unplaced(self, dim: str, inputs: Mapping[str, TensorInput]) -> Problem:
        path = ("dims", dim) if dim in self.profile.dims else self._path_of_own(dim)
        lines = [f"    {yaml_key(name)}: {format_shape(held.shape)}" for name, held in inputs.items()]
        hint = "\n".join([f"add, with {dim} in the place of its size:", "export:", "  inputs:", *lines])
        return Problem(path, f"it is not clear which axis of which input the dimension {dim} is", hint)

    def _path_of_own(self, dim: str) -> KeyPath:
        index = next(i for i, one in enumerate(self.profile.optimization_profiles) if dim in one.dims)
        return ("optimization_profiles", index, "dims", dim)


def conventional_axis(dim: str, held: TensorInput) -> int | None:
    """The axis of ``held`` that a dimension of this name is by convention ([N, C, D, H, W], [N, T]), or None."""
    rank, floating = len(held.shape), "float" in held.dtype
    if _BATCH.fullmatch(dim):
        return 0 if rank >= 1 else None
    if floating and rank in (4, 5):
        if _HEIGHT.fullmatch(dim):
            return rank - 2
        if _WIDTH.fullmatch(dim):
            return rank - 1
        if rank == 5 and _DEPTH.fullmatch(dim):
            return 2
    if rank == 2 and _SEQUENCE.fullmatch(dim):
        return 1
    return None
