"""A build's comparison, in which smaller images stand in for a model's own in float64, and in nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
import pytest

from tests.compare.test_smaller_inputs import DOWN, SIZES
from tests.models import batchnorm, parse, random, saved
from trtnorm_cli.compare import alike, session, smaller_first, smaller_inputs
from trtnorm_cli.compare.float64_runs import Float64Runs
from trtnorm_cli.compare.native_runs import NativeRuns
from trtnorm_cli.compare.participant_runs import ParticipantRuns
from trtnorm_cli.compare.participants import OnnxParticipant, onnx_participant
from trtnorm_cli.compare.result import FAILED, NOT_COMPARED, PASSED, Comparison
from trtnorm_cli.compare.session import Session, build_settings, judge_session
from trtnorm_cli.evaluate.float64 import free_values
from trtnorm_cli.evaluate.model_file import resized
from trtnorm_cli.evaluate.ort_runner import AskedRuns, OrtRunner, RunFailed
from trtnorm_cli.onnx_model.stored import is_external
from trtnorm_cli.profile.model import BuildProfile


@pytest.fixture(autouse=True)
def _however_quick(monkeypatch):
    monkeypatch.setattr(smaller_inputs, "_FEW_MULTIPLY_ADDS", 0)


CHAIN = """g (float[1, 3, 96, 96] x) => (float[1, 4] y) {
    a = Conv<pads=[1, 1, 1, 1]>(x, w)
    n = BatchNormalization(a, gamma, beta, mu, var)
    r = Relu(n)
    b = Conv<strides=[2, 2], pads=[1, 1, 1, 1]>(r, v)
    c = GlobalAveragePool(b)
    y = Flatten(c)
}"""
OF_CHAIN = DOWN | batchnorm(4)
SMALLER, OWN = "default min (smaller: x 1x3x32x64)", "default min"


def changed(name: str, change: Callable[[np.ndarray], None], text: str = CHAIN) -> onnx.ModelProto:
    weights = {key: value.copy() for key, value in OF_CHAIN.items()}
    change(weights[name])
    return parse(text, weights)


def test_float64_looks_at_the_smaller_ones_and_runs_are_at_both(compared, runs):
    found = compared(parse(CHAIN, OF_CHAIN), parse(CHAIN, OF_CHAIN))
    (report,) = found.candidates
    assert (found.state, found.trials, found.notes, found.skipped) == (PASSED, [SMALLER, OWN], [], [])
    assert [(verdict.trial, verdict.exact) for verdict in report.verdicts] == [(SMALLER, 0.0), (OWN, None)]
    assert report.depth_at == SMALLER
    assert runs["plain"] == 2


@pytest.mark.parametrize(("most", "trials"), [(4 * 96 * 96 * 8, [OWN]), (4 * 96 * 96 * 8 - 1, [SMALLER, OWN])])
def test_a_model_that_stays_is_looked_at_smaller_where_its_products_are_too_large_for_any_values(
    compared, monkeypatch, most: int, trials: list[str]
):
    """Otherwise its network is held to it without any of its values, which takes less time still."""
    monkeypatch.setattr(free_values, "MOST_BYTES", most)
    monkeypatch.setattr(free_values, "LEAST_MULTIPLY_ADDS", 0)
    found = compared(parse(CHAIN, OF_CHAIN), parse(CHAIN, OF_CHAIN), is_unchanged=True)
    assert (found.state, found.trials) == (PASSED, trials)
    assert (found.float64["Conv"] == free_values.DESCRIPTION) == (trials == [OWN])


@pytest.mark.parametrize(
    ("many", "share", "trials"),
    [(0, 0.45, [SMALLER, OWN]), (0, 0.2, [OWN]), (10**9, 0.45, [OWN])],
    ids=["it is looked at smaller", "nothing is much smaller", "it has few numbers"],
)
def test_a_model_that_stays_is_looked_at_smaller_where_its_tensors_are_large(
    compared, monkeypatch, many: int, share: float, trials: list[str]
):
    """All but the products is evaluated otherwise, which takes seconds of an image of 640 pixels."""
    monkeypatch.setattr(alike, "_MANY_NUMBERS", many)
    monkeypatch.setattr(session, "_MUCH_SMALLER", share)
    monkeypatch.setattr(free_values, "LEAST_MULTIPLY_ADDS", 0)
    found = compared(parse(CHAIN, OF_CHAIN), parse(CHAIN, OF_CHAIN), is_unchanged=True)
    assert (found.state, found.trials) == (PASSED, trials)
    assert (found.float64["Conv"] == free_values.DESCRIPTION) == (trials == [OWN])
    wrong = compared(parse(CHAIN, OF_CHAIN), changed("w", one_channel), is_unchanged=True)
    assert (wrong.state, wrong.trials) == (FAILED, [OWN])


def one_channel(values: np.ndarray) -> None:
    values[2] *= 1 + 1e-4


def one_place(values: np.ndarray) -> None:
    values[:, :, 2, 0] *= 1 + 1e-4


@pytest.mark.parametrize(("name", "change"), [("w", one_channel), ("v", one_place), ("gamma", one_channel), ("w", one_place)])
def test_what_is_found_is_found_at_the_models_own_sizes(compared, name, change):
    """A difference is told as without smaller inputs, to the last figure."""
    pair = parse(CHAIN, OF_CHAIN), changed(name, change)
    found, wanted = compared(*pair), compared(*pair, may_be_smaller=False)
    assert found.state == wanted.state == FAILED
    assert found.trials == wanted.trials == [OWN]
    assert found.candidates == wanted.candidates
    assert found.notes == wanted.notes


@pytest.mark.parametrize(("row", "wanted"), [(0, FAILED), (95, FAILED), (None, PASSED)])
def test_a_number_of_one_position_is_looked_at_wherever_it_is(compared, row: int | None, wanted: str):
    """Only the first numbers are taken at smaller inputs."""
    text = CHAIN.replace("r = Relu(n)", "p = Add(n, table) r = Relu(p)")
    table = random(96, 96, seed=3)
    other = table.copy()
    if row is not None:
        other[row, 3] += 0.01
    found = compared(*(parse(text, OF_CHAIN | {"table": numbers}) for numbers in (table, other)))
    assert (found.state, found.trials) == (wanted, [SMALLER, OWN] if row is None else [OWN])


def test_a_candidate_that_differs_only_there_is_no_failure(compared):
    """One that has its sizes as numbers is held to the model at these."""
    text = CHAIN.replace("c = GlobalAveragePool(b)", "s = ReduceSum(b, places) c = Div(s, count)")
    counted = parse(text, OF_CHAIN | {"places": np.array([2, 3]), "count": np.array(48 * 48, np.float32)})
    found = compared(parse(CHAIN, OF_CHAIN), counted)
    assert (found.state, found.trials) == (PASSED, [OWN])


def test_what_is_wrong_at_the_models_own_sizes_alone_is_found(compared, monkeypatch):
    """Smaller inputs are not all that is looked at: here nothing is wrong at these."""
    model = parse(CHAIN, OF_CHAIN)
    right = smaller_inputs.at_smaller(model, SIZES, smaller_inputs.smaller_inputs(model, SIZES))
    monkeypatch.setattr(smaller_first, "at_smaller", lambda *_: right)
    found = compared(parse(CHAIN, OF_CHAIN), changed("v", lambda values: np.multiply(values, 1.01, out=values)))
    (report,) = found.candidates
    assert (found.state, report.is_out_of_tolerance) == (FAILED, True)
    assert [(verdict.trial, verdict.passed) for verdict in report.verdicts] == [(SMALLER, True), (OWN, False)]
    assert report.verdicts[1].exact > 1e-3


@pytest.fixture
def _takes_long(monkeypatch):
    """ONNX Runtime counts as so slow that both runs of this model take 27 seconds."""
    own_work = smaller_inputs.smaller_inputs(parse(CHAIN, OF_CHAIN), SIZES).own_work
    monkeypatch.setattr(smaller_first, "_WORK_A_SECOND", 2 * own_work / 27)


@pytest.mark.usefixtures("_takes_long")
def test_what_would_take_longer_than_the_engine_is_left_out_where_all_passed_at_smaller_inputs(compared, monkeypatch):
    heights, ask = [], NativeRuns.ask
    monkeypatch.setattr(
        NativeRuns, "ask", lambda self, one, feeds: heights.append(feeds["x"].shape[2]) or ask(self, one, feeds)
    )
    found = compared(parse(CHAIN, OF_CHAIN), parse(CHAIN, OF_CHAIN), budget_s=8.0)
    (report,) = found.candidates
    assert (found.state, found.trials) == (PASSED, [SMALLER])
    (why,) = found.skipped
    assert re.fullmatch(rf"{OWN}: not run, all passed at smaller inputs, .* about 27 s of the processor, more than 16 s", why)
    assert (heights, report.state) == ([32, 32], PASSED)


CHOOSING = CHAIN.replace("float[1, 4] y", "float[1, 2] y").replace("y = Flatten(c)", "f = Flatten(c) y, i = TopK(f, two)")
# ONNX Runtime has no convolution of doubles.
DOUBLE = (
    CHAIN.replace("(x, w)", "(d, w)").replace("a = Conv", "d = Cast<to=11>(x) a = Conv").replace("float[1, 4]", "double[1, 4]")
)
IN_DOUBLE = {name: value.astype(np.float64) for name, value in OF_CHAIN.items()}


@pytest.mark.parametrize(
    ("text", "weights", "trials"),
    [
        (CHAIN, OF_CHAIN, [SMALLER, OWN]),
        (CHOOSING, OF_CHAIN | {"two": np.array([2])}, [SMALLER]),
        (DOUBLE, IN_DOUBLE, [SMALLER]),
    ],
    ids=["runs", "choices", "no runs"],
)
def test_what_float64_would_be_asked_about_at_the_own_sizes_is_reckoned_with(compared, monkeypatch, text, weights, trials):
    """Runs of a TopK choose otherwise among numbers that hardly differ: RT-DETR's network was 0.46 away for that."""
    monkeypatch.setattr(smaller_first, "_WORK_IN_FLOAT64", 1.0)
    found = compared(parse(text, weights), parse(text, weights), budget_s=8.0)
    assert (found.state, found.trials, len(found.skipped)) == (PASSED, trials, 2 - len(trials))
    monkeypatch.setattr(smaller_first, "_WORK_IN_FLOAT64", 1e12)
    found = compared(parse(text, weights), parse(text, weights), budget_s=8.0)
    assert (found.state, found.trials) == (PASSED, [SMALLER, OWN])


