"""A narrowed model on random inputs: what is fine passes in silence, what needs double is refused with the node."""

from __future__ import annotations

import numpy as np
import pytest

from tests.models import batchnorm, parse, random, saved
from trtnorm_cli.errors import ProfileError, RewriteError
from trtnorm_cli.precision.session import typed_session
from trtnorm_cli.precision.wide.require import check_narrowing
from trtnorm_cli.rewrite.prepare import OpenedModel, prepare


def checked(model, folder, profile=None, seed=0, optimize="auto"):
    if profile is not None:
        (folder / "cfg.yaml").write_text(f"{profile}\n")
    path = None if profile is None else folder / "cfg.yaml"
    prepared = prepare(OpenedModel.of_file(saved(model, folder / "model.onnx"), path))
    return check_narrowing(prepared, typed_session(prepared).rewrite(), folder, seed)


SCALER = "g (double[N, 3] x) => (double[N, 3] y) {{ [centre] a = Sub(x, mean) [scale] y = Div(a, deviation) }}"
SIZES = "dims: {N: {min: 1, opt: 4, max: 16}}"
FINE = {
    "a linear model": parse(
        "g (double[N, 8] x) => (double[N, 3] y, int64[N] label) { h = MatMul(x, w) z = Add(h, b) y = Softmax <axis = 1> (z) "
        "label = ArgMax <axis = 1, keepdims = 0> (y) }",
        {"w": random(8, 3, dtype=np.float64), "b": random(3, dtype=np.float64)},
    ),
    "a scaler of usual data": parse(
        SCALER.format(), {"mean": np.array([5.8, 120.0, -3.0]), "deviation": np.array([0.8, 30.0, 1.0])}
    ),
    "a convolution, which ONNX Runtime does not have in double": parse(
        "g (double[N, 3, 8, 8] x) => (double[N, 4, 6, 6] y) { c = Conv(x, w) n = BatchNormalization(c, gamma, beta, mu, var) "
        "y = Relu(n) }",
        {"w": random(4, 3, 3, 3, dtype=np.float64), **batchnorm(4, np.float64)},
    ),
    "a mask of the lowest double": parse(
        "g (double[N, 4] x, bool[N, 4] keep) => (double[N, 4] y) { m = Where(keep, x, low) y = Softmax <axis = -1> (m) }",
        {"low": np.array(np.finfo(np.float64).min)},
    ),
    "a guard against zero": parse(
        "g (double[N, 4] x) => (double[N, 4] y) { n = ReduceL2 <axes = [1], keepdims = 1> (x) g = Max(n, tiny) y = Div(x, g) }",
        {"tiny": np.array(np.finfo(np.float64).tiny)},
    ),
    "a kernel far from its points": parse(
        "g (double[N, 4] x) => (double[N, 2] y) { s = Mul(x, x) d = Add(s, far) m = Neg(d) e = Exp(m) y = MatMul(e, w) }",
        {"far": np.array(200.0), "w": random(4, 2, dtype=np.float64)},
    ),
    "an offset that cancels": parse(
        "g (double[N, 4] x) => (double[N, 4] y) { a = Add(x, c) y = Sub(a, c) }", {"c": np.array(1e9)}
    ),
}  # fmt: skip


SEEDS = pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])


@SEEDS
@pytest.mark.parametrize("model", FINE.values(), ids=FINE)
def test_what_is_fine_passes_in_silence(model, tmp_path, seed):
    found = checked(model, tmp_path, SIZES, seed)
    assert found.warnings == ()
    assert found.record.skipped == ()
    assert found.record.tried == ("default min", "default opt", "default max")
    assert found.record.worst < 1e-5


CANCELS = parse(
    "g (double[N, 4] x) => (double[N, 4] y) { [plus] a = Add(x, c) [mean] b = ReduceMean <axes = [1]> (a) "
    "[minus] y = Sub(a, b) }",
    {"c": np.array(1e9)},
)


def test_an_offset_that_stays_is_refused_with_the_node(tmp_path):
    with pytest.raises(RewriteError) as caught:
        checked(CANCELS, tmp_path, SIZES)
    error = caught.value
    assert error.summary == "the model needs double, and TensorRT computes in float32"
    assert "output y" in error.where
    assert "Sub minus: operands right to 6e-08, result off by" in error.where
    assert "operands up to 1e+09" in error.where
    assert "tolerances: {y:" in error.hint


def test_a_tolerance_of_the_profile_decides(tmp_path):
    assert checked(CANCELS, tmp_path, f"{SIZES}\ntolerances: {{y: {{atol: 100}}}}").warnings == ()
    with pytest.raises(RewriteError):
        checked(FINE["a linear model"], tmp_path, f"{SIZES}\ntolerances: {{default: {{atol: 1.0e-12}}}}")


@SEEDS
def test_data_are_looked_for_where_the_model_is_centred(tmp_path, seed):
    """Around zero nothing would show."""
    model = parse(SCALER.format(), {"mean": np.full(3, 1.6e9), "deviation": np.full(3, 60.0)})
    with pytest.raises(RewriteError) as caught:
        checked(model, tmp_path, SIZES, seed)
    assert "around what the model subtracts" in caught.value.where
    assert "Sub centre" in caught.value.where
    assert "centre says that x lies around 1.6e+09" in caught.value.hint
    said = f"{SIZES}\ndata: {{x: {{distribution: normal}}}}"
    assert checked(model, tmp_path, said, seed).warnings == ()


def test_a_loss_of_some_digits_is_said(tmp_path):
    model = parse(SCALER.format(), {"mean": np.full(3, 1.6e9), "deviation": np.full(3, 20000.0)})
    found = checked(model, tmp_path, SIZES)
    assert 1e-3 < found.record.worst < 3e-2
    (warning,) = found.warnings
    assert "Sub centre" in warning
    assert found.record.node == "centre"


def test_a_model_that_is_no_better_as_written_is_not_put_down_to_the_narrowing(tmp_path):
    """The float32 part loses everything itself."""
    model = parse(
        "g (float[N, 4] x) => (float[N, 4] y) { a = Add(x, c) b = ReduceMean <axes = [1]> (a) m = Sub(a, b) "
        "d = Cast <to = 11> (m) e = Mul(d, k) y = Cast <to = 1> (e) }",
        {"c": np.array(1e9, np.float32), "k": np.array(0.1)},
    )
    found = checked(model, tmp_path, SIZES)
    assert found.warnings == ()
    assert found.record.worst > 0.1


def test_a_corner_of_doubles_is_tried_at_the_smallest_shapes_alone(tmp_path):
    layers = " ".join(f"r{n} = Relu(r{n - 1})" for n in range(1, 30))
    tail = "d = Cast <to = 11> (r29) e = Mul(d, k) y = Cast <to = 1> (e)"
    model = parse(f"g (float[N, 4] x) => (float[N, 4] y) {{ r0 = Relu(x) {layers} {tail} }}", {"k": np.array(0.1)})
    assert checked(model, tmp_path, SIZES).record.tried == ("default min",)


def test_doubles_that_must_be_kept_are_refused_with_the_line(tmp_path):
    with pytest.raises(ProfileError) as caught:
        checked(FINE["a linear model"], tmp_path, f"{SIZES}\nio_double: keep")
    assert "input x, output y would be float32" in caught.value.summary
    assert caught.value.where.endswith("cfg.yaml:2: io_double")
    inner = parse("g (float[4] x) => (float[4] y) { d = Cast <to = 11> (x) e = Mul(d, d) y = Cast <to = 1> (e) }")
    assert checked(inner, tmp_path, "io_double: keep").warnings == ()
