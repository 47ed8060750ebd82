"""Sizes that an export worked out, written into the build profile of this run, and into the user's file if asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from trtnorm_cli.errors import ProfileError
from trtnorm_cli.files import cannot_write, write_in_one_step
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.profile.dims import CORNERS
from trtnorm_cli.profile.load import load_profile, parse_profile
from trtnorm_cli.profile.model import BuildProfile
from trtnorm_cli.profile.positions import KeyPath, format_path
from trtnorm_cli.records.export import LearntDimension


@dataclass(frozen=True)
class Edit:
    """One number of a build profile to change. ``old`` is None for a key that is new."""

    path: KeyPath
    old: int | None
    new: int

    def __str__(self) -> str:
        change = f"{self.new}" if self.old is None else f"{self.old} → {self.new}"
        return f"{format_path(self.path)}: {change}"


def edits(profile: BuildProfile, dimensions: Sequence[LearntDimension]) -> list[Edit]:
    """The changes after which ``profile`` asks for nothing that the model does not take."""
    found: list[Edit] = []
    for dimension in dimensions:
        if dimension.multiple_of > 1 or dimension.changed:
            found += _edits_of_dims(profile, dimension)
            found += _edits_of_inputs(profile, dimension)
    return found


def _edits_of_dims(profile: BuildProfile, dimension: LearntDimension) -> list[Edit]:
    places: list[tuple[KeyPath, Any]] = [(("dims", dimension.name), profile.dims.get(dimension.name))]
    for index, one in enumerate(profile.optimization_profiles):
        places.append((("optimization_profiles", index, "dims", dimension.name), one.dims.get(dimension.name)))
    found = []
    for path, held in places:
        if held is None:
            continue
        found += _edits_of_range(path, held.corners(), dimension)
        if dimension.multiple_of > 1 and held.multiple_of != dimension.multiple_of:
            found.append(Edit((*path, "multiple_of"), held.multiple_of, dimension.multiple_of))
    return found


def _edits_of_range(path: KeyPath, corners: tuple[int, ...], dimension: LearntDimension) -> list[Edit]:
    low, high = dimension.taken[0], dimension.taken[2]
    if corners[0] == corners[2] and low <= corners[0] <= high and corners[0] % dimension.multiple_of == 0:
        return []
    wanted = [_snapped(value, corner, dimension) for value, corner in zip(corners, CORNERS, strict=True)]
    if wanted[0] > wanted[2]:  # no legal size lies in between
        wanted = [_snapped(corners[1], "opt", dimension)] * 3
    return [
        Edit((*path, corner), old, new)
        for corner, old, new in zip(CORNERS, corners, wanted, strict=True)
        if old != new and not (corner == "min" and old == 0)
    ]


def _snapped(value: int, corner: str, dimension: LearntDimension) -> int:
    m, (low, _, high) = dimension.multiple_of, dimension.taken
    moved = -(-value // m) * m if corner == "min" else value // m * m if corner == "max" else round(value / m) * m
    return min(max(moved, low), high)


def _edits_of_inputs(profile: BuildProfile, dimension: LearntDimension) -> list[Edit]:
    found = []
    for index, one in enumerate(profile.optimization_profiles):
        for place in dimension.places:
            name, _, axis = place.removesuffix("]").rpartition("[")
            if name in one.inputs:
                corners = tuple(shape[int(axis)] for shape in one.inputs[name].corners())
                path = ("optimization_profiles", index, "inputs", name)
                found += [Edit((*e.path, int(axis)), e.old, e.new) for e in _edits_of_range(path, corners, dimension)]
    return found


def learnt_profile(profile: BuildProfile, dimensions: Sequence[LearntDimension]) -> BuildProfile:
    """``profile`` for the exported model, with the sizes that it takes and without the dimensions that became plain sizes."""
    data = _with_edits(profile, dimensions)
    known = {dimension.name for dimension in dimensions}
    for held in (data, *data.get("optimization_profiles", ())):
        if "dims" in held:
            held["dims"] = {name: values for name, values in held["dims"].items() if name in known}
    return BuildProfile.model_validate(data).located(profile.positions)


def _with_edits(profile: BuildProfile, dimensions: Sequence[LearntDimension]) -> dict[str, Any]:
    data: dict[str, Any] = profile.model_dump(mode="json", exclude_unset=True)
    for edit in edits(profile, dimensions):
        held: Any = data
        for key in edit.path[:-1]:
            held = held[key]
        held[edit.path[-1]] = edit.new
    return data


def suggestion(profile: BuildProfile, dimensions: Sequence[LearntDimension]) -> list[str]:
    """The edits as lines to show."""
    return [str(edit) for edit in edits(profile, dimensions)]


@dataclass(frozen=True)
class Update:
    """New text for the user's file, and the changes in it."""

    path: Path
    text: str
    edits: tuple[Edit, ...]

    def write(self) -> None:
        """Replace the file in one step. Raises ``UsageProblem`` or ``NoRoom`` where it cannot be written."""
        if not self.edits:
            return
        try:
            write_in_one_step(self.text, self.path)
        except OSError as error:
            raise cannot_write("the build profile", self.path, error, "leave out --update-profile") from error


def planned_update(path: Path, dimensions: Sequence[LearntDimension]) -> Update:
    """The user's file with what was learnt, not yet written. Comments and everything else stay as they are.

    Raises ``ProfileError`` when the text cannot be edited in place.
    """
    profile = load_profile(path)
    wanted = edits(profile, dimensions)
    text = path.read_text(encoding="utf-8")
    if not wanted:
        return Update(path, text, ())
    changed = _edited(text, wanted)
    if changed is None or parse_profile(changed, str(path)) != BuildProfile.model_validate(_with_edits(profile, dimensions)):
        raise ProfileError(
            "the build profile cannot be updated in place", str(path), "change it by hand:\n" + "\n".join(map(str, wanted))
        )
    return Update(path, changed, tuple(wanted))


def _edited(text: str, wanted: Sequence[Edit]) -> str | None:
    """``text`` with every edit made, from its end to its beginning so that positions stay valid.

    None where an edit has no place.
    """
    root = yaml.compose(text)
    pieces: list[tuple[int, int, str]] = []
    for edit in wanted:
        piece = _replacement(root, edit, text) or _insertion(root, edit, text)
        if piece is None:
            return None
        pieces.append(piece)
    for start, end, new in sorted(pieces, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _replacement(root: Any, edit: Edit, text: str) -> tuple[int, int, str] | None:
    node = _node_at(root, edit.path)
    if not isinstance(node, yaml.ScalarNode) or text[node.start_mark.index : node.end_mark.index] != str(edit.old):
        return None
    return node.start_mark.index, node.end_mark.index, str(edit.new)


def _insertion(root: Any, edit: Edit, text: str) -> tuple[int, int, str] | None:
    """A new key at the end of a mapping that is written in one line or in several."""
    mapping = _node_at(root, edit.path[:-1])
    if not isinstance(mapping, yaml.MappingNode) or edit.old is not None or not mapping.value:
        return None
    last_key, last_value = mapping.value[-1]
    at = last_value.end_mark.index
    if mapping.flow_style:
        return at, at, f", {edit.path[-1]}: {edit.new}"
    end = text.find("\n", at)
    end = len(text) if end < 0 else end
    return end, end, f"\n{' ' * last_key.start_mark.column}{edit.path[-1]}: {edit.new}"


def _node_at(node: Any, path: KeyPath) -> Any:
    for key in path:
        if isinstance(node, yaml.MappingNode):
            node = next((value for name, value in node.value if name.value == key), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            node = node.value[key]
        else:
            return None
    return node
