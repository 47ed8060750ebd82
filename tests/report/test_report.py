"""What is shown of models, rewritings and builds."""

from __future__ import annotations

import io
import json
import re
import sys

import numpy as np
import onnx
import pytest

from tests.models import batchnorm, parse, random, saved
from trtnorm_cli.cli import run
from trtnorm_cli.evaluate.metrics import distance
from trtnorm_cli.onnx_model.normalization_nodes import normalizations
from trtnorm_cli.profile.fit import ProfileRecord, RangeRecord
from trtnorm_cli.records.comparison import OutputVerdict
from trtnorm_cli.report.build import _check_text, _profile_text, _worst
from trtnorm_cli.report.console import bytes_text, console, counts_text, shape_text, table
from trtnorm_cli.report.notes import print_notes
from trtnorm_cli.report.verbosity import Verbosity
from trtnorm_cli.rewrite.describe import has_a_layer
from trtnorm_cli.rewrite.rule import Change, Check

MODEL = parse(
    "g (float[N, 2, 9, 9] x, int64[K] ids) => (float[N, 4, 7, 7] y, float[N, 2, 9, 9] z) {"
    " [conv] c = Conv(x, w) [bn] y = BatchNormalization(c, gamma, beta, mu, var)"
    " [inorm] z = InstanceNormalization <epsilon=0.25>(x, s, b) }",
    {"w": random(4, 2, 3, 3), "s": random(2), "b": random(2), **batchnorm(4)},
)


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    MODEL.producer_name, MODEL.producer_version = "pytorch", "2.13"
    return saved(MODEL, tmp_path / "m.onnx")


def lines(text: str) -> list[str]:
    """Lines with runs of blanks shortened, so that column widths do not matter."""
    return [re.sub(r"\s{2,}", "  ", line).strip() for line in text.splitlines() if line.strip()]


def test_a_model_as_text_in_full(model, capsys):
    assert run(["inspect", "m.onnx", "--all"]) == 0
    shown = lines(capsys.readouterr().out)
    assert shown[0] == "m.onnx: pytorch 2.13, opset ai.onnx 17"
    assert shown[1] == "3 nodes: 1 Conv, 1 BatchNormalization, 1 InstanceNormalization"
    assert "input  x  float  Nx2x9x9" in shown
    assert "input  ids  int64  K" in shown
    assert "output  y  float  Nx4x7x7" in shown
    bn = next(line for line in shown if line.startswith("bn  "))
    assert bn.split("  ") == [
        "bn", "BatchNormalization", "Nx4x7x7 float", "4", "4 × 4 float", "1e-05", "Conv conv", "fold-batchnorm-conv"
    ]  # fmt: skip
    inorm = next(line for line in shown if line.startswith("inorm  "))
    assert inorm.split("  ")[:7] == [
        "inorm", "InstanceNormalization", "Nx2x9x9 float", "2", "2 × 2 float", "0.25", "input x"
    ]  # fmt: skip


def many_norms(count: int) -> str:
    """A chain of LayerNormalizations with long names."""
    name = "/model/encoder/layers.{}/attention/output/LayerNorm/LayerNormalization"
    body = " ".join(f'["{name.format(i)}"] t{i + 1} = LayerNormalization(t{i}, s, b)' for i in range(count))
    return f"g (float[batch_size, sequence_length, 8] t0) => (float[batch_size, sequence_length, 8] t{count}) {{ {body} }}"


@pytest.mark.parametrize("columns", [80, 120])
def test_thirty_norms_are_a_few_lines(tmp_path, monkeypatch, capsys, columns):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(columns))
    saved(parse(many_norms(30), {"s": random(8), "b": random(8)}), tmp_path / "m.onnx")
    assert run(["inspect", "m.onnx"]) == 0
    shown = capsys.readouterr().out
    assert "input   t0    float  [batch_size, sequence_length, 8]" in shown, "the names that dims: needs, whole"
    assert "  30 × LayerNormalization (8), /model/" in shown
    assert "/output/LayerNorm/LayerNormalization: left as it is: TensorRT has a layer for it" in " ".join(shown.split())
    assert "layernorm-further-outputs" not in shown
    assert len(shown.splitlines()) < 14
    assert all(len(line) <= columns for line in shown.splitlines())
    assert run(["inspect", "m.onnx", "--all"]) == 0
    assert capsys.readouterr().out.count("left as it is: TensorRT has a layer for it") == 30


