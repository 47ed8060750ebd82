"""Patterns: what fits, and the reason in words when something does not."""

from __future__ import annotations

import pytest

from tests.models import parse, random
from trtnorm_cli.onnx_model.surgery import open_model
from trtnorm_cli.rewrite.pattern import (
    Bindings,
    Const,
    Mismatch,
    Var,
    describe,
    either,
    fed_by,
    match,
    op,
    optional,
    root_fits,
    titled,
)

ADD_MUL = op("Add", op("Mul", Var("x"), Const("k"), name="mul"), Const("c"), name="add")


def opened(graph: str):
    return open_model(parse(graph, {"w": random(4), "v": random(4)}), None)


def fit(pattern, graph: str, node: int = -1):
    surgery = opened(graph)
    return match(pattern, surgery.graph.nodes[node], surgery)


def test_names_are_bound():
    bindings = fit(ADD_MUL, "g (float[4] a) => (float[4] y) { m = Mul(a, w) y = Add(m, v) }")
    assert isinstance(bindings, Bindings)
    assert {name: tensor.name for name, tensor in bindings.tensors.items()} == {"x": "a", "k": "w", "c": "v"}
    assert list(bindings.nodes) == ["add", "mul"]


def test_a_constant_node_is_a_constant():
    bindings = fit(ADD_MUL, "g (float[4] a) => (float[4] y) { k = Constant <value_float=2.0>() m = Mul(a, k) y = Add(m, v) }")
    assert isinstance(bindings, Bindings)


@pytest.mark.parametrize(("graph", "reason"), [
    ("{ y = Mul(a, w) }", "Mul -> y is Mul, not Add"),
    ("{ y = Add(a, v) }", "Add -> y is fed by a, an input of its graph, not by Mul"),
    ("{ y = Add(w, v) }", "Add -> y is fed by w, a constant, not by Mul"),
    ("{ m = Div(a, w) y = Add(m, v) }", "Add -> y is fed by Div -> m, which is Div, not Mul"),
    ("{ m = Mul(w, a) y = Add(m, v) }", "a, input 1 of Mul -> m, is computed at run time"),
    ("{ [first] m = Mul(w, a) [last] y = Add(m, v) }", "a, input 1 of first, is computed at run time"),
    ('{ m = Mul(a, w) y = Add(m, "") }', "input 1 of Add -> y is left out"),
    ("{ m = Mul(a, w) y = Add(m) }", "input 1 of Add -> y is left out"),
    ("{ m = Mul(a, w) y = Add(m, v, v) }", "Add -> y has 3 inputs, at most 2 are understood"),
    ("{ k = Identity(w) m = Mul(a, k) y = Add(m, v) }", "k, input 1 of Mul -> m, is computed at run time"),
])  # fmt: skip
def test_a_mismatch_says_why(graph, reason):
    found = fit(ADD_MUL, f"g (float[4] a) => (float[4] y) {graph}")
    assert found == Mismatch(reason)


CLIP = op("Clip", Var("x"), optional(Const("low")), optional(op("Neg", Const("n"), name="neg")), name="clip")


@pytest.mark.parametrize(("arguments", "low", "n"), [
    ("a", None, None), ("a, w", "w", None), ('a, ""', None, None), ('a, "", h', None, "v"), ("a, w, h", "w", "v"),
    ('a, w, ""', "w", None),
])  # fmt: skip
def test_optional_inputs(arguments, low, n):
    bindings = fit(CLIP, f"g (float[4] a) => (float[4] y) {{ h = Neg(v) y = Clip({arguments}) }}")
    assert isinstance(bindings, Bindings)
    assert {name: tensor and tensor.name for name, tensor in bindings.tensors.items()} == {"x": "a", "low": low, "n": n}


def test_an_optional_input_of_the_wrong_kind_is_a_mismatch():
    found = fit(CLIP, "g (float[4] a) => (float[4] y) { h = Abs(v) y = Clip(a, w, h) }")
    assert found == Mismatch("Clip -> y is fed by Abs -> h, which is Abs, not Neg")


