"""Normalizations written in pieces, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trtnorm_cli.report.console import FittedTable, counts_text, shape_text, table
from trtnorm_cli.report.norm_lines import NormLine, outcome_key
from trtnorm_cli.rewrite.norms.record import CompositeOutcome

_SPELLED_WORDS = 14


def composite_table(norms: Sequence[CompositeOutcome]) -> FittedTable:
    """One row for each normalization."""
    columns = ("made by", "kind", "data", "over", "epsilon", "spelled as", "outcome")
    return table("Normalizations in pieces", columns, [_row(norm) for norm in norms])


def composite_lines(norms: Iterable[CompositeOutcome]) -> list[NormLine]:
    """Each normalization in pieces with what it goes over, and its type where that is another than float."""
    return [
        NormLine(
            kind=_kind(norm),
            name=norm.node,
            fact=_over(norm),
            outcome=norm.outcome,
            key=outcome_key(norm.outcome),
            more_facts=() if _types(norm) in ("float", "?") else (_types(norm),),
        )
        for norm in norms
    ]


def _kind(norm: CompositeOutcome) -> str:
    kind = f"adaptive {norm.kind}" if norm.adaptive else norm.kind
    return f"no {kind}" if norm.misgiving else kind


def _row(norm: CompositeOutcome) -> tuple[object, ...]:
    return (
        norm.node,
        _kind(norm),
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
