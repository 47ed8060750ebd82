"""The result of a rewriting, as text."""

from __future__ import annotations

from trtnorm_cli.report.cleaning import cleaning_text
from trtnorm_cli.report.composite_norms import composite_table, counts_line
from trtnorm_cli.report.console import console, print_warnings, table
from trtnorm_cli.report.notes import print_notes, print_results_alone
from trtnorm_cli.report.precision import print_precision
from trtnorm_cli.report.verbosity import Verbosity
from trtnorm_cli.rewrite.describe import norm_counts, of_rewriting
from trtnorm_cli.rewrite.rewritten import RewrittenModel


def print_rewriting(
    done: RewrittenModel, explain: bool, as_json: bool = False, verbosity: Verbosity = Verbosity.NORMAL
) -> None:
    """The changes with their check errors, and with ``explain`` every normalization node."""
    loaded, rewriting, written = done.source, done.rewriting, done.written
    if verbosity is Verbosity.QUIET:
        print_results_alone(written, rewriting.warnings, as_json)
        return
    out = console(as_json)
    print_notes(out, (*loaded.warnings, *rewriting.cleaning.notes), verbosity)
    out.print(f"cleaned: {cleaning_text(rewriting.cleaning.counts) or 'nothing to clean'}")
    out.print(f"normalizations: {counts_line(**norm_counts(rewriting.cleaned, rewriting.composites))}")
    rows = [(c.rule, c.node, f"{c.check.max_rel:.1e}", f"{c.check.float64_rel:.1e}") for c in rewriting.changes]
    if rows:
        out.print(table("", ("rule", "node", "check error", "in float64"), rows))
    else:
        out.print("no rule was applied")
    if explain:
        nodes = [(n.operator, n.name or n.output, "\n".join(outcome)) for n, outcome in done.outcomes()]
        if nodes:
            out.print(table("Normalization nodes", ("operator", "node", "outcome"), nodes), new_line_start=True)
        if rewriting.composites:
            out.print(composite_table(of_rewriting(rewriting)), new_line_start=True)
    if done.precision is not None:
        print_precision(out, done.precision, verbosity, explain)
    print_warnings(out, rewriting.warnings)
    for path in written:
        out.print(f"wrote {path}", soft_wrap=True)
