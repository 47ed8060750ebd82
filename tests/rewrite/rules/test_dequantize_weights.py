"""dequantize-weights: weights of 8 bits in the form that TensorRT dequantises, or as floats."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

from tests.models import operators, random
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.quantised import by_onnxruntime, model
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.rewrite.rule import NewConstant
from trtnorm_cli.rewrite.rules import dequantize_weights as rule

NAME = rule.RULE.name
ROWS = np.random.default_rng(0).integers(0, 256, (12, 6))
NARROW = np.random.default_rng(1).integers(100, 150, (12, 6))
LOOKUP = "g = Gather(w, ids) y = DequantizeLinear(g, s, z)"
DIRECT = "d = DequantizeLinear(w, s, z) y = Gather(d, ids)"


def table(body: str = LOOKUP, values: np.ndarray = ROWS, dtype: type = np.uint8, zero=131, scale=0.02, opset: int = 17):
    held = {"w": values.astype(dtype), "s": np.float32(scale), "z": np.asarray(zero, dtype)}
    return model(f"(int64[2, 3] ids) => (float[] y) {{ {body} }}", held, opset)


def stored_types(made: onnx.ModelProto) -> dict[str, int]:
    return {tensor.name: tensor.data_type for tensor in made.graph.initializer if np.prod(tensor.dims) > 8}


PER_ROW = {"zero": np.arange(120, 132), "scale": np.linspace(0.01, 0.02, 12), "body": DIRECT.replace("(w, s", "<axis=0>(w, s")}


@pytest.mark.parametrize(("made", "left"), [
    (table(), ["Gather"]),
    (table(opset=10), ["Gather"]),
    (table(values=NARROW, zero=120), ["DequantizeLinear", "Gather"]),
    (table(values=ROWS - 128, dtype=np.int8, zero=0), ["DequantizeLinear", "Gather"]),
    (table(values=ROWS - 128, dtype=np.int8, zero=40), ["Gather"]),
    (table("g = Gather(w, ids) t = Transpose <perm=[2, 0, 1]>(g) y = DequantizeLinear(t, s, z)"), ["Gather", "Transpose"]),
    (table(DIRECT), ["Identity", "Gather"]),
    (table(DIRECT, NARROW), ["DequantizeLinear", "Gather"]),
    (table(values=NARROW, **PER_ROW), ["DequantizeLinear", "Gather"]),
    (table(values=ROWS, **{**PER_ROW, "zero": np.arange(40, 52)}), ["Identity", "Gather"]),
])  # fmt: skip
def test_every_form(rewrite, made, left):
    result = rewrite(made, rules=(rule.RULE,))
    assert result.rules == [NAME]
    assert operators(result.model) == left
    assert onnx.TensorProto.UINT8 not in stored_types(result.model).values()
    feeds = {"ids": np.array([[0, 5, 11], [3, 3, 7]])}
    np.testing.assert_allclose(by_onnxruntime(made, feeds)[0], by_onnxruntime(result.model, feeds)[0], rtol=1e-7, atol=0)


def test_rows_that_several_read(rewrite):
    body = "g = Gather(w, ids) a = DequantizeLinear(g, s, z) t = Transpose <perm=[2, 1, 0]>(g) b = DequantizeLinear(t, s, z) "
    result = rewrite(table(body + "u = Transpose <perm=[2, 1, 0]>(b) y = Sub(a, u)"), rules=(rule.RULE,))
    assert result.rules == [NAME, NAME]
    assert not any(change.compared_with_reference for change in result.outcome.changes)
    assert not by_onnxruntime(result.model, {"ids": np.array([[0, 5, 11], [3, 3, 7]])})[0].any()


def test_a_wrong_zero_point_is_caught(rewrite):
    def wrong(m):
        made = rule.in_another_type(m)
        return replace(made, inputs=(NewConstant("weight", made.inputs[0].value + np.float32(0.02)), *made.inputs[1:]))

    result = rewrite(table(), rules=(replace(rule.RULE, replacement=wrong),))
    assert result.outcome.changes == []
    assert "the outputs differ" in result.outcome.failed[0].check.reason


FLOATS = model("(float[2] x) => (float[] y) { q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }",
               {"s": np.float32(0.1), "z": np.uint8(3)})  # fmt: skip
BIASES = model("(float[2] x) => (float[] y) { d = DequantizeLinear(w, s) y = Add(x, d) }",
               {"s": np.float32(0.1), "w": np.ones(2, np.int32)})  # fmt: skip
HALF = model("(int64[2] ids) => (float16[] y) { g = Gather(w, ids) y = DequantizeLinear(g, s) }",
             {"s": np.float16(0.1), "w": np.ones((3, 2), np.int8)}, opset=19)  # fmt: skip
BLOCKS = model("(int64[2] ids) => (float[] y) { d = DequantizeLinear <axis=0, block_size=2>(w, s, z) y = Gather(d, ids) }",
               {"s": np.ones((2, 2), np.float32), "w": np.ones((4, 2), np.uint8), "z": np.ones((2, 2), np.uint8)},
               opset=21)  # fmt: skip
REFUSALS = [
    Refusal(rule.weights_are_bytes_of_the_file, BIASES, "w is of type int32"),
    Refusal(rule.tensorrt_does_not_take_them, table(DIRECT, ROWS - 128, np.int8, 0), "TensorRT takes w as it is"),
    Refusal(rule.moved_weights_have_one_scale, BLOCKS, "has a scale for each block"),
    Refusal(
        rule.moved_weights_have_one_scale,
        table("g = Gather(w, ids) y = DequantizeLinear <axis=2>(g, s, z)", zero=np.arange(6), scale=np.ones(6)),
        "6 scales for what is moved",
    ),
    Refusal(
        rule.scales_fit_the_weights,
        table(DIRECT, NARROW, scale=np.ones(4)),
        "has scales or zero points of shape [4] for data of shape [12, 6]",
    ),
    Refusal(
        rule.scales_fit_the_weights,
        table(DIRECT, NARROW, zero=np.arange(4)),
        "has scales or zero points of shape [4] for data of shape [12, 6]",
    ),
    Refusal(rule.the_result_is_float32, HALF, "is of type float16"),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE)


def test_what_is_computed_is_nothing_to_explain(rewrite):
    result = rewrite(FLOATS, rules=(rule.RULE,))
    assert result.outcome.changes == []
    assert result.outcome.rejections == ()


def test_a_second_pass_changes_nothing(rewrite):
    twice = rewrite(rewrite(table(values=NARROW)).model)
    assert twice.outcome.changes == []


@pytest.mark.rtx
def test_tensorrt_takes_the_result_and_not_the_original(tmp_path, monkeypatch, capsys):
    from tests.models import saved
    from trtnorm_cli.cli import run

    monkeypatch.chdir(tmp_path)
    body = "g = Gather(w, ids) d = DequantizeLinear(g, s, z) y = MatMul(d, m)"
    made = table(body)
    made.graph.initializer.append(onnx.numpy_helper.from_array(random(6, 5), "m"))
    saved(made, tmp_path / "m.onnx")
    assert run(["build", "m.onnx", "-q"]) == 0, capsys.readouterr().err
    assert (tmp_path / "m.engine").stat().st_size > 1000
