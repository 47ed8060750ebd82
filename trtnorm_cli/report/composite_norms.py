"""Normalizations written in pieces, as text and as JSON."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from rich.console import Console

from trtnorm_cli.report.console import FittedTable, counts_text, shape_text, table
from trtnorm_cli.report.norm_nodes import alike, listed, print_group
from trtnorm_cli.rewrite.norms.record import CompositeOutcome

_SPELLED_WORDS = 14


def composite_table(norms: Sequence[CompositeOutcome]) -> FittedTable:
    """One row for each normalization."""
    columns = ("kind", "made by", "data", "over", "epsilon", "spelled as", "outcome")
    return table("Normalizations in pieces", columns, [_row(norm) for norm in norms])


def print_composites(out: Console, norms: Sequence[CompositeOutcome]) -> None:
    """The normalizations in groups of what is written and treated alike."""
    out.print("\nNormalizations in pieces", style="bold")
    for group in alike(norms, _kind_of):
        first = group[0]
        data = listed(shape_text(norm.shape) for norm in group)
        kind = f"{first.kind}, adaptive" if first.adaptive else first.kind
        facts = [f"{_types(first)} {data}", _over(first), f"epsilon {first.epsilon:g}", _shortened(first.spelled)]
        names = [norm.node for norm in group]
        print_group(out, names, f"no {kind}" if first.misgiving else kind, facts, first.outcome)


def _kind_of(norm: CompositeOutcome) -> Hashable:
    outcome = tuple(line.partition(":")[0] for line in norm.outcome)
    written = (norm.kind, bool(norm.adaptive), norm.spelled, norm.epsilon, _types(norm))
    return *written, _over(norm), norm.misgiving, outcome


def _row(norm: CompositeOutcome) -> tuple[object, ...]:
    kind = f"{norm.kind}, adaptive" if norm.adaptive else norm.kind
    return (
        f"no {kind}" if norm.misgiving else kind,
        norm.node,
        f"{norm.data} {shape_text(norm.shape)} {_types(norm)}",
        _over(norm),
        f"{norm.epsilon:g}",
        _shortened(norm.spelled),
        "\n".join(norm.outcome),
    )


def _types(norm: CompositeOutcome) -> str:
    if norm.computed_in in (norm.dtype, "?"):
        return norm.dtype
    return f"{norm.dtype}, computed in {norm.computed_in}"


def _over(norm: CompositeOutcome) -> str:
    if norm.groups is not None:
        return f"{norm.groups} groups" if norm.groups != 1 else "1 group"
    axes = ", ".join(map(str, norm.axes))
    return f"axes {axes}" if len(norm.axes) != 1 else f"axis {axes}"


def _shortened(spelled: str) -> str:
    words = spelled.split()
    return (
        " ".join(words) if len(words) <= _SPELLED_WORDS else f"{' '.join(words[: _SPELLED_WORDS - 1])} … ({len(words)} nodes)"
    )


def counts_line(nodes: dict[str, int], pieces: dict[str, int]) -> str:
    """``20 BatchNormalization; in pieces: 3 LayerNorm``."""
    parts = [counts_text(nodes)] if nodes else []
    if pieces:
        parts.append(f"in pieces: {counts_text(pieces)}")
    return "; ".join(parts) or "none"
