"""Candidates that are likely are worked on before it is known whether they stay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.compare.test_cost import nudged
from tests.compare.test_verdict import X, deep
from tests.models import saved
from trtnorm_cli.compare.candidates import TryOut
from trtnorm_cli.compare.comparison import compare
from trtnorm_cli.compare.participants import OnnxParticipant, onnx_participant
from trtnorm_cli.compare.result import FAILED, PASSED, Options, Trial
from trtnorm_cli.errors import BuilderDied


@pytest.fixture
def changed(tmp_path) -> tuple[OnnxParticipant, OnnxParticipant]:
    """A reference, and a candidate with other weights in each product."""
    reference = onnx_participant(saved(deep(), tmp_path / "m.onnx"))
    candidate = onnx_participant(saved(nudged(deep()), tmp_path / "changed.onnx"), "candidate")
    return reference, replace(candidate, shares_tensors=True)


def test_what_is_likely_is_evaluated_once(changed, runs):
    reference, candidate = changed
    seen = {}

    def late(try_out: TryOut) -> list[OnnxParticipant]:
        try_out([candidate], lambda: True)
        seen.update(runs)
        return [candidate]

    found = compare(reference, late, [Trial("at", X)], Options())
    assert runs == seen
    (report,) = found.candidates
    (plain,) = compare(reference, [candidate], [Trial("at", X)], Options()).candidates
    assert (report.verdicts, report.inner, report.depth) == (plain.verdicts, plain.inner, plain.depth)
    assert report.depth


def test_what_is_not_likely_any_more_is_given_up(changed, runs):
    reference, candidate = changed
    asked = iter([True] * 5)

    def late(try_out: TryOut) -> list[OnnxParticipant]:
        try_out([candidate], lambda: next(asked, False))
        assert runs["products"] < 24
        return [candidate]

    found = compare(reference, late, [Trial("at", X)], Options())
    assert (found.state, found.notes, found.skipped) == (PASSED, [], [])
    (report,) = found.candidates
    assert len(report.verdicts) == 1


def test_another_candidate_than_was_likely_is_judged_by_itself(changed, tmp_path):
    reference, candidate = changed
    wrong = replace(onnx_participant(saved(deep(1.01), tmp_path / "w.onnx"), "candidate"), shares_tensors=True)

    def late(try_out: TryOut) -> list[OnnxParticipant]:
        try_out([wrong], lambda: True)
        return [candidate]

    def too_late(try_out: TryOut) -> list[OnnxParticipant]:
        try_out([candidate], lambda: True)
        return [wrong]

    assert compare(reference, late, [Trial("at", X)], Options()).state == PASSED
    assert compare(reference, too_late, [Trial("at", X)], Options()).state == FAILED


def test_what_goes_wrong_with_a_likely_candidate_is_told_where_it_counts(changed):
    reference, candidate = changed

    def broken() -> Iterator[OnnxParticipant]:
        yield candidate
        raise BuilderDied("it died", "there", "so")

    def late(try_out: TryOut) -> list[OnnxParticipant]:
        try_out(broken(), lambda: True)
        return [candidate]

    found = compare(reference, late, [Trial("at", X)], Options())
    assert (found.state, found.notes, len(found.candidates)) == (PASSED, [], 1)
