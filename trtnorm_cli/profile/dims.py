"""Shapes and ranges of dimensions as a user writes them.

A shape is a list of integers or a string such as ``1x3x224x224``. A range is min, opt and max of one dimension.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, WithJsonSchema

from trtnorm_cli.profile.problems import Problem, invalid

Shape = tuple[int, ...]
MAX_RANK = 8  # TensorRT's Dims holds eight
MAX_DIM = 2**31 - 1  # IOptimizationProfile.set_shape refuses more
CORNERS = ("min", "opt", "max")

_PART = re.compile(r"\s*[xX×]\s*")


class MinOptMax(NamedTuple):
    """The smallest, the typical and the largest shape of one input, as an optimization profile holds them."""

    min: Shape
    opt: Shape
    max: Shape


def counted(rank: int) -> str:
    """``1 dimension`` or ``4 dimensions``."""
    return f"{rank} dimension" + ("s" if rank != 1 else "")


def nearest_multiples(value: int, multiple: int) -> str:
    """The positive multiples next to ``value`` as words, such as ``128 and 136``."""
    below = value // multiple * multiple
    candidates = [dim for dim in (below, below + multiple) if 0 < dim <= MAX_DIM]
    return " and ".join(str(dim) for dim in candidates)


def read_shape(value: object, *, zero_allowed: bool) -> Shape:
    """The shape that a list or a string describes.

    Raises a pydantic ValidationError with one problem for each element that is no integer, negative, zero where it is not
    allowed, or above 2^31 - 1. There is one problem for more than eight dimensions, or for a value that is no shape at all.
    """
    dims = _parts(value)
    if len(dims) > MAX_RANK:
        raise invalid([Problem((), f"has {len(dims)} dimensions; TensorRT takes at most {MAX_RANK}")], value)
    problems = [
        Problem((index,), message, dim_hint(dim))
        for index, dim in enumerate(dims)
        if (message := dim_fault(dim, zero_allowed=zero_allowed)) is not None
    ]
    if problems:
        raise invalid(problems, value)
    return tuple(dims)


def dim_fault(dim: object, *, zero_allowed: bool) -> str | None:
    """Say why ``dim`` cannot be a dimension of a shape in a profile, or None when it can."""
    if isinstance(dim, bool) or not isinstance(dim, int):
        return f"expected an integer, got {described(dim)}"
    if dim < 0:
        return f"{dim} is negative; give the number itself, a profile has no wildcard"
    if dim == 0 and not zero_allowed:
        return "0 is not allowed here; a dimension can be 0 in min alone"
    if dim > MAX_DIM:
        return f"{_short(str(dim))} is above {MAX_DIM}, the largest dimension that TensorRT takes"
    return None


def dim_hint(dim: object) -> str | None:
    """The size to write instead of one that is too small or too large."""
    if isinstance(dim, bool) or not isinstance(dim, int):
        return None
    return "write 1" if dim < 1 else f"write {MAX_DIM}"


def entry_text(corners: Sequence[int | Shape], multiple_of: int | None = None) -> str:
    """``{min: [1, 3], opt: [2, 3], max: [4, 3]}`` or ``{min: 8, opt: 16, max: 32, multiple_of: 8}``."""
    values = [str(value) if isinstance(value, int) else str(list(value)) for value in corners]
    parts = [f"{name}: {value}" for name, value in zip(CORNERS, values, strict=True)]
    return "{" + ", ".join(parts + ([f"multiple_of: {multiple_of}"] if multiple_of else [])) + "}"


def order_problems(low: Shape, opt: Shape, high: Shape, scalar: bool = False) -> list[Problem]:
    """A problem for each element that breaks min <= opt <= max, or one for unequal numbers of dimensions.

    Its hint is an entry that is in order. With ``scalar`` it has numbers instead of lists of one.
    """
    ranks = {"min": len(low), "opt": len(opt), "max": len(high)}
    if len(set(ranks.values())) > 1:
        return [_rank_problem(low, opt, high)]
    columns = [sorted(column) for column in zip(low, opt, high, strict=True)]
    ordered = [tuple(column[corner] for column in columns) for corner in range(3)]
    hint = f"write {entry_text([corner[0] for corner in ordered] if scalar else ordered)}"
    problems = []
    for index, (smallest, typical, largest) in enumerate(zip(low, opt, high, strict=True)):
        if smallest > largest:
            problems.append(Problem(("min", index), f"{smallest} is above max {largest}", hint))
        elif typical > largest:
            problems.append(Problem(("opt", index), f"{typical} is above max {largest}", hint))
        elif typical < smallest:
            problems.append(Problem(("opt", index), f"{typical} is below min {smallest}", hint))
    return problems


def described(value: object) -> str:
    """A value of a user's file as words for a message: ``the text 'abc'``, ``a list``, ``no value``."""
    if value is None:
        return "no value"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"the text {_short(value)!r}"
    if isinstance(value, (list, tuple)):
        return "an empty list" if not value else f"a list of {len(value)}"
    if isinstance(value, dict):
        return f"a mapping with the keys {', '.join(map(str, list(value)[:4]))}" if value else "an empty mapping"
    return _short(str(value))


def rank_one_hint(value: object) -> str | None:
    """The text to write where a bare integer stands for a shape of one dimension."""
    return f"write [{value}]" if isinstance(value, int) and not isinstance(value, bool) else None


def _parts(value: object) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return list(value)
    if isinstance(value, str) and value.strip():
        # A part that is no integer is kept as text, so that it is refused under its index.
        return [int(part) if re.fullmatch(r"-?[0-9]{1,20}", part) else part for part in _PART.split(value.strip())]
    message = f"expected a shape such as [1, 3, 224, 224] or '1x3x224x224', got {described(value)}"
    raise invalid([Problem((), message, rank_one_hint(value))], value)


def _rank_problem(*shapes: Shape) -> Problem:
    ranks = dict(zip(CORNERS, map(len, shapes), strict=True))
    for odd in CORNERS:
        others = [corner for corner in CORNERS if corner != odd]
        if ranks[others[0]] == ranks[others[1]]:
            message = f"{odd} has {counted(ranks[odd])} but {others[0]} and {others[1]} have {ranks[others[0]]}"
            kept = dict(zip(CORNERS, shapes, strict=True))
            kept[odd] = kept["min"] if odd == "max" else kept["max"] if odd == "opt" else kept["opt"]
            return Problem((odd,), message, f"write {entry_text(list(kept.values()))}")
    counts = ", ".join(f"{corner} {rank}" for corner, rank in ranks.items())
    return Problem((), f"min, opt and max need equally many dimensions, but have: {counts}")


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def _read_shape(value: object) -> Shape:
    return read_shape(value, zero_allowed=False)


def _read_smallest_shape(value: object) -> Shape:
    return read_shape(value, zero_allowed=True)


def shape_schema(smallest: int) -> dict[str, Any]:
    """The JSON Schema of a shape whose dimensions are at least ``smallest``."""
    dim = {"type": "integer", "minimum": smallest, "maximum": MAX_DIM}
    dims = {"type": "array", "items": dim, "maxItems": MAX_RANK}
    return {"anyOf": [dims, {"type": "string", "pattern": r"^\d+( *[xX×] *\d+)+$"}]}


ShapeValue = Annotated[Shape, BeforeValidator(_read_shape), WithJsonSchema(shape_schema(1))]
SmallestShapeValue = Annotated[Shape, BeforeValidator(_read_smallest_shape), WithJsonSchema(shape_schema(0))]
