"""``trtnorm init`` writes sizes that run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.models import loaded, parse, random, saved
from trtnorm_cli.cli import run
from trtnorm_cli.first_profile import first_profile
from trtnorm_cli.onnx_model.load import load_model
from trtnorm_cli.rewrite.prepare import OpenedModel, Prepared, prepare


def made(model: onnx.ModelProto, folder: Path, *options: str) -> tuple[Prepared, str]:
    """The model with the profile that ``init`` writes for it, and the text of that."""
    path, profile = saved(model, folder / "m.onnx"), folder / "cfg.yaml"
    assert run(["init", str(path), "-o", str(profile), *options]) == 0
    return prepare(OpenedModel.of_file(path, profile)), profile.read_text(encoding="utf-8")


def recurrent(batch: str) -> onnx.ModelProto:
    """A GRU whose state is an input: no rule of shapes ties its batch to the data's."""
    weights = {"w": random(1, 12, 6), "r": random(1, 12, 4)}
    body = "t = Transpose<perm=[1, 0, 2]>(x) y = GRU<hidden_size=4>(t, w, r, , , h)"
    return parse(f"g (float[?, ?, 6] x, float[1, {batch}, 4] h) => (float[?, ?, ?, ?] y) {{ {body} }}", weights)


@pytest.mark.rtx
def test_ties_between_inputs_are_found(tmp_path, capsys):
    ready, text = made(recurrent("?"), tmp_path)
    shapes = ready.fitted.profiles[0].shapes
    assert shapes["x"].opt[0] == shapes["h"].opt[1]
    assert shapes["x"].min[0] < shapes["x"].max[0]
    assert "x[0] and h[1] are equal" in text
    assert "note: x[0] and h[1] are equal" in capsys.readouterr().err
    assert run(["build", str(tmp_path / "m.onnx"), "--profile", str(tmp_path / "cfg.yaml"), "--no-compare"]) == 0


def test_a_static_state_fixes_the_batch(tmp_path):
    ready, _ = made(recurrent("1"), tmp_path)
    shapes = ready.fitted.profiles[0].shapes["x"]
    assert [corner[0] for corner in shapes] == [1, 1, 1]
    assert shapes.min[1] < shapes.max[1]


def test_a_least_size_gives_a_range_without_a_run(tmp_path):
    """A window of 700 needs at least 700."""
    model = parse("g (float[N, 1, L] x) => (float[?, ?, ?] y) { y = Conv(x, w) }", {"w": random(2, 1, 700)})
    ready, text = made(model, tmp_path, "--no-run")
    assert [corner[2] for corner in ready.fitted.profiles[0].shapes["x"]] == [700, 1400, 2800]
    assert "L must be at least 700" in text


def test_a_value_that_chooses_a_branch_is_given(tmp_path):
    branches = "then_branch = a () => (float[N] t) { t = Relu(x) }, else_branch = b () => (float[N] e) { e = Neg(x) }"
    text = f"""g (float[N] x, int64 rate, bool[1] flag) => (float[N] y) {{
        k = Constant<value = int64 {{16000}}>() high = Equal(rate, k) one = Squeeze(flag)
        c = Or(high, one) y = If(c) <{branches}> }}"""
    ready, _ = made(parse(text), tmp_path)
    values = ready.fitted.profiles[0].values
    assert (values["rate"].opt, values["flag"].opt) == ((16000,), (0,))
    assert [node.op_type for node in ready.rewrite().model.graph.node] == ["Relu"]


@pytest.mark.rtx
def test_a_size_that_decides_the_rank_of_a_result_is_one_size(tmp_path):
    """What TorchScript writes for a squeeze of an axis that may be 1."""
    text = """g (float[?, 4, L] x) => (float[] y) {
        s = Shape(x) zero = Constant<value = int64 {0}>() n = Gather(s, zero) one = Constant<value = int64 {1}>()
        axes = Constant<value = int64[1] {0}>() single = Equal(n, one)
        y = If(single) <
            then_branch = a () => (float[?, ?] t) { t = Squeeze(x, axes) },
            else_branch = b () => (float[?, ?, ?] e) { e = Relu(x) }>
    }"""
    ready, written = made(parse(text), tmp_path)
    assert [corner[0] for corner in ready.fitted.profiles[0].shapes["x"]] == [1, 1, 1]
    assert "x[0] has one size: it decides between branches whose results differ in rank" in written
    assert run(["build", str(tmp_path / "m.onnx"), "--profile", str(tmp_path / "cfg.yaml"), "--no-compare"]) == 0


def test_an_input_of_unknown_rank_gets_one_that_runs(tmp_path):
    model = parse("g (float[N, 3, L] x) => (float[] y) { y = Conv(x, w) }", {"w": random(4, 3, 3)})
    model.graph.input[0].type.tensor_type.ClearField("shape")
    ready, text = made(model, tmp_path)
    assert len(ready.fitted.profiles[0].shapes["x"].opt) == 3
    assert "the file does not say how many dimensions x has: it runs with 3" in text


def test_indices_out_of_a_table_are_no_reason_against_sizes(tmp_path):
    model = parse("g (int64[N, S] i) => (float[N, S, 2] y) { y = Gather(t, i) }", {"t": random(1, 2)})
    _, text = made(model, tmp_path)
    assert "does not run" not in text


def test_what_does_not_run_at_all_is_said(tmp_path, capsys):
    model = parse("g (float[N, 3] x) => (float[N, 3] y) { y = Reshape(x, to) }", {"to": np.array([7, 11])})
    model.graph.node[0].op_type = "NonExistent"
    model.graph.node[0].domain = "elsewhere"
    model.opset_import.append(onnx.helper.make_opsetid("elsewhere", 1))
    saved(model, tmp_path / "m.onnx")
    assert run(["init", str(tmp_path / "m.onnx")]) == 0
    captured = capsys.readouterr()
    assert "# ONNX Runtime does not run the model at these sizes, nor at others that were tried" in captured.out
    assert "note: ONNX Runtime does not run the model" in captured.err


@pytest.mark.rtx
def test_the_parser_is_asked(tmp_path):
    model = parse("g (float[N, 3] x) => (float[N, 3] y) { y = Relu(x) }")
    model.graph.node[0].op_type = "NonExistent"
    model.graph.node[0].domain = "elsewhere"
    model.opset_import.append(onnx.helper.make_opsetid("elsewhere", 1))
    notes = first_profile(load_model(saved(model, tmp_path / "m.onnx"))).notes
    assert any("TensorRT's parser does not take the model before it is rewritten" in note for note in notes)


def test_without_tensorrt_the_parser_is_not_asked(tmp_path, monkeypatch):
    import trtnorm_cli.first_profile as module
    from trtnorm_cli.tensorrt.request import BuildResult

    monkeypatch.setattr(module, "launch", lambda *arguments: BuildResult(ok=False, stage="load"))
    model = parse("g (float[N, 3] x) => (float[N, 3] y) { y = Relu(x) }")
    notes = first_profile(load_model(saved(model, tmp_path / "m.onnx"))).notes
    assert notes == ("TensorRT is not installed, so its parser was not asked",)


def test_a_file_that_was_mended_is_run_as_it_was_read(tmp_path):
    """Of the node that ONNX does not have nothing can be run; of what stands for it, it can."""
    model = parse("g (float[N, 8] x) => (float[N, 8] y) { e = Erfc(x) y = Mul(e, x) }", {})
    found = first_profile(loaded(model, tmp_path))
    assert not any("does not run" in note for note in found.notes)
    assert "N: {min: 1" in found.text
