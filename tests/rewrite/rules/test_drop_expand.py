"""drop-expand: what is expanded only to be broadcast, as in F.normalize of both PyTorch exporters."""

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
from trtnorm_cli.rewrite.rules import drop_expand as rule

NAME = rule.RULE.name
PINS = {"x": (2, 3, 8)}


def normalized(
    shape: str = "N, S, 8", target: str = "t = Shape(x)", divide: str = "y = Div(x, d)", **further: np.ndarray
) -> onnx.ModelProto:
    body = f"l = ReduceL2 <axes=[-1]> (x) c = Clip(l, eps) {target} d = Expand(c, t) {divide}"
    return parse(f"g (float[{shape}] x) => (float[] y) {{ {body} }}", {"eps": np.float32(1e-12), **further})


FORMS = {
    "the shape of the data": normalized(),
    "sizes one by one": normalized(
        target="s = Shape(x) i0 = Constant <value = int64[1] {0}> () i1 = Constant <value = int64[1] {1}> ()"
        " n0 = Gather(s, i0) n1 = Gather(s, i1) t = Concat <axis=0> (n0, n1, eight)",
        eight=np.array([8]),
    ),
    "known sizes": normalized("2, 3, 8", target="", t=np.array([2, 3, 8])),
    "operands swapped": normalized(divide="y = Mul(d, x)"),
    "subtracted": normalized(divide="y = Sub(x, d)"),
    "added": normalized(divide="y = Add(d, x)"),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form(rewrite, form):
    result = rewrite(FORMS[form], (rule.RULE,), PINS)
    assert result.rules == [NAME]
    assert operators(result.model)[:2] == ["ReduceL2", "Clip"]
    assert len(operators(result.model)) == 3
    assert worst_relative_error(FORMS[form], result.model, PINS) < 1e-12


REFUSALS = [
    Refusal(rule.other_operand_has_the_shape, normalized("2, 1, 8", target="", t=np.array([2, 3, 8])), "shape of x"),
    Refusal(rule.other_operand_has_the_shape, normalized("N, S, 8", target="", t=np.array([2, 3, 8])), "shape of x"),
    Refusal(
        rule.other_operand_has_the_shape,
        parse("g (float[8, 8, 8] x, float[8] c) => (float[] y) { d = Expand(c, t) y = Mul(x, d) }", {"t": np.array([8, 8])}),
        "not known to expand to the shape of x",
    ),
    Refusal(
        rule.other_operand_has_the_shape,
        parse(
            "g (float[N, 8] a, int64[K] k, float[1] q) => (float[] y)"
            " { x = Reshape(a, k) t = Shape(x) d = Expand(q, t) y = Mul(x, d) }"
        ),
        "the rank of x is not known",
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE)


def test_expanded_for_somebody_else_too(rewrite):
    result = rewrite(normalized(divide="k = Div(x, d) y = Add(k, d)"), (rule.RULE,), PINS)
    assert result.outcome.changes == []
    assert any("d is also used by" in rejection.reason for rejection in result.outcome.rejections)


def test_other_operators_are_not_explained(rewrite):
    assert (
        rewrite(parse("g (float[N, 8] x, float[8] b) => (float[] y) { y = Add(x, b) }"), (rule.RULE,)).outcome.rejections == ()
    )


def test_can_be_left_out(rewrite):
    assert rewrite(normalized(), (rule.RULE,), settings=RewriteSettings(optimize="never")).outcome.changes == []


def test_a_second_pass_changes_nothing(rewrite):
    once = rewrite(normalized(), pins=PINS)
    assert once.rules == [NAME]
    assert rewrite(once.model, pins=PINS).outcome.changes == []


@pytest.mark.rtx
def test_kernels(tmp_path):
    before = parse(
        "g (float[2, 197, 64] i) => (float[] o) { x = MatMul(i, w) l = ReduceL2 <axes=[-1]> (x) c = Clip(l, eps) t = Shape(x)"
        " d = Expand(c, t) y = Div(x, d) o = MatMul(y, w) }",
        {"eps": np.float32(1e-12), "w": random(64, 64)},
    )
    rewritten = rewrite_model(loaded(before, tmp_path)).model
    assert kernels(before, tmp_path) > kernels(rewritten, tmp_path)
