"""Single values of a build profile, such as dimensions, sizes in bytes, and numbers.

The functions stand before the types that use them because pydantic evaluates an annotation in a copy of the module's names,
taken when the class is made.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from trtnorm_cli.profile.dims import MAX_DIM, described, dim_fault, dim_hint
from trtnorm_cli.profile.problems import Problem, invalid

UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
MIN_BYTES = 2**20
MAX_BYTES = 2**50

_SIZE = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([A-Za-z]+)\s*")


def read_dim(value: object) -> int:
    """A dimension from 1. Raises a pydantic ValidationError that says what is wrong."""
    return _checked_dim(value, zero_allowed=False)


def read_smallest_dim(value: object) -> int:
    """A dimension from 0. Raises as ``read_dim``."""
    return _checked_dim(value, zero_allowed=True)


def read_bytes(value: object) -> int | None:
    """A size in bytes, given as a number or as in ``2GiB``, between 1 MiB and 1 PiB. None stays None."""
    if value is None:
        return None
    size = value if isinstance(value, int) and not isinstance(value, bool) else _parsed_size(value)
    if size < MIN_BYTES:
        hint = "a plain number counts bytes; write '2GiB' or '512MiB'"
        raise invalid([Problem((), f"{value} is below 1 MiB", hint)], value)
    if size > MAX_BYTES:
        raise invalid([Problem((), f"{described(value)} is above 1024 TiB")], value)
    return size


def read_elements(value: object) -> tuple[int, ...]:
    """The elements of a vector, or of a scalar given as a bare integer. Raises as ``read_dim``."""
    given: list[Any] = list(value) if isinstance(value, (list, tuple)) else [value]
    if not given:
        raise invalid([Problem((), "the list is empty")], value)
    problems = [Problem((index,), fault) for index, element in enumerate(given) if (fault := _element_fault(element))]
    if problems:
        raise invalid(problems, value)
    return tuple(int(element) for element in given)


def _element_fault(element: object) -> str | None:
    if not isinstance(element, int):
        return f"expected an integer, true or false, got {described(element)}"
    return None if abs(element) < 2**63 else f"{described(element)} is no int64"


def _checked_dim(value: object, *, zero_allowed: bool) -> int:
    if (message := dim_fault(value, zero_allowed=zero_allowed)) is not None:
        raise invalid([Problem((), message, dim_hint(value))], value)
    assert isinstance(value, int)
    return value


def _parsed_size(value: object) -> int:
    parts = _SIZE.fullmatch(value) if isinstance(value, str) else None
    unit = next((name for name in UNITS if parts and name.casefold() == parts[2].casefold()), None)
    if parts is None or unit is None:
        message = f"expected a size such as '2GiB', '512MiB' or a number of bytes, got {described(value)}"
        raise invalid([Problem((), message)], value)
    return int(float(parts[1]) * UNITS[unit])


DIM_SCHEMA = {"type": "integer", "minimum": 1, "maximum": MAX_DIM}

ELEMENTS_SCHEMA = {
    "anyOf": [{"type": "array", "items": {"type": ["integer", "boolean"]}, "minItems": 1}, {"type": ["integer", "boolean"]}]
}

ElementsValue = Annotated[tuple[int, ...], BeforeValidator(read_elements), WithJsonSchema(ELEMENTS_SCHEMA)]
Dim = Annotated[int, BeforeValidator(read_dim), WithJsonSchema(DIM_SCHEMA)]
SmallestDim = Annotated[int, BeforeValidator(read_smallest_dim), WithJsonSchema({**DIM_SCHEMA, "minimum": 0})]
Bytes = Annotated[
    int | None,
    BeforeValidator(read_bytes),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": MIN_BYTES}, {"type": "string"}], "examples": ["2GiB"]}),
]
Number = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