def test_several_operators_may_serve():
    pattern = op(("Add", "Sub"), Var("x"), Const("c"), name="sum")
    for operator, fits in (("Add", True), ("Sub", True), ("Mul", False)):
        found = fit(pattern, f"g (float[4] a) => (float[4] y) {{ y = {operator}(a, w) }}")
        assert isinstance(found, Bindings) is fits


def test_another_domain_is_another_operator():
    surgery = opened("g (float[4] a) => (float[4] y) { y = Add(a, w) }")
    (node,) = surgery.graph.nodes
    pattern = op("Add", Var("x"), Const("c"), name="sum")
    for domain, fits in ((None, True), ("", True), ("ai.onnx", True), ("com.microsoft", False)):
        node.domain = domain
        assert root_fits(pattern, node) is fits


def test_matching_edits_nothing():
    surgery = opened("g (float[4] a) => (float[4] y) { m = Mul(a, w) y = Add(m, v) }")
    before = surgery.close().SerializeToString(deterministic=True)
    match(ADD_MUL, surgery.graph.nodes[-1], surgery)
    assert surgery.close().SerializeToString(deterministic=True) == before


def test_a_node_is_described_by_name_or_by_what_it_makes():
    surgery = opened("g (float[4] a) => (float[4] y) { [scale] m = Mul(a, w) y = Add(m, v) }")
    assert [describe(node) for node in surgery.graph.nodes] == ["scale", "Add -> y"]


TILED = op("Add", either(op("Tile", Const("k"), Var("n"), name="tile"), Const("k")), Var("x"), name="add")


def test_one_of_several_spellings():
    for before, nodes in (("t = Tile(w, v) y = Add(t, a)", ["add", "tile"]), ("y = Add(w, a)", ["add"])):
        bindings = fit(TILED, f"g (float[4] a) => (float[4] y) {{ {before} }}")
        assert isinstance(bindings, Bindings)
        assert list(bindings.nodes) == nodes
        assert bindings.tensors["k"].name == "w"


def test_a_spelling_that_does_not_fit_leaves_no_names_behind():
    half = op("Add", either(op("Tile", Var("k"), Const("n"), name="tile"), Var("other")), Var("x"), name="add")
    bindings = fit(half, "g (float[4] a, float[4] n) => (float[4] y) { t = Tile(w, n) y = Add(t, a) }")
    assert isinstance(bindings, Bindings)
    assert set(bindings.tensors) == {"other", "x"}
    assert list(bindings.nodes) == ["add"]


def test_every_spelling_says_why_it_does_not_fit():
    mismatch = fit(TILED, "g (float[4] a) => (float[4] y) { t = Neg(a) y = Add(t, a) }")
    assert isinstance(mismatch, Mismatch)
    assert mismatch.reason == (
        "Add -> y is fed by Neg -> t, which is Neg, not Tile; t, input 0 of Add -> y, is computed at run time"
    )


def test_names_of_an_input_left_out_are_those_of_every_spelling():
    pattern = op("Clip", Var("x"), optional(either(op("Neg", Var("a"), name="neg"), Const("b"))), name="clip")
    bindings = fit(pattern, "g (float[4] x) => (float[4] y) { y = Clip(x) }")
    assert isinstance(bindings, Bindings)
    assert bindings.tensors == {"x": bindings.tensors["x"], "a": None, "b": None}


def test_what_feeds_a_node():
    surgery = opened("g (float[4] a) => (float[4] y) { [n] t = Neg(a) y = Add(t, a) }")
    neg, add = surgery.graph.nodes
    assert fed_by("Neg", "Abs")(add, surgery)
    assert not fed_by("Abs")(add, surgery)
    assert not fed_by("Neg")(neg, surgery)
    assert [titled(node) for node in (neg, add)] == ["Neg n", "Add -> y"]