@pytest.mark.usefixtures("_takes_long")
@pytest.mark.parametrize("budget_s", [20.0, None], ids=["there is time", "without a bound"])
def test_what_takes_less_is_run_at_the_models_own_sizes(compared, budget_s):
    found = compared(parse(CHAIN, OF_CHAIN), parse(CHAIN, OF_CHAIN), budget_s=budget_s)
    assert (found.state, found.trials, found.skipped) == (PASSED, [SMALLER, OWN], [])


@pytest.mark.usefixtures("_takes_long")
def test_what_speaks_against_a_candidate_is_looked_at_however_long_it_takes(compared):
    pair = parse(CHAIN, OF_CHAIN), changed("gamma", one_channel)
    found, wanted = compared(*pair, budget_s=0.0), compared(*pair, may_be_smaller=False)
    assert (found.state, found.trials, found.skipped) == (FAILED, [OWN], [])
    assert found.candidates == wanted.candidates


@pytest.mark.usefixtures("_takes_long")
def test_larger_shapes_than_one_that_was_left_out_are_left_out_too(compared):
    text = CHAIN.replace("float[1, 3, 96, 96] x", "float[N, 3, 96, 96] x").replace("float[1, 4] y", "float[N, 4] y")
    profile = BuildProfile.model_validate({"dims": {"N": {"min": 1, "opt": 2, "max": 3}}})
    found = compared(parse(text, OF_CHAIN), parse(text, OF_CHAIN), budget_s=0.0, profile=profile)
    assert (found.state, found.trials) == (PASSED, [SMALLER])
    assert [line.split(":")[0] for line in found.skipped] == [OWN, "default opt", "default max"]


