"""Shapes that are computed in the graph: what their elements are, and which nodes compute them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import parse
from trtnorm_cli.onnx_model.shapes import declared_types
from trtnorm_cli.onnx_model.surgery import open_model
from trtnorm_cli.rewrite.parts.shape_elements import AxisSize, shape_elements
from trtnorm_cli.rewrite.pattern import Bindings, Var, op
from trtnorm_cli.rewrite.proof.shape_sources import shape_sources
from trtnorm_cli.rewrite.rule import Match, NewNode, Rule

INTS = {f"i{n}": np.array([n], np.int64) for n in range(5)} | {"zero": np.array(0, np.int64), "minus": np.array([-1], np.int64)}
INTS["pair"] = np.array([2, -4], np.int64)
N, H = AxisSize("x", 0), AxisSize("x", 2)


def matched(nodes: str, opset: int = 18, last: str = "s") -> Match:
    """The Reshape that reads ``last``, as a rule would see it."""
    model = parse(
        f"g (float[N, 4, H, 6] x, int64[3] free) => (float[] y) {{ {nodes} y = Reshape(x, {last}) }}", INTS, opset=opset
    )
    typed = onnx.shape_inference.infer_shapes(model)
    surgery = open_model(typed, None)
    root = surgery.graph.nodes[-1]
    rule = Rule("test", op("Reshape", Var("x"), Var("s"), name="r"), (), lambda m: NewNode("Identity", (m.given("x"),)), "")
    bindings = Bindings({"x": root.inputs[0], "s": root.inputs[1]}, {"r": root})
    return Match(rule, root, bindings, surgery, declared_types(typed))


@pytest.mark.parametrize(
    ("nodes", "elements"),
    [
        ("s = Shape(x)", [N, 4, H, 6]),
        ("s = Shape <start=1, end=3> (x)", [4, H]),
        ("s = Shape <start=-1> (x)", [6]),
        ("a = Shape(x) s = Gather(a, i2)", [H]),
        ("a = Shape(x) s = Gather(a, pair)", [H, N]),
        ("a = Shape(x) b = Gather(a, zero) s = Unsqueeze(b, zero)", [N]),
        ("a = Shape(x) s = Slice(a, i1, i3)", [4, H]),
        ("a = Shape(x) s = Slice(a, i1, i3, i0, i1)", [4, H]),
        ("a = Shape(x) b = Slice(a, i0, i1) s = Concat <axis=0> (b, minus, i3)", [N, -1, 3]),
        ("a = Shape(x) b = Cast <to=6> (a) s = Cast <to=7> (b)", [N, 4, H, 6]),
        ("s = Identity(i3)", [3]),
    ],
)
def test_elements(nodes, elements):
    m = matched(nodes)
    assert shape_elements(m, m.given("s")) == elements


def test_a_size_of_run_time_is_an_element_of_its_own():
    m = matched("f = Cast <to=1> (x) u = NonZero(f) s = Shape(u)")
    assert shape_elements(m, m.given("s")) == [4, AxisSize("u", 1)]


@pytest.mark.parametrize(
    "nodes",
    [
        "s = Identity(free)",
        "a = Shape(x) s = Mul(a, i2)",
        "a = Shape(x) s = Slice(a, i0, i4, i0, i2)",
        "a = Shape(x) s = Slice(a, free, i3)",
        "a = Shape(x) s = Slice(a, pair, pair)",
        "a = Shape(x) s = Gather(a, free)",
        "a = Shape(x) b = Gather(a, i1) s = Concat <axis=0> (b, free)",
    ],
)
def test_what_is_not_known(nodes):
    m = matched(nodes)
    assert shape_elements(m, m.given("s")) is None


def test_attributes_of_old_opsets():
    m = matched("a = Shape(x) s = Slice <starts=[1], ends=[3]> (a)", opset=9)
    assert shape_elements(m, m.given("s")) == [4, H]


@pytest.mark.parametrize(
    ("nodes", "operators"),
    [
        ("s = Shape(x)", ["Shape"]),
        ("a = Shape(x) b = Slice(a, i0, i1) s = Concat <axis=0> (b, minus)", ["Shape", "Slice", "Concat"]),
        ("a = Shape(x) b = Mul(a, a) s = Div(b, a)", ["Shape", "Mul", "Div"]),
    ],
)
def test_what_computes_a_shape(nodes, operators):
    m = matched(nodes)
    sources = shape_sources(m, [m.given("s")])
    assert [node.op for node in sources.nodes] == operators
    assert [tensor.name for tensor in sources.tensors] == ["x"]


@pytest.mark.parametrize(
    "nodes",
    ["s = Identity(free)", "a = Shape(x) s = Add(a, free)", "f = Relu(x) u = NonZero(f) s = Cast <to=7> (u)"],
)
def test_numbers_that_are_no_shapes_are_fed(nodes):
    m = matched(nodes)
    sources = shape_sources(m, [m.given("s"), m.given("x")])
    assert (sources.nodes, sources.tensors) == ([], [])


def test_the_shape_of_what_is_replaced_cannot_be_asked_for():
    """The replacement has no such tensor."""
    model = parse("g (float[N, 4] x) => (float[] y) { r = Relu(x) s = Shape(r) y = Reshape(r, s) }")
    typed = onnx.shape_inference.infer_shapes(model)
    surgery = open_model(typed, None)
    relu, _, reshape = surgery.graph.nodes
    rule = Rule("test", op("Reshape", Var("x"), name="r"), (), lambda m: NewNode("Identity", (m.given("x"),)), "")
    bindings = Bindings({"s": reshape.inputs[1]}, {"reshape": reshape, "relu": relu})
    m = Match(rule, reshape, bindings, surgery, declared_types(typed))
    assert shape_sources(m, [reshape.inputs[1]]).nodes == []
