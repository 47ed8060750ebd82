"""Builds in another precision: the types of the engine, what stays float32, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.models import parse, random, saved
from tests.pipeline.runs import build, left_in_temp, manifest_of
from trtnorm_cli.cli import run
from trtnorm_cli.evaluate.ort_runner import RunFailed
from trtnorm_cli.lowering import lower

pytestmark = pytest.mark.rtx

PROFILE = "dims: {N: {min: 1, opt: 2, max: 4}}\n"
WIDE = 3000.0


def network(wide: bool = False) -> onnx.ModelProto:
    """Two products around an RMSNorm in pieces; ``wide`` makes what it squares larger than half precision can hold."""
    weights = {
        "v": random(16, 16) * np.float32(WIDE if wide else 1.0),
        "w": random(16, 16, seed=1),
        "two": np.float32([2.0]),
        "axes": np.int64([-1]),
        "epsilon": np.float32([1e-6]),
    }
    return parse(
        "g (float[N, 16] x) => (float[N, 16] y) {"
        "[first] p = MatMul(x, v) [square] s = Pow(p, two) [mean] m = ReduceMean(s, axes) [sum] t = Add(m, epsilon)"
        "[root] r = Sqrt(t) [norm] n = Div(p, r) [relu] a = Relu(n) [last] y = MatMul(a, w) }",
        weights,
        opset=18,
    )


@pytest.fixture
def half(work: Path) -> Path:
    saved(network(), work / "m.onnx")
    (work / "cfg.yaml").write_text(PROFILE)
    return work


@pytest.mark.parametrize(("kind", "tensorrt"), [("fp16", "HALF"), ("bf16", "BF16")])
def test_the_weights_of_the_engine_are_of_the_type_that_was_asked_for(half: Path, kind: str, tensorrt: str) -> None:
    assert build("m.onnx", "--precision", kind, "-o", "m.engine") == 0
    manifest = manifest_of(half / "m.engine")
    record = manifest["precision"]
    assert (record["type"], record["io"]) == (kind, "keep")
    assert [binding["dtype"] for binding in manifest["engine"]["bindings"]] == ["FLOAT", "FLOAT"]
    weights = [layer["outputs"][0]["dtype"] for layer in manifest["network"]["layers"] if layer["name"] in ("v", "w")]
    assert weights == [tensorrt, tensorrt]
    assert 0 < max(error["network"] for error in record["errors"]) < record["max_error"]
    assert {error["at"] for error in record["errors"]} == {"default min", "default opt"}  # max is more samples of the same
    assert left_in_temp(half) == []


@pytest.mark.parametrize("kind", ["fp16", "bf16"])
def test_a_model_without_weights_is_compared_in_the_precision_that_it_has(work: Path, kind: str) -> None:
    saved(parse("g (float[2, 16] x) => (float[2, 16] y) { y = Relu(x) }", {}, opset=18), work / "m.onnx")
    (work / "cfg.yaml").write_text("{}")
    assert build("m.onnx", "--precision", kind, "-o", "m.engine") == 0


@pytest.mark.parametrize(
    ("participants", "message"),
    [(["m.onnx", "other.onnx"], "candidates other.onnx"), (["network:m.onnx"], "network:m.onnx is taken as it is")],
)
def test_only_what_trtnorm_converts_is_compared_in_another_precision(
    half: Path, participants: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["compare", *participants, "--precision", "fp16"]) == 2
    assert message in capsys.readouterr().err


def test_inputs_and_outputs_take_the_type_where_that_is_wanted(half: Path) -> None:
    (half / "cfg.yaml").write_text(PROFILE + "precision: {type: fp16, io: low}\n")
    assert build("m.onnx", "-o", "m.engine") == 0
    assert [binding["dtype"] for binding in manifest_of(half / "m.engine")["engine"]["bindings"]] == ["HALF", "HALF"]


def test_a_normalization_whose_squares_do_not_fit_stays_float32(work: Path) -> None:
    saved(network(wide=True), work / "m.onnx")
    (work / "cfg.yaml").write_text(PROFILE)
    assert build("m.onnx", "--precision", "fp16", "-o", "m.engine") == 0
    record = manifest_of(work / "m.engine")["precision"]
    kept = {one["node"] for one in record["kept"]}
    assert {"square", "mean", "sum", "root", "norm"} <= kept
    assert not kept & {"relu", "last"}
    assert max(error["network"] for error in record["errors"]) < 1e-2


def test_the_command_line_takes_the_place_of_the_profile(half: Path) -> None:
    (half / "cfg.yaml").write_text(PROFILE + "precision: fp16\n")
    assert build("m.onnx", "--precision", "as-written", "-o", "m.engine") == 0
    assert manifest_of(half / "m.engine")["precision"] is None
    assert build("m.onnx", "-o", "m.engine") == 0
    assert manifest_of(half / "m.engine")["precision"]["type"] == "fp16"


def test_calibration_inputs_belong_to_what_an_engine_was_made_from(half: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (half / "cfg.yaml").write_text(PROFILE + "precision: {type: fp16, data: inputs.npz}\n")
    np.savez(half / "inputs.npz", x=random(2, 16))
    assert build("m.onnx", "-o", "m.engine") == 0
    record = manifest_of(half / "m.engine")["precision"]
    assert record["data"] == {"x": "from inputs.npz"}
    assert build("m.onnx", "-o", "m.engine") == 0
    assert "is up to date" in capsys.readouterr().out
    np.savez(half / "inputs.npz", x=random(2, 16, seed=5))
    assert build("m.onnx", "-o", "m.engine") == 0
    assert "is up to date" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"z": random(2, 16)}, "missing: x; unknown: z"),
        ({"x": random(2, 15)}, "input x has shape [2, 15]"),
        ({"x": random(2, 16, dtype=np.float64)}, "input x is float64"),
        ({"x": np.full((2, 16), np.nan, np.float32)}, "input x is NaN at [0, 0]"),
    ],
)
def test_calibration_inputs_that_do_not_fit(
    half: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, data: dict, message: str
) -> None:
    """They are refused before anything is rewritten or built."""
    monkeypatch.setattr("trtnorm_cli.pipeline.first_variant", lambda *given: pytest.fail("it is rewritten"))
    (half / "cfg.yaml").write_text(PROFILE + "precision: {type: fp16, data: inputs.npz}\n")
    np.savez(half / "inputs.npz", **data)
    assert build("m.onnx", "-o", "m.engine") == 2
    assert message in capsys.readouterr().err
    assert not (half / "m.engine").exists()
    assert left_in_temp(half) == []


def test_calibration_inputs_that_are_not_there(half: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (half / "cfg.yaml").write_text(PROFILE + "precision: {type: fp16, data: inputs.npz}\n")
    assert build("m.onnx", "-o", "m.engine") == 2
    assert "inputs.npz" in capsys.readouterr().err


def test_a_budget_that_cannot_be_held(half: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (half / "cfg.yaml").write_text(PROFILE + "precision: {type: bf16, io: low, max_error: 1e-7}\n")
    assert build("m.onnx", "-o", "m.engine") == 2
    error = capsys.readouterr().err
    assert "max_error 1e-07 cannot be held" in error
    assert "Traceback" not in error
    assert not (half / "m.engine").exists()


def test_a_pattern_that_fits_no_node(half: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (half / "cfg.yaml").write_text(PROFILE + "precision: {type: fp16, keep_fp32: {nodes: [frist]}}\n")
    assert build("m.onnx", "-o", "m.engine") == 2
    assert "'first'" in capsys.readouterr().err


def test_what_the_user_keeps_stays_float32(half: Path) -> None:
    (half / "cfg.yaml").write_text(PROFILE + "precision: {type: fp16, keep_fp32: {nodes: [las*], operators: [Relu]}}\n")
    assert build("m.onnx", "-o", "m.engine") == 0
    kept = {one["node"]: one["cause"] for one in manifest_of(half / "m.engine")["precision"]["kept"]}
    assert kept["last"] == kept["relu"] == "asked"


def test_a_model_of_which_nothing_is_low_is_said_to_be_as_it_was(half: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (half / "cfg.yaml").write_text(PROFILE + "precision: {type: fp16, keep_fp32: {nodes: ['*']}}\n")
    assert run(["rewrite", "m.onnx", "-p", "cfg.yaml", "-o", "low.onnx"]) == 0
    assert "no node is in fp16" in " ".join(capsys.readouterr().out.split())


def test_rewrite_writes_the_model_in_the_precision(half: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rewrite", "m.onnx", "--profile", "cfg.yaml", "--precision", "fp16", "-o", "low.onnx", "--explain"]) == 0
    low = onnx.load(half / "low.onnx")
    assert {tensor.name: tensor.data_type for tensor in low.graph.initializer if tensor.name in ("v", "w")} == {
        "v": onnx.TensorProto.FLOAT16,
        "w": onnx.TensorProto.FLOAT16,
    }
    assert "precision" in capsys.readouterr().out
    onnx.checker.check_model(low, full_check=True)


def test_a_half_file_becomes_float32(work: Path) -> None:
    model = network()
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            array = onnx.numpy_helper.to_array(tensor).astype(np.float16)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    saved(model, work / "m.onnx")
    (work / "cfg.yaml").write_text(PROFILE)
    assert build("m.onnx", "--precision", "fp32", "-o", "m.engine") == 0
    manifest = manifest_of(work / "m.engine")
    assert {layer["outputs"][0]["dtype"] for layer in manifest["network"]["layers"] if layer["name"] in ("v", "w")} == {"FLOAT"}
    assert [binding["dtype"] for binding in manifest["engine"]["bindings"]] == ["HALF", "HALF"]


def test_a_network_that_never_keeps_the_budget_is_named(
    half: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The budget is made tighter for TensorRT's network until nothing can hold it; the error is about the user's budget."""
    monkeypatch.setattr(lower._Lowering, "_network_errors", lambda self, network, trials, exact: {("y", 0): 1e6})
    assert build("m.onnx", "--precision", "fp16", "-o", "m.engine") == 4
    error = capsys.readouterr().err
    assert "TensorRT's network in fp16 is off by 1.0e+06, and max_error is 0.01" in error
    assert not (half / "m.engine").exists()
    assert left_in_temp(half) == []