def test_larger_shapes_are_foreseen_from_the_multiply_adds_of_what_was_left_out(compared, monkeypatch):
    """An attention takes more than its elements say."""
    monkeypatch.setattr(smaller_first, "_WORK_A_SECOND", 1.0)
    monkeypatch.setattr(smaller_first.SmallerFirst, "_times", 40.0)
    results = AskedRuns.results

    def longer(self):
        found = results(self)
        self.computing_s = 0.06
        return found

    monkeypatch.setattr(AskedRuns, "results", longer)
    text = CHAIN.replace("float[1, 3, 96, 96] x", "float[N, 3, 96, 96] x").replace("float[1, 4] y", "float[N, 4] y")
    profile = BuildProfile.model_validate({"dims": {"N": {"min": 1, "opt": 2, "max": 3}}})
    found = compared(parse(text, OF_CHAIN), parse(text, OF_CHAIN), budget_s=2.0, profile=profile)
    assert (found.state, found.trials) == (PASSED, [SMALLER])
    assert [line.split(":")[0] for line in found.skipped] == [OWN, "default opt", "default max"]


def test_what_one_of_two_comparisons_ran_is_not_called_left_out():
    """The source and its rewriting are compared at smaller inputs, and a network in half precision at the model's own."""
    first = Comparison("m", trials=[SMALLER], skipped=[f"{OWN}: not run, all passed", "default max: not run, no time"])
    joined = session._joined(first, Comparison("m", trials=[OWN]))
    assert (joined.trials, joined.skipped) == ([SMALLER, OWN], ["default max: not run, no time"])


