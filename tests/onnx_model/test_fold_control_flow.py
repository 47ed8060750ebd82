"""Folding around and inside If, Loop and Scan."""

from __future__ import annotations

from tests.models import operators, parse, random
from tests.onnx_model.running import assert_same, run_both
from trtnorm_cli.onnx_model.clean import clean


def test_a_branch_on_a_constant_is_taken():
    model = parse(
        """g (float[N, 3] x) => (float[N, 3] y, float[N, 3] z, float[2] v) <bool yes = {1}, bool no = {0}> {
        y = If (yes) <then_branch = t () => (float[N, 3] a) { k = Relu(x) a = Neg(k) },
                      else_branch = e () => (float[N, 3] a) { a = Abs(x) }>
        z = If (no) <then_branch = t () => (float[N, 3] a) { a = Abs(x) },
                     else_branch = e () => (float[N, 3] a) { k = Sigmoid(x) a = Neg(k) }>
        v = If (yes) <then_branch = t () => (float[2] a) <float[2] a = {1, 2}> { },
                      else_branch = e () => (float[2] a) { a = Constant<value = float[2] {3, 4}>() }> }"""
    )
    result = clean(model)
    assert operators(result.model) == ["Relu", "Neg", "Sigmoid", "Neg", "Identity"]
    assert_same(model, result.model)


def test_one_value_under_two_output_names_of_a_branch():
    model = parse(
        """g (float[N, 3] x) => (float[N, 3] y, float[N, 3] z) <bool yes = {1}> {
        y, z = If (yes) <then_branch = t () => (float[N, 3] a, float[N, 3] b) { a = Relu(x) b = Identity(a) },
                         else_branch = e () => (float[N, 3] a, float[N, 3] b) { a = Abs(x) b = Exp(x) }> }"""
    )
    result = clean(model)
    assert operators(result.model) == ["Relu", "Identity"]
    assert_same(model, result.model)


def test_constants_of_the_outer_graph_are_folded_inside_a_loop():
    model = parse(
        """g (float[3] x) => (float[3] y) <int64 n = {3}, bool go = {1}> {
        v = Identity(w) u = Neg(v)
        y = Loop (n, go, x) <body = b (int64 i, bool c, float[3] s) => (bool d, float[3] t) {
          d = Identity(c) two = Constant<value_float = 2.0>() k = Mul(u, two) p = Mul(s, k) t = Add(p, u) }> }""",
        {"w": random(3)},
    )
    result = clean(model)
    assert operators(result.model) == ["Loop"]
    (body,) = (a.g for a in result.model.graph.node[0].attribute)
    assert [node.op_type for node in body.node] == ["Identity", "Mul", "Add"]
    assert_same(model, result.model)


def test_the_shape_of_a_value_carried_by_a_loop_is_not_taken_from_the_body():
    model = parse(
        """g (float[1] x) => (int64 y) <int64 n = {3}, bool go = {1}, int64 zero = {0}> {
        last, y = Loop (n, go, x, zero) <body = b (int64 i, bool c, float[1] s, int64 old) => (bool d, float[2] t, int64 m) {
          d = Identity(c) t = Concat<axis = 0>(s, s) m = Size(s) }> }"""
    )
    result = clean(model)
    (body,) = (a.g for a in result.model.graph.node[0].attribute)
    assert [node.op_type for node in body.node] == ["Identity", "Concat", "Size"]
    assert run_both(model, result.model)[1]["y"] == 4


def test_one_value_that_a_scan_both_carries_and_collects():
    model = parse(
        """g (float[3, 2] x) => (float[2] y, float[3, 2] z) <float[2] start = {1, 2}> {
        y, z = Scan <num_scan_inputs = 1, body = b (float[2] s, float[2] e) => (float[2] t, float[2] o) {
          t = Add(s, e) o = Identity(t) }> (start, x) }"""
    )
    assert_same(model, clean(model).model)
