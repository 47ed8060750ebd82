"""pydantic's verdict on a build profile in words that name the key, the value and the remedy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from trtnorm_cli.profile import model
from trtnorm_cli.profile.dims import described
from trtnorm_cli.profile.positions import KeyPath, Positions
from trtnorm_cli.profile.problems import CUSTOM, Problem
from trtnorm_cli.suggest import listing, nearest

ANY = "*"

Sections = Mapping[KeyPath, type[BaseModel]]
SECTIONS: Sections = {
    (): model.BuildProfile,
    ("optimization_profiles", ANY): model.OptimizationProfile,
    ("optimization_profiles", ANY, "inputs", ANY): model.ShapeRange,
    ("optimization_profiles", ANY, "dims", ANY): model.DimRange,
    ("optimization_profiles", ANY, "values", ANY): model.ValueRange,
    ("dims", ANY): model.DimRange,
    ("values", ANY): model.ValueRange,
    ("export",): model.ExportSettings,
    ("export", "inputs", ANY): model.ExportInput,
    ("builder",): model.BuilderSettings,
    ("device",): model.DescribedDevice,
    ("data", ANY, "normal"): model.Normal,
    ("data", ANY, "uniform"): model.Uniform,
    ("data", ANY, "integers"): model.Integers,
    ("data", ANY, "ones"): model.Ones,
    ("data", ANY, "constant"): model.Constant,
    ("tolerances", ANY): model.Tolerance,
    ("rules",): model.RuleSettings,
    ("instance_norm",): model.NormImplementation,
    ("group_norm",): model.NormImplementation,
    ("precision",): model.PrecisionSettings,
    ("precision", "keep_fp32"): model.KeptFloat32,
}
DISTRIBUTIONS = tuple(str(path[2]) for path in SECTIONS if path[:2] == ("data", ANY))


def problems_of(error: ValidationError, positions: Positions, sections: Sections = SECTIONS) -> list[Problem]:
    """One problem for each of pydantic's errors, at the key path that the file holds.

    A missing key whose misspelling is reported as unknown is one mistake, not two. ``sections`` are the mappings of the file,
    by default of a build profile.
    """
    details = error.errors(include_url=False)
    unknown = [detail["loc"] for detail in details if detail["type"] == "extra_forbidden"]
    misspelled = {(*loc[:-1], nearest(str(loc[-1]), section_at(loc[:-1], sections).model_fields)) for loc in unknown}
    return [
        _problem(detail, positions, sections)
        for detail in details
        if not (detail["type"] == "missing" and detail["loc"] in misspelled)
    ]


def _problem(detail: Any, positions: Positions, sections: Sections) -> Problem:
    loc: KeyPath = detail["loc"]
    if detail["type"] == "extra_forbidden":
        return _unknown_key(loc, positions, sections)
    if detail["type"] == "missing":
        return _missing_key(loc)
    if detail["type"] == CUSTOM:
        text, hint = detail["ctx"]["text"], detail["ctx"]["hint"] or None
    else:
        text, hint = _text(detail, sections)
    return Problem(loc, indexed(loc, positions) + text, hint)


def indexed(path: KeyPath, positions: Positions) -> str:
    """``dimension 2: `` where the file has no element to point at, as in ``1x3x224x224``, or else nothing."""
    indices = [part for part in positions.resolve(path)[1] if isinstance(part, int)]
    return f"dimension {indices[-1]}: " if indices else ""


def _text(detail: Any, sections: Sections) -> tuple[str, str | None]:
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    got = f"got {described(value)}"
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return f"expected a mapping, {got}", _space_hint(value) or _keys_hint(detail["loc"], sections)
    if kind in ("tuple_type", "list_type"):
        hint = "begin each entry with '- '" if isinstance(value, dict) else None
        return f"expected a list, {got}", hint or _space_hint(value)
    if kind in ("int_type", "int_from_float", "int_parsing"):
        return f"expected an integer, {got}", _quote_hint(value)
    if kind == "float_type":
        return f"expected a number, {got}", _quote_hint(value)
    if kind == "string_type":
        return f"expected a text, {got}", f"put it in quotes: '{value}'" if isinstance(value, (int, float)) else None
    if kind == "string_too_short":
        return "the text is empty", None
    if kind == "literal_error":
        return f"expected {context['expected']}, {got}", None
    if kind == "union_tag_invalid":
        return _unknown_distribution(value["distribution"]), None
    if kind == "union_tag_not_found":
        return f"the key 'distribution' is missing; one of {', '.join(DISTRIBUTIONS)}", None
    limits = {"greater_than_equal": "below", "less_than_equal": "above", "greater_than": "not above"}
    if kind in limits:
        bound = next(iter(context.values()))
        return f"{described(value)} is {limits[kind]} {bound:g}", None
    if kind == "finite_number":
        return f"expected a finite number, {got}", None
    return f"{detail['msg'][:1].lower()}{detail['msg'][1:]}", None


def _unknown_distribution(given: object) -> str:
    meant = nearest(given, DISTRIBUTIONS) if isinstance(given, str) else None
    suggestion = f"did you mean {meant!r}?" if meant else f"one of {', '.join(DISTRIBUTIONS)}"
    shown = described(given).removeprefix("the text ")
    return f"unknown distribution {shown}; {suggestion}"


def _unknown_key(loc: KeyPath, positions: Positions, sections: Sections) -> Problem:
    parent, key = loc[:-1], str(loc[-1])
    line = positions.line(loc)
    section = section_at(parent, sections)
    valid = list(section.model_fields)
    meant = nearest(key, valid)
    if meant is not None:
        return Problem(parent, f"unknown key {key!r}; did you mean {meant!r}?", None, line)
    elsewhere = next(_homes(key, sections), None)
    if elsewhere is not None:
        return Problem(parent, f"unknown key {key!r}; it belongs in {elsewhere}", None, line)
    hint = f"valid keys here: {listing(valid)}"
    if section is model.OptimizationProfile:
        hint += "; names of inputs stand under 'inputs:', names of dimensions under 'dims:'"
    if ":" in key:
        hint += "; or is a space missing after ':'?"
    return Problem(parent, f"unknown key {key!r}", hint, line)


def _missing_key(loc: KeyPath) -> Problem:
    return Problem(loc[:-1], f"the key {str(loc[-1])!r} is missing")


def section_at(path: KeyPath, sections: Sections = SECTIONS) -> type[BaseModel]:
    """The model of the mapping at ``path``, in which pydantic puts the distribution below ``data.<input>``."""
    for pattern, section in sections.items():
        if len(pattern) == len(path) and all(part in (ANY, name) for part, name in zip(pattern, path, strict=True)):
            return section
    raise KeyError(path)


def _keys_hint(path: KeyPath, sections: Sections) -> str | None:
    if path[:1] == ("data",):
        return f"write {{distribution: …}}: {', '.join(DISTRIBUTIONS)}"
    try:
        return f"its keys are {listing(section_at(path, sections).model_fields)}"
    except KeyError:
        return None


def _homes(key: str, sections: Sections) -> Iterator[str]:
    for pattern, section in sections.items():
        if key not in section.model_fields:
            continue
        names = ".".join(str(part) for part in pattern if part != ANY)
        if pattern[:1] == ("data",):
            yield f"an entry of 'data' with the distribution {pattern[2]!r}"
        elif names:
            yield f"an entry of {names!r}" if ANY in pattern[-1:] else repr(names)


def _space_hint(value: object) -> str | None:
    return "is a space missing after ':'?" if isinstance(value, str) and ":" in value.strip(":") else None


def _quote_hint(value: object) -> str | None:
    if not isinstance(value, str):
        return None
    try:
        float(value)
    except ValueError:
        return None
    return "leave out the quotes"
