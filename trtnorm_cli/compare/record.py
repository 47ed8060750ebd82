"""The result of a comparison as JSON values, and what is wrong as lines."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from trtnorm_cli.compare.result import CandidateReport, Comparison, OutputVerdict


def comparison_json(comparison: Comparison, seed: int | None) -> dict[str, Any]:
    """The result as JSON values; what is infinite or not a number becomes text."""
    found = {
        "passed": comparison.passed,
        "state": comparison.state,
        "not_compared": comparison.not_compared,
        "seed": seed,
        "reference": comparison.reference,
        "at": comparison.trials,
        "inputs": comparison.inputs,
        "skipped": comparison.skipped,
        "candidates": [_candidate_json(candidate) for candidate in comparison.candidates],
        "float64_evaluated_with": dict(sorted(comparison.float64.items())),
        "notes": comparison.notes,
        "seconds": comparison.seconds,
    }
    plain = _plain(found)
    assert isinstance(plain, dict)
    return plain


def _candidate_json(candidate: CandidateReport) -> dict[str, Any]:
    entry = {"passed": candidate.passed, "state": candidate.state, "label": candidate.label, "kind": candidate.kind}
    if candidate.error is not None:
        entry["unavailable" if candidate.unavailable else "error"] = candidate.error
    if candidate.inner is not None:
        entry["inner"] = {**asdict(candidate.inner), "share": candidate.inner.share}
    entry["outputs"] = [_verdict_json(verdict) for verdict in candidate.verdicts]
    entry["notes"] = candidate.notes
    if candidate.blame is not None:
        entry["blame"] = candidate.blame
    return entry


def _verdict_json(verdict: OutputVerdict) -> dict[str, Any]:
    entry = asdict(verdict)
    entry["tolerance"] = verdict.tolerance.model_dump(mode="json") if verdict.tolerance else None
    return entry


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def verdict_lines(comparison: Comparison) -> list[str]:
    """One line for each thing that is wrong, and who is to blame."""
    lines: list[str] = []
    for candidate in comparison.candidates:
        if candidate.error is not None:
            lines.append(f"{candidate.label}: {candidate.error}")
        wrong = [verdict for verdict in candidate.verdicts if verdict.passed is False]
        lines += [f"{candidate.label}, {v.output} at {v.trial}: {v.reason}" for v in wrong]
        if candidate.inner is not None and candidate.inner.share > 1:
            lines.append(f"{candidate.label}: {candidate.inner.text()}")
        if candidate.blame is not None:
            lines += [f"  {line}" for line in candidate.blame["text"]]
    return lines
