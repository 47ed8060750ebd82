"""Candidates that are likely are worked on before it is known whether they stay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from tests.compare.test_cost import nudged
from tests.compare.test_verdict import X, deep
from tests.models import parse, saved
from trtnorm_cli.compare import comparison
from trtnorm_cli.compare.candidates import TryOut
from trtnorm_cli.compare.comparison import compare
from trtnorm_cli.compare.participants import OnnxParticipant, onnx_participant
from trtnorm_cli.compare.result import FAILED, PASSED, Options, Trial
from trtnorm_cli.errors import BuilderDied, UsageProblem
from trtnorm_cli.evaluate.ort_runner import OrtRunner


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


@pytest.mark.parametrize(("cores", "beside"), [(2, []), (4, ["m.onnx"])])
def test_on_two_cores_runs_begin_once_nothing_else_is_left_to_do(changed, monkeypatch, cores, beside):
    """A third process would take turns with the engine's build, for which everything waits."""
    reference, candidate = changed
    monkeypatch.setattr(comparison, "usable_cores", lambda: cores)
    sent, send = list[str](), OrtRunner._send
    monkeypatch.setattr(OrtRunner, "_send", lambda self, *asked: sent.append("run") or send(self, *asked))

    def late(try_out: TryOut) -> list[OnnxParticipant]:
        assert sent == ["run"] * len(beside)
        try_out([candidate], lambda: True)
        assert sent == ["run"] * 2
        return [candidate]

    (report,) = compare(reference, late, [Trial("at", X)], Options()).candidates
    assert report.state == PASSED
    assert sent == ["run"] * 2


def test_nothing_is_evaluated_where_float64_is_not_asked(changed, runs):
    reference, candidate = changed

    def late(try_out: TryOut) -> list[OnnxParticipant]:
        try_out([candidate], lambda: True)
        assert not runs
        return [candidate]

    compare(reference, late, [Trial("at", X)], Options(float64_trials=0))


def test_the_noise_that_a_verdict_asks_for_is_measured_while_others_work(changed, tmp_path, runs):
    """Of tensors inside, which ask for some too, nothing is known here. What is judged at other inputs is judged as ever."""
    reference, _ = changed
    likely = onnx_participant(saved(nudged(nudged(nudged(deep()))), tmp_path / "far.onnx"), "candidate")
    seen = {}

    def late(try_out: TryOut) -> list[OnnxParticipant]:
        try_out([likely], lambda: True)
        seen.update(runs)
        return [likely]

    trials = [Trial("at", X), Trial("further", {"x": X["x"] * 2})]
    found = compare(reference, late, trials[:1], Options())
    assert runs == seen
    assert runs["perturbed"] == 1
    assert found.candidates == compare(reference, [likely], trials[:1], Options()).candidates
    tried, plain = (compare(reference, one, trials, Options(float64_trials=1)) for one in (late, [likely]))
    assert tried.candidates == plain.candidates


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


@pytest.mark.parametrize("steps", [1, 5, 20])
def test_a_model_that_was_not_evaluated_again_to_its_end_is_for_the_next(changed, tmp_path, steps):
    """What was not kept of it is found out for whoever counts."""
    reference, _ = changed
    defect = replace(onnx_participant(saved(deep(1.00001), tmp_path / "d.onnx"), "candidate"), shares_tensors=True)
    asked = iter([True] * steps)

    def late(try_out: TryOut) -> list[OnnxParticipant]:
        try_out([defect], lambda: next(asked, False))
        return [defect]

    found, plain = (
        compare(reference, one, [Trial("at", X)], options)
        for one, options in ((late, Options(likely=frozenset({"r0"}))), ([defect], Options()))
    )
    assert (found.state, found.candidates) == (FAILED, plain.candidates)


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


def test_of_two_that_were_likely_each_is_remembered(changed, tmp_path, runs):
    reference, first = changed
    second = replace(first, label="second")
    seen = {}

    def late(try_out: TryOut) -> list[OnnxParticipant]:
        try_out([first], lambda: True)
        try_out([second], lambda: True)
        seen.update(runs)
        return [first]

    found = compare(reference, late, [Trial("at", X)], Options())
    assert runs == seen
    (report,) = found.candidates
    (plain,) = compare(reference, [first], [Trial("at", X)], Options()).candidates
    assert (report.label, report.verdicts, report.inner) == ("candidate", plain.verdicts, plain.inner)


def test_nothing_is_likely_of_a_reference_that_does_not_run(changed, monkeypatch):
    """What is said of it is said once."""
    reference, candidate = changed

    def late(try_out: TryOut) -> list[OnnxParticipant]:
        try_out([candidate], lambda: True)
        return [candidate]

    with pytest.raises(UsageProblem, match="does not run"):
        compare(reference, late, [Trial("at", {"x": X["x"][:, :3]})], Options())


@pytest.mark.parametrize("is_likely", [True, False], ids=["it stays", "it is given up"])
def test_what_is_said_of_the_reference_is_said_once(tmp_path, is_likely):
    """ONNX Runtime multiplies no matrices of bfloat16, so that float64 stands in."""
    kind = ml_dtypes.bfloat16
    model = parse("g (bfloat16[2, 4] x) => (bfloat16[2, 4] y) { y = MatMul(x, w) }", {"w": np.eye(4).astype(kind)})
    reference = onnx_participant(saved(model, tmp_path / "m.onnx"))
    candidate = replace(reference, label="candidate")

    def late(try_out: TryOut) -> list[OnnxParticipant]:
        try_out([candidate], lambda: is_likely)
        return [candidate]

    trial = Trial("at", {"x": np.ones((2, 4), kind)})
    found, plain = (compare(reference, one, [trial], Options()) for one in (late, [candidate]))
    assert found.notes == plain.notes
    assert len(found.notes) == len(set(found.notes)) > 0


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
