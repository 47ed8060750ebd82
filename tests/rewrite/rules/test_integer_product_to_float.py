"""integer-product-to-float: integer products of dynamically quantised activations, with floats."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

from tests.models import operators, random
from tests.numerics import relative_error
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.quantised import AS_WRITTEN, FLOATS, cost_of_rounding, model, quantised
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.rewrite.parts import dynamic_quantization as dynamic
from trtnorm_cli.rewrite.parts import integer_product
from trtnorm_cli.rewrite.rule import NewConstant
from trtnorm_cli.rewrite.rules import integer_product_to_float as rule

NAME = rule.RULE.name
QUANTISE = "q, s, z = DynamicQuantizeLinear(x)"
PRODUCT = "i = MatMulInteger(q, w, z, wz)"
RESCALED = "f = Cast <to=1>(i) r = Mul(s, ws) y = Mul(f, r)"


def matmul(dtype=np.uint8, axis=None, body=f"{QUANTISE} {PRODUCT} {RESCALED}", opset=17, **weights):
    stored, scale, zero = quantised(random(16, 8, seed=1) + 0.3, dtype, axis)
    return model(f"(float[2, 5, 16] x) => (float[] y) {{ {body} }}", {"w": stored, "ws": scale, "wz": zero, **weights}, opset)


def conv(dtype=np.uint8, axis=None, attributes="pads=[1, 1, 1, 1]", channels=4, tail=RESCALED, opset=17, **weights):
    stored, scale, zero = quantised(random(6, channels, 3, 3, seed=2) - 0.2, dtype, axis)
    if axis is not None:
        scale = scale.reshape(-1, 1, 1)
    body = f"{QUANTISE} i = ConvInteger <{attributes}>(q, w, z, wz) {tail}"
    held = {"w": stored, "ws": scale, "wz": zero, **weights}
    return model(f"(float[2, 4, 9, 7] x) => (float[] y) {{ {body} }}", held, opset)


def dequantised(made: onnx.ModelProto) -> dict[str, np.ndarray]:
    held = {tensor.name: onnx.numpy_helper.to_array(tensor).astype(np.float64) for tensor in made.graph.initializer}
    zero = held["wz"].reshape(-1, *[1] * (held["w"].ndim - 1)) if held["w"].ndim == 4 else held["wz"]
    scale = held["ws"].reshape(-1, *[1] * 3) if held["w"].ndim == 4 else held["ws"]
    return {"w": (held["w"] - zero) * scale}


@pytest.mark.parametrize("axis", [None, 1])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("opset", [11, 17, 21])
def test_matrix_products(rewrite, dtype, axis, opset):
    before = matmul(dtype, axis, opset=opset)
    result = rewrite(before, rules=(rule.RULE,), settings=FLOATS)
    assert result.rules == [NAME]
    assert operators(result.model) == ["MatMul"]
    x = random(2, 5, 16)
    assert (
        relative_error(x.astype(np.float64) @ dequantised(before)["w"], evaluate_float64(result.model, {"x": x}).outputs["y"])
        < 1e-6
    )
    assert 0 < cost_of_rounding(before, result.model, {"x": x}) < 0.02


def test_a_batch_of_matrices_with_a_scale_for_each_column(rewrite):
    stored, scale, zero = quantised(random(16, 8, seed=1) + 0.3, np.uint8)
    before = matmul(w=np.stack([stored, stored[::-1]]), ws=np.linspace(1, 2, 8, dtype=np.float32) * scale, wz=zero)
    result = rewrite(before, rules=(rule.RULE,), settings=FLOATS)
    assert result.rules == [NAME]
    assert operators(result.model) == ["MatMul"]
    assert 0 < cost_of_rounding(before, result.model, {"x": random(2, 5, 16)}) < 0.02


@pytest.mark.parametrize("axis", [None, 0])
@pytest.mark.parametrize("attributes", ["pads=[1, 1, 1, 1]", 'auto_pad="SAME_UPPER", strides=[2, 1]', "dilations=[2, 2]"])
def test_convolutions(rewrite, attributes, axis):
    before = conv(axis=axis, attributes=attributes, dtype=np.uint8)
    result = rewrite(before, rules=(rule.RULE,), settings=FLOATS)
    assert result.rules == [NAME]
    assert operators(result.model) == ["Conv"]
    x = random(2, 4, 9, 7)
    if axis is None:  # ONNX Runtime has no other ConvInteger
        assert 0 < cost_of_rounding(before, result.model, {"x": x}) < 0.02
    floats = model(
        f"(float[2, 4, 9, 7] x, double[6, 4, 3, 3] w) => (float[] y) {{ v = Cast <to=1>(w) y = Conv <{attributes}>(x, v) }}", {}
    )
    wanted = evaluate_float64(floats, {"x": x, "w": dequantised(before)["w"]}).outputs["y"]
    assert relative_error(wanted, evaluate_float64(result.model, {"x": x}).outputs["y"]) < 1e-6


def test_groups(rewrite):
    before = conv(attributes="group=2", channels=2)
    result = rewrite(before, rules=(rule.RULE,), settings=FLOATS)
    assert result.rules == [NAME]
    assert 0 < cost_of_rounding(before, result.model, {"x": random(2, 4, 9, 7)}) < 0.02


@pytest.mark.parametrize(
    "tail", ["r = Mul(ws, s) y = Mul(r, f)", "a = Mul(f, s) y = Mul(a, ws)", "a = Mul(ws, f) y = Mul(s, a)"]
)
def test_every_order_of_the_factors(rewrite, tail):
    before = matmul(body=f"{QUANTISE} {PRODUCT} f = Cast <to=1>(i) {tail}")
    result = rewrite(before, settings=FLOATS)
    assert NAME in result.rules
    assert "MatMulInteger" not in operators(result.model)
    assert cost_of_rounding(before, result.model, {"x": random(2, 5, 16)}) < 0.02


def test_two_products_of_one_activation(rewrite):
    tail = "i = MatMulInteger(q, w, z, wz) f = Cast <to=1>(i) r = Mul(s, ws) a = Mul(f, r) "
    more = "j = MatMulInteger(q, w, z, wz) g = Cast <to=1>(j) t = Mul(s, ws) b = Mul(g, t) y = Sub(a, b)"
    result = rewrite(matmul(body=f"{QUANTISE} {tail} {more}"), rules=(rule.RULE,), settings=FLOATS)
    assert result.rules == [NAME, NAME]
    assert operators(result.model) == ["MatMul", "MatMul", "Sub"]


def test_both_factors_of_run_time(rewrite):
    body = (
        "q, s, z = DynamicQuantizeLinear(x) p, t, v = DynamicQuantizeLinear(k) i = MatMulInteger(q, p, z, v) "
        "f = Cast <to=1>(i) r = Mul(s, t) y = Mul(f, r)"
    )
    before = model(f"(float[2, 5, 16] x, float[2, 16, 3] k) => (float[] y) {{ {body} }}", {})
    result = rewrite(before, rules=(rule.RULE,), settings=FLOATS)
    assert operators(result.model) == ["MatMul"]
    assert 0 < cost_of_rounding(before, result.model, {"x": random(2, 5, 16), "k": random(2, 16, 3, seed=4)}) < 0.03


def test_a_constant_beside_both_factors_of_run_time_stays(rewrite):
    body = (
        "q, s, z = DynamicQuantizeLinear(x) p, t, v = DynamicQuantizeLinear(k) i = MatMulInteger(q, p, z, v) "
        "f = Cast <to=1>(i) h = Mul(s, half) r = Mul(h, t) y = Mul(f, r)"
    )
    before = model(f"(float[2, 5, 16] x, float[2, 16, 3] k) => (float[] y) {{ {body} }}", {"half": np.float32(0.5)})
    result = rewrite(before, rules=(rule.RULE,), settings=FLOATS)
    assert operators(result.model) == ["MatMul", "Mul"]
    assert 0 < cost_of_rounding(before, result.model, {"x": random(2, 5, 16), "k": random(2, 16, 3, seed=4)}) < 0.03


def test_integers_that_are_moved(rewrite):
    moved = "m = Transpose <perm=[0, 2, 1]>(q) i = MatMulInteger(m, w, z, wz)"
    stored, scale, zero = quantised(random(5, 8, seed=1), np.uint8)
    before = model(
        f"(float[2, 5, 16] x) => (float[] y) {{ {QUANTISE} {moved} {RESCALED} }}", {"w": stored, "ws": scale, "wz": zero}
    )
    result = rewrite(before, rules=(rule.RULE,), settings=FLOATS)
    assert operators(result.model) == ["Transpose", "MatMul"]
    assert 0 < cost_of_rounding(before, result.model, {"x": random(2, 5, 16)}) < 0.02


def test_a_bias_that_quantisers_of_2020_add_to_the_integers(rewrite):
    tail = (
        "t = Mul(s, ws) d = Div(b, t) e = Floor(d) c = Cast <to=6>(e) h = Reshape(c, shape) j = Add(i, h) "
        "f = Cast <to=1>(j) r = Mul(s, ws) y = Mul(f, r)"
    )
    before = conv(tail=tail, b=random(6, seed=5), shape=np.array([1, -1, 1, 1]), opset=12)
    result = rewrite(before, rules=(rule.RULE,), settings=FLOATS)
    assert result.rules == [NAME]
    assert operators(result.model) == ["Conv", "Reshape", "Add"]
    assert 0 < cost_of_rounding(before, result.model, {"x": random(2, 4, 9, 7)}) < 0.02


def test_constants_that_are_no_scale_of_the_weights(rewrite):
    body = f"{QUANTISE} i = MatMulInteger(q, w, z, wz) f = Cast <to=1>(i) r = Mul(s, rows) y = Mul(f, r)"
    before = matmul(body=body, rows=np.linspace(0.5, 1.5, 5, dtype=np.float32).reshape(5, 1))
    result = rewrite(before, rules=(rule.RULE,), settings=FLOATS)
    assert operators(result.model) == ["MatMul", "Mul"]
    assert 0 < cost_of_rounding(before, result.model, {"x": random(2, 5, 16)}) < 0.02


def test_the_warning_names_the_line_of_the_profile(rewrite):
    (change,) = rewrite(matmul(), rules=(rule.RULE,), settings=FLOATS).outcome.changes
    assert change.changes_meaning
    assert "dynamic_quantization: float" in change.warning


def _mistaken(value: np.ndarray, mistake: str) -> np.ndarray:
    wrong = {"scale": value * 1.004, "zero point": value + 0.01, "a column": np.roll(value, 1, axis=-1)}
    return wrong[mistake].astype(np.float32)


@pytest.mark.parametrize("mistake", ["scale", "zero point", "a column"])
@pytest.mark.parametrize("before", [matmul(), conv()], ids=["MatMul", "Conv"])
def test_a_wrong_dequantisation_is_caught(rewrite, before, mistake):
    """Also one that moves the result by less than rounding the activations does."""

    def wrong(m):
        made = rule.with_floats(m)
        constant = made.inputs[1]
        return replace(made, inputs=(made.inputs[0], NewConstant(constant.role, _mistaken(constant.value, mistake))))

    result = rewrite(before, rules=(replace(rule.RULE, replacement=wrong),), settings=FLOATS)
    assert result.outcome.changes == []
    (failed,) = result.outcome.failed
    assert "in float64 the outputs differ" in failed.check.reason


ADDED = "c = Shape(x) d = Cast <to=6>(c) e = ReduceMax(d) j = Add(i, e) f = Cast <to=1>(j) r = Mul(s, ws) y = Mul(f, r)"
DIVIDED = "d = Div(b, s) e = Floor(d) c = Cast <to=6>(e) j = Add(i, c) f = Cast <to=1>(j) r = Mul(s, ws) y = Mul(f, r)"
STATIC = "i = MatMulInteger(k, w) f = Cast <to=1>(i) y = Mul(f, ws)"
NOT_RESCALED = {
    f"{PRODUCT} f = Cast <to=1>(i) y = Mul(f, ws)": "does not multiply",
    f"{PRODUCT} f = Cast <to=1>(i) n = Relu(s) y = Mul(f, n)": "n, with which",
    f"i = MatMulInteger(q, w, wz, wz) {RESCALED}": "the zero point of q is wz, not the one of",
    f"i = MatMulInteger(q, w) {RESCALED}": "the zero point of q is none",
    STATIC: "neither operand of",
    f"{PRODUCT} f = Cast <to=1>(i) y = Mul(f, f)": "multiplies 2 integer products",
    f"{PRODUCT} {ADDED}": "is not a bias that was divided and rounded",
    f"{PRODUCT} {DIVIDED}": "the bias b is divided by s",
}
CONSTANTS = {"b": random(8), "k": np.ones((5, 16), np.uint8)}
REFUSALS = [
    Refusal(dynamic.the_profile_asks_for_floats, matmul(), AS_WRITTEN),
    *(
        Refusal(rule.it_is_a_rescaled_product, matmul(body=f"{QUANTISE} {tail}", **CONSTANTS), reason, FLOATS)
        for tail, reason in NOT_RESCALED.items()
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE)


def test_a_second_pass_changes_nothing(rewrite):
    twice = rewrite(rewrite(conv(), settings=FLOATS).model, settings=FLOATS)
    assert twice.outcome.changes == []


def test_products_of_scales_are_compared_by_value():
    assert integer_product._equal_products([np.float32(2), np.float32(3)], [np.array([6.0])])
    assert not integer_product._equal_products([np.float32(2)], [np.float32(3)])
    assert not integer_product._equal_products([np.ones(2)], [np.ones(3)])
