"""Whole comparisons as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from tests.compare.planted import network
from tests.models import parse, random, saved
from trtnorm_cli.cli import run
from trtnorm_cli.compare import session
from trtnorm_cli.onnx_model.load import load_model

RELU = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[N, 4] x) => (float[N, 4] y) { y = Relu(x) }
"""
PROFILE = "optimization_profiles:\n  - inputs:\n      x: {min: [1, 4], opt: [2, 4], max: [5, 4]}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.yaml").write_text(PROFILE)
    save("relu.onnx", RELU)
    return tmp_path


def save(name: str, text: str) -> None:
    onnx.save(parser.parse_model(text), name)


def compared(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict]:
    code = run(["compare", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_equal_models_pass_at_every_corner(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save("same.onnx", RELU)
    code, found = compared(capsys, "relu.onnx", "same.onnx", "-p", "p.yaml", "--in-between", "0")
    assert code == 0
    assert found["at"] == ["default min", "default opt", "default max"]
    assert found["candidates"][0]["outputs"][0]["native"]["max_abs"] == 0


def test_the_seed_repeats_the_run_exactly(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save("other.onnx", RELU.replace("Relu", "Elu"))
    runs = [compared(capsys, "relu.onnx", "other.onnx", "-p", "p.yaml", "--seed", s, "--no-blame")[1] for s in "112"]
    worst = [run["candidates"][0]["outputs"][0]["native"]["worst_candidate"] for run in runs]
    assert worst[0] == worst[1] != worst[2]


def test_other_names_are_refused_with_both_sides_and_matched_by_position(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save("renamed.onnx", RELU.replace("x)", "image)").replace("] x", "] image").replace("y", "z"))
    assert run(["compare", "relu.onnx", "renamed.onnx", "-p", "p.yaml"]) == 2
    message = capsys.readouterr().err
    assert "the reference has x; renamed.onnx has image" in message
    assert "--by-position" in message
    assert run(["compare", "relu.onnx", "renamed.onnx", "-p", "p.yaml", "--by-position"]) == 0


def test_other_types_and_ranks_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save("half.onnx", RELU.replace("float[", "float16["))
    assert run(["compare", "relu.onnx", "half.onnx", "-p", "p.yaml"]) == 2
    assert "float and float16" in capsys.readouterr().err
    save("rank.onnx", RELU.replace("N, 4", "N, 4, 1"))
    assert run(["compare", "relu.onnx", "rank.onnx", "-p", "p.yaml"]) == 2
    assert "rank 2 in the reference and 3 in rank.onnx" in capsys.readouterr().err


def test_a_candidate_that_does_not_run_is_reported_and_the_others_are_compared(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save("unknown.onnx", RELU.replace('"" : 21', '"" : 21, "far.away" : 1').replace("Relu", "far.away.Thing"))
    save("same.onnx", RELU)
    code, found = compared(capsys, "relu.onnx", "unknown.onnx", "same.onnx", "-p", "p.yaml")
    assert code == 5
    assert "Thing" in found["candidates"][0]["error"]
    assert found["candidates"][1]["passed"]


def test_a_candidate_that_does_not_run_is_not_called_out_of_tolerance(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save("unknown.onnx", RELU.replace('"" : 21', '"" : 21, "far.away" : 1').replace("Relu", "far.away.Thing"))
    save("other.onnx", RELU.replace("Relu", "Abs"))
    assert run(["compare", "relu.onnx", "unknown.onnx", "-p", "p.yaml", "-q"]) == 5
    said = capsys.readouterr().out
    assert "verdict: FAILED, unknown.onnx cannot be run" in said
    assert "OUT OF TOLERANCE" not in said
    assert run(["compare", "relu.onnx", "unknown.onnx", "other.onnx", "-p", "p.yaml", "-q"]) == 1
    assert "verdict: OUT OF TOLERANCE" in capsys.readouterr().out


def test_a_crash_is_reported_with_its_signal(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The memory limit ends ONNX Runtime's process or makes it fail; either way it is said and nothing hangs."""
    big = RELU.replace("N, 4] x", "N, 4] x").replace("y = Relu(x)", "s = Constant<value = int64[2] {65536, 65536}>() "
          "b = Expand(x, s) r = ReduceMax<keepdims = 1>(b) y = Add(x, r)")  # fmt: skip
    save("big.onnx", big.replace("N, 4", "N, 1"))
    save("one.onnx", RELU.replace("N, 4", "N, 1"))
    Path("p.yaml").write_text(PROFILE.replace("4]", "1]").replace("[2, 1]", "[1, 1]").replace("[5, 1]", "[1, 1]"))
    code, found = compared(capsys, "one.onnx", "big.onnx", "-p", "p.yaml", "--memory", "1500MiB", "--budget", "1")
    assert code == 5
    assert "memory" in found["candidates"][0]["unavailable"]


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({}, "missing: x"),
        ({"x": np.zeros((2, 3), np.float32)}, "shape [2, 3]"),
        ({"x": np.zeros((2, 4), np.float64)}, "float64, the model takes float32"),
        ({"x": np.array([[0, 1, np.nan, 2]], np.float32)}, "NaN at [0, 2]"),
        ({"x": np.zeros((2, 4), np.float32), "z": np.zeros(1)}, "unknown: z"),
    ],
)
def test_data_that_does_not_fit_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], arrays: dict[str, np.ndarray], words: str
) -> None:
    np.savez("d.npz", **arrays)
    assert run(["compare", "relu.onnx", "relu.onnx", "--data", "d.npz"]) == 2
    assert words in capsys.readouterr().err


def test_data_comes_from_npz_folders_and_polygraphy(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from polygraphy.json import save_json

    x = np.arange(8, dtype=np.float32).reshape(2, 4) - 4
    np.savez("d.npz", x=x)
    Path("d").mkdir()
    np.save("d/x.npy", x)
    save_json([{"x": x}, {"x": 2 * x}], "d.json")
    save("other.onnx", RELU.replace("Relu", "Abs"))
    for name, count in (("d.npz", 1), ("d", 1), ("d.json", 2)):
        code, found = compared(capsys, "relu.onnx", "other.onnx", "--data", name, "--no-blame")
        assert code == 1
        assert len(found["at"]) == count
        assert found["candidates"][0]["outputs"][0]["native"]["max_abs"] == 4.0


def test_given_tolerances_replace_the_calibrated_bound(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save("near.onnx", RELU.replace("y = Relu(x)", "e = Constant<value = float {0.001}>() r = Relu(x) y = Add(r, e)"))
    arguments = ["compare", "relu.onnx", "near.onnx", "-p", "p.yaml", "--no-blame"]
    assert run(arguments) == 1
    assert run([*arguments, "--atol", "0.01"]) == 0
    Path("p.yaml").write_text(PROFILE + "tolerances:\n  y: {atol: 0.01}\n")
    assert run(arguments) == 0


def test_an_engine_cannot_be_the_reference(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("x.engine").write_bytes(b"vtrt")
    assert run(["compare", "x.engine", "relu.onnx"]) == 2
    assert "cannot be the reference" in capsys.readouterr().err


def test_an_engine_that_cannot_run_here_is_no_difference(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("x.engine").write_bytes(b"vtrt")
    code, found = compared(capsys, "relu.onnx", "x.engine", "-p", "p.yaml")
    assert code == 5
    assert found["candidates"][0]["unavailable"]
    assert found["at"] == ["default min"], "the other shapes were not tried"
    assert run(["compare", "relu.onnx", "x.engine", "-p", "p.yaml"]) == 5
    assert "verdict: none, nothing could be compared" in capsys.readouterr().out


GROUP_NORM = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[N, 8, 5, 5] x) => (float[N, 8, 5, 5] y)
<float[8] s = {1, 2, 1, 2, 1, 2, 1, 2}, float[8] b = {0, 0, 1, 0, 0, 0, 0, 0}>
{ y = GroupNormalization<num_groups = GROUPS>(x, s, b) }
"""
FOREIGN = """
<ir_version: 10, opset_import: ["" : 21, "my.dom" : 1]>
g (float[N, 4] x) => (float[N, 4] y) { y = my.dom.Relu(x) }
<domain: "my.dom", opset_import: ["" : 21]>
Relu (a) => (b) { b = Neg(a) }
"""
HALF_BATCHNORM = """
<ir_version: 10, opset_import: ["" : 15]>
g (float16[N, 2, 4, 4] x) => (float16[N, 2, 4, 4] y)
<float[2] s = {1000, 1}, float[2] b = {0, 0}, float[2] m = {0, 0}, float[2] v = {1000000, 1}>
{ y = BatchNormalization(x, s, b, m, v) }
"""
DOUBLE = """
<ir_version: 10, opset_import: ["" : 21]>
g (double[N, 4] x) => (double[N, 4] y)
<double c = {1000000000.0}>
{ a = Add(x, c) y = Sub(a, c) }
"""
SILENT_ERRORS = {
    "GroupNormalization with one group": GROUP_NORM.replace("GROUPS", "1"),
    "an operator of a foreign domain with a built-in's name": FOREIGN,
    "float16 BatchNormalization with float32 parameters out of range": HALF_BATCHNORM,
    "double arithmetic that needs double": DOUBLE,
}


@pytest.mark.rtx
@pytest.mark.parametrize("name", SILENT_ERRORS)
def test_what_the_parser_gets_wrong_silently_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    save("m.onnx", SILENT_ERRORS[name])
    shape = [d.dim_value or 2 for d in onnx.load("m.onnx").graph.input[0].type.tensor_type.shape.dim]
    Path("p.yaml").write_text(f"optimization_profiles:\n  - inputs: {{x: {shape}}}\n")
    code, found = compared(capsys, "m.onnx", "network:m.onnx", "-p", "p.yaml")
    assert code == 1
    assert not found["candidates"][0]["passed"]
    assert found["candidates"][0]["outputs"]


@pytest.mark.rtx
def test_the_network_of_a_sound_model_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(network(2), "m.onnx")
    Path("p.yaml").write_text("dims: {N: {min: 1, opt: 2, max: 3}, H: 32, W: 24}\n")
    code, found = compared(capsys, "m.onnx", "-p", "p.yaml")
    assert code == 0, found
    assert [candidate["kind"] for candidate in found["candidates"]] == ["onnx", "network"]
    save("gn.onnx", GROUP_NORM.replace("GROUPS", "4"))
    Path("q.yaml").write_text("dims: {N: {min: 1, opt: 2, max: 3}}\n")
    assert run(["compare", "gn.onnx", "network:gn.onnx", "-p", "q.yaml"]) == 0


def test_what_inputs_are_drawn_from_is_printed_and_in_the_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = parse("g (int64[6] ids) => (float[6, 4] y) { y = Gather(words, ids) }", {"words": random(300, 4)})
    saved(model, folder / "words.onnx")
    assert run(["compare", "words.onnx", "words.onnx", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["inputs"] == {"ids": "integers 0 to 299 (index of words)"}
    assert "ids: integers 0 to 299 (index of words)\n" in printed.err


def test_a_table_of_two_rows_is_compared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Integers from 0 to 3 ended with ``indices element out of data bounds``."""
    model = parse("g (int64[N, 6] kinds) => (float[N, 6, 4] y) { y = Gather(two, kinds) }", {"two": random(2, 4)})
    saved(model, folder / "two.onnx")
    (folder / "two.yaml").write_text("dims: {N: {min: 1, opt: 8, max: 64}}\n")
    for seed in "01234":
        code, found = compared(capsys, "two.onnx", "two.onnx", "-p", "two.yaml", "--seed", seed)
        assert code == 0
        assert found["skipped"] == []


def test_a_model_that_changes_meanwhile_is_no_wrong_result(folder, capsys, monkeypatch):
    from trtnorm_cli.compare import session

    save("neg.onnx", RELU.replace("Relu", "Neg"))
    real = session.judge_session

    def judged(*arguments):
        found = real(*arguments)
        save("neg.onnx", RELU)
        return found

    monkeypatch.setattr(session, "judge_session", judged)
    assert run(["compare", "relu.onnx", "neg.onnx", "-p", "p.yaml"]) == 3
    assert "neg.onnx changed while it was worked on" in capsys.readouterr().err


def test_weights_beside_a_model_that_change_meanwhile_are_noticed(folder, capsys, monkeypatch):
    from trtnorm_cli.compare import session

    model = parse("g (float[N, 3] x) => (float[N, 3] y) { y = Mul(x, w) }", {"w": random(3)})
    onnx.save_model(model, "w.onnx", save_as_external_data=True, location="w.data", size_threshold=0)
    (folder / "w.yaml").write_text("dims: {N: {min: 1, opt: 2, max: 3}}\n")
    real = session.judge_session

    def judged(*arguments):
        found = real(*arguments)
        (folder / "w.data").write_bytes(random(3, seed=1).tobytes())
        return found

    monkeypatch.setattr(session, "judge_session", judged)
    for others in ([], ["w.onnx"]):
        assert run(["compare", "w.onnx", *others, "-p", "w.yaml"]) == 3
        assert "w.data changed while it was worked on" in capsys.readouterr().err


def test_the_runs_of_a_build_may_take_most_of_what_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cached files count as available, with which a machine fills all memory that nobody uses; a container's limit does not."""
    monkeypatch.setattr(session, "available_memory", lambda: 10 << 30)
    assert session.build_settings(None, 0, lambda: 1.0).options.memory_bytes == int(0.7 * (10 << 30))
    assert session.build_settings(5 << 30, 0, lambda: 1.0).options.memory_bytes == 5 << 30


@pytest.mark.parametrize(("offsets", "are_read"), [([0, 4096], True), ([4096, 5002], False), ([], True)])
def test_own_weights_are_read_where_they_lie_if_all_can_be(tmp_path, offsets, are_read):
    """Where one is aligned by chance, the others would not be known again."""
    model = parse("g (float[4] x) => (float[4] y) { y = Relu(x) }")
    for number, offset in enumerate(offsets):
        tensor = onnx.numpy_helper.from_array(np.zeros(4, np.float32), f"w{number}")
        onnx.external_data_helper.set_external_data(tensor, "weights", offset, 16)
        tensor.ClearField("raw_data")
        model.graph.initializer.append(tensor)
    (tmp_path / "weights").write_bytes(bytes(8192))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    assert len(session._own_weights(load_model(tmp_path / "m.onnx"))) == are_read * len(offsets)
