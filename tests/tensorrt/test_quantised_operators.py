"""Models that are quantised in a way which TensorRT does not take are refused before any work is spent on them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

from tests.models import saved
from trtnorm_cli.cli import run
from trtnorm_cli.errors import TensorRTRefusal
from trtnorm_cli.onnx_model import quantised_nodes as quantised_nodes_module
from trtnorm_cli.onnx_model.quantised_nodes import quantised_nodes
from trtnorm_cli.tensorrt import quantised_operators
from trtnorm_cli.tensorrt.manifest import Manifest
from trtnorm_cli.tensorrt.operators import ask_operators
from trtnorm_cli.tensorrt.quantised_operators import require_known_quantisation

QUANTISE = "q, s, z = DynamicQuantizeLinear(x)"
PRODUCT = "[mm] i = MatMulInteger(q, w, z) f = Cast <to=1>(i) y = Mul(f, s)"
WEIGHTS = "<int8[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}, float[2, 4] c = {1, 2, 3, 4, 5, 6, 7, 8}>"


def model(graph: str, functions: str = "") -> onnx.ModelProto:
    opsets = '"" : 17, "com.microsoft" : 1'
    return parser.parse_model(f"<ir_version: 8, opset_import: [{opsets}]> g {graph} {functions}")


DYNAMIC = model(f"(float[2, 4] x) => (float[2, 2] y) {WEIGHTS} {{ [dq] {QUANTISE} {PRODUCT} }}")


@pytest.fixture
def refusing(monkeypatch):
    """A parser that has none of the operators."""
    monkeypatch.setattr(quantised_operators, "ask_operators", lambda probes, backend: dict.fromkeys(probes, False))


def test_the_operators_are_named_and_counted(refusing):
    with pytest.raises(TensorRTRefusal) as caught:
        require_known_quantisation(DYNAMIC, None, "m.onnx")
    assert caught.value.exit_code == 5
    assert "1 DynamicQuantizeLinear, 1 MatMulInteger" in caught.value.summary
    assert caught.value.where == "m.onnx\nnodes dq, mm"
    assert "\ndynamic_quantization: float\n" in caught.value.hint
    assert "give --dynamic-quantization float" in caught.value.hint
    assert "the float model" in caught.value.hint
    assert "QuantFormat.QDQ" in caught.value.hint


def test_what_a_rule_takes_is_not_refused(refusing):
    require_known_quantisation(DYNAMIC, None, "m.onnx", rewritten=quantised_nodes_module.DYNAMIC)


def test_what_a_rule_left_is_refused_with_its_reason(refusing):
    with pytest.raises(TensorRTRefusal) as caught:
        require_known_quantisation(DYNAMIC, None, "m.onnx", reasons=["r at mm: why"], asked_for=quantised_nodes_module.DYNAMIC)
    assert caught.value.where.splitlines()[-1] == "r at mm: why"
    assert "dynamic_quantization" not in caught.value.hint


@pytest.mark.parametrize(("graph", "functions"), [
    (f"(float[2, 4] x) => (float[2, 4] y) {WEIGHTS} {{ q, s, z = DynamicQuantizeLinear(c) d = DequantizeLinear(q, s, z) "
     "y = Add(x, d) }", ""),
    (f"(float[2, 4] x) => (float[2, 4] y) {{ {QUANTISE} y = Relu(x) }}", ""),
    ("(float[2, 4] x) => (float[2, 4] y) { y = com.microsoft.QLinearAdd(x, x) }",
     '<domain: "com.microsoft", opset_import: ["" : 17]> QLinearAdd (a, b) => (c) { c = Add(a, b) }'),
    ("(float[2, 4] x, float s, int8 z) => (float[2, 4] y) { q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }", ""),
    ("(float[2, 4] x) => (float[2, 4] y) { y = com.microsoft.Gelu(x) }", ""),
], ids=["of constants", "that nothing reads", "a function of the model", "Q/DQ", "not quantised"])  # fmt: skip
def test_models_that_tensorrt_may_take_are_not_refused(refusing, graph, functions):
    made = model(graph, functions)
    assert quantised_nodes(made) == []
    require_known_quantisation(made, None, "m.onnx")


def test_a_tensor_of_an_outer_graph_counts_as_read(refusing):
    branches = "<then_branch = t () => (float[2, 4] a) { a = Relu(d) }, else_branch = e () => (float[2, 4] b) { b = Neg(x) }>"
    inner = f"(float[2, 4] x, bool c) => (float[2, 4] y) {{ {QUANTISE} d = DequantizeLinear(q, s, z) y = If(c) {branches} }}"
    assert [node.op_type for node in quantised_nodes(model(inner))] == ["DynamicQuantizeLinear"]


def test_weights_alone(refusing):
    made = model("(float[2, 4] x, float[2, 4] w) => (float[2, 4] y) { y = com.microsoft.MatMulBnb4(x, w) }")
    with pytest.raises(TensorRTRefusal) as caught:
        require_known_quantisation(made, None, "m.onnx")
    assert caught.value.hint == "only its weights are quantised: build from the float model that it was made from"


def test_a_parser_that_has_the_operator_is_believed(monkeypatch):
    asked = []

    def ask(probes, backend):
        asked.extend(probes)
        return dict.fromkeys(probes, True)

    monkeypatch.setattr(quantised_operators, "ask_operators", ask)
    require_known_quantisation(DYNAMIC, None, "m.onnx")
    assert asked == ["DynamicQuantizeLinear", "MatMulInteger"]


def test_without_an_answer_the_build_itself_will_tell():
    assert ask_operators({"MatMulInteger": DYNAMIC}, "no-such-backend") == {"MatMulInteger": True}


@pytest.mark.rtx
def test_what_the_real_parser_has():
    """Held against TensorRT for RTX 1.7; where a later one has more, nothing but this test needs to change."""
    nodes = [onnx.helper.make_node(name, ["x"], ["y"]) for name in quantised_operators._MODELS]
    contributed = ("QLinearAdd", "QAttention", "QGemm", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "MatMulNBits")
    nodes += [onnx.helper.make_node(name, ["x"], ["y"], domain="com.microsoft") for name in contributed]
    found = ask_operators(quantised_operators._probes(nodes), "tensorrt-rtx")
    assert {name for name, taken in found.items() if taken} == {"MatMulNBits"}


@pytest.mark.rtx
def test_a_build_is_refused_before_anything_is_rewritten(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    dynamic = model(f"(float[N, 4] x) => (float[N, 2] y) {WEIGHTS} {{ {QUANTISE} {PRODUCT} }}")
    saved(dynamic, tmp_path / "m.onnx")
    assert run(["build", "m.onnx"]) == 5
    shown = capsys.readouterr().err
    assert "1 DynamicQuantizeLinear, 1 MatMulInteger" in shown
    assert "rewriting" not in shown
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


@pytest.mark.rtx
@pytest.mark.parametrize(("line", "options"), [
    ("dynamic_quantization: float", []),
    ("", ["--dynamic-quantization", "float"]),
    ("dynamic_quantization: as-written", ["--dynamic-quantization", "float"]),
], ids=["profile", "option", "option before profile"])  # fmt: skip
def test_a_build_with_floats(tmp_path, monkeypatch, capsys, line, options):
    monkeypatch.chdir(tmp_path)
    dynamic = model(f"(float[N, 4] x) => (float[N, 2] y) {WEIGHTS} {{ {QUANTISE} {PRODUCT} }}")
    saved(dynamic, tmp_path / "m.onnx")
    (tmp_path / "p.yaml").write_text(f"{line}\ndims: {{N: {{min: 1, opt: 4, max: 8}}}}\n")
    assert run(["build", "m.onnx", "-p", "p.yaml", *options]) == 0, capsys.readouterr().err
    shown = capsys.readouterr().out
    assert shown.count("dynamic_quantization: float") == 3  # in the table, and in two warnings
    manifest = Manifest.load(tmp_path / "m.engine.json")
    (effect,) = manifest.effects
    assert effect.asked == "dynamic_quantization: float"
    assert effect.way == "in float64"
    assert 0 < effect.outputs["y"].relative_max < 0.02
    assert manifest.comparison is not None
    assert [candidate.state for candidate in manifest.comparison.candidates] == ["passed", "passed"]


@pytest.mark.rtx
def test_a_build_of_what_no_rule_takes_is_refused_with_the_reason(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    body = f"{QUANTISE} i = MatMulInteger(q, w, z) f = Cast <to=1>(i) y = Relu(f)"
    saved(model(f"(float[2, 4] x) => (float[2, 2] y) {WEIGHTS} {{ {body} }}"), tmp_path / "m.onnx")
    (tmp_path / "p.yaml").write_text("dynamic_quantization: float\n")
    assert run(["build", "m.onnx", "-p", "p.yaml"]) == 5
    assert "1 DynamicQuantizeLinear, 1 MatMulInteger" in capsys.readouterr().err


def test_the_option_is_for_rewriting_and_comparing_too(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    saved(DYNAMIC, tmp_path / "m.onnx")
    asked = ["--dynamic-quantization", "float"]
    assert run(["rewrite", "m.onnx", "-o", "fixed.onnx", *asked]) == 0
    assert [node.op_type for node in onnx.load(tmp_path / "fixed.onnx").graph.node] == ["MatMul"]
    assert run(["compare", "m.onnx", "fixed.onnx", *asked]) == 2
    assert "candidates fixed.onnx" in capsys.readouterr().err


@pytest.mark.rtx
def test_a_comparison_with_floats(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    saved(DYNAMIC, tmp_path / "m.onnx")
    assert run(["compare", "m.onnx", "--dynamic-quantization", "float"]) == 0, capsys.readouterr().err


def test_inspect_says_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    saved(DYNAMIC, tmp_path / "m.onnx")
    assert run(["inspect", "m.onnx"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "quantised dynamically (1 DynamicQuantizeLinear, 1 MatMulInteger)" in shown
    assert "`dynamic_quantization: float`" in shown


def test_init_says_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved(DYNAMIC, tmp_path / "m.onnx")
    assert run(["init", "m.onnx", "-o", "p.yaml"]) == 0
    assert "`dynamic_quantization: float`" in (tmp_path / "p.yaml").read_text().replace("\n# ", " ")


@pytest.mark.rtx
def test_what_folds_away_is_built(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    made = model("(float[2, 2] x) => (float[2, 2] y) <int8[2, 2] w = {1, 2, 3, 4}> "
                 "{ i = MatMulInteger(w, w) f = Cast <to=1>(i) y = Add(x, f) }")  # fmt: skip
    saved(made, tmp_path / "m.onnx")
    assert run(["build", "m.onnx", "-q"]) == 0, capsys.readouterr().err
    assert np.fromfile("m.engine", np.uint8).size > 1000
