"""Problems of a build profile, collected so that one run shows every mistake."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError

from trtnorm_cli.errors import ProfileError
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.profile.positions import KeyPath, Positions

CUSTOM = "trtnorm"
SHOWN_PROBLEMS = 20
SHOWN_HINTS = 3


@dataclass(frozen=True)
class Problem:
    """One mistake, with the key path it is about, what is wrong, and how to fix it.

    ``line`` is given only where it differs from the line of ``path``, as for a key that stands twice.
    """

    path: KeyPath
    message: str
    hint: str | None = None
    line: int | None = None


def refusal(problems: Sequence[Problem], positions: Positions) -> ProfileError:
    """The one error that reports every problem in the order of the file, a line each, the first in ``where``."""

    def row(problem: Problem) -> int:
        return problem.line or positions.line(problem.path) or 0

    ordered = sorted(dict.fromkeys(problems), key=row)
    texts = [problem.message for problem in ordered]
    places = [positions.where(problem.path, problem.line) for problem in ordered]
    rest = [f"{place}: {text}" if place else text for place, text in zip(places[1:], texts[1:], strict=True)]
    if len(ordered) > SHOWN_PROBLEMS:
        rest = [*rest[: SHOWN_PROBLEMS - 1], f"… and {len(ordered) - SHOWN_PROBLEMS} more problems"]
    hints = list(dict.fromkeys(problem.hint for problem in ordered if problem.hint))
    return ProfileError("\n".join([texts[0], *rest]), places[0], "\n".join(hints[:SHOWN_HINTS]) or None)


def invalid(problems: Sequence[Problem], value: object) -> ValidationError:
    """The error to raise inside a pydantic validator for several problems at once.

    Each problem's path is relative to the value being validated. Pydantic puts the path so far in front.
    """
    details = [
        InitErrorDetails(
            type=PydanticCustomError(CUSTOM, "{text}", {"text": problem.message, "hint": problem.hint or ""}),
            loc=problem.path,
            input=value,
        )
        for problem in problems
    ]
    return ValidationError.from_exception_data("build profile", details)
