"""The types of a model in another precision, as text."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console

from trtnorm_cli.records.precision import Kept, OutputError, PrecisionRecord
from trtnorm_cli.report.console import FittedTable, table
from trtnorm_cli.report.notes import print_notes
from trtnorm_cli.report.verbosity import Verbosity

_CAUSES = {
    "asked": "asked for",
    "type": "not computed in this type",
    "constant": "constants",
    "norm": "normalizations in pieces",
    "range": "ranges",
    "mask": "masks",
    "control-flow": "control flow",
    "budget": "error budget",
    "author": "float32 in the file",
    "joined": "between others",
}
_RANDOM = "random inputs say little about ranges: give yours with precision: {data: …}"


def precision_rows(record: PrecisionRecord) -> list[tuple[str, str]]:
    """The rows of a summary: how many nodes compute in the type, why others do not, and the error."""
    rows = [("precision", _text(record))]
    if record.kept:
        why = ", ".join(f"{number} {_CAUSES[cause]}" for cause, number in record.causes.items())
        rows.append(("  in float32", why))
    if record.scaled:
        most = max(one.exponent for one in record.scaled)
        rows.append(("  scaled", f"{_counted(len(record.scaled), 'tensor')} to as little as 1/{2**most}, to fit; exactly"))
    if record.worst is not None:
        allowed = "" if record.max_error is None else f"; {record.max_error:g} allowed"
        rows.append(("  error", error_text(record.worst) + allowed))
    if record.worst_unseen is not None:
        rows.append(("  on new inputs", error_text(record.worst_unseen)))
    return rows


def precision_notes(record: PrecisionRecord) -> list[str]:
    """The remarks besides."""
    changed = [f"{one.tensor} of {one.node}: {one.before:g} became {one.after:g}, {one.reason}" for one in record.constants]
    return [*changed, *record.notes, *([] if record.has_users_data or not record.low else [_RANDOM])]


def print_precision(out: Console, record: PrecisionRecord, verbosity: Verbosity, explain: bool = True) -> None:
    """Print what became of types and, to ``explain`` it, every node that stays float32."""
    out.print(table("", ("", ""), precision_rows(record)), new_line_start=True)
    if explain and record.kept:
        out.print(kept_table(record), new_line_start=True)
    print_notes(out, precision_notes(record), verbosity)


def kept_table(record: PrecisionRecord) -> FittedTable:
    """The nodes that stay float32, those with one reason in one row."""
    alike: dict[str, list[Kept]] = {}
    for one in record.kept:
        alike.setdefault(one.reason, []).append(one)
    rows = [(_nodes_text(kept), _share_text(kept), reason) for reason, kept in alike.items()]
    return table("Nodes that stay float32", ("nodes", "error", "reason"), rows)


def _nodes_text(kept: Sequence[Kept]) -> str:
    named = f"{kept[0].operator} {kept[0].node}"
    return named if len(kept) == 1 else f"{named} and {len(kept) - 1} more"


def _share_text(kept: Sequence[Kept]) -> str:
    """The part of the error that the nodes had, where a budget raised them: squares of errors add."""
    shares = [one.error for one in kept if one.error is not None]
    return f"{math.hypot(*shares):.1e}" if shares else "-"


def error_text(error: OutputError) -> str:
    """The error of an output, and whether TensorRT's network or the model alone was asked."""
    if error.network is not None:
        return f"at most {error.network:.1e} of {error.output} at {error.at}, in TensorRT's network"
    return f"at most {error.emulated or 0.0:.1e} of {error.output} at {error.at}, each result rounded"


def _text(record: PrecisionRecord) -> str:
    if record.type == "fp32":
        return "fp32: every node" if not record.casts else f"fp32: every node, {_counted(record.casts, 'cast')} added"
    nodes = f"{record.low} of {_counted(record.low + len(record.kept), 'node')}"
    return f"{record.type}: {nodes}, {_counted(record.casts, 'cast')} added"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
