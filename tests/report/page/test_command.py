"""``trtnorm report``, and ``build --report`` up to the build: what they write and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.models import batchnorm, parse, random, saved
from tests.report.page.conftest import values_of
from trtnorm_cli.cli import run


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    path = tmp_path / "resnet18.engine"
    path.write_bytes(b"engine")
    path.with_name("resnet18.engine.json").write_text(json.dumps(values_of("resnet18")))
    return path


@pytest.mark.report
@pytest.mark.parametrize("given", ["resnet18.engine", "resnet18.engine.json"])
def test_the_page_lies_beside_the_engine(engine, given, capsys):
    assert run(["report", str(engine.with_name(given))]) == 0
    page = engine.with_name("resnet18.engine.html")
    assert capsys.readouterr().out == f"{page}\n"
    assert page.read_text().startswith("<!doctype html>")


@pytest.mark.report
def test_a_page_is_written_over(engine, tmp_path):
    page = tmp_path / "report.html"
    page.write_text("<!DOCTYPE html><title>the one before</title>")
    assert run(["report", str(engine), "-o", str(page)]) == 0
    assert "the one before" not in page.read_text()


@pytest.mark.report
def test_what_is_no_page_is_not_written_over(engine, tmp_path, capsys):
    other = tmp_path / "model.onnx"
    other.write_bytes(b"\x08\x07")
    assert run(["report", str(engine), "-o", str(other)]) == 2
    assert "is there already, and is no page" in capsys.readouterr().err
    assert other.read_bytes() == b"\x08\x07"


@pytest.mark.report
@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("resnet18.engine", "would overwrite"),
        ("resnet18.engine.json", "would overwrite"),
        (".", "is a folder"),
        ("no/such/folder/report.html", "no such folder"),
    ],
)
def test_an_output_that_cannot_be(engine, output, message, capsys):
    assert run(["report", str(engine), "-o", str(engine.parent / output)]) == 2
    assert message in capsys.readouterr().err


def test_an_engine_that_is_not_there(tmp_path, capsys):
    assert run(["report", str(tmp_path / "no.engine")]) == 3
    assert "there is no such engine" in capsys.readouterr().err


def test_an_engine_without_a_manifest(engine, capsys):
    engine.with_name("resnet18.engine.json").unlink()
    assert run(["report", str(engine)]) == 3
    assert "the engine has no manifest" in capsys.readouterr().err


def test_a_model_is_no_engine(tmp_path, capsys):
    model = tmp_path / "m.onnx"
    model.write_bytes(b"")
    assert run(["report", str(model)]) == 3
    said = capsys.readouterr().err
    assert "this is an ONNX model, and no engine" in said
    assert f"trtnorm build {model}" in said


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ('{"format": 99}', "no manifest of format"),
        ('{"format": 1}', "the manifest lacks"),
        ("[]", "no manifest of format"),
    ],
)
def test_what_is_no_manifest(engine, text, message, capsys):
    engine.with_name("resnet18.engine.json").write_text(text)
    assert run(["report", str(engine)]) == 3
    assert message in capsys.readouterr().err
    assert not engine.with_name("resnet18.engine.html").exists()


def test_without_the_extra_the_message_says_how_to_install_it(engine, monkeypatch, capsys):
    monkeypatch.setattr("trtnorm_cli.report.page.write.find_spec", lambda name: None)
    assert run(["report", str(engine)]) == 2
    error = capsys.readouterr().err
    assert "Jinja2, grandalf, vl-convert-python are not installed" in error
    assert "pip install 'trtnorm[report]'" in error


@pytest.mark.report
@pytest.mark.rtx
def test_a_build_writes_it_too_and_refuses_a_bad_name_before_any_work(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    nodes = "c = Conv(x, w) [bn1] y = BatchNormalization(c, gamma, beta, mu, var)"
    graph = f"g (float[1, 2, 9, 9] x) => (float[1, 4, 7, 7] y) {{ {nodes} }}"
    saved(parse(graph, {"w": random(4, 2, 3, 3), **batchnorm(4)}), tmp_path / "m.onnx")
    assert run(["build", "m.onnx", "-o", "m.engine", "--report", "m.onnx"]) == 2
    assert not Path("m.engine").exists()
    assert run(["build", "m.onnx", "-o", "m.engine", "--report", "m.html", "-q"]) == 0
    assert capsys.readouterr().out.splitlines() == ["m.engine", "m.engine.json", "m.html"]
    assert "fold-batchnorm-conv" in Path("m.html").read_text()
