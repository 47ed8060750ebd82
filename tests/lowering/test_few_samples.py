"""Of a batch few samples are looked at, where the model looks at each by itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.models import parse, random, saved
from trtnorm_cli import api
from trtnorm_cli.compare.result import Trial
from trtnorm_cli.evaluate.ort_runner import OrtRunner
from trtnorm_cli.lowering.few_samples import FewSamples, _is_sample
from trtnorm_cli.precision.output_errors import Arrays
from trtnorm_cli.records.precision import PrecisionRecord

APART = {
    "product": "y = MatMul (x, w)",
    "normalization": "y = LayerNormalization (x, s)",
    "an integer for each sample": "y = MatMul (x, w) z = ArgMax <axis = 1> (y)",
    "another input without samples": "y = Add (x, all)",
    "another input with as many": "y = Add (x, other)",
}
TOGETHER = {
    "the mean of the samples": "m = ReduceMean <keepdims = 1> (x, first) d = Sub (x, m) y = Mul (d, d)",
    "one sample after the other": "y = CumSum (x, zero)",
    "one sample before the other": "y = CumSum <reverse = 1> (x, zero)",
    "no result for each": "y = ReduceSum <keepdims = 0> (x, first)",
    "a result without an axis": "y = ReduceSum <keepdims = 0> (x, both)",
    "samples behind another axis": "y = Transpose <perm = [1, 0]> (x)",
    "pairs of samples": "p = Reshape (x, pairs) m = ReduceMean <keepdims = 1> (p, second) d = Sub (p, m) y = Reshape (d, rows)",
    "one that is two samples before": "b = Slice (x, zeros, twos) s = Pad (b, behind) y = Add (x, s)",
    "as many as another axis": "y = MatMul (square, x)",
}
WEIGHTS = {
    "w": random(6, 6), "s": random(6), "first": np.array([0]), "second": np.array([1]), "both": np.array([0, 1]),
    "zeros": np.array([0]), "twos": np.array([-2]), "behind": np.array([2, 0, 0, 0]),
    "zero": np.array(0), "pairs": np.array([-1, 2, 6]), "rows": np.array([-1, 6]),
}  # fmt: skip
FEEDS = {"x": random(8, 6), "all": random(1, 6, seed=1), "other": random(8, 6, seed=2), "square": random(8, 8, seed=3)}


def model(body: str) -> onnx.ModelProto:
    further = {"all": "float[1, 6] all", "other": "float[N, 6] other", "square": "float[N, N] square"}
    inputs = ", ".join(["float[N, 6] x", *(kind for name, kind in further.items() if f"{name})" in body or f"({name}" in body)])
    outputs = ", ".join(["float y", *(["int64 z"] if " z =" in body else [])])
    return parse(f"g ({inputs}) => ({outputs}) {{ {body} }}", WEIGHTS, opset=18)


def few(made: onnx.ModelProto, feeds: Arrays) -> tuple[Trial, int]:
    """The trial with few samples, and the runs that it took to know."""
    known = {value.name: feeds[value.name] for value in made.graph.input}
    runs = []
    with OrtRunner() as runner:

        def run(fed: Arrays) -> Arrays:
            runs.append(fed)
            return runner.run(made, fed)

        samples = FewSamples(made, run)
        found = samples.of(Trial("max", known))
        assert samples.of(Trial("max", known)).label == found.label
    return found, len(runs)


@pytest.mark.parametrize("body", APART.values(), ids=APART.keys())
def test_the_first_and_the_last_sample_stand_for_all(body: str) -> None:
    found, runs = few(model(body), FEEDS)
    assert found.label == "max, 2 of 8 samples"
    assert runs == 3
    for name, value in found.feeds.items():
        np.testing.assert_array_equal(value, FEEDS[name] if name == "all" else FEEDS[name][[0, -1]])


@pytest.mark.parametrize("body", TOGETHER.values(), ids=TOGETHER.keys())
def test_samples_that_see_each_other_are_all_looked_at(body: str) -> None:
    found, _ = few(model(body), FEEDS)
    assert found.label == "max"
    assert len(found.feeds["x"]) == 8


def test_a_recurrent_network_over_the_first_axis_is_no_batch() -> None:
    weights = {"w": random(1, 16, 6), "r": random(1, 16, 4)}
    made = parse("g (float[T, 2, 6] x) => (float y) { y, h, c = LSTM <hidden_size = 4> (x, w, r) }", weights)
    assert few(made, {"x": random(8, 2, 6)})[0].label == "max"


def test_a_model_that_takes_no_single_sample_gets_all() -> None:
    made = model("p = Reshape (x, halves) y = Reshape (p, rows)")
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.array([2, 4, 6]), "halves"))
    assert few(made, FEEDS) == (Trial("max", {"x": FEEDS["x"]}), 1)


def test_few_samples_are_no_fewer() -> None:
    found, runs = few(model(APART["product"]), {"x": random(2, 6)})
    assert (found.label, runs) == ("max", 0)


def test_what_is_finite_alone_and_not_among_others_is_another() -> None:
    among, alone = {"y": np.array([[np.nan], [1.0]], np.float32)}, {"y": np.array([[2.0]], np.float32)}
    assert not _is_sample(0, 2, among, alone)
    assert _is_sample(1, 2, among, {"y": np.array([[1.0]], np.float32)})


def test_how_much_is_run_at_most_is_known_before_anything_is_drawn() -> None:
    samples = FewSamples(model(APART["product"]), lambda feeds: {})
    assert samples.share(Trial("max", {"x": np.empty((64, 6), np.float32)})) == 8 / 64
    assert samples.share(Trial("max", {"x": np.empty((2, 6), np.float32)})) == 1


def test_other_sizes_in_numbers_are_another_kind_of_inputs() -> None:
    """Few samples at min and at max may have the same shapes, and another length that an input states."""
    made = parse("g (float[N, 6] x, int64[1] k) => (float[N, 6] y) { c = Cast <to = 1> (k) y = Mul (x, c) }", opset=18)
    samples = FewSamples(made, lambda feeds: {"y": feeds["x"] * np.float32(feeds["k"])})

    def few(rows: int, k: int) -> Trial:
        return samples.of(Trial(f"{rows}", {"x": random(rows, 6, seed=rows), "k": np.array([k])}))

    assert samples.are_of_one_kind(few(8, 3), few(4, 3))
    assert not samples.are_of_one_kind(few(8, 3), few(4, 400))


def settled(folder: Path, body: str, precision: str = "fp16") -> PrecisionRecord:
    saved(model(body), folder / "m.onnx")
    (folder / "cfg.yaml").write_text(f"dims: {{N: {{min: 1, opt: 8, max: 32}}}}\nprecision: {precision}\n")
    record = api.rewrite(folder / "m.onnx", profile=folder / "cfg.yaml").precision
    assert record is not None
    return record


def test_sizes_of_a_batch_are_settled_on_once(tmp_path: Path) -> None:
    record = settled(tmp_path, APART["product"])
    assert record.calibration == ("default min", "default opt, 2 of 8 samples")
    assert {error.at for error in record.unseen} <= {
        *(f"default min, seed {n * 1_000_003}" for n in range(8)),
        *(f"default opt, 2 of 8 samples, seed {n * 1_000_003}" for n in range(8)),
    }
    assert record.unseen


def test_all_samples_of_a_users_own_are_settled_on(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x=random(32, 6))
    seen = []
    real = FewSamples.of

    def of(samples: FewSamples, trial: Trial) -> Trial:
        seen.append(trial)
        return real(samples, trial)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FewSamples, "of", of)
        record = settled(tmp_path, APART["product"], "{type: fp16, data: own.npz}")
    assert record.calibration == ("own.npz[0]",)
    assert seen == []
