"""dynamic-matmul-to-float: ONNX Runtime's fused products with quantised weights, with floats."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.models import operators, random
from tests.numerics import relative_error
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.quantised import AS_WRITTEN, FLOATS, cost_of_rounding, model, quantised
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.rewrite.parts import dynamic_quantization as dynamic
from trtnorm_cli.rewrite.rule import NewConstant
from trtnorm_cli.rewrite.rules import dynamic_matmul_to_float as rule

NAME = rule.RULE.name
WHOLE = "y = com.microsoft.DynamicQuantizeMatMul(x, w, ws{})"
SECOND = "q, s, z = DynamicQuantizeLinear(x) y = com.microsoft.MatMulIntegerToFloat(q, w, s, ws, z{})"
FORMS = {
    "whole": WHOLE.format(", wz"), "whole with bias": WHOLE.format(", wz, b"), "whole, bias alone": WHOLE.format(', "", b'),
    "second half": SECOND.format(", wz"), "second half with bias": SECOND.format(", wz, b"),
}  # fmt: skip


def product(form: str = "whole", dtype: type = np.uint8, axis: int | None = None, body: str = "", **changed: np.ndarray):
    values = random(16, 8, seed=1)
    stored, scale, zero = quantised(values, dtype, axis)
    if "alone" in form:
        stored, scale, zero = np.rint(values * 20).astype(np.int8), np.float32(0.05), np.int8(0)
    held = {"w": stored, "ws": scale, "wz": zero, "b": random(8, seed=2), **changed}
    return model(f"(float[2, 5, 16] x) => (float[] y) {{ {body or FORMS[form]} }}", held)


@pytest.mark.parametrize("axis", [None, 1])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("form", FORMS)
def test_every_form(rewrite, form, dtype, axis):
    before = product(form, dtype, axis)
    result = rewrite(before, rules=(rule.RULE,), settings=FLOATS)
    assert result.rules == [NAME]
    assert operators(result.model) == (["MatMul", "Add"] if "bias" in form else ["MatMul"])
    x = random(2, 5, 16)
    assert 0 < cost_of_rounding(before, result.model, {"x": x}) < 0.02
    held = {tensor.name: np.asarray(value, np.float64) for tensor, value in _weights(before)}
    zero = 0 if "alone" in form else held["wz"]
    wanted = x.astype(np.float64) @ ((held["w"] - zero) * held["ws"]) + (held["b"] if "bias" in form else 0)
    assert relative_error(wanted, evaluate_float64(result.model, {"x": x}).outputs["y"]) < 1e-6


def _weights(made):
    from onnx import numpy_helper

    return [(tensor, numpy_helper.to_array(tensor)) for tensor in made.graph.initializer]


@pytest.mark.parametrize("form", ["whole", "second half"])
def test_a_wrong_dequantisation_is_caught(rewrite, form):
    def wrong(m):
        made = rule.with_floats(m)
        return replace(made, inputs=(made.inputs[0], NewConstant("weight", made.inputs[1].value * np.float32(1.001))))

    result = rewrite(product(form), rules=(replace(rule.RULE, replacement=wrong),), settings=FLOATS)
    assert result.outcome.changes == []
    assert "in float64 the outputs differ" in result.outcome.failed[0].check.reason


ANOTHER = "q, s, z = DynamicQuantizeLinear(x) n = Neg(s) y = com.microsoft.MatMulIntegerToFloat(q, w, n, ws, z, wz)"
REFUSALS = [
    Refusal(dynamic.the_profile_asks_for_floats, product(), AS_WRITTEN),
    Refusal(
        rule.weights_are_constants,
        model(
            f"(float[2, 5, 16] x, uint8[16, 8] w) => (float[] y) {{ {FORMS['whole']} }}",
            {"ws": np.float32(0.1), "wz": np.uint8(3)},
        ),
        "input 1 of",
        FLOATS,
    ),
    Refusal(rule.weights_are_constants, product(ws=np.ones(3, np.float32)), "ws has shape [3], for 8 columns", FLOATS),
    Refusal(rule.data_are_quantised_dynamically, product(body=ANOTHER), "n is not the scale of", FLOATS),
    Refusal(
        rule.data_are_quantised_dynamically,
        product(body="q = Cast <to=2>(x) y = com.microsoft.MatMulIntegerToFloat(q, w, ws, ws, wz, wz)"),
        "q is not made by DynamicQuantizeLinear",
        FLOATS,
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE)


def test_a_second_pass_changes_nothing(rewrite):
    twice = rewrite(rewrite(product(), settings=FLOATS).model, settings=FLOATS)
    assert twice.outcome.changes == []
