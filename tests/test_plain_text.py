"""Names of strangers on a terminal: nothing in them is obeyed, and none fills the screen."""

from __future__ import annotations

import onnx
import pytest

from tests.models import batchnorm, parse, random, saved
from trtnorm_cli.cli import run
from trtnorm_cli.plain_text import shown

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\r[/red][bold]"


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("plain Größe 尺寸\tand\nlines", "plain Größe 尺寸\tand\nlines"),
        ("\x1b[2J\x07\r\x9b", "\\x1b[2J\\x07\\x0d\\x9b"),
        ("\u202egnp.exe\u2066", "\\u202egnp.exe\\u2066"),
        ("/a" * 2000, "/a" * 2000),
    ],
)
def test_what_a_terminal_would_obey_is_written_out(given, written):
    assert shown(given) == written


def test_endless_words_are_cut_and_others_stay():
    text = shown(f"before {'n' * 10_000_000} after")
    assert text == f"before {'n' * 100}…(9999800 characters)…{'n' * 100} after"


def named(name: str) -> onnx.ModelProto:
    model = parse(
        "g (float[N, 2, 7, 7] image) => (float[N, 4, 5, 5] y) { c = Conv(image, w) "
        "[norm] n = BatchNormalization(c, gamma, beta, mu, var) y = Relu(n) }",
        {"w": random(4, 2, 3, 3), **batchnorm(4)},
    )
    model.graph.node[1].name = model.graph.node[1].output[0] = model.graph.node[2].input[0] = name
    model.graph.input[0].name = model.graph.node[0].input[0] = f"{name}in"
    model.producer_name = name
    return model


@pytest.mark.parametrize("command", [["inspect", "m.onnx"], ["inspect", "--all", "m.onnx"], ["init", "--no-run", "m.onnx"]])
def test_names_in_a_model_move_no_cursor(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    saved(named(ESCAPES), tmp_path / "m.onnx")
    assert run(command) == 0
    printed = "".join(capsys.readouterr())
    assert not set("\x1b\x07\x9b\r") & set(printed)
    assert "owned" in printed


def test_names_in_an_error_move_no_cursor(tmp_path, capsys):
    model = named(ESCAPES)
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=f"{ESCAPES}{'n' * 100_000}")
    assert run(["inspect", str(saved(model, tmp_path / "m.onnx"))]) == 3
    printed = capsys.readouterr().err
    assert "\x1b" not in printed
    assert len(printed) < 1500
