"""Sequences in every form that is read or joined: what comes instead computes the same; what cannot be known stays."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import parse
from tests.onnx_model.running import random_feeds, run
from trtnorm_cli.onnx_model.clean import clean

SEQUENCES = {
    "SplitToSequence", "SequenceAt", "ConcatFromSequence", "SequenceConstruct", "SequenceInsert", "SequenceErase",
    "SequenceEmpty", "SequenceLength",
}  # fmt: skip


def check(body: str, weights: dict[str, object] | None = None, inputs: str = "float[N, 6, 5] x", opset: int = 18, **feeds):
    """Clean the model, which must leave no sequence, and compare it with the original."""
    constants = {name: np.asarray(value, dtype=np.int64) for name, value in (weights or {}).items()}
    model = parse(f"g ({inputs}) => (y) {{ {body} }}", constants, opset=opset)
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64 if "SequenceLength" in body else 1
    result = clean(model)
    left = {node.op_type for node in result.model.graph.node} & SEQUENCES
    assert not left, left
    given = {**random_feeds(model), **feeds}
    np.testing.assert_array_equal(run(model, given)["y"], run(result.model, given)["y"])
    assert clean(result.model).model == result.model
    return result


@pytest.mark.parametrize("index", [0, 1, 2, -1, -3])
@pytest.mark.parametrize(("axis", "keepdims"), [(0, 1), (1, 1), (-2, 1), (1, 0), (0, 0)])
def test_pieces_of_one(index, axis, keepdims):
    check(f"s = SplitToSequence<axis = {axis}, keepdims = {keepdims}>(x) y = SequenceAt(s, i)", {"i": index})


@pytest.mark.parametrize(("size", "index"), [(2, 0), (2, 1), (4, 1), (3, -1), (4, -1)])
def test_pieces_of_one_size(size, index):
    check("s = SplitToSequence<axis = 1>(x, size) y = SequenceAt(s, i)", {"size": size, "i": index})


@pytest.mark.parametrize("index", [0, 1])
def test_pieces_of_one_size_along_a_dynamic_axis(index):
    check("s = SplitToSequence<axis = 0>(x, size) y = SequenceAt(s, i)", {"size": 2, "i": index})


@pytest.mark.parametrize("index", [0, 1, 2])
def test_pieces_whose_size_is_known_at_run_time(index):
    feeds = {"size": np.array(2, dtype=np.int64)}
    check("s = SplitToSequence<axis = 1>(x, size) y = SequenceAt(s, i)", {"i": index}, "float[N, 6, 5] x, int64 size", **feeds)


@pytest.mark.parametrize("kind", ["int32", "int64"])
@pytest.mark.parametrize("index", [0, 1, 2])
def test_sizes_of_run_time_one_by_one(index, kind):
    feeds = {"sizes": np.array([1, 3, 2], dtype=kind)}
    inputs = f"float[N, 6, 5] x, {kind}[3] sizes"
    check("s = SplitToSequence<axis = 1>(x, sizes) y = SequenceAt(s, i)", {"i": index}, inputs, **feeds)


@pytest.mark.parametrize("sizes", [np.int32(2), np.array([1, 3, 2], dtype=np.int32)])
def test_constant_sizes_of_32_bits(sizes):
    body = "s = SplitToSequence<axis = 1>(x, sizes) y = SequenceAt(s, i)"
    model = parse(f"g (float[N, 6, 5] x) => (float[N, M, 5] y) {{ {body} }}", {"sizes": sizes, "i": np.int64(1)}, opset=18)
    result, given = clean(model).model, random_feeds(model)
    assert not {node.op_type for node in result.graph.node} & SEQUENCES
    np.testing.assert_array_equal(run(model, given)["y"], run(result, given)["y"])


def test_sizes_computed_from_the_input():
    body = """n = Shape<start = 1, end = 2>(x) two = Constant<value = int64 {2}>() h = Div(n, two) z = Squeeze(h)
    s = SplitToSequence<axis = 1>(x, z) a = SequenceAt(s, zero) b = SequenceAt(s, one) y = Sub(a, b)"""
    check(body, {"zero": 0, "one": 1}, "float[N, C, 5] x", x=np.arange(60, dtype=np.float32).reshape(2, 6, 5))


@pytest.mark.parametrize("body", [
    "s = SplitToSequence<axis = 0>(x) y = ConcatFromSequence<axis = 0>(s)",
    "s = SplitToSequence<axis = 0, keepdims = 0>(x) y = ConcatFromSequence<axis = 0, new_axis = 1>(s)",
    "s = SplitToSequence<axis = 1>(x) y = ConcatFromSequence<axis = 2>(s)",
    "s = SplitToSequence<axis = 1, keepdims = 0>(x) y = ConcatFromSequence<axis = -1, new_axis = 1>(s)",
    "a = Relu(x) s = SequenceConstruct(x, a) y = ConcatFromSequence<axis = -1>(s)",
    "a = Relu(x) s = SequenceConstruct(x, a) y = ConcatFromSequence<axis = 1, new_axis = 1>(s)",
    "a = Relu(x) e = SequenceEmpty<dtype = 1>() s = SequenceInsert(e, x) t = SequenceInsert(s, a, zero)"
    " y = ConcatFromSequence<axis = 0>(t)",
    "a = Relu(x) b = Neg(x) s = SequenceConstruct(x, a, b) t = SequenceErase(s, one) y = SequenceAt(t, one)",
    "a = Relu(x) b = Neg(x) s = SequenceConstruct(x, a, b) t = SequenceErase(s) y = SequenceAt(t, last)",
    "a = Relu(x) s = SequenceConstruct(x, a) y = SequenceLength(s)",
    "s = SplitToSequence<axis = 1>(x, four) y = SequenceLength(s)",
])  # fmt: skip
def test_lists_that_are_put_together(body):
    check(body, {"zero": 0, "one": 1, "last": -1, "four": 4})


def test_inside_a_branch():
    body = """s = SplitToSequence<axis = 1>(x, two)
    y = If(c) <then_branch = t () => (a) { a = SequenceAt(s, zero) }, else_branch = e () => (b) { b = SequenceAt(s, one) }>"""
    for side in (True, False):
        inputs = "float[N, 6, 5] x, bool c"
        check(body, {"two": 2, "zero": 0, "one": 1}, inputs, c=np.array(side))


@pytest.mark.parametrize(("body", "inputs", "reason"), [
    ("s = SplitToSequence<axis = 1>(x) y = SequenceAt(s, i)", "float[N, 6, 5] x, int64 i", "the position is not constant"),
    ("s = SplitToSequence<axis = 1>(x, n) y = SequenceAt(s, last)", "float[N, C, 5] x, int64 n", "the number is unknown"),
    ("s = SplitToSequence<axis = 1>(x, n) y = SequenceLength(s)", "float[N, C, 5] x, int64 n", "the number is unknown"),
])  # fmt: skip
def test_what_cannot_be_known_stays(body, inputs, reason):
    model = parse(f"g ({inputs}) => (y) {{ {body} }}", {"last": np.int64(-1)}, opset=18)
    model.graph.output[0].type.tensor_type.elem_type = 7 if "Length" in body else 1
    assert {node.op_type for node in clean(model).model.graph.node} & SEQUENCES, reason
