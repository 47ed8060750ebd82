"""A rewriting with the model that it was made from: what ``trtnorm rewrite`` prints, and what became of every normalization."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.load import LoadedModel
from trtnorm_cli.onnx_model.normalization_nodes import Normalization, normalizations
from trtnorm_cli.record import Record, json_of
from trtnorm_cli.records.precision import PrecisionRecord
from trtnorm_cli.rewrite.describe import of_rewriting, why_kept
from trtnorm_cli.rewrite.rewriting import Rewriting
from trtnorm_cli.rewrite.rule import Change
from trtnorm_cli.rewrite.rules import rule_named


@dataclass(frozen=True)
class RewrittenModel:
    """A rewriting of the model ``source``, and the files that it was written to.

    ``precision`` says what became of its types, where another precision was asked for.
    """

    source: LoadedModel
    rewriting: Rewriting
    written: tuple[Path, ...] = ()
    precision: PrecisionRecord | None = None

    def outcomes(self) -> list[tuple[Normalization, list[str]]]:
        """Every normalization node after cleaning, with the rule that took it or each rule's reason for refusing.

        A last resort comes with the reasons of the rules before it.
        """
        return [(norm, _outcome(norm, self.rewriting)) for norm in normalizations(self.rewriting.cleaned)]

    def to_json(self) -> dict[str, Any]:
        """The values that ``trtnorm rewrite --json`` prints, with paths as the user gave them."""
        source, rewriting = self.source, self.rewriting
        return {
            "source": {"file": source.path.name, "sha256": source.sha256},
            "written": json_of(self.written),
            "cleaning": dict(sorted(rewriting.cleaning.counts.items())),
            "changes": json_of(rewriting.changes),
            "undone": json_of(rewriting.undone),
            "refused": json_of(rewriting.rejections),
            "normalizations": [
                {"node": norm.name or norm.output, "operator": norm.operator, "outcome": outcome}
                for norm, outcome in self.outcomes()
            ],
            "composite_normalizations": json_of(of_rewriting(rewriting)),
            **({} if self.precision is None else {"precision": self.precision.to_json()}),
            "rewrite_warnings": list(rewriting.warnings),
            "warnings": [*source.warnings, *rewriting.cleaning.notes],
        }


@dataclass(frozen=True)
class NormOutcome(Record):
    """A normalization node, with the rule that took it or each rule's reason for refusing."""

    node: str
    operator: str
    outcome: tuple[str, ...]


def norm_outcomes(rewriting: Rewriting) -> tuple[NormOutcome, ...]:
    """The fate of every normalization node, in the order of the file."""
    norms = normalizations(rewriting.cleaned)
    return tuple(NormOutcome(norm.label, norm.operator, tuple(_outcome(norm, rewriting))) for norm in norms)


def rule_texts(changes: Iterable[Change]) -> dict[str, str]:
    """The algebra of each rule that made a change, by the rule's name."""
    return {name: rule_named(name).doc for name in sorted({change.rule for change in changes})}


def _outcome(norm: Normalization, rewriting: Rewriting) -> list[str]:
    node = norm.name or f"{norm.operator} -> {norm.output}"
    taken = [line for change in rewriting.changes if node in change.removed for line in (change.rule, *change.refused)]
    if taken:
        return taken
    failed = [f"{c.rule}: {c.check.reason}" for c in rewriting.failed if node in c.removed]
    failed += [f"{u.rule}: undone, {u.reason}" for u in rewriting.undone if node == u.node]
    return failed or why_kept(norm, rewriting.rejections)