@pytest.mark.parametrize(("node", "weights", "opset", "left"), [
    ("y = LayerNormalization(x, s, b)", (4,), 17, True),
    ("y = LayerNormalization(x, h, h)", (4,), 17, False),
    ("y, m = LayerNormalization(x, s, b) n = Neg(m)", (4,), 17, False),
    ("y = InstanceNormalization(x, s, b)", (3,), 17, True),
    ("y = InstanceNormalization(x, s, b)", (5,), 17, False),
    ("y = GroupNormalization <num_groups=3> (x, s, b)", (3,), 21, True),
    ("y = GroupNormalization <num_groups=1> (x, s, b)", (3,), 21, False),
    ("y = LpNormalization(x)", (4,), 17, False),
])  # fmt: skip
def test_a_node_that_tensorrt_has_a_layer_for_is_said_to_be_left(node, weights, opset, left):
    values = {"s": random(*weights), "b": random(*weights), "h": random(*weights, dtype=np.float16)}
    made = parse(f"g (float[2, 3, 4, 4] x) => (float[2, 3, 4, 4] y) {{ {node} }}", values, opset=opset)
    (norm,) = normalizations(onnx.shape_inference.infer_shapes(made))
    assert has_a_layer(norm) == left


def test_fused_normalizations_of_onnx_runtime_are_listed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    made = parse("g (float[N, 4, 8] x, float[N, 4, 8] r) => (float[N, 4, 8] y) "
                 "{ [skip] y = com.microsoft.SkipLayerNormalization <epsilon=0.25> (x, r, s, b) }",
                 {"s": random(8), "b": random(8)})  # fmt: skip
    made.opset_import.add(domain="com.microsoft", version=1)
    saved(made, tmp_path / "m.onnx")
    assert run(["inspect", "m.onnx", "--json"]) == 0
    (norm,) = json.loads(capsys.readouterr().out)["normalizations"]
    assert (norm["operator"], norm["name"], norm["epsilon"], norm["channels"]) == ("SkipLayerNormalization", "skip", 0.25, 8)
    assert [p["role"] for p in norm["parameters"]] == ["scale", "bias"]
    assert norm["build"] == ["skip-layernorm"]


