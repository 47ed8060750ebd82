"""The normalization modules of a PyTorch model as text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from trtnorm_cli.export.inspecting import ModuleDescription
from trtnorm_cli.records.export import NormModule
from trtnorm_cli.report.accidents import print_accidents, print_weights
from trtnorm_cli.report.console import shape_text, table
from trtnorm_cli.report.norm_lines import NormLine, print_norm_lines
from trtnorm_cli.report.notes import print_notes
from trtnorm_cli.report.verbosity import Verbosity

_COLUMNS = ("path", "type", "family", "shape", "groups", "epsilon", "affine", "momentum", "dtype", "statistics", "training")


def print_norm_modules(out: Console, rows: Sequence[NormModule], remark: str, every: bool = False) -> None:
    """Print the modules, those that are alike in one line, and ``remark`` on what is not among them.

    With ``every`` print a table with all that is known of each.
    """
    if not rows:
        out.print("\nno normalization modules")
    elif every:
        out.print(table("Normalization modules", _COLUMNS, [_row(row) for row in rows]), new_line_start=True)
    else:
        print_norm_lines(out, "Normalization modules", [_line(row) for row in rows], lambda rule: None)
    out.print(f"note: {remark}")


def _line(row: NormModule) -> NormLine:
    """The module with its size, and its statistics where there are some to speak of."""
    facts = ["1 group" if row.groups == 1 else f"{row.groups} groups"] if row.groups else []
    facts += [", ".join(row.dtypes)] if row.dtypes not in ((), ("float32",)) else []
    facts += [] if row.affine else ["no scale"]
    said = [] if row.statistics == "none" else [f"statistics {row.statistics}"]
    size = "" if row.shape is None else shape_text(row.shape)
    return NormLine(row.type.rpartition(".")[2], row.path or "(the model)", size, tuple(said), row.statistics, tuple(facts))


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


def print_module(
    out: Console, text: str, found: ModuleDescription, every: bool = False, verbosity: Verbosity = Verbosity.NORMAL
) -> None:
    """Print the normalization modules, then what an export puts right, doubts or refuses."""
    out.print(text)
    print_norm_modules(out, found.normalizations, found.not_seen, every)
    print_weights(out, found.weights)
    print_accidents(out, found.accidents)
    print_notes(out, found.notes, verbosity)
