"""What passes, what fails, and of what nothing can be said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.models import parse, random, saved
from trtnorm_cli.compare.comparison import compare
from trtnorm_cli.compare.participants import onnx_participant
from trtnorm_cli.compare.result import FAILED, NOT_COMPARED, PASSED, Comparison, Options, Trial
from trtnorm_cli.compare.verdict import CONSTANTS, FUNCTIONS, Measured, judged
from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.evaluate.float64.perturbation import Moves, Perturbation
from trtnorm_cli.evaluate.metrics import distance
from trtnorm_cli.evaluate.tolerance import Distance, allowed, says_something, share

EPSILON = 2.0**-23


def compared(
    folder: Path, reference: onnx.ModelProto, candidate: onnx.ModelProto, *feeds: dict, shares_tensors=False, **options
) -> Comparison:
    saved(reference, folder / "reference.onnx")
    saved(candidate, folder / "candidate.onnx")
    other = replace(onnx_participant(folder / "candidate.onnx"), shares_tensors=shares_tensors)
    trials = [Trial(f"trial {i}", fed) for i, fed in enumerate(feeds)]
    further = [replace(trial, label=f"further {i}") for i, trial in enumerate(options.pop("further", []))]
    return compare(onnx_participant(folder / "reference.onnx"), [other], trials, Options(**options), further)


def deep(scale: float = 1.0, layers: int = 12, width: int = 32) -> onnx.ModelProto:
    """A chain of products with ReLU; ``scale`` is planted in one output channel of the layer in the middle."""
    weights = {f"w{i}": random(width, width, seed=i) / np.float32(np.sqrt(width / 2)) for i in range(layers)}
    weights[f"w{layers // 2}"][:, 3] *= np.float32(scale)
    body = " ".join(f"p{i} = MatMul({'x' if not i else f'r{i - 1}'}, w{i}) r{i} = Relu(p{i})" for i in range(layers))
    return parse(f"g (float[N, {width}] x) => (float[N, {width}] y) {{ {body} y = Softmax(r{layers - 1}) }}", weights)


X = {"x": random(2, 32)}


@pytest.mark.parametrize("seed", range(5))
def test_constants_that_were_rounded_otherwise_are_no_defect(tmp_path, seed):
    """Every weight one unit in the last place off, as after arithmetic in float32."""
    reference, candidate = deep(), deep()
    rng = np.random.default_rng(seed)
    for tensor in candidate.graph.initializer:
        values = onnx.numpy_helper.to_array(tensor)
        moved = np.nextafter(values, np.where(rng.integers(0, 2, values.shape) == 1, np.inf, -np.inf).astype(np.float32))
        tensor.CopyFrom(onnx.numpy_helper.from_array(moved, tensor.name))
    found = compared(tmp_path, reference, candidate, X, shares_tensors=True)
    assert found.state == PASSED, found.candidates[0]
    assert found.candidates[0].verdicts[0].share < 1


def test_one_channel_off_by_1e_4_is_found_inside_far_beyond_rounding(tmp_path):
    found = compared(tmp_path, deep(), deep(1.0001), {"x": random(64, 32)}, shares_tensors=True)
    report = found.candidates[0]
    assert found.state == FAILED
    assert report.inner is not None
    assert report.inner.tensor == "p6", "the first that is off"
    assert report.inner.share > 10


def test_tensors_of_one_name_and_another_meaning_are_no_defect(tmp_path):
    """A scale that moved across an operator: inside everything differs, at the output nothing does."""
    before = parse("g (float[N, 4] x) => (float[N, 4] y) { s = Mul(x, k) r = Relu(s) y = Identity(r) }", {"k": random(4) ** 2})
    after = parse("g (float[N, 4] x) => (float[N, 4] y) { s = Relu(x) r = Mul(s, k) y = Identity(r) }", {"k": random(4) ** 2})
    found = compared(tmp_path, before, after, {"x": random(3, 4)}, shares_tensors=True)
    assert found.state == PASSED


def test_users_own_models_are_held_to_their_outputs_alone(tmp_path):
    found = compared(tmp_path, deep(), deep(1 + 1e-6), X)
    assert found.candidates[0].inner is None


NAN = "g (float[N, 4] x) => (float[N, 4] y) { a = Neg(x) b = Abs(x) c = Sub(a, b) y = Sqrt(c) }"


def test_nan_against_nan_compares_nothing(tmp_path):
    model = parse(NAN)
    found = compared(tmp_path, model, model, {"x": 1 + random(2, 4) ** 2})
    assert found.state == NOT_COMPARED
    assert "nothing in it is finite" in found.not_compared[0]
    assert found.candidates[0].verdicts[0].passed is None


def test_other_data_is_tried_where_nothing_can_be_said(tmp_path):
    model = parse("g (float[N, 4] x) => (float[N, 4] y) { y = Log(x) }")
    found = compared(
        tmp_path, model, model, {"x": -1 - random(2, 4) ** 2}, further=[Trial("", {"x": 1 + random(2, 4) ** 2}), Trial("", X)]
    )
    assert found.state == PASSED
    assert found.trials == ["trial 0", "further 0"], "and no more than needed"


def test_finite_where_the_reference_is_not_is_a_difference(tmp_path):
    found = compared(tmp_path, parse(NAN), parse(NAN.replace("Sqrt", "Neg")), {"x": 1 + random(2, 4) ** 2})
    assert found.state == FAILED


def measured(got: float, exact: float | None = 1.0, kind: type = np.float32) -> Measured:
    """An output that should be 1 everywhere, and is 1 where the reference runs."""
    ones = np.ones(8, np.float32)
    exactly = None if exact is None else np.full(8, exact)
    truth = None if exact is None else np.ones(8)
    error = None if exact is None else Distance(0, 0)
    return Measured("at", "y", ones, np.full(8, got, kind), truth, exactly, error, None, EPSILON, False)


@pytest.mark.parametrize(
    ("got", "exact", "noise", "passed"),
    [
        (1 + 1e-6, 1.0, 0.0, True),
        (1 + 1e-4, 1.0, 0.0, False),
        (1 + 1e-4, 1.0, 1e-4, True),
        (1.0, 1 + 1e-6, 1e-8, False),
        (1.0, 1 + 1e-6, 1e-6, True),
        (1.5, None, 0.3, None),
        (20.0, None, 0.3, False),
    ],
    ids=["close", "far", "noisy", "another function", "noisy constants", "useless", "beyond doubt"],
)
def test_the_bound_follows_the_noise(got, exact, noise, passed):
    """Where rounding alone moves an output by percents, agreement says nothing."""
    found = judged(measured(got, exact), None, lambda kind, runs: [] if kind == FUNCTIONS else [Distance(noise, noise)] * 4)
    assert found.passed is passed, found
    assert (found.reason == "") == (passed is True)


@pytest.mark.parametrize(
    ("got", "exact", "passed"),
    [(1.004, 1.002, True), (1.02, 1.002, None), (1.004, 1.02, None), (20.0, 1.0, False)],
    ids=["within", "its run is further", "its function is further", "beyond doubt"],
)
def test_where_rounding_says_nothing_the_error_that_a_precision_allows_decides(got, exact, passed):
    def noise(kind: str, runs: int) -> list[Distance]:
        return [] if kind == FUNCTIONS else [Distance(0.3, 0.3)] * runs

    found = judged(measured(got, exact), None, noise, max_error=0.01)
    assert found.passed is passed, found
    assert found.max_error == (0.01 if passed else None)
    assert found.share == pytest.approx(0.4, rel=1e-3) or not passed
    assert judged(measured(got, exact), None, noise).passed is not True


def test_where_rounding_says_something_the_error_that_a_precision_allows_does_not_count():
    found = judged(measured(1.004, 1.002), None, lambda kind, runs: [Distance(1e-7, 1e-7)] * 4, max_error=0.01)
    assert found.passed is False


@pytest.mark.parametrize(("got", "exact", "passed", "asked"), [(1.01, 1 + 1e-4, None, {1}), (20.0, 2.0, False, {1, 2, 4})])
def test_one_run_is_enough_to_say_nothing(got, exact, passed, asked):
    """Further runs allow more still. They are made only where a candidate may be wrong beyond doubt."""
    runs_asked = set()

    def noise(kind: str, runs: int) -> list[Distance]:
        if kind == FUNCTIONS:
            return []
        runs_asked.add(runs)
        return [Distance(0.01, 0.01)] * runs

    assert judged(measured(got, exact), None, noise).passed is passed
    assert runs_asked == asked


@pytest.mark.parametrize(("off", "passed", "asked"), [(7e-6, True, {1}), (3e-5, True, {1, 2}), (1e-4, False, {1, 2, 4})])
def test_runs_are_made_until_they_allow_what_was_measured(off, passed, asked):
    """Further ones allow the same or more."""
    runs_asked = set()

    def noise(kind: str, runs: int) -> list[Distance]:
        runs_asked.update({runs} if kind == CONSTANTS else ())
        return [Distance(size, size) for size in (1e-6, 2e-6, 1e-6, 2e-6)[:runs]]

    found = judged(measured(1.0, 1 + off), None, noise)
    assert (found.passed, runs_asked) == (passed, asked), found


@pytest.mark.parametrize(("truth", "passed"), [(2.3e-79, True), (2.3e-30, False)])
def test_what_is_too_small_for_the_coarser_type_is_zero(truth, passed):
    """A Gaussian of doubles far from its centre is nothing in float32."""
    values = np.full(8, truth)
    m = replace(measured(0.0, 1.0), wanted=values, truth=values, exact=values)
    assert judged(m, None, lambda kind, runs: [Distance(1e-7, 1e-7)] * 4).passed is passed


def test_a_candidate_of_a_coarser_type_that_cannot_compute_the_model_fails():
    m = replace(measured(1.01, 1.0), wanted=np.ones(8))
    found = judged(m, None, lambda kind, runs: [Distance(0.5, 0.5)] * 4)
    assert found.passed is False
    assert "it needs float64 and computes in float32" in found.reason


@pytest.mark.parametrize("seed", range(10))
def test_a_probability_near_zero_is_held_to_the_absolute_error_of_its_function(tmp_path, seed):
    """ONNX Runtime's Sigmoid gives 7.63e-6 where 7.51e-6 is right; another spelling is closer."""
    graph = "g (float[N, 1] x) => (float[N, 1] y) {{ {} }}"
    plain, spelled = graph.format("y = Sigmoid(x)"), graph.format("n = Neg(x) e = Exp(n) d = Add(e, one) y = Reciprocal(d)")
    x = -12 + random(1, 1, seed=seed)
    found = compared(tmp_path, parse(plain), parse(spelled, {"one": np.ones(1, np.float32)}), {"x": x})
    assert found.state != FAILED, found.candidates[0].verdicts
    back = compared(tmp_path, parse(spelled, {"one": np.ones(1, np.float32)}), parse(plain), {"x": x})
    assert back.state != FAILED, back.candidates[0].verdicts