def test_what_rounding_decides_in_float32_too_is_not_held_to_the_budget(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of equal scores of 1e10 the order of their sums makes one the largest, in one network and not in another."""
    weights = {"k": np.full((64, 32), 0.02, np.float32), "large": np.float32(1e10)}
    graph = (
        "g (float[4, 64] x) => (float[4, 32] y) {"
        "a = Abs(x) b = Mul(x, a) p = MatMul(b, k) l = Mul(p, large) y = Softmax<axis = -1>(l) }"
    )
    saved(parse(graph, weights, opset=18), work / "m.onnx")
    (work / "cfg.yaml").write_text("{}")
    monkeypatch.setattr(lower._Lowering, "_network_errors", lambda self, network, trials, exact: {("y", 0): 1.7})
    assert build("m.onnx", "--precision", "fp16", "-o", "m.engine") == 0
    notes = manifest_of(work / "m.engine")["precision"]["notes"]
    assert any("y at default min is not judged: rounding alone moves it by" in note for note in notes)


def test_a_model_of_an_old_opset(work: Path) -> None:
    """Before opset 11 the branches of an If make results of one shape."""
    weights = {"v": random(16, 16), "w": random(16, 16, seed=1)}
    text = "g (float[2, 16] x) => (float[2, 16] y) { p = MatMul(x, v) a = Relu(p) y = MatMul(a, w) }"
    saved(parse(text, weights, opset=9, ir=4), work / "m.onnx")
    assert run(["rewrite", "m.onnx", "--precision", "fp16", "-o", "low.onnx"]) == 0
    assert {tensor.data_type for tensor in onnx.load(work / "low.onnx").graph.initializer} == {onnx.TensorProto.FLOAT16}


def test_a_model_that_cannot_be_run_rounded_is_told_in_one_error(
    half: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: object) -> None:
        raise RunFailed("no kernel")

    monkeypatch.setattr("trtnorm_cli.precision.search.kept_by_values", fails)
    assert build("m.onnx", "--precision", "fp16", "-o", "m.engine") == 4
    assert (
        "cannot be run with its results rounded to fp16, so no precision can be settled: no kernel" in capsys.readouterr().err
    )
    assert left_in_temp(half) == []


def test_changes_that_are_measured_are_chosen_for_half_precision_too(work: Path) -> None:
    """GroupNorm along rows saves launches between convolutions in half as it does in float32."""
    conv = {"w": random(8, 3, 3, 3), "v": random(4, 8, 3, 3, seed=1)}
    norm = {"one": np.ones(2, np.float32), "zero": np.zeros(2, np.float32), "rows": np.int64([0, 2, -1])}
    graph = (
        "g (float[N, 3, H, 8] x) => (float[N, 4, H, 8] y) { c = Conv<pads = [1, 1, 1, 1]>(x, w) f = Reshape(c, rows)"
        "n = InstanceNormalization(f, one, zero) s = Shape(c) b = Reshape(n, s) r = Relu(b)"
        "y = Conv<pads = [1, 1, 1, 1]>(r, v) }"
    )
    saved(parse(graph, {**conv, **norm}, opset=18), work / "gn.onnx")
    (work / "cfg.yaml").write_text("dims: {N: {min: 1, opt: 2, max: 4}, H: {min: 4, opt: 8, max: 16}}\n")
    assert build("gn.onnx", "--precision", "fp16", "-o", "gn.engine") == 0
    manifest = manifest_of(work / "gn.engine")
    assert [change["rule"] for change in manifest["changes"]] == ["recompose-group-norm"]
    chosen = manifest["optimize"]["chosen"]
    assert (chosen["builds"], chosen["no change"]) == (1, None), "the engine tells that it takes no longer so"
    assert sum(manifest["network"]["kernels_by_type"].values()) <= chosen["chosen"]["launches"]


def test_folds_that_cost_time_are_left_out_in_half_precision_too(work: Path) -> None:
    """TensorRT computes a scale and ReLU with the mean behind them, and transposes first where the convolution has them."""
    norm = {"gamma": np.float32(1.5) + random(16), "beta": random(16), "mean": random(16), "variance": np.abs(random(16)) + 1}
    graph = (
        "g (float[N, 16, 32, 32] x) => (float[N, 16, 32, 32] y) { c = Conv<pads = [1, 1, 1, 1]>(x, w)"
        "n = BatchNormalization(c, gamma, beta, mean, variance) r = Relu(n)"
        "q = ReduceMean<axes = [2, 3]>(r) m = Mul(r, q) y = Conv<pads = [1, 1, 1, 1]>(m, v) }"
    )
    weights = {"w": random(16, 16, 3, 3), "v": random(16, 16, 3, 3, seed=1), **norm}
    saved(parse(graph, weights, opset=17), work / "squeeze.onnx")
    (work / "cfg.yaml").write_text("dims: {N: {min: 1, opt: 2, max: 4}}\n")
    assert build("squeeze.onnx", "--precision", "fp16", "-o", "squeeze.engine") == 0
    manifest = manifest_of(work / "squeeze.engine")
    chosen = manifest["optimize"]["chosen"]
    assert chosen["chosen"]["us"] == chosen["no change"]["us"] < chosen["every change"]["us"]
    assert manifest["changes"] == []
