"""microsoft-qlinear-operators: ONNX Runtime's operators on integers, between two quantisations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

from tests.models import operators, random
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.quantised import by_onnxruntime, model, quantised
from tests.rewrite.rules.refusals import Refusal
from tests.rewrite.rules.test_qlinear_operators import steps_apart
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.rewrite.parts import qlinear
from trtnorm_cli.rewrite.rule import NewConstant
from trtnorm_cli.rewrite.rules import microsoft_qlinear_operators as rule

NAME = rule.RULE.name
MS = "com.microsoft."
FORMS = {
    "QLinearAdd": f"r = {MS}QLinearAdd(q, s, z, p, ps, pz, rs, rz)",
    "QLinearMul": f"r = {MS}QLinearMul(q, s, z, p, ps, pz, rs, rz)",
    "QLinearConcat": f"r = {MS}QLinearConcat <axis=1>(rs, rz, q, s, z, p, ps, pz, q, s, z)",
    "QLinearWhere": f"r = {MS}QLinearWhere(c, q, s, z, p, ps, pz, rs, rz)",
    "QLinearLeakyRelu": f"r = {MS}QLinearLeakyRelu <alpha=0.2>(q, s, z, rs, rz)",
    "QLinearSigmoid": f"r = {MS}QLinearSigmoid(q, s, z, one, zero)",
    "QLinearGlobalAveragePool": f"r = {MS}QLinearGlobalAveragePool(q, s, z, rs, rz)",
    "QLinearAveragePool": f"r = {MS}QLinearAveragePool <kernel_shape=[3, 2], pads=[1, 0, 1, 0]>(q, s, z, rs, rz)",
}
QUANTISED = "q = QuantizeLinear(x, s, z) p = QuantizeLinear(k, ps, pz)"


def node(form: str, opset: int = 17, **changed) -> onnx.ModelProto:
    held = {
        "s": np.float32(0.021), "z": np.uint8(120), "ps": np.float32(0.017), "pz": np.uint8(100), "rs": np.float32(0.033),
        "rz": np.uint8(90), "one": np.float32(1 / 256), "zero": np.uint8(0), "k": random(2, 3, 6, 8, seed=4),
        "c": random(2, 3, 6, 8, seed=5) > 0, **changed,
    }  # fmt: skip
    body = FORMS.get(form, form)
    return model(f"(float[2, 3, 6, 8] x) => (uint8[] r) {{ {QUANTISED} {body} }}", held, opset)


@pytest.mark.parametrize("opset", [12, 17, 21])
@pytest.mark.parametrize("form", FORMS)
def test_every_operator(rewrite, form, opset):
    before = node(form, opset)
    result = rewrite(before, rules=(rule.RULE,))
    assert result.rules == [NAME]
    assert operators(result.model)[-1] == "QuantizeLinear"
    feeds = {"x": random(2, 3, 6, 8)}
    assert steps_apart(by_onnxruntime(before, feeds)[0], by_onnxruntime(result.model, feeds)[0]) < 0.02
    exact = [evaluate_float64(made, feeds).outputs["r"] for made in (before, result.model)]
    assert steps_apart(*exact) == 0


@pytest.mark.parametrize("form", ["QLinearAdd", "QLinearMul"])
def test_without_a_zero_point_the_result_is_of_the_type_of_the_data(rewrite, form):
    held = {"z": np.int8(0), "pz": np.int8(0)}
    before = node(f'r = {MS}{form}(q, s, "", p, ps, "", rs, "")', **held)
    before.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT8
    result = rewrite(before, rules=(rule.RULE,))
    assert result.rules == [NAME]
    feeds = {"x": random(2, 3, 6, 8)}
    made = evaluate_float64(result.model, feeds).outputs["r"]
    assert made.min() < 0
    assert steps_apart(evaluate_float64(before, feeds).outputs["r"], made) == 0


@pytest.mark.parametrize("form", ["QLinearGlobalAveragePool", "QLinearAveragePool"])
def test_channels_last(rewrite, form):
    before = node(FORMS[form].replace(form + "(", form + " <channels_last=1>(").replace("<kernel", "<channels_last=1, kernel"))
    result = rewrite(before, rules=(rule.RULE,))
    assert result.rules == [NAME]
    feeds = {"x": random(2, 3, 6, 8)}
    exact = [evaluate_float64(made, feeds).outputs["r"] for made in (before, result.model)]
    assert steps_apart(*exact) == 0
    assert exact[0].shape == by_onnxruntime(before, feeds)[0].shape


def gemm(attributes: str = "", inputs: str = "q, s, z, w, ws, wz, b, rs, rz", axis: int | None = None) -> onnx.ModelProto:
    values = random(6, 16, seed=1) if "transB" in attributes else random(16, 6, seed=1)
    stored, scale, zero = quantised(values, np.int8, axis)
    held = {
        "w": stored, "ws": scale, "wz": zero, "s": np.float32(0.03), "z": np.uint8(117), "rs": np.float32(0.08),
        "rz": np.uint8(130), "b": np.arange(-300, 300, 100, np.int32),
    }  # fmt: skip
    kind = "uint8" if "rs" in inputs else "float"
    body = f"q = QuantizeLinear(x, s, z) r = {MS}QGemm {attributes}({inputs})"
    return model(f"(float[5, 16] x) => ({kind}[] r) {{ {body} }}", held)


@pytest.mark.parametrize(
    ("attributes", "axis"), [("", None), ("<transB=1>", None), ("<transB=1>", 0), ("", 1), ("<alpha=0.5>", None)]
)
def test_gemm(rewrite, attributes, axis):
    before = gemm(attributes, axis=axis)
    result = rewrite(before, rules=(rule.RULE,))
    assert result.rules == [NAME]
    feeds = {"x": random(5, 16)}
    assert steps_apart(by_onnxruntime(before, feeds)[0], by_onnxruntime(result.model, feeds)[0]) < 0.04
    exact = [evaluate_float64(made, feeds).outputs["r"] for made in (before, result.model)]
    assert steps_apart(*exact) == 0


def test_gemm_with_a_result_in_floats(rewrite):
    before = gemm(inputs="q, s, z, w, ws, wz, b")
    result = rewrite(before, rules=(rule.RULE,))
    assert operators(result.model)[-1] == "Gemm"
    feeds = {"x": random(5, 16)}
    np.testing.assert_allclose(by_onnxruntime(before, feeds)[0], by_onnxruntime(result.model, feeds)[0], rtol=1e-4, atol=1e-4)


def test_a_wrong_scale_is_caught(rewrite):
    def wrong(m):
        made = qlinear.with_floats(m)
        data, scale, zero = made.inputs
        return replace(made, inputs=(data, NewConstant("scale", scale.value * np.float32(1.01)), zero))

    result = rewrite(node("QLinearAdd"), rules=(replace(rule.RULE, replacement=wrong),))
    assert result.outcome.changes == []
    assert "in float64 the outputs differ" in result.outcome.failed[0].check.reason


UNKNOWN_WEIGHTS = f"r = {MS}QGemm(q, s, z, w, ws, z)"
REFUSALS = [
    Refusal(qlinear.parameters_are_constants, node("QLinearAdd", ps=np.ones(2, np.float32)), "ps has 2 values"),
    Refusal(
        qlinear.weights_are_as_they_should_be,
        model(
            f"(float[5, 16] x, uint8[16, 6] w) => (float[] r) {{ q = QuantizeLinear(x, s, z) {UNKNOWN_WEIGHTS} }}",
            {"s": np.float32(0.1), "z": np.uint8(3), "ws": np.ones(6, np.float32)},
        ),
        "w, which has several scales, is computed at run time",
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE)


def test_a_second_pass_changes_nothing(rewrite):
    twice = rewrite(rewrite(node("QLinearAdd")).model)
    assert twice.outcome.changes == []
