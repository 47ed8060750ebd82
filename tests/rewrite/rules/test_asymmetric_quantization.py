"""asymmetric-quantization: quantised activations that TensorRT does not have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

from tests.models import operators, random
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.quantised import by_onnxruntime, model
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.rewrite.rules import asymmetric_quantization as rule

NAME = rule.RULE.name
FLOATS = ["Div", "Round", "Clip", "Mul"]
PAIR = "q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z)"
X = random(2, 3, 4) * np.float32(3)


def pair(zero=131, dtype: type = np.uint8, body: str = PAIR, scale=0.02, opset: int = 17, **held) -> onnx.ModelProto:
    weights = {"s": np.asarray(scale, np.float32), "z": np.asarray(zero, dtype), **held}
    return model(f"(float[2, 3, 4] x) => (float[] y) {{ {body} }}", weights, opset)


BY_CHANNEL = {"scale": [0.01, 0.02, 0.03], "zero": [3, 128, 250]}
FORMS = {
    "unsigned": (pair(), FLOATS),
    "unsigned from 0, of which TensorRT makes signed ones": (pair(0), FLOATS),
    "signed with a zero point": (pair(-5, np.int8), FLOATS),
    "opset 11": (pair(opset=11), FLOATS),
    "the middle": (pair(128), ["QuantizeLinear", "DequantizeLinear"]),
    "the middle by channel": (pair([128] * 3, scale=[0.01, 0.02, 0.03]), ["QuantizeLinear", "DequantizeLinear"]),
    "by channel": (pair(**BY_CHANNEL), ["Div", "Round", "Max", "Min", "Mul"]),
    "of 16 bits": (pair(30000, np.uint16, scale=0.0002, opset=21), FLOATS),
    "signed of 16 bits": (pair(0, np.int16, scale=0.0002, opset=21), FLOATS),
    "moved": (
        pair(body="q = QuantizeLinear(x, s, z) t = Transpose <perm=[2, 0, 1]>(q) y = DequantizeLinear(t, s, z)"),
        ["Div", "Round", "Clip", "Transpose", "Mul"],
    ),
    "the middle, moved": (
        pair(128, body="q = QuantizeLinear(x, s, z) t = Transpose <perm=[2, 0, 1]>(q) y = DequantizeLinear(t, s, z)"),
        ["QuantizeLinear", "Transpose", "DequantizeLinear"],
    ),
    "dequantised otherwise": (
        pair(body="q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, t, v)", t=np.float32(0.5), v=np.uint8(7)),
        ["Div", "Round", "Clip", "Add", "Mul"],
    ),
    "without a zero point": (pair(body="q = QuantizeLinear(x, s) y = DequantizeLinear(q, s)"), FLOATS),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form(rewrite, form):
    before, left = FORMS[form]
    result = rewrite(before, rules=(rule.RULE,))
    assert result.rules == [NAME]
    assert operators(result.model) == left
    feeds = {"x": X}
    np.testing.assert_allclose(by_onnxruntime(before, feeds)[0], by_onnxruntime(result.model, feeds)[0], rtol=1e-6, atol=1e-6)


def test_ties_and_both_ends():
    """Half to even, and every step of the range."""
    before = pair(131, scale=0.5)
    x = (np.arange(-300, 300).reshape(-1)[:24] * 0.25 + 60).astype(np.float32).reshape(2, 3, 4)
    for offset in (-130.0, -70.0, 0.0, 5.0):
        feeds = {"x": x + np.float32(offset)}
        floats = model(
            "(float[2, 3, 4] x) => (float[] y) { d = Div(x, s) r = Round(d) c = Clip(r, low, high) y = Mul(c, s) }",
            {"s": np.float32(0.5), "low": np.float32(-131), "high": np.float32(124)},
        )
        np.testing.assert_array_equal(by_onnxruntime(before, feeds)[0], by_onnxruntime(floats, feeds)[0])


def test_what_several_read(rewrite):
    body = "q = QuantizeLinear(x, s, z) a = DequantizeLinear(q, s, z) b = DequantizeLinear(q, s, z) y = Sub(a, b)"
    result = rewrite(pair(body=body), rules=(rule.RULE,))
    assert result.rules == [NAME, NAME]
    assert not any(change.compared_with_reference for change in result.outcome.changes)
    assert "QuantizeLinear" not in operators(result.model)


def test_only_what_loses_integer_kernels_warns(rewrite):
    (signed,) = rewrite(pair(128), rules=(rule.RULE,)).outcome.changes
    (floats,) = rewrite(pair(0), rules=(rule.RULE,)).outcome.changes
    assert signed.warning == ""
    assert "Quantise symmetrically" in floats.warning


@pytest.mark.parametrize("wrong", [{"scale": 0.0201}, {"zero": 130}])
def test_a_wrong_parameter_is_caught(rewrite, wrong):
    def replacement(m):
        made = rule.in_what_tensorrt_has(m)
        clip, scale = made.inputs
        values = {"scale": replace(scale, value=np.float32(wrong.get("scale", scale.value)))}
        if "zero" in wrong:
            clip = replace(clip, inputs=(clip.inputs[0], replace(clip.inputs[1], value=np.float32(-130)), clip.inputs[2]))
        return replace(made, inputs=(clip, values["scale"]))

    result = rewrite(pair(0 if "zero" in wrong else 131), rules=(replace(rule.RULE, replacement=replacement),))
    assert result.outcome.changes == []
    assert len(result.outcome.failed) == 1


RUN_TIME = "(float[2] x, float s) => (float[] y) { q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, t, z) }"
MOVED = "q = QuantizeLinear(x, s, z) u = Transpose <perm=[1, 0, 2]>(q) y = DequantizeLinear <axis=0>(u, s, z)"
REFUSALS = [
    Refusal(
        rule.its_data_are_quantised_with_constants,
        model(RUN_TIME, {"z": np.uint8(1), "t": np.float32(1)}),
        "s, a parameter of",
    ),
    Refusal(rule.tensorrt_does_not_have_it, pair(0, np.int8), "TensorRT has the quantisation of"),
    Refusal(
        rule.parameters_are_of_float32,
        pair(body=MOVED, **BY_CHANNEL),
        "3 scales for what is moved",
    ),
    Refusal(
        rule.parameters_are_of_float32,
        model(f"(float x) => (float[] y) {{ {PAIR} }}", {
            "s": np.array(BY_CHANNEL["scale"], np.float32), "z": np.array(BY_CHANNEL["zero"], np.uint8)
        }),
        "the rank of q is 0",
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE)


def test_a_second_pass_changes_nothing(rewrite):
    twice = rewrite(rewrite(pair()).model)
    assert twice.outcome.changes == []


@pytest.mark.rtx
@pytest.mark.parametrize("zero", [0, 77, 128])
def test_tensorrt_computes_what_the_file_has(tmp_path, monkeypatch, capsys, zero):
    """Without the rule it refuses the model, or clips unsigned integers at 127."""
    from tests.models import saved
    from trtnorm_cli.cli import run

    monkeypatch.chdir(tmp_path)
    saved(pair(zero), tmp_path / "m.onnx")
    assert run(["build", "m.onnx", "-q", "--require-compare"]) == 0, capsys.readouterr().err