def test_at_the_models_own_sizes_the_last_candidate_speaks_for_all(compared):
    good, wrong = parse(CHAIN, OF_CHAIN), changed("gamma", one_channel)
    found = compared(good, good, good)
    assert [[verdict.trial for verdict in report.verdicts] for report in found.candidates] == [[SMALLER], [SMALLER, OWN]]
    found = compared(good, wrong, good)
    assert [[verdict.trial for verdict in report.verdicts] for report in found.candidates] == [[OWN], [OWN]]
    assert [report.state for report in found.candidates] == [FAILED, PASSED]


@pytest.mark.parametrize(("is_wrong", "seconds"), [(False, []), (True, [120.0])])
def test_what_failed_at_smaller_inputs_is_looked_at_for_longer(compared, monkeypatch, is_wrong: bool, seconds: list[float]):
    """Runs alone would let a small defect pass at the model's own sizes, as within rounding."""
    begun, begin = set(), Float64Runs.begin

    def recorded(self, participant, feeds, *others, **more):
        begun.add((feeds["x"].shape[2], self.budget_s))
        return begin(self, participant, feeds, *others, **more)

    monkeypatch.setattr(Float64Runs, "begin", recorded)
    found = compared(parse(CHAIN, OF_CHAIN), changed("gamma", one_channel) if is_wrong else parse(CHAIN, OF_CHAIN))
    assert found.state == (FAILED if is_wrong else PASSED)
    assert {budget for size, budget in begun if size == 32} == {20.0}
    assert [budget for size, budget in begun if size == 96] == seconds


@pytest.mark.parametrize("stays", [True, False], ids=["it stays", "another one stays"])
def test_the_run_of_a_likely_candidate_is_begun_ahead_and_not_repeated(tmp_path, monkeypatch, stays):
    def participant(model: onnx.ModelProto, label: str) -> OnnxParticipant:
        return replace(onnx_participant(saved(model, tmp_path / f"{label}.onnx"), label), shares_tensors=True)

    good = parse(CHAIN, OF_CHAIN)
    reference, likely, other = (participant(good, label) for label in ("m", "likely", "other"))
    asked, accepted, ask = [], list[OnnxParticipant](), NativeRuns.ask
    monkeypatch.setattr(
        NativeRuns, "ask", lambda self, one, feeds: asked.append((one.label, feeds["x"].shape[2])) or ask(self, one, feeds)
    )

    def gather(try_out: Callable[..., None]) -> None:
        try_out([likely], lambda: True)
        assert asked[-1] == ("likely", 96)
        accepted.append(likely if stays else other)

    settings = replace(build_settings(None, 0, lambda: 1e9, 60), may_be_smaller=True)
    found = judge_session(Session(reference, accepted, (), (), None, gather), None, settings)
    assert (found.state, found.trials) == (PASSED, [SMALLER, OWN])
    wanted = [("m", 32), ("m", 96), ("likely", 32), ("likely", 96)]
    assert asked == wanted + ([] if stays else [("other", 32), ("other", 96)])


