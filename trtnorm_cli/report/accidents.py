"""What was put right or is doubtful in a PyTorch model, as text. Takes JSON, so that PyTorch is not imported for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console

from trtnorm_cli.profile.suggest import listing
from trtnorm_cli.report.console import print_warnings

_SHOWN = 3


def accident_lines(accidents: Iterable[Mapping[str, Any]], severity: str) -> list[str]:
    """One line for each message of this severity, with the modules that it is about; a hint is a line below it."""
    modules: dict[tuple[str, str | None], list[str]] = {}
    for accident in accidents:
        if accident["severity"] == severity:
            modules.setdefault((accident["message"], accident["hint"]), []).append(accident["module"] or "the model")
    return [
        f"{listing(paths, _SHOWN)}: {message}" + (f"\n{hint}" if hint else "") for (message, hint), paths in modules.items()
    ]


def print_accidents(out: Console, accidents: Iterable[Mapping[str, Any]]) -> None:
    """First what was put right, then the warnings."""
    known = list(accidents)
    for line in accident_lines(known, "fixed"):
        out.print(f"put right: {line}")
    print_warnings(out, accident_lines(known, "warning"))
