"""qlinear-operators: ONNX's convolution and matrix product of integers, between two quantisations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

from tests.models import operators, random
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.quantised import by_onnxruntime, model, quantised
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.rewrite.parts import qlinear
from trtnorm_cli.rewrite.rule import NewConstant
from trtnorm_cli.rewrite.rules import qlinear_operators as rule

NAME = rule.RULE.name
QUANTISED = "q = QuantizeLinear(x, s, z)"
CONV = "r = QLinearConv <pads=[1, 1, 1, 1], strides=[2, 1]>(q, s, z, w, ws, wz, rs, rz, b)"
MATMUL = "r = QLinearMatMul(q, s, z, w, ws, wz, rs, rz)"
BACK = "y = DequantizeLinear(r, rs, rz)"


def steps_apart(before: np.ndarray, after: np.ndarray) -> float:
    """The share of elements that differ; none may by more than a step."""
    apart = np.abs(before.astype(int) - after.astype(int))
    assert apart.max() <= 1
    return float(np.mean(apart > 0))


def conv(dtype=np.uint8, axis=None, weight_type=np.uint8, opset: int = 17, body: str = CONV, **changed) -> onnx.ModelProto:
    stored, scale, zero = quantised(random(5, 4, 3, 3, seed=1), weight_type, axis)
    held = {
        "w": stored, "ws": scale, "wz": zero, "s": np.float32(0.03), "z": np.asarray(117 if dtype == np.uint8 else -3, dtype),
        "rs": np.float32(0.09), "rz": np.asarray(130 if dtype == np.uint8 else 2, dtype),
        "b": np.arange(-200, 300, 100, np.int32), **changed,
    }  # fmt: skip
    kind = "uint8" if dtype == np.uint8 else "int8"
    return model(f"(float[2, 4, 9, 8] x) => ({kind}[] r) {{ {QUANTISED} {body} }}", held, opset)


def matmul(dtype=np.uint8, axis=None, weight_type=np.uint8, opset: int = 17) -> onnx.ModelProto:
    stored, scale, zero = quantised(random(16, 6, seed=1), weight_type, axis)
    held = {
        "w": stored, "ws": scale, "wz": zero, "s": np.float32(0.03), "z": np.asarray(117 if dtype == np.uint8 else -3, dtype),
        "rs": np.float32(0.08), "rz": np.asarray(130 if dtype == np.uint8 else 2, dtype),
    }  # fmt: skip
    kind = "uint8" if dtype == np.uint8 else "int8"
    return model(f"(float[2, 5, 16] x) => ({kind}[] r) {{ {QUANTISED} {MATMUL} }}", held, opset)


@pytest.mark.parametrize("opset", [10, 12, 17, 21])
@pytest.mark.parametrize(("dtype", "weight_type", "axis"), [
    (np.uint8, np.uint8, None), (np.uint8, np.int8, None), (np.int8, np.int8, None), (np.uint8, np.int8, 0),
    (np.int8, np.int8, 0),
])  # fmt: skip
def test_convolutions(rewrite, dtype, weight_type, axis, opset):
    before = conv(dtype, axis, weight_type, opset)
    result = rewrite(before, rules=(rule.RULE,))
    assert result.rules == [NAME]
    assert operators(result.model)[-2:] == ["Conv", "QuantizeLinear"]
    feeds = {"x": random(2, 4, 9, 8)}
    assert steps_apart(by_onnxruntime(before, feeds)[0], by_onnxruntime(result.model, feeds)[0]) < 0.01
    exact = [evaluate_float64(made, feeds).outputs["r"] for made in (before, result.model)]
    assert steps_apart(*exact) == 0


@pytest.mark.parametrize(("dtype", "weight_type", "axis"), [
    (np.uint8, np.uint8, None), (np.uint8, np.int8, None), (np.int8, np.int8, None), (np.uint8, np.int8, 1),
])  # fmt: skip
def test_matrix_products(rewrite, dtype, weight_type, axis):
    before = matmul(dtype, axis, weight_type)
    result = rewrite(before, rules=(rule.RULE,))
    assert result.rules == [NAME]
    assert operators(result.model)[-2:] == ["MatMul", "QuantizeLinear"]
    feeds = {"x": random(2, 5, 16)}
    assert steps_apart(by_onnxruntime(before, feeds)[0], by_onnxruntime(result.model, feeds)[0]) < 0.01


def test_without_a_bias(rewrite):
    result = rewrite(conv(body=CONV.replace(", b)", ")")), rules=(rule.RULE,))
    assert result.rules == [NAME]
    assert [len(node.input) for node in result.model.graph.node if node.op_type == "Conv"] == [2]


def test_in_a_chain_all_of_it_becomes_what_tensorrt_takes(rewrite):
    body = f"{CONV} {BACK}"
    before = conv(body=body)
    before.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None))
    result = rewrite(before)
    assert not {"QLinearConv", "QuantizeLinear"} & set(operators(result.model))


@pytest.mark.parametrize("damage", [1.01, 0.99])
def test_a_wrong_scale_is_caught(rewrite, damage):
    def wrong(m):
        made = rule.qlinear.with_floats(m)
        data, scale, zero = made.inputs
        return replace(made, inputs=(data, NewConstant("scale", scale.value * np.float32(damage)), zero))

    result = rewrite(conv(), rules=(replace(rule.RULE, replacement=wrong),))
    assert result.outcome.changes == []
    assert "in float64 the outputs differ" in result.outcome.failed[0].check.reason


RUN_TIME = (
    "(float[2, 4, 9, 8] x, float v) => (uint8[] r) { q = QuantizeLinear(x, v, z) r = QLinearConv(q, v, z, w, v, z, v, z) }"
)
REFUSALS = [
    Refusal(
        qlinear.parameters_are_constants,
        model(RUN_TIME, {"w": np.ones((5, 4, 3, 3), np.uint8), "z": np.uint8(3)}),
        "v, a parameter of",
    ),
    Refusal(qlinear.parameters_are_constants, conv(rs=np.ones(2, np.float32)), "rs has 2 values, where one is wanted"),
    Refusal(qlinear.weights_are_as_they_should_be, conv(ws=np.ones(3, np.float32)), "have 5 rows and scales of [3]"),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE)


def test_a_second_pass_changes_nothing(rewrite):
    twice = rewrite(rewrite(conv()).model)
    assert twice.outcome.changes == []