@pytest.mark.parametrize("first", [True, False], ids=["it is the first", "it is the second"])
def test_where_a_likely_candidate_has_its_sizes_as_numbers_the_models_own_are_looked_at_at_once(tmp_path, runs, first: bool):
    """Not only when it is known that it stays, with nothing to do until then."""
    text = CHAIN.replace("c = GlobalAveragePool(b)", "h = Reshape(b, windows) g = Reshape(h, back) c = GlobalAveragePool(g)")
    split = parse(text, OF_CHAIN | {"windows": np.array([1, 4, 8, 6, 8, 6]), "back": np.array([1, 4, 48, 48])})
    plain = changed("w", lambda weight: np.add(weight, 6e-8, out=weight))
    models = {"m": parse(CHAIN, OF_CHAIN), "split": split, "plain": plain}
    there = {
        label: replace(onnx_participant(saved(model, tmp_path / f"{label}.onnx"), label), shares_tensors=True)
        for label, model in models.items()
    }
    likely = [there["split"], there["plain"]] if first else [there["plain"], there["split"]]
    accepted, before = list[OnnxParticipant](), dict[str, int]()

    def gather(try_out: Callable[..., None]) -> None:
        try_out(iter(likely), lambda: True)
        before.update(runs)
        accepted.extend(likely)

    settings = replace(build_settings(None, 0, lambda: 1e9, 60), may_be_smaller=True)
    found = judge_session(Session(there["m"], accepted, (), (), None, gather), None, settings)
    assert (found.state, found.trials) == (PASSED, [OWN])
    assert before == runs
    whole = judge_session(Session(there["m"], likely), None, replace(settings, may_be_smaller=False))
    assert found.candidates == whole.candidates


def test_a_candidate_that_is_not_the_same_there_and_does_not_stay_spoils_nothing(tmp_path, runs):
    """What was found there of the one that stays is taken over, and it is held to the model's own sizes, which are known."""
    text = CHAIN.replace("c = GlobalAveragePool(b)", "h = Reshape(b, windows) g = Reshape(h, back) c = GlobalAveragePool(g)")
    split = parse(text, OF_CHAIN | {"windows": np.array([1, 4, 8, 6, 8, 6]), "back": np.array([1, 4, 48, 48])})
    models = {"m": parse(CHAIN, OF_CHAIN), "split": split, "plain": parse(CHAIN, OF_CHAIN)}
    there = {
        label: replace(onnx_participant(saved(model, tmp_path / f"{label}.onnx"), label), shares_tensors=True)
        for label, model in models.items()
    }
    accepted, before = list[OnnxParticipant](), dict[str, int]()

    def gather(try_out: Callable[..., None]) -> None:
        try_out([there["plain"]], lambda: True)
        try_out([there["split"]], lambda: True)
        before.update(runs)
        accepted.append(there["plain"])

    settings = replace(build_settings(None, 0, lambda: 1e9, 60), may_be_smaller=True)
    found = judge_session(Session(there["m"], accepted, (), (), None, gather), None, settings)
    assert (found.state, found.trials) == (PASSED, [SMALLER, OWN])
    assert runs["plain"] == before["plain"] + 1


