"""The normalization modules of a PyTorch model as text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from trtnorm_cli.export.inspecting import ModuleDescription
from trtnorm_cli.records.export import NormModule
from trtnorm_cli.report.accidents import print_accidents, print_weights
from trtnorm_cli.report.console import shape_text, table
from trtnorm_cli.report.notes import print_notes
from trtnorm_cli.report.verbosity import Verbosity

_COLUMNS = ("path", "type", "family", "shape", "groups", "epsilon", "affine", "momentum", "dtype", "statistics", "training")


def print_norm_modules(out: Console, rows: Sequence[NormModule], remark: str) -> None:
    """The table, and ``remark`` on what is not in it."""
    if rows:
        out.print(table("Normalization modules", _COLUMNS, [_row(row) for row in rows]), new_line_start=True)
    else:
        out.print("\nno normalization modules")
    out.print(f"note: {remark}")


def _row(row: NormModule) -> tuple[object, ...]:
    return (
        row.path or "(the model)",
        row.type,
        row.family if row.recognised_by == "class" else f"{row.family} (by its {row.recognised_by})",
        shape_text(row.shape),
        row.groups or "",
        "" if row.epsilon is None else f"{row.epsilon:g}",
        "yes" if row.affine else "no",
        "" if row.momentum is None else f"{row.momentum:g}",
        ", ".join(row.dtypes) or "-",
        statistics_text(row),
        "yes" if row.training else "no",
    )


def statistics_text(row: NormModule) -> str:
    """Running statistics as ``tracked, mean -0.3 to 0.3, var 0.5 to 2``, or ``none`` for modules without."""
    if row.mean is None or row.variance is None or row.statistics == "untouched":
        return row.statistics
    mean, variance = (f"{low:.2g} to {high:.2g}" for low, high in (row.mean, row.variance))
    return f"{row.statistics}, mean {mean}, var {variance}"


def print_module(out: Console, text: str, found: ModuleDescription, verbosity: Verbosity = Verbosity.NORMAL) -> None:
    """The table of normalization modules, then what an export puts right, doubts or refuses."""
    out.print(text)
    print_norm_modules(out, found.normalizations, found.not_seen)
    print_weights(out, found.weights)
    print_accidents(out, found.accidents)
    print_notes(out, found.notes, verbosity)
