"""The trial behind the first begins while engines are built, and the last candidate speaks for all at the model's own sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

from tests.compare.test_smaller_first import CHAIN, OF_CHAIN, changed, one_channel
from tests.compare.test_verdict import X, deep
from tests.models import parse, saved
from trtnorm_cli.compare import smaller_inputs
from trtnorm_cli.compare.budget import Budget
from trtnorm_cli.compare.candidates import TryOut
from trtnorm_cli.compare.comparison import compare
from trtnorm_cli.compare.float64_answers import Float64Answers
from trtnorm_cli.compare.native_runs import NativeRuns
from trtnorm_cli.compare.participant_runs import ParticipantRuns
from trtnorm_cli.compare.participants import OnnxParticipant, onnx_participant
from trtnorm_cli.compare.result import FAILED, PASSED, Comparison, Options, Trial
from trtnorm_cli.compare.session import Session, build_settings, judge_session
from trtnorm_cli.evaluate.ort_child import OrtChild, RunFailed
from trtnorm_cli.profile.model import BuildProfile

OPEN = CHAIN.replace("float[1,", "float[N,")
PROFILE = {"dims": {"N": {"min": 1, "opt": 2, "max": 3}}}
SMALLER, MIN, OPT, MAX = "default min (smaller: x 1x3x32x64)", "default min", "default opt", "default max"
KNOWN = ("it is known which stay", 0, 0)
Asked = list[tuple[str, int, int]]
BATCHES = [Trial(f"{batch}", {"x": np.tile(X["x"], (batch, 1))}) for batch in (1, 2, 3)]


@pytest.fixture(autouse=True)
def _however_quick(monkeypatch):
    monkeypatch.setattr(smaller_inputs, "_FEW_MULTIPLY_ADDS", 0)


@pytest.fixture
def asked(monkeypatch) -> Asked:
    """Who was run, in batches of how many, and how high."""
    found, ask = Asked(), NativeRuns.ask
    monkeypatch.setattr(
        NativeRuns,
        "ask",
        lambda self, one, feeds: found.append((one.label, *feeds["x"].shape[::2][:2])) or ask(self, one, feeds),
    )
    return found


@pytest.fixture
def built(tmp_path, asked) -> Callable[..., Comparison]:
    """The comparison of a build with candidates that are likely, ``while_building`` or not, until those are known that stay."""

    def participant(model: onnx.ModelProto, label: str) -> OnnxParticipant:
        return replace(onnx_participant(saved(model, tmp_path / f"{label}.onnx"), label), shares_tensors=True)

    def run(*models: onnx.ModelProto, stays: bool = True, while_building: bool = True, budget_s: float = 1e9) -> Comparison:
        likely = [participant(model, label) for model, label in zip(models, ("rewriting", "network"), strict=True)]
        accepted = list[OnnxParticipant]()

        def gather(try_out: TryOut) -> None:
            try_out(likely, lambda: True, lambda: while_building)
            asked.append(KNOWN)
            accepted.extend(likely if stays else (replace(one, label=f"other {one.label}") for one in likely))

        settings = replace(build_settings(None, 0, lambda: budget_s, 60), may_be_smaller=True)
        session = Session(participant(parse(OPEN, OF_CHAIN), "m"), accepted, (), (), None, gather)
        return judge_session(session, BuildProfile.model_validate(PROFILE), settings)

    return run


def good() -> onnx.ModelProto:
    return parse(OPEN, OF_CHAIN)


def wrong_when_large() -> onnx.ModelProto:
    """A model that is right for one sample alone."""
    is_large = "s = Shape<start=0, end=1>(x) t = Greater(s, one) z = Where(t, off, on) f = Mul(c, z) y = Flatten(f)"
    numbers = {"one": np.array([1]), "off": np.array([1.01], np.float32), "on": np.array([1.0], np.float32)}
    return parse(OPEN.replace("y = Flatten(c)", is_large), OF_CHAIN | numbers)


AT_FIRST = [("m", 1, 32), ("m", 1, 96), ("rewriting", 1, 32), ("network", 1, 32), ("network", 1, 96)]
BEHIND, LAST = [("m", 2, 96), ("network", 2, 96)], [("m", 3, 96), ("network", 3, 96)]


def test_the_one_behind_the_first_begins_while_engines_are_built(built, asked):
    found = built(good(), good())
    assert asked == [*AT_FIRST, *BEHIND, KNOWN, *LAST]
    assert (found.state, found.trials, found.skipped) == (PASSED, [SMALLER, MIN, OPT, MAX], [])


def test_the_model_is_evaluated_before_its_own_run_is_waited_for(built, monkeypatch):
    events: list[str] = []
    waits, evaluates = ParticipantRuns.of_reference, Float64Answers.of_reference
    monkeypatch.setattr(ParticipantRuns, "of_reference", lambda *given: events.append("waits") or waits(*given))
    monkeypatch.setattr(Float64Answers, "of_reference", lambda *given: events.append("evaluates") or evaluates(*given))
    assert built(good(), good()).state == PASSED
    assert events[:2] == ["evaluates", "waits"]


def test_what_was_begun_for_others_is_run_for_those_that_stay(built, asked):
    found = built(good(), good(), stays=False)
    own = [("rewriting", 1, 32), ("network", 1, 32), ("network", 1, 96), ("network", 2, 96), ("network", 3, 96)]
    assert asked[:8] == [*AT_FIRST, *BEHIND, KNOWN]
    assert sorted(asked[8:]) == sorted([(f"other {label}", *sizes) for label, *sizes in own] + LAST[:1])
    assert (found.state, found.trials) == (PASSED, [SMALLER, MIN, OPT, MAX])


@pytest.mark.parametrize(
    ("while_building", "budget_s"), [(False, 1e9), (True, 1e-6)], ids=["they are built", "no time is left"]
)
def test_none_begins_ahead(built, asked, while_building: bool, budget_s: float):
    found = built(good(), good(), while_building=while_building, budget_s=budget_s)
    assert asked[:6] == [*AT_FIRST, KNOWN]
    assert found.trials == ([SMALLER, MIN, OPT, MAX] if budget_s > 1 else [SMALLER, MIN])


@pytest.mark.parametrize("place", [0, 1], ids=["rewriting", "network"])
def test_what_is_wrong_at_larger_sizes_alone_is_found_in_the_network(built, asked, place: int):
    """Each candidate is made of the one before, so that what is wrong in one is wrong in the last. All are judged then."""
    wrong = wrong_when_large()
    found = built(*([wrong, wrong] if place == 0 else [good(), wrong]))
    assert found.state == FAILED
    assert [report.is_out_of_tolerance for report in found.candidates] == [place == 0, True]
    assert {verdict.trial for verdict in found.candidates[0].verdicts} == {SMALLER, OPT, MAX}


def test_a_run_that_takes_too_long_is_left_out(built, asked, monkeypatch):
    """No engine waits for it longer than for one that is begun later."""

    def limit(self, begun):
        limited.extend(begun)
        for one in begun:
            one.limit_s = -1.0

    def line(self, limit_s: float) -> bytes:
        if limit_s < 0:
            self.is_lost = True
            raise RunFailed("it was stopped", timed_out=True)
        return original(self, limit_s)

    limited, original = list[object](), OrtChild._line
    monkeypatch.setattr(Budget, "limit", limit)
    monkeypatch.setattr(OrtChild, "_line", line)
    found = built(good(), good())
    assert asked[: len(AT_FIRST) + 3] == [*AT_FIRST, *BEHIND, KNOWN]
    assert (found.state, found.trials[:2], len(limited)) == (PASSED, [SMALLER, MIN], 2)
    assert found.skipped[0].startswith(f"{OPT}: not run, it takes longer")


def test_a_run_may_take_what_is_left_for_all():
    """And no longer than it may anyway."""
    budget = Budget(Options(runs_budget_s=8.0), SimpleNamespace(used_s=2.5))
    long, short = SimpleNamespace(limit_s=300.0), SimpleNamespace(limit_s=2.0)
    budget.limit([long, None, short])
    assert (long.limit_s, short.limit_s) == (5.5, 2.0)
    Budget(Options(runs_budget_s=None), SimpleNamespace(used_s=3.0)).limit([short])
    assert short.limit_s == 2.0


@pytest.mark.parametrize(
    "reason",
    [
        "Non-zero status code while running Add node. Failed to allocate memory for requested buffer of size 805306368",
        "Exception during initialization: std::bad_alloc",
        "out of memory: Unable to allocate 4.00 GiB",
    ],
)
def test_a_candidate_without_memory_is_no_other_model(built, monkeypatch, reason: str):
    """Whether it has verdicts from other sizes or none."""

    def of_candidate(self, attempt):
        if attempt.report.label == "network" and attempt.run.trial.label in without:
            self._report_failure(attempt, RunFailed(reason))
            return None
        return original(self, attempt)

    original = ParticipantRuns.of_candidate
    monkeypatch.setattr(ParticipantRuns, "of_candidate", of_candidate)
    without = {OPT}
    found = built(good(), good())
    assert found.state == PASSED
    assert any(line.startswith(f"{OPT}: network was not run there") for line in found.skipped)
    without |= {SMALLER, MIN, MAX}
    network = built(good(), good()).candidates[1]
    assert (network.unavailable, network.is_out_of_tolerance) == (True, False)
    assert reason in network.error


@pytest.mark.parametrize("label", [OPT, MAX])
def test_where_the_network_does_not_run_the_rewriting_speaks_for_itself(built, monkeypatch, label: str):
    """A network that has verdicts and is killed at larger sizes is not out of tolerance; the rewriting may be."""

    def of_candidate(self, attempt):
        if attempt.run.trial.label == label and attempt.report.label == "network":
            self._report_failure(attempt, RunFailed("it was killed", signal=9))
            return None
        return original(self, attempt)

    original = ParticipantRuns.of_candidate
    monkeypatch.setattr(ParticipantRuns, "of_candidate", of_candidate)
    found = built(wrong_when_large(), wrong_when_large() if label == MAX else good())
    rewriting, network = found.candidates
    assert found.state == FAILED
    assert {verdict.trial for verdict in rewriting.verdicts} >= {SMALLER, label}
    assert label not in {verdict.trial for verdict in network.verdicts}
    assert any(line.startswith(f"{label}: network was not run there") for line in found.skipped)


def test_a_defect_is_found_at_the_smallest_sizes_of_the_model_as_ever(built):
    found = built(changed("gamma", one_channel, OPEN), changed("gamma", one_channel, OPEN))
    assert (found.state, found.trials[0]) == (FAILED, MIN)
    assert all(report.is_out_of_tolerance for report in found.candidates)


@pytest.mark.parametrize("while_building", [True, False])
def test_without_smaller_inputs_all_candidates_are_run_ahead(tmp_path, asked, while_building: bool):
    reference = onnx_participant(saved(deep(), tmp_path / "m.onnx"), "m")
    candidates = [replace(reference, label=label, shares_tensors=True) for label in ("rewriting", "network")]
    ahead = []

    def late(try_out: TryOut) -> list[OnnxParticipant]:
        try_out(candidates, lambda: True, lambda: while_building)
        ahead.extend(asked)
        return candidates

    found = compare(reference, late, BATCHES, Options(float64_trials=1))
    assert (found.state, found.trials) == (PASSED, ["1", "2", "3"])
    rows = len(X["x"])
    every = [(label, batch * rows) for batch in (1, 2, 3) for label in ("m", "rewriting", "network")]
    assert [(label, batch) for label, batch, *_ in asked] == every
    assert [(label, batch) for label, batch, *_ in ahead] == every[: 6 if while_building else 3]


def test_none_begins_behind_a_reference_that_does_not_run(tmp_path, asked):
    reference = onnx_participant(saved(deep(), tmp_path / "m.onnx"), "m")
    candidate = replace(reference, label="candidate", shares_tensors=True)
    begun = []

    def late(try_out: TryOut) -> list[OnnxParticipant]:
        try_out([candidate], lambda: True, lambda: True)
        begun.extend(asked)
        return [candidate]

    refused = Trial("refused", {"x": X["x"][:1, :3]})
    found = compare(reference, late, [refused, *BATCHES], Options())
    assert [label for label, *_ in begun] == ["m"]
    assert (found.state, found.trials) == (PASSED, ["1", "2", "3"])
