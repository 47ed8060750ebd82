"""Profiles that do not fit the model, from the command line to the engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.models import saved
from tests.shapes.shape_models import raft
from trtnorm_cli.cli import run

PROFILE = """\
dims:
  N: 1
  H: {min: 135, opt: 540, max: 2160}
  W: {min: 135, opt: 960, max: 3840}
"""


@pytest.fixture
def work(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    saved(raft(), tmp_path / "raft.onnx")
    Path("cfg.yaml").write_text(PROFILE, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("command", [["build"], ["rewrite", "-o", "fixed.onnx"], ["compare"]])
def test_sizes_that_do_not_fit_are_refused_with_the_rule(work, capsys, command):
    before = sorted(work.iterdir())
    assert run([command[0], "raft.onnx", *command[1:], "--profile", "cfg.yaml"]) == 2
    message = capsys.readouterr().err
    assert "cfg.yaml:3: dims.H.min" in message
    assert "H must be ≡ 0 (mod 8) and at least 16: 135 → 136, 540 → 536 or 544" in message
    assert "W must be ≡ 0 (mod 8)" in message
    assert "H: {min: 136, opt: 544, max: 2160, multiple_of: 8}  # dims.H, line 3" in message
    assert sorted(work.iterdir()) == before


@pytest.mark.rtx
def test_snapped_sizes_build(work, capsys):
    assert run(["build", "raft.onnx", "--profile", "cfg.yaml", "--snap", "--no-compare"]) == 0
    said = capsys.readouterr().err
    assert "note: snapped: H: {min: 136, opt: 544, max: 2160, multiple_of: 8}  # dims.H, line 3" in said
    assert "memory of profile default at max: about" in said
    manifest = json.loads(Path("raft.engine.json").read_text(encoding="utf-8"))
    assert manifest["optimization_profiles"][0]["inputs"]["image"]["min"] == [1, 3, 136, 136]
    assert manifest["profile"]["dims"]["W"] == {"min": 136, "opt": 960, "max": 3840, "multiple_of": 8}
    assert manifest["proof"]["memory"]["default"]["activations_bytes"] > 2160 * 3840 * 3 * 4
    assert Path("cfg.yaml").read_text(encoding="utf-8") == PROFILE


def test_snapped_sizes_are_compared_and_rewritten(work, capsys):
    small = PROFILE.replace("2160", "200").replace("3840", "200").replace("540", "140").replace("960", "140")
    Path("cfg.yaml").write_text(small, encoding="utf-8")
    assert run(["rewrite", "raft.onnx", "-o", "fixed.onnx", "--profile", "cfg.yaml", "--snap"]) == 0
    assert "note: snapped: H: {min: 136" in capsys.readouterr().err
    assert run(["compare", "raft.onnx", "fixed.onnx", "--profile", "cfg.yaml", "--snap", "--in-between", "1"]) == 0
    said = capsys.readouterr().out
    assert "note: snapped: H: {min: 136, opt: 144, max: 200, multiple_of: 8}  # dims.H, line 3" in said
    assert "default random 1" in said


def test_a_starting_profile_of_such_a_model_fits(work):
    assert run(["init", "raft.onnx", "-o", "start.yaml"]) == 0
    assert "multiple_of: 8}  # H must be ≡ 0 (mod 8)" in Path("start.yaml").read_text(encoding="utf-8")
    assert run(["rewrite", "raft.onnx", "--dry-run", "--profile", "start.yaml"]) == 0