def test_larger_trials_wait_for_time_that_is_left(tmp_path):
    found = compared(tmp_path, deep(), deep(), X, {"x": random(3, 32)}, runs_budget_s=1e-9)
    assert found.trials == ["trial 0"]
    assert found.skipped == ["trial 1: not run, the 1e-09 s for runs were used up"]
    assert found.state == PASSED


def test_a_reference_that_runs_nowhere_is_an_error(tmp_path):
    model = parse("g (float[N, 32] x) => (float[N, 32] y) { y = Gather<axis = 0>(x, i) }", {"i": np.array([7], np.int64)})
    with pytest.raises(UsageProblem, match="the reference does not run"):
        compared(tmp_path, model, model, X, budget_s=0.0)


def test_a_reference_that_runs_at_some_shapes_is_compared_there(tmp_path):
    model = parse("g (float[N, 32] x) => (float[M, 32] y) { y = Gather<axis = 0>(x, i) }", {"i": np.array([2], np.int64)})
    found = compared(tmp_path, model, model, X, {"x": random(4, 32)})
    assert found.state == PASSED
    assert found.trials == ["trial 1"]
    assert "trial 0: the reference does not run there" in found.skipped[0]


def test_noise_grows_with_depth_and_is_seeded():
    feeds = {"x": random(64, 32)}

    def moved(layers: int, seed: int) -> float:
        model = deep(layers=layers)
        truth = evaluate_float64(model, feeds).outputs["y"]
        other = evaluate_float64(model, feeds, perturbation=Perturbation(EPSILON / 2, seed, Moves.ARITHMETIC)).outputs["y"]
        return distance(truth, other).relative_l2

    deeper, shallow = (np.mean([moved(layers, seed) for seed in range(8)]) for layers in (24, 2))
    assert deeper > shallow > 1e-8
    assert moved(4, 1) == moved(4, 1) != moved(4, 2)


