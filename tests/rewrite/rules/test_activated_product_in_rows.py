"""activated-product-in-rows: products of tensors with four axes, as channels-last vision models have them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import loaded, operators, parse, random
from tests.oracle import worst_relative_error
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.refusals import Refusal
from tests.rewritings import rewrite as rewrite_model
from tests.tensorrt.builds import kernels
from trtnorm_cli.profile.rewriting import RewriteSettings
from trtnorm_cli.rewrite.rewriting import RewritingSession
from trtnorm_cli.rewrite.rules import activated_product_in_rows as rule

NAME = rule.RULE.name
MEASURED = RewriteSettings(measured=True, counted=True)
PINS = {"x": (2, 3, 5, 8)}
PRODUCT = "p = MatMul(x, w) s = Add(p, b)"
GELU = "y = Gelu(s)"
CURVES = {
    "gelu": GELU,
    "relu": "y = Relu(s)",
    "silu": "g = Sigmoid(s) y = Mul(s, g)",
    "gelu in pieces": "d = Div(s, root) e = Erf(d) f = Add(e, one) g = Mul(s, f) y = Mul(g, half)",
    "gelu in pieces, halved first": "d = Div(s, root) e = Erf(d) f = Add(one, e) h = Mul(half, s) y = Mul(h, f)",
    "gelu with tanh": (
        "q = Mul(s, s) c = Mul(q, s) k = Mul(c, half) a = Add(s, k) t = Mul(a, root) h = Tanh(t) f = Add(h, one)"
        " g = Mul(s, f) y = Mul(half, g)"
    ),
    "scaled before": "d = Mul(s, half) y = Tanh(d)",
}
NUMBERS = {"root": np.float32(1.4142135), "one": np.float32(1), "half": np.float32(0.5)}


def product(body: str = GELU, shape: str = "N, 3, 5, 8", outputs: str = "float[] y", **weights: np.ndarray) -> onnx.ModelProto:
    given = {**NUMBERS, "w": random(8, 6), "b": random(6), **weights}
    body = body if "MatMul" in body else f"{PRODUCT} {body}"
    used = {
        name: value for name, value in given.items() if any(f" {name}{end}" in f" {body}".replace("(", " ") for end in ",)")
    }
    return parse(f"g (float[{shape}] x) => ({outputs}) {{ {body} }}", used, opset=20)


@pytest.mark.parametrize("curve", CURVES)
def test_every_curve(rewrite, curve):
    before = product(CURVES[curve])
    result = rewrite(before, (rule.RULE,), PINS, settings=MEASURED)
    assert result.rules == [NAME]
    assert sorted(operators(result.model)) == sorted(["Reshape", *operators(before), "Reshape"])
    assert worst_relative_error(before, result.model, PINS) < 1e-12


FORMS = {
    "bias first": product("p = MatMul(x, w) s = Add(b, p) y = Gelu(s)"),
    "bias with axes": product(b=random(1, 1, 6)),
    "bias with as many axes as the data": product(b=random(1, 1, 1, 6)),
    "a number with axes": product("d = Mul(s, half) y = Tanh(d)", half=random(1, 1, 1)),
    "one axis open": product(shape="N, 3, H, 8"),
    "five axes": product(shape="N, 3, 5, 1, 8"),
    "two readers of the result": product("y = Gelu(s) z = Neg(y)", outputs="float[] y, float[] z"),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form(rewrite, form):
    pins = {"x": (2, 3, 5, 1, 8)} if form == "five axes" else PINS
    result = rewrite(FORMS[form], (rule.RULE,), pins, settings=MEASURED)
    assert result.rules == [NAME]
    assert worst_relative_error(FORMS[form], result.model, pins) < 1e-12


REFUSALS = [
    Refusal(rule.builds_are_to_decide, product(), "with optimize: kernels", RewriteSettings()),
    Refusal(rule.sizes_are_known_but_for_one, product(shape="N, H, W, 8"), "too few are known", MEASURED),
    Refusal(rule.weights_are_a_matrix, product(w=random(3, 8, 6)), "w has 3 axes", MEASURED),
    Refusal(rule.weights_are_a_matrix, product(b=random(5, 1)), "b has shape [5, 1]", MEASURED),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refusals(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE)


NOTHING_TO_GAIN = {
    "three axes": product(shape="N, 3, 8"),
    "no curve": product("y = Mul(s, half)"),
    "a number with as many axes as the data": product("d = Mul(s, half) y = Tanh(d)", half=random(1, 1, 1, 1)),
    "a part is read": product("d = Div(s, root) y = Erf(d) z = Neg(d)", outputs="float[] y, float[] z"),
    "the sum is an output": product("y = Gelu(s)", outputs="float[] y, float[] s"),
    "another tensor comes in": product("q = Mul(s, x) y = Gelu(q)", w=random(8, 8), b=random(8)),
}


@pytest.mark.parametrize("case", NOTHING_TO_GAIN)
def test_nothing_is_said_where_there_is_nothing_to_gain(rewrite, case):
    result = rewrite(NOTHING_TO_GAIN[case], (rule.RULE,), PINS, settings=MEASURED)
    assert result.outcome.changes == []
    assert result.outcome.rejections == ()


def test_a_second_pass_changes_nothing(rewrite):
    once = rewrite(product(), pins=PINS, settings=MEASURED)
    assert once.rules == [NAME]
    assert rewrite(once.model, pins=PINS, settings=MEASURED).outcome.changes == []


@pytest.mark.rtx
@pytest.mark.parametrize("curve", ["gelu", "relu", "gelu in pieces"])
def test_kernels(tmp_path, curve):
    """Between two products, as everywhere in such models."""
    body = f"{PRODUCT} {CURVES[curve].replace('y =', 'a =')} y = MatMul(a, v)"
    before = product(body, "N, 14, 14, 96", w=random(96, 384), b=random(384), v=random(384, 96))
    rewritten = rewrite_model(loaded(before, tmp_path), settings=RewriteSettings(optimize="kernels"))
    assert [change.rule for change in rewritten.changes] == [NAME]
    batch = ({"x": tuple((size, 14, 14, 96) for size in (1, 2, 4))},)
    assert kernels(rewritten.model, tmp_path, batch) < kernels(before, tmp_path, batch)


@pytest.mark.parametrize(
    "body", ["p = MatMul(x, w) s = Add(p, p) y = Gelu(s)", "p = MatMul(x, w) q = MatMul(x, w) s = Add(p, q) y = Gelu(s)"]
)
def test_a_sum_of_two_products_has_no_bias(rewrite, body):
    """It ended with ``KeyError: 'bias'``, and was undone with a warning."""
    assert rewrite(product(body), (rule.RULE,), PINS, settings=MEASURED).rules == []


def test_a_site_is_left_out_by_the_tensor_that_its_change_is_known_by(tmp_path):
    """It is the activation's, and not the sum's at which the rule looks."""
    session = RewritingSession(loaded(product(), tmp_path), PINS, RewriteSettings(optimize="kernels"))
    (change,) = session.rewrite("always").changes
    assert session.rewrite("always", frozenset({change.tensor})).changes == ()
