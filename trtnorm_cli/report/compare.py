"""The result of a comparison, as text and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable

from rich.console import Console

from trtnorm_cli.compare.record import verdict_lines
from trtnorm_cli.compare.result import NOT_COMPARED, PASSED, CandidateReport, Comparison
from trtnorm_cli.records.comparison import OutputVerdict
from trtnorm_cli.report.console import table
from trtnorm_cli.report.notes import print_notes
from trtnorm_cli.report.precision import print_precision
from trtnorm_cli.report.verbosity import Verbosity

_COLUMNS = ("at", "output", "max abs", "mean abs", "rel L2", "cosine", "float64", "of limit", "verdict")
# Shares of the limit are percentages up to here.
_MANY = 100.0


def print_comparison(out: Console, comparison: Comparison, seed: int | None, verbosity: Verbosity = Verbosity.NORMAL) -> None:
    """Print one table for each candidate, then notes and the verdict. When quiet, print the verdict with what is wrong."""
    if verbosity is Verbosity.QUIET:
        out.print("\n".join([*verdict_lines(comparison), f"verdict: {_verdict(comparison)} ({comparison.seconds:.1f} s)"]))
        return
    out.print(f"reference: {comparison.reference}" + ("" if seed is None else f"   seed: {seed}"))
    _print_inputs(out, comparison)
    for candidate in comparison.candidates:
        title = f"{candidate.label}: {_state(candidate)}"
        if not candidate.verdicts:
            out.print(f"\n{title}")
        else:
            out.print(table(title, _COLUMNS, (_row(verdict) for verdict in candidate.verdicts)), new_line_start=True)
        _print_details(out, candidate, verbosity)
    print_notes(out, (*comparison.skipped, *comparison.notes), verbosity)
    if comparison.precision is not None:
        print_precision(out, comparison.precision, verbosity)
    if comparison.float64:
        own = sorted(set(comparison.float64.values()))
        out.print(f"float64 by: {', '.join(own)}")
    out.print(f"verdict: {_verdict(comparison)} ({comparison.seconds:.1f} s)")


def _print_inputs(out: Console, comparison: Comparison) -> None:
    """Print what each input was drawn from, one line each."""
    for name, chosen in comparison.inputs.items():
        out.print(f"{name}: {chosen}", soft_wrap=True)


def _verdict(comparison: Comparison) -> str:
    if comparison.state == NOT_COMPARED:
        return "none, nothing could be compared on this machine"
    if comparison.passed:
        return "within tolerance"
    if comparison.is_out_of_tolerance:
        return "OUT OF TOLERANCE"
    failed = ", ".join(candidate.label for candidate in comparison.candidates if candidate.does_not_run)
    return f"FAILED, {failed} cannot be run; nothing that was compared is out of tolerance"


def state_text(state: str) -> str:
    """The state of a candidate, loud unless it passed."""
    return state if state == PASSED else state.upper()


def finite(values: Iterable[float | None]) -> list[float]:
    """The numbers of which a largest one can be shown."""
    return [value for value in values if value is not None and math.isfinite(value)]


def _state(candidate: CandidateReport) -> str:
    if candidate.state == NOT_COMPARED:
        return f"NOT COMPARED: {candidate.why_not}"
    if candidate.does_not_run:
        return f"FAILED: {candidate.error}"
    return PASSED if candidate.passed else "OUT OF TOLERANCE"


def _row(verdict: OutputVerdict) -> tuple[str, ...]:
    metrics = verdict.native
    of_limit = (
        "given" if verdict.share is None else f"{verdict.share:.0%}" if verdict.share < _MANY else f"{verdict.share:.1g}x"
    )
    return (
        verdict.trial,
        verdict.output,
        f"{metrics.max_abs:.1e}",
        f"{metrics.mean_abs:.1e}",
        f"{metrics.relative_l2:.1e}",
        f"{metrics.cosine:.9f}",
        "-" if verdict.exact is None else f"{verdict.exact:.1e}",
        of_limit,
        "-" if verdict.passed is None else "ok" if verdict.passed else "FAIL",
    )


def _print_details(out: Console, candidate: CandidateReport, verbosity: Verbosity) -> None:
    for verdict in candidate.verdicts:
        if verdict.passed:
            continue
        if verdict.passed is None:
            out.print(f"  {verdict.output} at {verdict.trial}: no verdict, {verdict.reason}")
            continue
        metrics = verdict.native
        out.print(f"  {verdict.output} at {verdict.trial}: {verdict.reason}")
        out.print(
            f"    worst element {list(metrics.worst)}: reference {metrics.worst_reference:.9g}, "
            f"candidate {metrics.worst_candidate:.9g}"
        )
        if metrics.not_finite_differs:
            counts = f"{metrics.not_finite_reference} in the reference, {metrics.not_finite_candidate} in the candidate"
            out.print(f"    NaN or infinite: {counts}")
    if candidate.inner is not None and candidate.inner.share > 1:
        out.print(f"  {candidate.inner.text()}")
    print_notes(out, candidate.notes, verbosity, indent="  ")
    if candidate.blame is not None:
        for line in candidate.blame.text:
            out.print(f"  {line}")