def test_whole_numbers_and_constants_that_are_kept_stay():
    model = parse("g (float[N, 4] x) => (float[N, 4] y) { y = Pow(x, e) }", {"e": np.full(4, 2, np.float32)})
    feeds = {"x": random(2, 4)}
    truth = evaluate_float64(model, feeds).outputs["y"]
    moved = evaluate_float64(model, feeds, perturbation=Perturbation(1e-3, 0, Moves.CONSTANTS)).outputs["y"]
    assert np.array_equal(truth, moved)


def test_a_constant_of_an_operators_definition_may_be_rounded():
    """TensorRT's parser writes HardSwish out, with 1/6 in float32: all elements move to one side."""
    node, value = onnx.helper.make_node("HardSwish", ["x"], ["y"]), random(64).astype(np.float64)
    moved = [Perturbation(EPSILON / 2, seed, Moves.CONSTANTS).result(node, {}, [value], value, False) for seed in range(8)]
    ratios = [np.unique(np.round((one / value - 1) / (EPSILON / 2), 6)) for one in moved]
    assert {tuple(found) for found in ratios} == {(-1.0,), (1.0,)}


def test_scatter_of_the_runs_widens_the_bound():
    even = [Distance(1e-7, 1e-7)] * 4
    uneven = [Distance(1e-7, 1e-7), Distance(1e-8, 1e-8)]
    assert allowed(even).relative_l2 == pytest.approx(8e-7)
    assert allowed(uneven).relative_l2 == pytest.approx(8 * 8e-7)
    assert share(Distance(1e-7, 16e-7), allowed(even)) == pytest.approx(2)
    assert share(Distance(0, 0), Distance(0, 0)) == 0
    assert not says_something(Distance(0.43, 0.1), np.dtype(np.float32))
