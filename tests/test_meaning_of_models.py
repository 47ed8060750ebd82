"""From the command line: training mode, parameters that do not fit, and further weights."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.models import batchnorm, operators, parse, random, saved
from tests.oracle import worst_relative_error
from trtnorm_cli.child_process import Limits
from trtnorm_cli.cli import run
from trtnorm_cli.tensorrt.launch import launch
from trtnorm_cli.tensorrt.request import BuildRequest, BuildResult

rtx = pytest.mark.rtx
TITLE = "shift weights has count 16 but 64 was expected"


def mismatch(kernel: np.ndarray | None = None, **weights: np.ndarray) -> onnx.ModelProto:
    return parse(
        "g (float[1, 3, 10, 10] a) => (float[1, 64, 8, 8] y) { [conv] x = Conv(a, w)"
        " [bn] n = BatchNormalization(x, gamma, beta, mu, var) [relu] y = Relu(n) }",
        {"w": random(64, 3, 3, 3) if kernel is None else kernel, **batchnorm(16), **weights},
    )


def training(**weights: np.ndarray) -> onnx.ModelProto:
    return parse(
        "g (float[2, 3, 10, 10] a) => (float[2, 4, 8, 8] y) { [conv] x = Conv(a, w)"
        " [bn] y, m, v = BatchNormalization <training_mode=1> (x, gamma, beta, mu, var) }",
        {"w": random(4, 3, 3, 3), **batchnorm(4), **weights},
    )


@pytest.fixture
def work(tmp_path, monkeypatch) -> Path:
    saved(mismatch(), tmp_path / "mismatch.onnx")
    saved(training(), tmp_path / "training.onnx")
    (tmp_path / "groups.yaml").write_text("mismatch: {bn: repeat-per-group}\n")
    (tmp_path / "eval.yaml").write_text("training_mode: eval\n")
    (tmp_path / "refuse.yaml").write_text("training_mode: refuse\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def built_as_it_is(path: Path, folder: Path) -> BuildResult:
    """The model in TensorRT without any rewriting."""
    folder.mkdir()
    saved(onnx.load(path), folder / "model.onnx")
    request = BuildRequest("model.onnx", str(folder / "model.engine"), "tensorrt-rtx")
    return launch(request, folder, lambda event: None, Limits(120))


def manifest(work: Path, name: str) -> dict:
    return json.loads((work / f"{name}.engine.json").read_text())


@rtx
def test_the_message_of_the_real_parser_is_gone_after_the_rewriting(work):
    before = built_as_it_is(work / "mismatch.onnx", work / "raw")
    assert not before.ok
    assert any(TITLE in message.text for message in before.errors)
    assert run(["rewrite", "mismatch.onnx", "-o", "fixed.onnx", "--profile", "groups.yaml"]) == 0
    after = built_as_it_is(work / "fixed.onnx", work / "fixed")
    assert after.ok
    assert not any("weights has count" in message.text for message in after.errors)


@rtx
def test_a_build_without_the_line_is_refused_before_tensorrt_is_asked(work, capsys):
    assert run(["build", "mismatch.onnx"]) == 4
    error = capsys.readouterr().err
    assert "scale, bias, mean and variance hold 16 values, but axis 1 of x [1, 64, 8, 8] has 64" in error
    assert "the 64 come from Conv conv, whose weight w is [64, 3, 3, 3]" in error
    assert "mismatch: {bn: repeat-per-group}" in error
    assert not (work / "mismatch.engine").exists()


@rtx
def test_a_build_with_the_line_is_marked_in_the_manifest(work, capsys):
    assert run(["build", "mismatch.onnx", "--profile", "groups.yaml"]) == 0
    assert "WARNING: bn has 16 values per parameter for 64 channels" in capsys.readouterr().out
    found = manifest(work, "mismatch")
    assert [(c["rule"], c["changes_meaning"]) for c in found["changes"]] == [
        ("repair-batchnorm-channels", True),
        ("fold-batchnorm-conv", False),
    ]
    (warning,) = found["rewrite_warnings"]
    assert warning.endswith("because the build profile says so")
    assert found["comparison"]["passed"]
    assert "as it was read" in json.dumps(found["comparison"])
    assert found["profile"]["mismatch"] == {"bn": "repeat-per-group"}
    assert found["weights"] is None


@rtx
def test_a_build_in_training_mode(work, capsys):
    assert run(["build", "training.onnx"]) == 0
    text = capsys.readouterr().out
    assert "WARNING: bn normalizes with the statistics of each batch" in text
    assert "         training_mode: eval" in text
    found = manifest(work, "training")
    assert found["comparison"]["passed"]
    assert not any(change["changes_meaning"] for change in found["changes"])
    assert found["network"]["layers_by_type"]["REDUCE"] == 2


@rtx
def test_a_build_in_eval_mode(work, capsys):
    assert run(["build", "training.onnx", "--profile", "eval.yaml"]) == 0
    text = capsys.readouterr().out
    assert "WARNING: training_mode: eval changes the results: y by " in text
    found = manifest(work, "training")
    assert found["network"]["layers_by_type"] == {"CONVOLUTION": 1}
    assert [change["changes_meaning"] for change in found["changes"]] == [True, False]
    assert found["comparison"]["passed"]


@rtx
def test_compare_uses_the_reading_too(work, capsys):
    for model, profile in (("mismatch.onnx", "groups.yaml"), ("training.onnx", "eval.yaml")):
        assert run(["compare", model, "--profile", profile]) == 0
        assert "as it was read" in capsys.readouterr().out


def test_refuse(work, capsys):
    assert run(["rewrite", "training.onnx", "--dry-run", "--profile", "refuse.yaml"]) == 4
    assert "BatchNormalization bn: it is in training mode, which the build profile refuses" in capsys.readouterr().err


def test_an_unknown_node_in_the_profile(work, capsys):
    (work / "typo.yaml").write_text("mismatch:\n  bn_: tile\n")
    assert run(["rewrite", "mismatch.onnx", "--dry-run", "--profile", "typo.yaml"]) == 2
    assert "typo.yaml:2: mismatch.bn_: the model has no normalization 'bn_'; did you mean 'bn'?" in capsys.readouterr().err


def test_the_json_of_a_rewriting_marks_the_change(work, capsys):
    assert run(["rewrite", "mismatch.onnx", "--dry-run", "--profile", "groups.yaml", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [change["changes_meaning"] for change in printed["changes"]] == [True, False]
    assert printed["rewrite_warnings"][0].startswith("bn has 16 values per parameter for 64 channels")


def test_weights_beside_the_model(work, capsys):
    pytest.importorskip("safetensors")
    from safetensors.numpy import save_file

    right = batchnorm(64)
    save_file(right, work / "model.safetensors")
    assert run(["rewrite", "mismatch.onnx", "-o", "fixed.onnx", "--weights", "model.safetensors"]) == 0
    assert "WARNING: bn has 16 values per parameter for 64 channels" in capsys.readouterr().out
    fixed = onnx.load(work / "fixed.onnx")
    assert operators(fixed) == ["Conv", "Relu"]
    assert worst_relative_error(mismatch(**right), fixed) < 1e-6


@rtx
def test_a_comparison_with_weights_beside_the_model(work, capsys):
    pytest.importorskip("safetensors")
    from safetensors.numpy import save_file

    save_file(batchnorm(64), work / "model.safetensors")
    assert run(["compare", "mismatch.onnx"]) == 4
    assert run(["compare", "mismatch.onnx", "--weights", "model.safetensors"]) == 0
    assert "mismatch.onnx as it was read" in capsys.readouterr().out
    assert run(["compare", "mismatch.onnx", "mismatch.onnx", "--weights", "model.safetensors"]) == 2
    assert "--weights are given, and nothing is rewritten" in capsys.readouterr().err


def test_weights_that_cannot_be_read(work, capsys):
    assert run(["rewrite", "mismatch.onnx", "--dry-run", "--weights", "none.pt"]) == 2
    assert "none.pt: there is no such file of weights" in capsys.readouterr().err


@rtx
def test_the_weights_are_in_the_manifest(work):
    pytest.importorskip("safetensors")
    from safetensors.numpy import save_file

    save_file(batchnorm(64), work / "model.safetensors")
    assert run(["build", "mismatch.onnx", "--weights", "model.safetensors"]) == 0
    found = manifest(work, "mismatch")
    assert found["weights"]["file"] == "model.safetensors"
    assert len(found["weights"]["sha256"]) == 64
