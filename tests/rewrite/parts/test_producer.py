"""Nodes that make a tensor, where they are what a rule looks for."""

from __future__ import annotations

import pytest

from tests.models import parse
from trtnorm_cli.onnx_model.surgery import open_model
from trtnorm_cli.rewrite.parts.dynamic_quantization import given, producer

MODEL = "g (float[4] x) => (float[4] y) { a = Cast<to=1>(x) b = other.Cast<to=1>(a) c = Cast<to=1>(b) y = Clip(c, , x) }"


@pytest.mark.parametrize(
    ("tensor", "operators", "made_by"),
    [
        ("a", ("Cast",), "Cast"),
        ("c", ("Mul", "Cast"), "Cast"),
        ("c", ("Mul",), None),
        ("b", ("Cast",), None),
        ("x", ("Cast",), None),
    ],
)
def test_only_onnx_s_own_operators_are_looked_for(tensor, operators, made_by):
    model = parse(MODEL)
    model.opset_import.add(domain="other", version=1)
    found = producer(open_model(model, None).graph.tensors()[tensor], *operators)
    assert (None if found is None else found.op) == made_by


def test_an_input_that_is_left_out_is_none():
    model = parse(MODEL)
    model.opset_import.add(domain="other", version=1)
    node = open_model(model, None).graph.nodes[-1]
    assert [tensor and tensor.name for tensor in (given(node, index) for index in range(4))] == ["c", None, "x", None]
