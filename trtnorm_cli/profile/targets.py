"""GPU architectures as a build profile names them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from trtnorm_cli.profile.dims import described
from trtnorm_cli.profile.problems import Problem, invalid

_SPELLINGS = re.compile(r"(?:sm_?(?P<digits>[0-9]{2,3})|(?P<major>[0-9]{1,2})\.(?P<minor>[0-9]))", re.IGNORECASE)


def read_targets(value: object) -> tuple[str, ...] | None:
    """Compute capabilities as ``sm_86``. 'sm86' and 8.6 are read as the same. None stays None.

    Raises a pydantic ``ValidationError`` for anything else, an empty list, and a compute capability that stands twice.
    """
    if value is None:
        return None
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        message = f"expected a list of compute capabilities such as [sm_86, sm_89], got {described(value)}"
        raise invalid([Problem((), message)], value)
    targets = [_read(one) for one in value]
    problems = [
        Problem((index,), f"{described(one)} is no compute capability", "write it as sm_86 (or 8.6)")
        for index, (one, target) in enumerate(zip(value, targets, strict=True))
        if target is None
    ]
    problems += [
        Problem((index,), f"{target} stands twice")
        for index, target in enumerate(targets)
        if target is not None and target in targets[:index]
    ]
    if problems:
        raise invalid(problems, value)
    return tuple(target for target in targets if target is not None)


def _read(value: object) -> str | None:
    found = _SPELLINGS.fullmatch(str(value))
    if found is None:
        return None
    return f"sm_{found['digits'] or found['major'] + found['minor']}"


_SCHEMA = {"type": "array", "minItems": 1, "items": {"type": ["string", "number"]}, "examples": [["sm_86", "sm_89", "sm_120"]]}
Targets = Annotated[tuple[str, ...] | None, BeforeValidator(read_targets), WithJsonSchema(_SCHEMA)]
