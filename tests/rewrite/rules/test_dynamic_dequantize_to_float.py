"""dynamic-dequantize-to-float: what is quantised dynamically and dequantised again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.models import operators, random
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.quantised import AS_WRITTEN, FLOATS, cost_of_rounding, model
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.rewrite.parts import dynamic_quantization as dynamic
from trtnorm_cli.rewrite.rule import NewConstant, NewNode
from trtnorm_cli.rewrite.rules import dynamic_dequantize_to_float as rule

NAME = rule.RULE.name
QUANTISE = "q, s, z = DynamicQuantizeLinear(x)"


def back(body: str = "y = DequantizeLinear(q, s, z)", **held):
    return model(f"(float[2, 4, 6] x) => (float[] y) {{ {QUANTISE} {body} }}", held)


@pytest.mark.parametrize(("body", "left"), [
    ("y = DequantizeLinear(q, s, z)", ["Identity"]),
    ("t = Transpose <perm=[2, 0, 1]>(q) y = DequantizeLinear(t, s, z)", ["Transpose"]),
    ("t = Reshape(q, shape) u = MaxPool <kernel_shape=[2, 2]>(t) y = DequantizeLinear(u, s, z)", ["Reshape", "MaxPool"]),
])  # fmt: skip
def test_every_form(rewrite, body, left):
    before = back(body, shape=np.array([1, 2, 4, 6]))
    result = rewrite(before, rules=(rule.RULE,), settings=FLOATS)
    assert result.rules == [NAME]
    assert operators(result.model) == left
    assert 0 < cost_of_rounding(before, result.model, {"x": random(2, 4, 6)}) < 0.01


def test_a_wrong_result_is_caught(rewrite):
    def wrong(m):
        return NewNode("Mul", (rule.floats(m), NewConstant("factor", np.float32(1.001))))

    result = rewrite(back(), rules=(replace(rule.RULE, replacement=wrong),), settings=FLOATS)
    assert result.outcome.changes == []
    assert len(result.outcome.failed) == 1


REFUSALS = [
    Refusal(dynamic.the_profile_asks_for_floats, back(), AS_WRITTEN),
    Refusal(
        rule.it_takes_an_activation_back,
        back("y = DequantizeLinear(q, t, z)", t=np.float32(1)),
        "t is not the scale of",
        FLOATS,
    ),
    Refusal(
        rule.it_takes_an_activation_back,
        back("y = DequantizeLinear(q, s, t)", t=np.uint8(1)),
        "the zero point of q is t, not the one of",
        FLOATS,
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE)


def test_a_second_pass_changes_nothing(rewrite):
    twice = rewrite(rewrite(back(), settings=FLOATS).model, settings=FLOATS)
    assert twice.outcome.changes == []
