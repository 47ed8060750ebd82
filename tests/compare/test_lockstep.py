"""Where there is no room for the tensors of a model, it is evaluated beside its candidates, with the same findings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import onnx
import pytest

from tests.compare.test_cost import nudged
from tests.compare.test_verdict import deep
from tests.models import parse, random, saved
from trtnorm_cli.compare import float64_answers, inner_tensors
from trtnorm_cli.compare.candidates import TryOut
from trtnorm_cli.compare.comparison import compare
from trtnorm_cli.compare.inner_tensors import InnerTensors, SliceDistances
from trtnorm_cli.compare.lockstep import Side, go_together, go_while_roomy
from trtnorm_cli.compare.participants import OnnxParticipant, onnx_participant
from trtnorm_cli.compare.result import FAILED, PASSED, Comparison, Options, Trial
from trtnorm_cli.evaluate.float64 import Evaluation, Known, ReferenceUnavailable, evaluate_float64
from trtnorm_cli.evaluate.float64 import known as known_module

X = {"x": random(64, 32)}
TENSOR = X["x"].size * 8
ROOMS = [3 * TENSOR, 6 * TENSOR]


@pytest.fixture
def made(tmp_path, monkeypatch, runs):
    """Compares ``deep`` with candidates, with the usual room or with little; what was evaluated is counted."""

    def participant(model: onnx.ModelProto, label: str) -> OnnxParticipant:
        file = saved(model, tmp_path / f"{label}.onnx")
        return replace(onnx_participant(file, label), shares_tensors=True)

    def run(candidates, room: int | None = None, likely: frozenset[str] | None = None) -> Comparison:
        reference = participant(deep(), "m")
        with monkeypatch.context() as patch:
            if room is not None:
                patch.setattr(inner_tensors, "MOST_BYTES", room)
                patch.setattr(known_module, "MOST_BYTES", room + 12 * 32 * 32 * 12)  # and the constants
            runs.clear()
            return compare(reference, candidates, [Trial("at", X)], Options(likely=likely))

    run.participant = participant
    return run


def findings(found: Comparison) -> list[object]:
    return [found.state, found.notes, *((one.label, one.verdicts, one.inner, one.depth) for one in found.candidates)]


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize("scale", [1.0, 1.00001, 1.01])
def test_the_same_is_found(made, scale, room):
    candidates = [made.participant(nudged(deep(scale), 6), "one"), made.participant(nudged(deep(scale), 6), "other")]
    plain = made(candidates)
    assert plain.state == (PASSED if scale == 1.0 else FAILED)
    assert len(plain.candidates[0].depth) == 25
    if scale == 1.0 or room == ROOMS[1]:  # more is far off than three tensors, and looked at again
        assert findings(made(candidates, room)) == findings(plain)
    assert made(candidates, room).state == plain.state


@pytest.mark.parametrize("room", ROOMS)
def test_equal_models_are_computed_once(made, runs, room):
    candidates = [made.participant(deep(), "one"), made.participant(deep(), "other")]
    assert made(candidates, room).state == PASSED
    assert runs == {"plain": 3, "products": 12}


def test_a_second_candidate_is_held_to_the_first(made, runs):
    candidates = [made.participant(nudged(deep(), 6), "one"), made.participant(nudged(deep(), 6), "other")]
    made(candidates)
    assert runs == {"plain": 3, "perturbed": 1, "products": 12 + 6 + 6}
    made(candidates, 8 * TENSOR)
    assert runs == {"plain": 3, "perturbed": 1, "products": 12 + 6 + 12}, "what the noise does not move is dropped by then"


@pytest.mark.parametrize("steps", [1, 20, 45, None])
@pytest.mark.parametrize("likely", [None, "r", "all"])
def test_what_was_likely_changes_nothing(made, steps, likely):
    """It stays, or is given up somewhere on the way and comes again or not."""
    names = {
        None: None,
        "r": frozenset(f"r{i}" for i in range(12)),
        "all": frozenset(f"{k}{i}" for k in "pr" for i in range(12)),
    }
    defect, other = made.participant(nudged(deep(1.00001), 6), "defect"), made.participant(nudged(deep(), 3), "other")
    plain = {one.label: findings(made([one])) for one in (defect, other)}
    for tried, counts in ((defect, defect), (other, defect), (defect, other)):
        asked = iter([True] * (1000 if steps is None else steps))

        def late(try_out: TryOut, tried=tried, counts=counts, asked=asked) -> list[OnnxParticipant]:
            try_out(iter([tried]), lambda: next(asked, False))
            return [counts]

        found = made(late, ROOMS[1], names[likely])
        assert findings(found) == plain[counts.label]


def test_what_is_likely_is_evaluated_once(made, runs):
    candidates, seen = [made.participant(deep(), "one"), made.participant(nudged(deep(), 6), "other")], {}

    def late(try_out: TryOut) -> list[OnnxParticipant]:
        try_out(iter(candidates), lambda: True)
        seen.update(runs)
        return candidates

    assert made(late, 8 * TENSOR).state == PASSED
    assert runs == seen
    assert runs["plain"] == 3


def test_a_candidate_that_cannot_be_evaluated_leaves_the_others(made, monkeypatch):
    one, other = made.participant(nudged(deep(), 6), "one"), made.participant(nudged(deep(1.00001), 6), "other")
    plain = made([other])
    real = float64_answers.Float64Runs.begin

    def begin(self, participant, *given, **named):
        if participant is one:
            raise ReferenceUnavailable("it has no kernel", where="there")
        return real(self, participant, *given, **named)

    monkeypatch.setattr(float64_answers.Float64Runs, "begin", begin)
    found = made([one, other], ROOMS[1])
    assert found.notes == ["at: no float64 run of one: it has no kernel (there)"]
    assert found.candidates[1].inner == plain.candidates[0].inner


def test_where_the_model_cannot_begin_again_only_runs_are_compared(made, monkeypatch):
    """It would have to, as tensors that the candidate has were not kept."""
    real, begun = float64_answers.Float64Runs.begin, []

    def begin(self, participant, *given, **named):
        begun.append(participant.label)
        if len(begun) == 2:
            raise ReferenceUnavailable("not enough memory")
        return real(self, participant, *given, **named)

    monkeypatch.setattr(float64_answers.Float64Runs, "begin", begin)
    candidate = made.participant(nudged(deep(), 6), "one")
    found = made(lambda _: [candidate], ROOMS[0], frozenset(f"r{i}" for i in range(12)))
    assert begun == ["m", "m"]
    assert found.notes == ["at: no float64 run of m: not enough memory"]
    assert found.candidates[0].verdicts[0].passed is not None


def test_where_the_model_takes_too_long_in_the_middle_only_runs_are_compared(made, monkeypatch):
    real, asked = Evaluation._check_time, []

    def check(self, step, seconds):
        asked.append(step)
        if len(asked) > 20:
            raise ReferenceUnavailable("too long", where=step.node.output[0])
        real(self, step, seconds)

    monkeypatch.setattr(Evaluation, "_check_time", check)
    found = made([made.participant(nudged(deep(), 6), "one")], ROOMS[1])
    assert len(found.notes) == 1
    assert "no float64 run of" in found.notes[0]
    assert found.candidates[0].depth == {}
    assert found.candidates[0].verdicts[0].passed is not None


def u_shaped() -> onnx.ModelProto:
    """What each of the first products gives is added to what one of the last gives."""
    down = " ".join(f"d{i} = MatMul({f'd{i - 1}' if i else 'x'}, w{i})" for i in range(4))
    up = " ".join(f"u{i} = MatMul({f's{i - 1}' if i else 'd3'}, v{i}) s{i} = Add(u{i}, d{3 - i})" for i in range(4))
    weights = {f"{kind}{i}": random(32, 32, seed=i) / np.float32(6) for kind in "wv" for i in range(4)}
    return parse(f"g (float[N, 32] x) => (float[N, 32] y) {{ {down} {up} y = Relu(s3) }}", weights)


@pytest.mark.parametrize("model", [deep, u_shaped])
def test_as_much_is_kept_as_there_is_room_for(model, monkeypatch):
    """Nothing is computed twice all the same: what a later node reads stays known until then."""
    monkeypatch.setattr(inner_tensors, "MOST_BYTES", 6 * TENSOR)
    known, inner, most = Known(), InnerTensors(), []
    known._results.most_bytes = known._results._room = 8 * TENSOR

    def keep(name: str, value: np.ndarray) -> np.ndarray:
        if inner.keep(name, value):
            known.is_kept_elsewhere(value)
        most.append(sum(array.nbytes for array in inner.values.values()))
        return value

    def follow(name: str, value: np.ndarray) -> np.ndarray:
        partner = inner.of(name, value)
        assert partner is not None, name
        assert np.shares_memory(partner, value), name
        return value

    first = Side(Evaluation(model(), X, watch=keep, known=known), inner)
    others = [Side(Evaluation(model(), X, watch=follow, known=known), InnerTensors()) for _ in range(2)]
    go_while_roomy(first, known)
    assert not first.is_over
    assert go_together(first, others, known)
    assert max(most) <= 6 * TENSOR
    expected = evaluate_float64(model(), X).outputs["y"]
    for side in (first, *others):
        np.testing.assert_array_equal(side.evaluation.reference().outputs["y"], expected)


def test_what_is_off_stays_to_be_looked_at(monkeypatch):
    monkeypatch.setattr(inner_tensors, "MOST_BYTES", 6 * TENSOR)
    known, inner = Known(), InnerTensors()

    def keep(name: str, value: np.ndarray) -> np.ndarray:
        inner.keep(name, value)
        return value

    first = Side(Evaluation(deep(), X, watch=keep, known=known), inner)
    found = {"p3": {1: np.array([0.0, 2e-6])}, "p4": {1: np.array([0.0, 2e-7])}, "r9": {1: np.array([3e-6, 1e-7])}}
    other = Side(Evaluation(deep(), X, known=known), InnerTensors(), SliceDistances(inner, 1e-6, found=found))
    assert go_together(first, [other], known)
    assert {"p3", "r9"} <= set(inner.values)
    assert "p4" not in inner.values
    assert not inner.has_all


def test_it_ends_where_it_is_not_wanted_any_more():
    asked: Iterable[bool] = iter([True] * 7)
    first, other = (Side(Evaluation(deep(), X), InnerTensors()) for _ in range(2))
    assert not go_together(first, [other], Known(), lambda: next(asked, False))
    assert not first.is_over


@pytest.mark.parametrize("in_step", [True, False])
def test_none_goes_further_than_somebody_waits_for(in_step):
    ahead: list[int] = []

    def follow(name: str, value: np.ndarray) -> np.ndarray:
        ahead.append(other.evaluation.remaining - first.evaluation.remaining)
        return value

    known = Known()
    first = Side(Evaluation(deep(), X, known=known), InnerTensors())
    other = Side(Evaluation(deep(), X, watch=follow, known=known), InnerTensors())
    assert go_together(first, [other], known, in_step=in_step)
    assert first.is_over
    assert other.is_over
    assert (max(ahead) <= 1) is in_step
