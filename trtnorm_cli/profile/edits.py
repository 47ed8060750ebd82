"""Other sizes in a build profile, as a changed profile and as the lines to paste."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.profile.dims import MinOptMax, entry_text
from trtnorm_cli.profile.model import BuildProfile, DimRange, OptimizationProfile, ShapeRange, ValueRange
from trtnorm_cli.profile.model_input import ModelInput
from trtnorm_cli.profile.positions import KeyPath, Positions, format_path
from trtnorm_cli.profile.yaml_keys import yaml_key
from trtnorm_cli.shapes.symbols import axis_symbol, value_symbol

Corners = tuple[int, int, int]
Entry = DimRange | ShapeRange | ValueRange


@dataclass(frozen=True)
class EntryEdit:
    """``entry`` belongs at ``path`` of the file, in place of what is there."""

    path: KeyPath
    entry: Entry

    def line(self, positions: Positions) -> str:
        """The line to paste, such as ``H: {min: 136, opt: 544, max: 2160}  # dims.H, line 3``."""
        multiple = self.entry.multiple_of if isinstance(self.entry, DimRange) else None
        number = positions.lines.get(self.path)
        place = format_path(self.path) + (f", line {number}" if number else "")
        return f"{yaml_key(str(self.path[-1]))}: {entry_text(self.entry.corners(), multiple)}  # {place}"


def edits_for(
    profile: BuildProfile,
    index: int,
    inputs: Sequence[ModelInput],
    sizes: Mapping[str, Corners],
    multiples: Mapping[str, int],
) -> list[EntryEdit]:
    """The entries to write in optimization profile ``index`` and the file's ``dims`` and ``values`` to get ``sizes``.

    ``multiples`` are those that a dimension should state. Entries that are as they should be are left out.
    """
    own = profile.optimization_profiles[index] if profile.optimization_profiles else OptimizationProfile()
    path: KeyPath = ("optimization_profiles", index)
    found = list(_dim_edits(("dims",), profile.dims, own.dims, sizes, multiples))
    found += _dim_edits((*path, "dims"), own.dims, (), sizes, multiples)
    by_name = {model_input.name: model_input for model_input in inputs}
    for name, entry in own.inputs.items():
        wanted = _shapes(by_name[name], entry.corners(), sizes)
        if wanted != entry.corners():
            found.append(EntryEdit((*path, "inputs", name), ShapeRange(min=wanted.min, opt=wanted.opt, max=wanted.max)))
    found += _value_edits(("values",), {n: v for n, v in profile.values.items() if n not in own.values}, sizes)
    return found + list(_value_edits((*path, "values"), own.values, sizes))


def _dim_edits(
    path: KeyPath,
    dims: Mapping[str, DimRange],
    overridden: Iterable[str],
    sizes: Mapping[str, Corners],
    multiples: Mapping[str, int],
) -> Iterable[EntryEdit]:
    for name, entry in dims.items():
        if name in overridden or name not in sizes:
            continue
        low, opt, high = sizes[name]
        wanted = DimRange(min=low, opt=opt, max=high, multiple_of=multiples.get(name, entry.multiple_of))
        if (low, opt, high) != entry.corners():
            yield EntryEdit((*path, name), wanted)


def _value_edits(path: KeyPath, values: Mapping[str, ValueRange], sizes: Mapping[str, Corners]) -> Iterable[EntryEdit]:
    for name, entry in values.items():
        columns = [sizes[value_symbol(name, i)] for i in range(len(entry.min))]
        wanted = MinOptMax(*(tuple(column[corner] for column in columns) for corner in range(3)))
        if wanted != entry.corners():
            yield EntryEdit((*path, name), ValueRange(min=wanted.min, opt=wanted.opt, max=wanted.max))


def _shapes(model_input: ModelInput, now: MinOptMax, sizes: Mapping[str, Corners]) -> MinOptMax:
    rows = []
    for axis, dim in enumerate(model_input.shape):
        name = dim if isinstance(dim, str) else axis_symbol(model_input.name, axis)
        rows.append(sizes.get(name, (now.min[axis], now.opt[axis], now.max[axis])) if not isinstance(dim, int) else (dim,) * 3)
    return MinOptMax(*(tuple(row[corner] for row in rows) for corner in range(3)))


def edited(profile: BuildProfile, edits: Iterable[EntryEdit]) -> BuildProfile:
    """The profile with ``edits`` made. Everything else, the positions in the file included, stays."""
    for edit in edits:
        profile = _replaced(profile, edit.path, edit.entry)
    return profile


def _replaced(holder: Any, path: KeyPath, entry: Entry) -> Any:
    head, *rest = path
    if isinstance(holder, dict):
        return {**holder, head: entry if not rest else _replaced(holder[head], tuple(rest), entry)}
    if isinstance(holder, tuple):
        assert isinstance(head, int)
        return (*holder[:head], _replaced(holder[head], tuple(rest), entry), *holder[head + 1 :])
    name = str(head)
    return holder.model_copy(update={name: _replaced(getattr(holder, name), tuple(rest), entry)})
