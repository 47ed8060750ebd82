"""Engines on disk: recognised by name or content, never mistaken for a model."""

from __future__ import annotations

import json
import sys

import pytest

from tests.models import parse, saved
from tests.tensorrt.test_manifest import of_nothing
from trtnorm_cli.cli import run
from trtnorm_cli.errors import ModelError
from trtnorm_cli.target import looks_like_engine
from trtnorm_cli.tensorrt import engine_file as engine
from trtnorm_cli.tensorrt.engine_file import inspect_engine

MODEL = parse("g (float[2, 4] x) => (float[2, 4] y) { y = Relu(x) }")


@pytest.mark.parametrize(("name", "content", "expected"), [
    ("a.engine", b"", True), ("a.plan", b"x", True), ("a.trt", b"x", True), ("a.bin", b"ptrt\0\0", True), ("a", b"vtrt", True),
    ("a.onnx", b"\x08\x08", False), ("a.bin", b"xtr", False), ("a.bin", b"", False), ("a.bin", b"trt", False),
])  # fmt: skip
def test_what_an_engine_is(tmp_path, name, content, expected):
    (tmp_path / name).write_bytes(content)
    assert looks_like_engine(tmp_path / name) is expected


def test_what_does_not_exist_is_judged_by_its_name(tmp_path):
    assert looks_like_engine(tmp_path / "a.engine")
    assert not looks_like_engine(tmp_path / "a.onnx")
    assert not looks_like_engine(tmp_path)


def test_a_model_with_a_json_file_beside_it_is_a_model(tmp_path, capsys):
    """Some models come with their own settings, as voice.onnx and voice.onnx.json."""
    saved(MODEL, tmp_path / "voice.onnx")
    (tmp_path / "voice.onnx.json").write_text('{"audio": {"sample_rate": 22050}}')
    assert run(["inspect", str(tmp_path / "voice.onnx")]) == 0
    assert "no normalizations" in capsys.readouterr().out


def manifest(tmp_path) -> None:
    (tmp_path / "a.engine").write_bytes(b"vtrt")
    (tmp_path / "a.engine.json").write_text(json.dumps(of_nothing().to_json()))


ANSWER = (
    "import sys; from pathlib import Path; Path(sys.argv[1], 'result.json').write_text('{\"available\": true, \"engine\": {}}')"
)


@pytest.mark.parametrize(("script", "available", "reason"), [
    (ANSWER, True, None),
    ("import os; os.abort()", False, "the process that loads the engine ended without an answer"),
    ("print('words')", False, "the process that loads the engine ended without an answer"),
    ("import time; time.sleep(60)", False, "the process that loads the engine ended without an answer"),
])  # fmt: skip
def test_the_inspector_may_die(tmp_path, monkeypatch, script, available, reason):
    manifest(tmp_path)
    monkeypatch.setattr(engine, "_INSPECTOR_TIMEOUT_S", 1.0)
    monkeypatch.setattr(engine, "INSPECTOR", (sys.executable, "-c", script))
    found = inspect_engine(tmp_path / "a.engine")
    assert found.inspector.available is available
    assert found.inspector.reason == reason
    assert found.matches_manifest is False


@pytest.mark.rtx
def test_garbage_is_not_an_engine(tmp_path):
    manifest(tmp_path)
    inspector = inspect_engine(tmp_path / "a.engine").inspector
    assert inspector.available is False
    assert inspector.reason


@pytest.mark.parametrize("missing", ["versions", "source", "engine", "network", "changes", "warnings"])
def test_an_incomplete_manifest(tmp_path, missing):
    manifest(tmp_path)
    path = tmp_path / "a.engine.json"
    content = json.loads(path.read_text())
    del content[missing]
    path.write_text(json.dumps(content))
    with pytest.raises(ModelError, match=f"the manifest lacks {missing}") as caught:
        inspect_engine(tmp_path / "a.engine")
    assert caught.value.exit_code == 3
