"""merge-scale-shift: chains of constants, what becomes of them, what stays, and the numbers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.models import batchnorm, parse, random
from tests.oracle import worst_relative_error
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.rewrite.rules import RULES
from trtnorm_cli.rewrite.rules import merge_scale_shift as rule

NAME = rule.RULE.name
IMAGE = "float[N, 4, 5, 5] x"
S, T = random(4, 1, 1), random(1, 4, 1, 1, seed=1)
NORM = "BatchNormalization({}, gamma, beta, mu, var)"


def model(body: str, x: str = IMAGE, outputs: str = "y", opset: int = 17, **weights: np.ndarray):
    declared = ", ".join(f"float[] {name}" for name in outputs.split())
    return parse(f"g ({x}) => ({declared}) {{ {body} }}", {"s": S, "t": T, **batchnorm(4), **weights}, opset=opset)


MERGES = {
    "three": ("a = Add(x, t) b = Mul(a, s) y = Add(b, t)", "Mul Add"),
    "four": ("a = Mul(x, s) b = Add(a, t) c = Mul(b, s) y = Sub(t, c)", "Mul Add"),
    "two scales": ("a = Mul(x, s) y = Div(a, s)", "Mul"),
    "two shifts": ("a = Add(x, t) y = Sub(a, s)", "Add"),
    "scalars": ("a = Mul(x, k) b = Add(k, a) y = Mul(b, k)", "Mul Add"),
    "a scale and its inverse": ("a = Mul(x, k) y = Div(a, k)", "Identity"),
    "multiplied, then normalized": (f"a = Mul(x, s) y = {NORM.format('a')}", "BatchNormalization"),
    "shifted, then normalized": (f"a = Add(x, t) y = {NORM.format('a')}", "BatchNormalization"),
    "normalized, then shifted from": (f"a = {NORM.format('x')} y = Sub(t, a)", "BatchNormalization"),
    "normalized twice": (f"a = {NORM.format('x')} b = Add(a, t) y = {NORM.format('b')}", "BatchNormalization"),
}


@pytest.mark.parametrize(("body", "after"), MERGES.values(), ids=MERGES)
def test_merges(rewrite, body, after):
    source = model(body, k=np.float32(0.25))
    result = rewrite(source, rules=(rule.RULE,))
    assert set(result.rules) == {NAME}
    assert result.operators == after.split()
    assert worst_relative_error(source, result.model) < 2e-6
    assert rewrite(result.model, rules=(rule.RULE,)).rules == []


def test_the_batchnorm_keeps_its_name_and_its_variance(rewrite):
    (norm,) = rewrite(model(f"a = Mul(x, s) [bn] y = {NORM.format('a')}"), rules=(rule.RULE,)).model.graph.node
    assert (norm.name, norm.input[4]) == ("bn", "var")


def test_half_data_keeps_one_batchnorm(rewrite):
    """As multiplication and addition in float16, what is between them could leave its range."""
    weights = {**batchnorm(4, np.float16), "s": S.astype(np.float16)}
    text = f"g (float16[N, 4, 5, 5] x) => (float16[] y) {{ a = Mul(x, s) y = {NORM.format('a')} }}"
    source = parse(text, weights)
    result = rewrite(source, rules=(rule.RULE,))
    assert result.operators == ["BatchNormalization"]
    assert worst_relative_error(source, result.model) < 4e-3


STAYS = {
    "without effect": "a = Mul(x, one) y = Add(a, zero)",
    "half without effect": "a = Mul(x, one) y = Add(a, t)",
    "already as short as it can be": "a = Mul(x, s) y = Add(a, t)",
    "something in between": "a = Add(x, t) b = Relu(a) c = Mul(b, s) y = Add(c, t)",
    "not per channel": "a = Add(x, t) b = Mul(a, f) y = Add(b, t)",
    "used elsewhere": "a = Mul(x, s) y = Mul(a, s) z = Relu(a)",
    "along different axes, with a BatchNormalization": f"a = Mul(x, c) y = {NORM.format('a')}",
    "the divisor is the data": "a = Div(t, x) y = Mul(a, s)",
}


@pytest.mark.parametrize("body", STAYS.values(), ids=STAYS)
def test_stays(rewrite, body):
    """Nothing is said about it either: it is no normalization that somebody looks for."""
    one, zero = np.ones((4, 1, 1), np.float32), np.zeros((4, 1, 1), np.float32)
    source = model(body, outputs="y z" if " z = " in body else "y", f=random(5, 5), c=random(5), one=one, zero=zero)
    result = rewrite(source, rules=(rule.RULE,))
    assert (result.outcome.changes, result.outcome.rejections) == ([], ())
    assert result.model.graph == result.surgery.source.graph


def test_a_graph_output_stays(rewrite):
    result = rewrite(model("a = Mul(x, s) y = Mul(a, s)", outputs="y a"), rules=(rule.RULE,))
    assert result.operators == ["Mul", "Mul"]


def test_different_axes_without_a_batchnorm(rewrite):
    source = model("a = Mul(x, s) b = Mul(a, c) y = Add(b, t)", c=random(5))
    result = rewrite(source, rules=(rule.RULE,))
    assert result.operators == ["Mul", "Add"]
    assert worst_relative_error(source, result.model) < 1e-6


def half(body: str, **weights: np.ndarray):
    return parse(f"g (float16[N, 4, 5, 5] x) => (float16[] y) {{ {body} }}", weights)


LARGE = np.full((4, 1, 1), 6e4, np.float16)
REFUSALS = [
    Refusal(rule.values_are_representable, half("a = Mul(x, s) y = Mul(a, s)", s=LARGE), "the merged scale reaches 3.6e+09"),
    Refusal(rule.values_are_representable, half("a = Add(x, s) y = Add(a, s)", s=LARGE), "the merged shift reaches 1.2e+05"),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE)


def test_a_second_pass_changes_nothing(rewrite):
    once = rewrite(model(f"a = Add(x, t) b = Mul(a, s) c = {NORM.format('b')} y = Mul(c, s)"), rules=RULES)
    assert once.operators == ["Mul", "Add"]
    assert rewrite(once.model, rules=RULES).outcome.changes == []


def test_the_data_keeps_its_other_readers(rewrite):
    source = model("a = Mul(x, s) b = Mul(a, s) y = Add(b, x)")
    result = rewrite(source, rules=(rule.RULE,))
    assert result.operators == ["Mul", "Add"]
    assert worst_relative_error(source, result.model) < 1e-6
