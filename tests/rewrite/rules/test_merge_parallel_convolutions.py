"""merge-parallel-convolutions: branches that add up to one convolution, those that do not, and the numbers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.models import batchnorm, parse, random
from tests.oracle import worst_relative_error
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.rewrite.rules import RULES
from trtnorm_cli.rewrite.rules import merge_parallel_convolutions as rule

NAME = rule.RULE.name
W, POINT = random(4, 4, 3, 3), random(4, 4, 1, 1)
SAME = "pads=[1, 1, 1, 1]"
NORM = "BatchNormalization(x, gamma, beta, mu, var)"


def model(body: str, x: str = "float[N, 4, 6, 6] x", outputs: str = "y", opset: int = 17, **weights: np.ndarray):
    declared = ", ".join(f"float[] {name}" for name in outputs.split())
    return parse(f"g ({x}) => ({declared}) {{ {body} }}", {"w": W, "v": POINT, **batchnorm(4), **weights}, opset=opset)


MERGES = {
    "difference": model(f"a = Conv<{SAME}>(x, w, c) b = Conv(x, v, d) y = Sub(a, b)", c=random(4), d=random(4, seed=1)),
    "difference, turned": model(f"a = Conv(x, v, c) b = Conv<{SAME}>(x, w) y = Sub(a, b)", c=random(4)),
    "difference from a normalized": model(f"a = Conv<{SAME}>(x, w, c) b = {NORM} y = Sub(b, a)", c=random(4)),
    "3×3 and 1×1": model(f"a = Conv<{SAME}>(x, w) b = Conv(x, v) y = Add(a, b)"),
    "1×1 and 3×3": model(f"a = Conv(x, v, c) b = Conv<{SAME}>(x, w) y = Sum(a, b)", c=random(4)),
    "both with a bias": model(f"a = Conv<{SAME}>(x, w, c) b = Conv(x, v, c) y = Add(a, b)", c=random(4)),
    "strides": model(f"a = Conv<{SAME}, strides=[2, 2]>(x, w) b = Conv<strides=[2, 2]>(x, v) y = Add(a, b)"),
    "the same kernel": model(f"a = Conv<{SAME}>(x, w) b = Conv<{SAME}>(x, u) y = Add(a, b)", u=random(4, 4, 3, 3, seed=1)),
    "3×3 in 5×5": model(f"a = Conv<pads=[2, 2, 2, 2]>(x, u) b = Conv<{SAME}>(x, w) y = Add(a, b)", u=random(4, 4, 5, 5)),
    "dilated in 5×5": model(
        "a = Conv<pads=[2, 2, 2, 2]>(x, u) b = Conv<pads=[2, 2, 2, 2], dilations=[2, 2]>(x, w) y = Add(a, b)",
        u=random(4, 4, 5, 5),
    ),
    "1×1 in a dilated 3×3": model("a = Conv<pads=[2, 2, 2, 2], dilations=[2, 2]>(x, w) b = Conv(x, v) y = Add(a, b)"),
    "dilated by four in dilated by two": model(
        "a = Conv<pads=[4, 4, 4, 4], dilations=[2, 2]>(x, u) b = Conv<pads=[4, 4, 4, 4], dilations=[4, 4]>(x, w) y = Add(a, b)",
        u=random(4, 4, 5, 5),
    ),
    "1×3 and 3×1 in 3×3": model(
        f"a = Conv<{SAME}>(x, w) b = Conv<pads=[0, 1, 0, 1]>(x, u) y = Add(a, b)", u=random(4, 4, 1, 3)
    ),
    "auto_pad": model(
        'a = Conv<auto_pad="SAME_LOWER">(x, u) b = Conv<auto_pad="SAME_UPPER">(x, v) y = Add(a, b)', u=random(4, 4, 2, 2)
    ),
    "grouped": model(
        f"a = Conv<{SAME}, group=2>(x, w) b = Conv<group=2>(x, v) y = Add(a, b)", w=random(4, 2, 3, 3), v=random(4, 2, 1, 1)
    ),
    "identity branch": model(f"a = Conv<{SAME}>(x, w) b = {NORM} y = Add(a, b)"),
    "identity branch, turned": model(f"a = Conv<{SAME}>(x, w, c) b = {NORM} y = Add(b, a)", c=random(4)),
    "identity branch, depthwise": model(f"a = Conv<{SAME}, group=4>(x, w) b = {NORM} y = Add(a, b)", w=random(4, 1, 3, 3)),
    "identity branch, grouped": model(f"a = Conv<{SAME}, group=2>(x, w) b = {NORM} y = Add(a, b)", w=random(4, 2, 3, 3)),
    "scaled and shifted": model(f"a = Conv<{SAME}>(x, w) b = Mul(x, s) c = Add(b, s) y = Add(a, c)", s=random(4, 1, 1)),
    "one-dimensional": model(
        "a = Conv<pads=[1, 1]>(x, w) b = Conv(x, v) y = Add(a, b)", "float[N, 4, L] x", w=random(4, 4, 3), v=random(4, 4, 1)
    ),
}


@pytest.mark.parametrize("source", MERGES.values(), ids=MERGES)
def test_merges(rewrite, source):
    pins = {"x": (2, 4, 7)} if len(source.graph.input[0].type.tensor_type.shape.dim) == 3 else None
    result = rewrite(source, rules=(rule.RULE,), pins=pins)
    assert result.rules == [NAME]
    assert result.operators == ["Conv"]
    assert worst_relative_error(source, result.model, pins) < 2e-6


def test_a_block_of_three_branches(rewrite):
    """RepVGG: 3×3, 1×1 and identity, a BatchNormalization each, become one convolution."""
    source = model(
        f"a = Conv<{SAME}>(x, w) b = BatchNormalization(a, gamma, beta, mu, var) c = Conv(x, v)"
        f" d = BatchNormalization(c, gamma2, beta2, mu2, var2) e = {NORM} f = Add(b, d) g = Add(f, e) y = Relu(g)",
        **batchnorm(4, seed=1, suffix="2"),
    )
    result = rewrite(source)
    assert result.operators == ["Conv", "Relu"]
    assert worst_relative_error(source, result.model) < 2e-6
    assert rewrite(result.model).outcome.changes == []


REFUSALS = [
    Refusal(
        rule.both_operands_are_used_here_alone,
        model(f"a = Conv<{SAME}>(x, w) b = Conv(x, v) y = Add(a, b) z = Relu(b)", outputs="y z"),
        "b is also used elsewhere",
    ),
    Refusal(
        rule.both_operands_are_used_here_alone,
        model(f"a = Conv<{SAME}>(x, w) b = {NORM} y = Add(a, b)", outputs="y a"),
        "a is also used elsewhere",
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE)


OUT_OF_REACH = {
    "kernels beside each other": (
        model(
            "a = Conv<pads=[0, 1, 0, 1]>(x, w) b = Conv<pads=[1, 0, 1, 0]>(x, v) y = Add(a, b)",
            w=random(4, 4, 1, 3),
            v=random(4, 4, 3, 1),
        ),
        "the kernels of Conv -> a and Conv -> b do not cover each other",
    ),
    "other strides": (
        model(f"a = Conv<{SAME}, strides=[2, 2]>(x, w) b = Conv<strides=[3, 3]>(x, v) y = Add(a, b)", "float[N, 4, 1, 1] x"),
        "do not cover each other",
    ),
    "other groups": (
        model(f"a = Conv<{SAME}>(x, w) b = Conv<group=2>(x, v) y = Add(a, b)", v=random(4, 2, 1, 1)),
        "do not cover each other",
    ),
    "the kernel reads other places": (
        model(f"a = Conv<pads=[1, 1, 1, 1], dilations=[2, 2]>(x, w) b = {NORM} y = Add(a, b)", w=random(4, 4, 2, 2)),
        "no element of the kernel of Conv -> a reads the element that it writes",
    ),
    "strides beside an identity": (
        model(f"a = Conv<{SAME}, strides=[2, 2]>(x, w) b = {NORM} y = Add(a, b)", "float[N, 4, 1, 1] x"),
        "no element of the kernel of Conv -> a reads the element that it writes",
    ),
    "not as many channels": (
        model(f"a = Conv<{SAME}>(x, w) b = {NORM} y = Add(a, b)", w=random(1, 4, 3, 3)),
        "there are 4 values for scale and shift, but Conv -> a makes 1 channels",
    ),
    "padding that depends on the size": (
        model('a = Conv<auto_pad="SAME_UPPER", strides=[2, 2]>(x, w) b = Conv<strides=[2, 2]>(x, v) y = Add(a, b)'),
        "its padding depends on the size of the input",
    ),
    "parameters that cannot be trusted": (
        model(f"a = Conv<{SAME}>(x, w) b = {NORM} y = Add(a, b)", var=np.full(4, -1, np.float32)),
        "variance + epsilon",
    ),
    "another tensor": (model(f"a = Conv<{SAME}>(x, w) r = Relu(x) b = Conv(r, v) y = Add(a, b)"), None),
    "a normalized other tensor": (
        model(f"a = Conv<{SAME}>(x, w) r = Relu(x) b = {NORM.replace('(x', '(r')} y = Add(a, b)"),
        None,
    ),
    "a residual connection": (model(f"a = Conv<{SAME}>(x, w) y = Add(a, x)"), None),
    "half precision overflow": (
        parse(
            "g (float16[N, 1, 6, 6] x) => (float16[] y) { a = Conv(x, w) b = Conv(x, w) y = Add(a, b) }",
            {"w": np.full((1, 1, 1, 1), 6e4, np.float16)},
        ),
        "the merged weight of Conv -> a reaches 1.2e+05, more than float16 holds",
    ),
}


@pytest.mark.parametrize(("source", "reason"), OUT_OF_REACH.values(), ids=OUT_OF_REACH)
def test_what_is_out_of_reach(rewrite, source, reason):
    result = rewrite(source, rules=(rule.RULE,))
    assert result.outcome.changes == []
    reasons = [rejection.reason for rejection in result.outcome.rejections]
    assert (reasons == []) if reason is None else (reason in reasons[0])


def test_a_second_pass_changes_nothing(rewrite):
    once = rewrite(model(f"a = Conv<{SAME}>(x, w) b = Conv(x, v) y = Add(a, b)"), rules=RULES)
    assert once.rules == [NAME]
    assert rewrite(once.model, rules=RULES).outcome.changes == []


def test_the_data_keeps_its_other_readers(rewrite):
    source = model(f"a = Conv<{SAME}>(x, w) b = Conv(x, v) c = Add(a, b) y = Add(c, x)")
    result = rewrite(source, rules=(rule.RULE,))
    assert result.operators == ["Conv", "Add"]
    assert worst_relative_error(source, result.model) < 1e-6
