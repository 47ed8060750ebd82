"""Types for which ONNX Runtime has no kernels are compared in float64, and still told apart."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.models import parse, saved
from trtnorm_cli.compare.result import Options
from trtnorm_cli.compare.session import run_session
from trtnorm_cli.compare.settings import Settings
from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.target import Target

GRAPH = "g ({kind}[2, 3, 4, 4] x) => ({kind}[2, 4, 2, 2] y) {{ c = Conv(x, w) s = Mul(c, k) y = {last}(s) }}"


def model(kind: str, dtype: type, last: str = "Tanh", scale: float = 1.5):
    weights = {"w": np.random.default_rng(0).standard_normal((4, 3, 3, 3)), "k": np.full((1,), scale)}
    return parse(GRAPH.format(kind=kind, last=last), {name: value.astype(dtype) for name, value in weights.items()})


def compared(tmp_path, kind: str, dtype: type, scale: float):
    saved(model(kind, dtype), tmp_path / "reference.onnx")
    saved(model(kind, dtype, scale=scale), tmp_path / "candidate.onnx")
    specs = [Target("onnx", f"{tmp_path}/{name}.onnx") for name in ("reference", "candidate")]
    return run_session(specs[0], specs[1:], None, Settings(find_blame=False))


@pytest.mark.parametrize(("kind", "dtype"), [("bfloat16", ml_dtypes.bfloat16), ("double", np.float64)])
def test_equal_models_pass(tmp_path, kind, dtype):
    comparison = compared(tmp_path, kind, dtype, 1.5)
    assert comparison.passed
    assert any("ONNX Runtime does not run" in note and "float64 evaluation stands for it" in note for note in comparison.notes)
    (verdict,) = comparison.candidates[0].verdicts
    assert verdict.exact == 0


@pytest.mark.parametrize(
    ("kind", "dtype", "scale"), [("bfloat16", ml_dtypes.bfloat16, 1.75), ("double", np.float64, 1.5 + 1e-9)]
)
def test_different_models_fail(tmp_path, kind, dtype, scale):
    comparison = compared(tmp_path, kind, dtype, scale)
    assert not comparison.passed
    assert comparison.candidates[0].error is None


def test_a_model_that_nothing_evaluates_is_still_an_error(tmp_path):
    path = saved(model("float", np.float32, last="Odd"), tmp_path / "odd.onnx")
    with pytest.raises(UsageProblem, match="the reference does not run"):
        run_session(Target("onnx", str(path)), [Target("onnx", str(path))], None, Settings(find_blame=False))


@pytest.mark.parametrize(("kind", "dtype"), [("bfloat16", ml_dtypes.bfloat16), ("double", np.float64)])
def test_float64_stands_in_at_every_shape_however_few_are_evaluated_in_it_otherwise(tmp_path, kind, dtype):
    dynamic = GRAPH.replace("[2, ", "[N, ").format(kind=kind, last="Tanh")
    weights = {"w": np.random.default_rng(0).standard_normal((4, 3, 3, 3)), "k": np.full((1,), 1.5)}
    path = saved(parse(dynamic, {name: value.astype(dtype) for name, value in weights.items()}), tmp_path / "m.onnx")
    profile = tmp_path / "p.yaml"
    profile.write_text("dims: {N: {min: 1, opt: 2, max: 3}}\n")
    settings = Settings(Options(float64_trials=1), in_between=0, find_blame=False)
    comparison = run_session(Target("onnx", str(path)), [Target("onnx", str(path))], profile, settings)
    assert comparison.passed
    assert comparison.trials == ["default min", "default opt", "default max"]
