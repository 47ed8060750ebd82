"""Normalizations written in pieces, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import onnx
from rich.console import Console

from trtnorm_cli.onnx_model.normalization import normalizations
from trtnorm_cli.report.console import FittedTable, counts_text, shape_text, table
from trtnorm_cli.report.norm_nodes import alike, listed, print_group
from trtnorm_cli.rewrite import driver
from trtnorm_cli.rewrite.norms.record import CompositeNorm, Made, count_by_kind, outcome_of
from trtnorm_cli.rewrite.pattern import describe
from trtnorm_cli.rewrite.rewriting import Rewriting
from trtnorm_cli.rewrite.rule import Rejection

_SPELLED_WORDS = 14


@dataclass(frozen=True)
class Planned:
    """A change that would be made."""

    rule: str
    tensor: str
    removed: tuple[str, ...]


def planned_changes(planned: driver.Plan) -> list[Planned]:
    """What a plan would do."""
    return [Planned(m.rule.name, m.output.name, tuple(describe(node) for node in m.nodes)) for m in planned.matches]


def composite_json(
    norms: Iterable[CompositeNorm], changes: Iterable[Made], rejections: Iterable[Rejection]
) -> list[dict[str, Any]]:
    """Each normalization with what became of it, or what would."""
    changes, rejections = tuple(changes), tuple(rejections)
    return [{**asdict(norm), "outcome": outcome_of(norm, changes, rejections)} for norm in norms]


def composite_table(norms: list[dict[str, Any]]) -> FittedTable:
    """One row for each normalization of ``composite_json``."""
    columns = ("kind", "made by", "data", "over", "epsilon", "spelled as", "outcome")
    return table("Normalizations in pieces", columns, [_row(norm) for norm in norms])


def print_composites(out: Console, norms: list[dict[str, Any]]) -> None:
    """The normalizations in groups of what is written and treated alike."""
    out.print("\nNormalizations in pieces", style="bold")
    for group in alike(norms, _kind_of):
        first = group[0]
        data = listed(shape_text(norm["shape"]) for norm in group)
        kind = f"{first['kind']}, adaptive" if first["adaptive"] else str(first["kind"])
        facts = [f"{_types(first)} {data}", _over(first), f"epsilon {first['epsilon']:g}", _shortened(first["spelled"])]
        names = [norm["node"] for norm in group]
        print_group(out, names, f"no {kind}" if first["misgiving"] else kind, facts, first["outcome"])


def _kind_of(norm: dict[str, Any]) -> Hashable:
    outcome = tuple(line.partition(":")[0] for line in norm["outcome"])
    written = (norm["kind"], bool(norm["adaptive"]), norm["spelled"], norm["epsilon"], _types(norm))
    return *written, _over(norm), norm["misgiving"], outcome


def _row(norm: dict[str, Any]) -> tuple[object, ...]:
    kind = f"{norm['kind']}, adaptive" if norm["adaptive"] else norm["kind"]
    return (
        f"no {kind}" if norm["misgiving"] else kind,
        norm["node"],
        f"{norm['data']} {shape_text(norm['shape'])} {_types(norm)}",
        _over(norm),
        f"{norm['epsilon']:g}",
        _shortened(norm["spelled"]),
        "\n".join(norm["outcome"]),
    )


def _types(norm: dict[str, Any]) -> str:
    if norm["computed_in"] in (norm["dtype"], "?"):
        return str(norm["dtype"])
    return f"{norm['dtype']}, computed in {norm['computed_in']}"


def _over(norm: dict[str, Any]) -> str:
    if norm["groups"] is not None:
        return f"{norm['groups']} groups" if norm["groups"] != 1 else "1 group"
    axes = ", ".join(map(str, norm["axes"]))
    return f"axes {axes}" if len(norm["axes"]) != 1 else f"axis {axes}"


def _shortened(spelled: str) -> str:
    words = spelled.split()
    return (
        " ".join(words) if len(words) <= _SPELLED_WORDS else f"{' '.join(words[: _SPELLED_WORDS - 1])} … ({len(words)} nodes)"
    )


def norm_counts(cleaned: onnx.ModelProto, composites: Iterable[CompositeNorm]) -> dict[str, dict[str, int]]:
    """How many normalizations a model has: ``nodes`` by operator, and those in ``pieces`` by kind.

    A node that is one of the pieces counts as such.
    """
    composites = tuple(composites)
    pieces = Counter(operator for norm in composites for operator in norm.spelled.split())
    nodes = Counter(norm.operator for norm in normalizations(cleaned))
    nodes.subtract({operator: pieces[operator] for operator in nodes})
    return {"nodes": dict((+nodes).most_common()), "pieces": count_by_kind(composites)}


def counts_line(counts: dict[str, dict[str, int]]) -> str:
    """``20 BatchNormalization; in pieces: 3 LayerNorm``."""
    parts = [counts_text(counts["nodes"])] if counts["nodes"] else []
    if counts["pieces"]:
        parts.append(f"in pieces: {counts_text(counts['pieces'])}")
    return "; ".join(parts) or "none"


def of_rewriting(rewriting: Rewriting) -> list[dict[str, Any]]:
    """The normalizations in pieces of a model and what the rewriting did with each."""
    failed = [Rejection(change.rule, change.node, change.check.reason) for change in rewriting.failed]
    failed += [Rejection(undone.rule, undone.node, f"undone, {undone.reason}") for undone in rewriting.undone]
    return composite_json(rewriting.composites, rewriting.changes, (*failed, *rewriting.rejections))