def test_a_model_without_normalizations_says_so_and_one_with_pieces_does_not(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    saved(parse("g (float[N, 4] x) => (float[N, 4] y) { y = Relu(x) }"), tmp_path / "none.onnx")
    assert run(["inspect", "none.onnx"]) == 0
    assert "no normalizations" in capsys.readouterr().out
    pieces = ("m = ReduceMean <axes=[-1]> (x) d = Sub(x, m) q = Mul(d, d) v = ReduceMean <axes=[-1]> (q) e = Add(v, eps) "
              "r = Sqrt(e) n = Div(d, r) y = Mul(n, s)")  # fmt: skip
    weights = {"s": random(8), "eps": np.array(1e-5, np.float32)}
    saved(parse(f"g (float[N, 4, 8] x) => (float[N, 4, 8] y) {{ {pieces} }}", weights), tmp_path / "pieces.onnx")
    assert run(["inspect", "pieces.onnx"]) == 0
    shown = capsys.readouterr().out
    assert "no normalization" not in shown
    assert "Normalizations in pieces" in shown


@pytest.mark.parametrize("unknown", ["x", "r"])
def test_norms_in_pieces_of_data_without_a_rank_are_those_of_the_likeliest(tmp_path, monkeypatch, capsys, unknown):
    """Where others are found without, nothing is assumed."""
    monkeypatch.chdir(tmp_path)
    found = parse(
        "g (float[N, 3, H, W] x, float[R] r) => (float[N, 3, H, W] y, float[R] z) { z = Neg(r)"
        " m = ReduceMean<axes = [2, 3]>(x) c = Sub(x, m) s = Mul(c, c)"
        " v = ReduceMean<axes = [2, 3]>(s) e = Add(v, eps) d = Sqrt(e) y = Div(c, d) }",
        {"eps": np.array(1e-5, np.float32)},
    )
    for value in (found.graph.input, found.graph.output):
        value[0 if unknown == "x" else 1].type.tensor_type.ClearField("shape")
    saved(found, tmp_path / "m.onnx")
    assert run(["inspect", "m.onnx", "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert [norm["kind"] for norm in described["composite_normalizations"]] == ["InstanceNorm"]
    assumed = ["those of 4 dimensions: the file does not say how many x has" in line for line in described["warnings"]]
    assert any(assumed) == (unknown == "x")
    assert unknown == "x" or not any("those of" in line for line in described["warnings"])


def test_a_model_as_json(model, capsys):
    assert run(["inspect", "m.onnx", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["file"], found["producer"], found["opset"]) == ("m.onnx", "pytorch 2.13", {"ai.onnx": 17})
    assert found["inputs"][0] == {"name": "x", "dtype": "float", "shape": ["N", 2, 9, 9]}
    assert [n["name"] for n in found["normalizations"]] == ["bn", "inorm"]
    assert found["normalizations"][0]["build"] == ["fold-batchnorm-conv"]
    assert found["normalizations"][1]["attributes"] == {"epsilon": 0.25}


def test_values_that_json_does_not_know(model, tmp_path, capsys):
    """NaN is no JSON; an epsilon of NaN is what the file says."""
    spoilt = parse(
        "g (float[N, 2, 9, 9] x) => (float[N, 2, 9, 9] y) { y = InstanceNormalization(x, s, b) }",
        {"s": random(2), "b": random(2)},
    )
    spoilt.graph.node[0].attribute.add(name="epsilon", type=1, f=float("nan"))
    saved(spoilt, tmp_path / "nan.onnx")
    assert run(["inspect", "nan.onnx"]) == 0
    capsys.readouterr()
    assert run(["inspect", "nan.onnx", "--json"]) == 0

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    json.loads(capsys.readouterr().out, parse_constant=refuse)


def test_a_rewriting_as_text_and_json(model, capsys):
    assert run(["rewrite", "m.onnx", "-o", "fixed.onnx", "--explain"]) == 0
    shown = lines(capsys.readouterr().out)
    change = next(line for line in shown if line.startswith("fold-batchnorm-conv"))
    assert re.fullmatch(r"fold-batchnorm-conv  bn  \d\.\de-\d\d  \d\.\de-\d\d", change)
    assert any(line.startswith("BatchNormalization  bn  fold-batchnorm-conv") for line in shown)
    assert any(line.startswith("InstanceNormalization  inorm  ") for line in shown)
    assert shown[-2:] == ["wrote fixed.onnx", "next: trtnorm init fixed.onnx -o fixed.yaml"]
    assert run(["rewrite", "m.onnx", "--dry-run", "--json"]) == 0
    printed = capsys.readouterr()
    assert "fold-batchnorm-conv" in printed.err, "everything else goes to stderr"
    found = json.loads(printed.out)
    assert [n["node"] for n in found["normalizations"]] == ["bn", "inorm"]
    assert found["source"]["file"] == "m.onnx"


def test_a_refusal_is_shown_with_every_rules_reason(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    refused = parse(
        "g (float[N, 4, 9, 9] x) => (float[N, 4, 9, 9] y) { [bn] y = BatchNormalization(x, gamma, beta, mu, var) }",
        {**batchnorm(4), "var": -np.ones(4, np.float32)},
    )
    saved(refused, tmp_path / "m.onnx")
    assert run(["inspect", "m.onnx", "--json"]) == 0
    (norm,) = json.loads(capsys.readouterr().out)["normalizations"]
    assert any("variance + epsilon of bn is not positive in channel 0" in reason for reason in norm["build"])
    assert "fold-batchnorm-conv: bn is fed by x, an input of its graph, not by Conv" in norm["build"]


def change(rule: str, node: str, max_rel: float) -> Change:
    check = Check(max_rel, max_rel, 1e-5, max_rel / 10, 1e-6, 0, {}, "ONNX Runtime and float64", True)
    return Change(rule, node, (node,), (node,), "a test", check)


def test_the_worst_check_of_a_build():
    changes = [change("a", "n1", 1e-7), change("b", "n2", 3e-6), change("a", "n3", 2e-7)]
    assert _check_text(changes) == "at most 3.0e-06 of the largest value (n2), 3.0e-07 in float64"
    assert _check_text([]) == "nothing was changed"


def test_the_shapes_of_a_profile():
    shapes = RangeRecord((1, 3), (2, 3), (4, 3))
    assert _profile_text(ProfileRecord("small", {"x": shapes, "z": shapes})) == "x 1x3 / 2x3 / 4x3; z 1x3 / 2x3 / 4x3"


@pytest.mark.parametrize(("shape", "text"), [
    (("N", 3, 224, None), "Nx3x224x?"), ((), "scalar"), (None, "?"), ((1,), "1"),
    (("batch_size", 3, None), "[batch_size, 3, ?]"), (("N", "(H//4)", "2*W + 1"), "[N, H//4, 2*W + 1]"),
    (("(a + 1)*(b)", 2), "[(a + 1)*(b), 2]"),
])  # fmt: skip
def test_shapes(shape, text):
    assert shape_text(shape) == text


@pytest.mark.parametrize(("count", "text"), [
    (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 << 20, "5.0 MiB"), (3 << 30, "3.0 GiB"), (5 << 40, "5120.0 GiB"),
])  # fmt: skip
def test_sizes(count, text):
    assert bytes_text(count) == text


def test_counts():
    assert counts_text({}) == "none"
    assert counts_text({"a": 3, "b": 1}) == "3 a, 1 b"
    assert counts_text({str(n): 10 - n for n in range(10)}, most=2) == "10 0, 9 1, 36 others"


def test_text_is_not_markup(capsys):
    """Names with brackets are no styles, and colons no emoji."""
    out = console()
    out.print(table("", ("name",), [("[bold]layer[/bold] :warning:",)]))
    out.print("[red]x[/red]")
    shown = capsys.readouterr().out
    assert "[bold]layer[/bold] :warning:" in shown
    assert "[red]x[/red]" in shown


PROSE = "the outputs differ in the last bits and nothing is wrong with the model that was given to the program"


@pytest.mark.parametrize(("columns", "width"), [("", 80), ("72", 72), ("120", 120), ("0", 80), ("wide", 80), ("3", 20)])
def test_lines_without_a_terminal_are_as_long_as_columns_says(monkeypatch, capsys, columns, width):
    monkeypatch.setenv("COLUMNS", columns)
    console().print(f"note: {PROSE}")
    console().print(table("Title", ("name", "what"), [("a", PROSE), ("b", "short")]))
    shown = capsys.readouterr().out
    assert all(len(line) <= width for line in shown.splitlines())
    assert all(line == line.rstrip() for line in shown.splitlines()), "no blanks at the ends of lines"
    assert " ".join(shown.split()).count(PROSE.split()[-1]) == 2
    assert "\x1b" not in shown


def test_a_path_is_never_broken(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    path = "/a folder/" + "very-long-name/" * 8 + "model.onnx"
    console().print(f"engine    {path}", soft_wrap=True)
    console().print(f"note: what is written is {path.replace(' ', '_')}, and more")
    console().print(table("", ("name", "path"), [("model", path.replace(" ", "-"))]))
    shown = capsys.readouterr().out
    assert f"engine    {path}\n" in shown
    assert path.replace(" ", "_") in shown
    assert path.replace(" ", "-") in shown


def test_a_table_whose_words_do_not_fit_is_written_as_blocks(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    made = table("Nodes", ("operator", "name", "build"), [("InstanceNormalization", "/encoder/layer.0/norm", "left as it is")])
    console().print(made)
    assert capsys.readouterr().out.splitlines() == [
        "Nodes", "InstanceNormalization", "  name: /encoder/layer.0/norm", "  build: left as it is",
    ]  # fmt: skip
    monkeypatch.setenv("COLUMNS", "80")
    console().print(made)
    assert capsys.readouterr().out.splitlines() == [
        "Nodes",
        "operator               name                   build",
        "InstanceNormalization  /encoder/layer.0/norm  left as it is",
    ]


def test_a_table_without_headings_has_no_empty_line(capsys):
    console().print(table("", ("", ""), [("engine size", "3 MiB")]))
    assert capsys.readouterr().out == "engine size  3 MiB\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_no_color(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    for colours in (True, False):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stdout", terminal)
        monkeypatch.setenv("TERM", "xterm-256color")
        if not colours:
            monkeypatch.setenv("NO_COLOR", "1")
        console().print("WARNING", style="bold yellow")
        assert ("33" in terminal.getvalue()) == colours


@pytest.mark.parametrize(("note", "actable"), [
    ("Make sure input tokens has Int64 binding.", False),
    ("/up/Resize: Resize scale factors are not set. Output dims are set instead.", False),
    ("bn1, bn2: computed from constants only, and left to the rules", False),
    ("fill, w: constant, but its value is too large to be stored", False),
    ("TensorRT was started with a plugin library that registers nothing", True),
])  # fmt: skip
def test_notes_on_which_nobody_can_act_are_for_verbose(capsys, note, actable):
    for verbosity in Verbosity:
        print_notes(console(), [note, note], verbosity)
        shown = capsys.readouterr().out
        wanted = verbosity is Verbosity.VERBOSE or (actable and verbosity is Verbosity.NORMAL)
        assert shown == (f"note: {note}\n" if wanted else "")


def test_what_is_said_of_many_nodes_is_said_once(capsys):
    several = [f"/up{i}/Conv: its padding is large" for i in range(4)]
    print_notes(console(), ["a: once", *several, "a profile: of two words", "b: once"], Verbosity.NORMAL)
    shown = capsys.readouterr().out.splitlines()
    assert shown == [
        "note: a: once",
        "note: b: once",
        "note: /up0/Conv, /up1/Conv and 2 more: its padding is large",
        "note: a profile: of two words",
    ]
    print_notes(console(), several, Verbosity.VERBOSE)
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_long_cells_are_not_cut(capsys):
    console().print(table("", ("a", "b"), [("x" * 300, "y" * 300)]))
    shown = capsys.readouterr().out
    assert shown.count("x") == 300
    assert shown.count("y") == 300


def verdict(passed: bool | None, share: float | None) -> OutputVerdict:
    native = distance(np.ones(3), np.ones(3))
    return OutputVerdict("default min", "y", native, 2e-3, 3e-8, 1e-7, None, None, share, passed, "")


@pytest.mark.parametrize(
    ("verdicts", "text"),
    [
        ([verdict(True, 0.94), verdict(True, 0.1)], " (float64: 3.0e-08, as run: 2.0e-03, within rounding)"),
        ([verdict(False, 12.3), verdict(True, 0.1)], " (float64: 3.0e-08, as run: 2.0e-03, 12 times what rounding explains)"),
        ([verdict(True, None)], " (float64: 3.0e-08, as run: 2.0e-03)"),
        ([verdict(None, 0.94)], ""),
        ([], ""),
    ],
    ids=["passed", "failed", "held to a given tolerance", "not judged", "nothing"],
)
def test_errors_are_held_against_rounding_where_they_were_judged(verdicts: list[OutputVerdict], text: str) -> None:
    assert _worst(verdicts) == text
