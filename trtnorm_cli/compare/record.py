"""The result of a comparison as a record, and what is wrong as lines."""

from __future__ import annotations

import math

from trtnorm_cli.compare.inner_tensors import means_the_same
from trtnorm_cli.compare.result import CandidateReport, Comparison
from trtnorm_cli.records.comparison import CandidateRecord, ComparisonRecord, DepthPoint, DepthRecord, InnerRecord

_MOST_POINTS = 200


def comparison_record(comparison: Comparison, seed: int | None) -> ComparisonRecord:
    """The result as it is printed and as manifests hold it."""
    return ComparisonRecord(
        passed=comparison.passed,
        state=comparison.state,
        not_compared=tuple(comparison.not_compared),
        seed=seed,
        reference=comparison.reference,
        at=tuple(comparison.trials),
        inputs=comparison.inputs,
        skipped=tuple(comparison.skipped),
        candidates=tuple(_candidate(candidate) for candidate in comparison.candidates),
        float64_evaluated_with=dict(sorted(comparison.float64.items())),
        notes=tuple(comparison.notes),
        precision=comparison.precision,
        seconds=comparison.seconds,
    )


def _candidate(candidate: CandidateReport) -> CandidateRecord:
    inner = candidate.inner
    return CandidateRecord(
        passed=candidate.passed,
        state=candidate.state,
        label=candidate.label,
        kind=candidate.kind,
        error=None if candidate.unavailable else candidate.error,
        unavailable=candidate.error if candidate.unavailable else None,
        inner=None if inner is None else InnerRecord(**vars(inner), share=inner.share),
        depth=_depth(candidate),
        outputs=tuple(candidate.verdicts),
        notes=tuple(candidate.notes),
        blame=candidate.blame,
    )


def _depth(candidate: CandidateReport) -> DepthRecord | None:
    """The distances along the depth of the model, of as many tensors as a plot can show."""
    if not candidate.depth:
        return None
    known = list(enumerate(candidate.depth.items(), 1))
    kept = [DepthPoint(place, tensor, distance) for place, (tensor, distance) in known if means_the_same(distance)]
    step = max(1, math.ceil(len(kept) / _MOST_POINTS))
    groups = (kept[start : start + step] for start in range(0, len(kept), step))
    points = tuple(max(group, key=lambda point: point.distance) for group in groups)
    return DepthRecord(candidate.depth_at, len(known), len(known) - len(kept), points)


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
            lines += [f"  {line}" for line in candidate.blame.text]
    return lines