def test_what_does_not_run_at_the_models_own_sizes_is_not_compared(compared, monkeypatch):
    """That it ran at smaller ones says nothing then."""

    def of_candidate(self, attempt):
        if attempt.run.trial.label == OWN:
            attempt.report.error, attempt.report.unavailable = "it was killed", True
            return None
        return original(self, attempt)

    original = ParticipantRuns.of_candidate
    monkeypatch.setattr(ParticipantRuns, "of_candidate", of_candidate)
    found = compared(parse(CHAIN, OF_CHAIN), parse(CHAIN, OF_CHAIN))
    (report,) = found.candidates
    assert (found.state, found.trials, report.verdicts, report.error) == (NOT_COMPARED, [OWN], [], "it was killed")


def test_a_file_is_run_at_no_other_sizes_than_it_states(tmp_path):
    """But where smaller inputs stand in for its own."""
    fixed = onnx_participant(saved(parse(CHAIN, OF_CHAIN), tmp_path / "m.onnx"))
    x = {"x": random(1, 3, 32, 64)}
    with OrtRunner(60.0) as runner:
        natives = NativeRuns(runner)
        with pytest.raises(RunFailed, match="invalid dimensions"):
            natives.ask(fixed, x).results()
        (got,) = natives.ask(replace(fixed, is_resized=True), x).results()
    assert got["y"].shape == (1, 4)


def test_a_message_with_other_sizes_refers_to_the_weights_of_the_file(tmp_path):
    weights = OF_CHAIN | {"w": random(64, 3, 9, 9), "v": random(4, 64, 3, 3)} | batchnorm(64)
    text = CHAIN.replace("pads=[1, 1, 1, 1]>(x", "pads=[4, 4, 4, 4]>(x")
    participant = onnx_participant(saved(parse(text, weights), tmp_path / "m.onnx"))
    source, folder = resized(participant.model, {"x": (1, 3, 32, 64)}, participant.path)
    assert folder == participant.path.parent
    assert len(source) < participant.path.stat().st_size / 4
    x = random(1, 3, 32, 64)
    fully = parse(text.replace("96, 96", "32, 64"), weights)
    with OrtRunner(60.0) as runner:
        (got,) = runner.begin(participant.path, {"x": x}, source=source).results()
        wanted = runner.run(fully, {"x": x})
    np.testing.assert_array_equal(got["y"], wanted["y"])


@pytest.mark.parametrize(
    "layout", ["links to both", "a link to the model", "a link to the data below", "data below", "a link to the whole"]
)
def test_a_message_with_other_sizes_refers_to_the_files_that_links_lead_to(tmp_path, layout: str):
    """ONNX Runtime reads no weights from a link to another folder."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    for folder in (blobs / "sub", snapshot / "sub"):
        folder.mkdir(parents=True)
    weights = OF_CHAIN | {"w": random(64, 3, 9, 9), "v": random(4, 64, 3, 3)} | batchnorm(64)
    text = CHAIN.replace("pads=[1, 1, 1, 1]>(x", "pads=[4, 4, 4, 4]>(x")
    location = None if layout == "a link to the whole" else "sub/w.bin" if layout == "data below" else "w.bin"
    model, external = parse(text, weights), {"save_as_external_data": True, "location": location, "size_threshold": 0}
    onnx.save(model, blobs / "m.onnx", **({} if location is None else external))
    if location is not None:
        real = {"a link to the model": snapshot / location, "a link to the data below": snapshot / "sub" / "2"}
        data = (blobs / location).rename(real.get(layout, blobs / "4f1c" if layout == "links to both" else snapshot / location))
        if data != snapshot / location:
            (snapshot / location).symlink_to(data)
    if layout in ("links to both", "a link to the model", "a link to the whole"):
        (snapshot / "m.onnx").symlink_to("../blobs/m.onnx")
    else:
        (blobs / "m.onnx").rename(snapshot / "m.onnx")
    linked = replace(onnx_participant(snapshot / "m.onnx"), is_resized=True)
    assert any(map(is_external, linked.model.graph.initializer))
    x = {"x": random(1, 3, 32, 64)}
    with OrtRunner(60.0) as runner:
        (got,) = NativeRuns(runner).ask(linked, x).results()
        wanted = runner.run(parse(text.replace("96, 96", "32, 64"), weights), x)
    np.testing.assert_array_equal(got["y"], wanted["y"])
