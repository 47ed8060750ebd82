"""A rewriting with the model that it was made from: what ``trtnorm rewrite`` prints, and what became of every normalization."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from pathlib import Path
from typing import Any

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.load import LoadedModel
from trtnorm_cli.onnx_model.normalization_nodes import Normalization, normalizations
from trtnorm_cli.record import LEFT_OUT_BY_DEFAULT, Record
from trtnorm_cli.records.digests import FileDigest
from trtnorm_cli.records.precision import PrecisionRecord
from trtnorm_cli.rewrite.describe import of_rewriting, why_kept
from trtnorm_cli.rewrite.norms.record import CompositeOutcome
from trtnorm_cli.rewrite.rewriting import Rewriting
from trtnorm_cli.rewrite.rule import Change, Rejection, Undone
from trtnorm_cli.rewrite.rules import rule_named


@dataclass(frozen=True)
class NormOutcome(Record):
    """A normalization node, with the rule that took it or each rule's reason for refusing."""

    node: str
    operator: str
    outcome: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RewriteRecord(Record):
    """A rewriting: the file that it was made from, the files that were written, and what became of each normalization."""

    source: FileDigest
    written: tuple[str, ...]
    cleaning: dict[str, int]
    changes: tuple[Change, ...]
    undone: tuple[Undone, ...]
    refused: tuple[Rejection, ...]
    normalizations: tuple[NormOutcome, ...]
    composite_normalizations: tuple[CompositeOutcome, ...]
    precision: PrecisionRecord | None = field(default=None, metadata=LEFT_OUT_BY_DEFAULT)
    rewrite_warnings: tuple[str, ...]
    warnings: tuple[str, ...]


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

    def record(self) -> RewriteRecord:
        """The rewriting as ``trtnorm rewrite --json`` prints it, with paths as the user gave them."""
        source, rewriting = self.source, self.rewriting
        return RewriteRecord(
            source=FileDigest(source.path.name, source.sha256),
            written=tuple(map(str, self.written)),
            cleaning=dict(sorted(rewriting.cleaning.counts.items())),
            changes=rewriting.changes,
            undone=rewriting.undone,
            refused=rewriting.rejections,
            normalizations=tuple(
                NormOutcome(norm.name or norm.output, norm.operator, tuple(outcome)) for norm, outcome in self.outcomes()
            ),
            composite_normalizations=of_rewriting(rewriting),
            precision=self.precision,
            rewrite_warnings=rewriting.warnings,
            warnings=(*source.warnings, *rewriting.cleaning.notes),
        )

    def to_json(self) -> dict[str, Any]:
        """The record as JSON values."""
        return self.record().to_json()


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
