"""Operators that take a scale and shift of what they make: which constants change, and what leaves half precision."""

from __future__ import annotations

import numpy as np
import pytest

from tests.models import batchnorm, parse, random
from tests.oracle import worst_relative_error
from tests.rewrite.scale_shift.test_upstream import NORM, RULE, SCALE_SHIFT, only

POSITIVE = np.array([2, 3, 4, 0.5], np.float32).reshape(4, 1, 1)
CONSTANTS = {
    "multiplied": ("a = Mul(r, k)", "Mul"),
    "multiplied from the left": ("a = Mul(k, r)", "Mul"),
    "divided": ("a = Div(r, k)", "Mul"),
    "divided by": ("a = Div(k, r)", "Div"),
}


@pytest.mark.parametrize(("body", "after"), CONSTANTS.values(), ids=CONSTANTS)
def test_a_factor_takes_a_scale(rewrite, body, after):
    source = parse(
        f"g (float[2, 4, 3, 3] x) => (float[] y) {{ r = Exp(x) {body} c = Identity(a) y = Mul(c, s) }}",
        {"k": random(4, 1, 1), "s": POSITIVE},
    )
    result = rewrite(source, rules=(SCALE_SHIFT,))
    assert result.operators == ["Exp", after, "Identity"]
    assert worst_relative_error(source, result.model) < 2e-6


SIGNS = {"Add(r, k)": "Add", "Add(k, r)": "Add", "Sub(r, k)": "Sub", "Sub(k, r)": "Sub"}


@pytest.mark.parametrize(("body", "after"), SIGNS.items(), ids=SIGNS)
def test_a_summand_takes_a_shift_and_passes_the_scale_on(rewrite, body, after):
    source = parse(
        f"g (float[2, 4, 3, 3] x) => (float[] y) {{ m = Mul(x, k) r = Identity(m) a = {body} c = Identity(a) {NORM} }}",
        {"k": random(4, 1, 1), **batchnorm(4)},
    )
    result = rewrite(source, rules=(RULE,))
    assert result.operators == ["Mul", "Identity", after, "Identity"]
    assert worst_relative_error(source, result.model) < 2e-6


BEYOND = {
    "a weight": ("a = Conv(x, w)", {"w": np.full((4, 4, 1, 1), 6e4), "gamma": np.full(4, 4.0)}, "the folded weight of Conv"),
    "a weight of dwindling size": (
        "a = Conv(x, w)",
        {"w": np.full((4, 4, 1, 1), 1.0), "gamma": np.full(4, 1e-7)},
        "the folded weight of Conv -> a shrinks to",
    ),
    "a bias": (
        "a = Conv(x, w, b)",
        {"w": np.ones((4, 4, 1, 1)), "b": np.full(4, 6e4), "gamma": np.full(4, 4.0)},
        "the folded bias",
    ),
    "the bias of a product": (
        "t = Transpose<perm=[0, 2, 3, 1]>(x) m = MatMul(t, w) a = Transpose<perm=[0, 3, 1, 2]>(m)",
        {"w": np.ones((4, 4)), "beta": np.full(4, 1e5)},
        "the folded bias of MatMul -> m",
    ),
    "the weight of a product": (
        "t = Transpose<perm=[0, 2, 3, 1]>(x) m = MatMul(t, w) a = Transpose<perm=[0, 3, 1, 2]>(m)",
        {"w": np.full((4, 4), 6e4), "gamma": np.full(4, 4.0)},
        "the folded weight of MatMul -> m",
    ),
    "a summand": (
        "r = Abs(x) a = Add(r, k)",
        {"k": np.full(1, 6e4), "beta": np.full(4, 6e4)},
        "the folded constant of Add -> a",
    ),
    "a scale": (
        "r = Abs(x) a = BatchNormalization(r, g2, b2, g2, g2)",
        {"g2": np.full(4, 6e4), "b2": np.zeros(4), "gamma": np.full(4, 4.0)},
        "the folded weight of BatchNormalization -> a",
    ),
    "a shift": (
        "r = Abs(x) a = BatchNormalization(r, g2, b2, g2, g2)",
        {"g2": np.ones(4), "b2": np.full(4, 6e4), "gamma": np.full(4, 4.0)},
        "the folded bias of BatchNormalization -> a",
    ),
}


@pytest.mark.parametrize(("before", "weights", "reason"), BEYOND.values(), ids=BEYOND)
def test_what_leaves_half_precision_is_refused(rewrite, before, weights, reason):
    half = {name: value.astype(np.float16) for name, value in weights.items() if name not in ("gamma", "beta")}
    parameters = only(gamma=(1, 1, 1, 1)) | {name: np.float32(weights[name]) for name in ("gamma", "beta") if name in weights}
    text = f"g (float16[2, 4, 3, 3] x) => (float16[] y) {{ {before} c = Identity(a) {NORM} }}"
    result = rewrite(parse(text, {**half, **parameters}), rules=(RULE,))
    assert result.outcome.changes == []
    assert reason in [rejection.reason for rejection in result.outcome.rejections][-1]


@pytest.mark.parametrize("k", [6e4, 0.0], ids=["too large", "a division by zero"])
def test_a_factor_that_no_number_holds_is_refused(rewrite, k):
    operator = "Mul" if k else "Div"
    text = f"g (float16[N, 4] x) => (float16[] y) {{ r = Abs(x) a = {operator}(r, k) c = Identity(a) y = Mul(c, s) }}"
    source = parse(text, {"k": np.full(1, k, np.float16), "s": np.full(1, 4, np.float16)})
    assert rewrite(source, rules=(SCALE_SHIFT,)).outcome.changes == []


@pytest.mark.parametrize("opset", [9, 13])
def test_a_bias_of_zeros_stays_where_the_operator_has_to_have_one(rewrite, opset):
    """As an untrained network has it. Before opset 11 a Gemm without one is no ONNX."""
    unsqueezed = "a = Unsqueeze<axes=[2]>(m)" if opset < 13 else "a = Unsqueeze(m, axes)"
    weights = {"w": random(3, 4), "k": np.zeros(4, np.float32), "axes": np.array([2]), **batchnorm(4)}
    weights |= {"beta": np.zeros(4, np.float32), "mu": np.zeros(4, np.float32)}
    body = f"m = Gemm(x, w, k) {unsqueezed} y = BatchNormalization(a, gamma, beta, mu, var)"
    source = parse(f"g (float[2, 3] x) => (float[2, 4, 1] y) {{ {body} }}", weights, opset=opset)
    result = rewrite(source, rules=(RULE,))
    assert result.operators == ["Gemm", "Unsqueeze"]
    assert [len(node.input) for node in result.model.graph.node if node.op_type == "Gemm"] == [3]
    assert worst_relative_error(source, result.model) < 2e-6
