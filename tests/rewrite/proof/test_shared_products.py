"""A product that both sides make alike is taken for given, and nothing else is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.models import parse, random
from trtnorm_cli.onnx_model.surgery import Surgery
from trtnorm_cli.rewrite.rule import NewConstant, NewNode, NewTensors
from trtnorm_cli.rewrite.rules import drop_zero_bias
from trtnorm_cli.rewrite.scale_shift.affine import identity

RULE = drop_zero_bias.RULE
GRAPH = "g (float[2, 577, 64] x) => (float[] y) { p = MatMul(x, w) a = Add(p, b) y = Relu(a) }"


def model(bias: float = 0.0):
    return parse(GRAPH, {"w": random(64, 96), "b": np.full(96, bias, np.float32)})


def made_instead(node):
    """The rule with another replacement: ``node`` of the match and the product that is made again."""

    def replacement(m) -> NewTensors:
        (output, product), *_ = RULE.replacement(m).tensors
        return NewTensors(((output, node(m, product.node if hasattr(product, "node") else product)),))

    return replace(RULE, replacement=replacement)


def test_the_weights_of_a_product_that_stays_are_not_read_to_prove_what_follows(rewrite, monkeypatch):
    read = []
    real = Surgery.constant
    monkeypatch.setattr(Surgery, "constant", lambda self, tensor: read.append(tensor.name) or real(self, tensor))
    result = rewrite(model(), rules=(RULE,))
    (change,) = result.outcome.changes
    assert result.operators == ["MatMul", "Relu"]
    assert list(change.check.shapes) == ["p"]
    assert change.check.evaluated_with == "ONNX Runtime and float64"
    assert "b" in read
    assert "w" not in read


def other_weight(m, product: NewNode) -> NewNode:
    weight = m.surgery.constant(product.inputs[1]).copy()
    weight[63, 95] *= np.float32(1.001)
    return replace(product, inputs=(product.inputs[0], NewConstant("w", weight)))


DEFECTS = {
    "one weight": other_weight,
    "other data": lambda m, product: replace(product, inputs=(NewNode("Neg", product.inputs[:1], role="n"), product.inputs[1])),
    "what follows": lambda m, product: NewNode(
        "Mul", (replace(product, instead_of=None), NewConstant("f", np.array(1.001, np.float32))), role="m"
    ),
    "another operator": lambda m, product: NewNode("Abs", (replace(product, instead_of=None),), role="a"),
}


@pytest.mark.parametrize("defect", DEFECTS.values(), ids=DEFECTS)
def test_a_planted_defect_fails(rewrite, defect):
    result = rewrite(model(), rules=(made_instead(defect),), may_be_undone=True)
    assert result.outcome.changes == []
    (undone,) = result.outcome.undone
    assert "the outputs differ by" in undone.reason


def test_a_bias_that_is_dropped_though_it_is_not_zero_fails(rewrite, monkeypatch):
    monkeypatch.setattr(drop_zero_bias, "scale_and_shift_of", lambda operation: identity(3))
    result = rewrite(model(bias=1e-3), rules=(RULE,), may_be_undone=True)
    assert result.outcome.changes == []
    assert len(result.outcome.undone) == 1
