"""The result of a rewriting, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trtnorm_cli.onnx_model.load import LoadedModel
from trtnorm_cli.onnx_model.normalization_nodes import Normalization, normalizations
from trtnorm_cli.report.composite_norms import composite_table, counts_line
from trtnorm_cli.report.console import console, print_warnings, table
from trtnorm_cli.report.notes import print_notes, print_results_alone
from trtnorm_cli.report.verbosity import Verbosity
from trtnorm_cli.rewrite.describe import norm_counts, of_rewriting, why_kept
from trtnorm_cli.rewrite.rewriting import Rewriting


def rewriting_json(loaded: LoadedModel, rewriting: Rewriting, written: Iterable[Path]) -> dict[str, Any]:
    """The record of a rewriting, with paths as the user gave them."""
    return {
        "source": {"file": loaded.path.name, "sha256": loaded.sha256},
        "written": [str(path) for path in written],
        "cleaning": dict(sorted(rewriting.cleaning.counts.items())),
        "changes": [asdict(change) for change in rewriting.changes],
        "undone": [asdict(undone) for undone in rewriting.undone],
        "refused": [asdict(rejection) for rejection in rewriting.rejections],
        "normalizations": [
            {"node": norm.name or norm.output, "operator": norm.operator, "outcome": outcome}
            for norm, outcome in outcomes(rewriting)
        ],
        "composite_normalizations": [norm.to_json() for norm in of_rewriting(rewriting)],
        "rewrite_warnings": list(rewriting.warnings),
        "warnings": [*loaded.warnings, *rewriting.cleaning.notes],
    }


def outcomes(rewriting: Rewriting) -> list[tuple[Normalization, list[str]]]:
    """Every normalization node after cleaning, with the rule that took it or each rule's reason for refusing.

    A last resort comes with the reasons of the rules before it.
    """
    return [(norm, _outcome(norm, rewriting)) for norm in normalizations(rewriting.cleaned)]


def _outcome(norm: Normalization, rewriting: Rewriting) -> list[str]:
    node = norm.name or f"{norm.operator} -> {norm.output}"
    taken = [line for change in rewriting.changes if node in change.removed for line in (change.rule, *change.refused)]
    if taken:
        return taken
    failed = [f"{c.rule}: {c.check.reason}" for c in rewriting.failed if node in c.removed]
    failed += [f"{u.rule}: undone, {u.reason}" for u in rewriting.undone if node == u.node]
    return failed or why_kept(norm, rewriting.rejections)


def print_rewriting(
    loaded: LoadedModel,
    rewriting: Rewriting,
    written: list[Path],
    explain: bool,
    as_json: bool = False,
    verbosity: Verbosity = Verbosity.NORMAL,
) -> None:
    """The changes with their check errors, and with ``explain`` every normalization node."""
    if verbosity is Verbosity.QUIET:
        print_results_alone(written, rewriting.warnings, as_json)
        return
    out = console(as_json)
    print_notes(out, (*loaded.warnings, *rewriting.cleaning.notes), verbosity)
    cleaned = ", ".join(f"{n} {what}" for what, n in rewriting.cleaning.counts.items() if n)
    out.print(f"cleaned: {cleaned or 'nothing to clean'}")
    out.print(f"normalizations: {counts_line(**norm_counts(rewriting.cleaned, rewriting.composites))}")
    rows = [(c.rule, c.node, f"{c.check.max_rel:.1e}", f"{c.check.float64_rel:.1e}") for c in rewriting.changes]
    if rows:
        out.print(table("", ("rule", "node", "check error", "in float64"), rows))
    else:
        out.print("no rule was applied")
    if explain:
        nodes = [(n.operator, n.name or n.output, "\n".join(outcome)) for n, outcome in outcomes(rewriting)]
        if nodes:
            out.print(table("Normalization nodes", ("operator", "node", "outcome"), nodes), new_line_start=True)
        if rewriting.composites:
            out.print(composite_table(of_rewriting(rewriting)), new_line_start=True)
    print_warnings(out, rewriting.warnings)
    for path in written:
        out.print(f"wrote {path}", soft_wrap=True)
