"""The faults that were put right or are doubtful in a PyTorch model, as text."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console

from trtnorm_cli.records.export import AccidentRecord, LoadedWeights
from trtnorm_cli.report.console import print_warnings
from trtnorm_cli.suggest import listing

_SHOWN = 3


def accident_lines(accidents: Iterable[AccidentRecord], severity: str) -> list[str]:
    """One line for each message of this severity, with the modules that it is about. A hint is a line below it."""
    modules: dict[tuple[str, str | None], list[str]] = {}
    for accident in accidents:
        if accident.severity == severity:
            modules.setdefault((accident.message, accident.hint), []).append(accident.module or "the model")
    return [
        f"{listing(paths, _SHOWN)}: {message}" + (f"\n{hint}" if hint else "") for (message, hint), paths in modules.items()
    ]


def print_accidents(out: Console, accidents: Iterable[AccidentRecord]) -> None:
    """First what was put right, then the warnings, then what is refused."""
    known = list(accidents)
    for line in accident_lines(known, "fixed"):
        out.print(f"put right: {line}")
    print_warnings(out, accident_lines(known, "warning"))
    for line in accident_lines(known, "refused"):
        first, *hint = line.split("\n")
        out.print("\n".join([f"REFUSED: {first}", *(f"         {text}" for text in hint)]), style="bold red")


def print_weights(out: Console, weights: LoadedWeights | None) -> None:
    """Print what was loaded into the model. Names that fit nothing are a warning."""
    if weights is None:
        return
    out.print(f"weights: {weights.loaded} tensors of {weights.file}" + "".join(f"; {note}" for note in weights.notes))
    print_warnings(out, weight_warnings(weights))


def weight_warnings(weights: LoadedWeights | None) -> list[str]:
    """Names that fit nothing."""
    if weights is None:
        return []
    left = [f"left as the callable made them: {listing(weights.missing)}"] if weights.missing else []
    return left + ([f"not in the model: {listing(weights.unexpected)}"] if weights.unexpected else [])
