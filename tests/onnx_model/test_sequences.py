"""Elements of sequences become slices, which compute the same; what cannot be told stays."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import operators, parse, random
from tests.onnx_model.running import cleaned, run


def element(make: str, index: str = "1", opset: int = 17) -> onnx.ModelProto:
    """The element ``index`` of the sequence ``s`` that the nodes ``make`` give."""
    nodes = f"{make} i = Constant<value_int = {index}>() y = SequenceAt(s, i)"
    return parse(f"g (float[N, L, 6] x) => (float[A, B, C] y) {{ {nodes} }}", opset=opset)


def same_at(model: onnx.ModelProto, *shapes: tuple[int, ...]) -> list[str]:
    """The operators after cleaning; both models compute the same at each shape."""
    result = cleaned(model).model
    for shape in shapes or ((2, 5, 6), (3, 8, 6)):
        feeds = {"x": random(*shape)}
        np.testing.assert_array_equal(run(result, feeds)["y"], run(model, feeds)["y"], err_msg=str(shape))
    return operators(result)


@pytest.mark.parametrize("index", ["0", "1", "2"])
def test_a_dynamic_axis_in_parts_of_one_size(index):
    model = element("n = Constant<value_int = 2>() s = SplitToSequence<axis = 1>(x, n)", index)
    assert same_at(model, (2, 5, 6), (2, 6, 6)) == ["Slice"]


@pytest.mark.parametrize("opset", [11, 12, 13, 17, 21])
def test_the_last_part_may_be_smaller(opset):
    model = element("n = Constant<value = int64 {4}>() s = SplitToSequence<axis = -1>(x, n)", "1", opset)
    assert same_at(model) in (["Slice"], ["Split"])


@pytest.mark.parametrize("index", ["0", "1", "2", "-1", "-3"])
@pytest.mark.parametrize("opset", [12, 17])
def test_parts_of_their_own_sizes(index, opset):
    model = element("n = Constant<value = int64[3] {1, 3, 2}>() s = SplitToSequence<axis = 2>(x, n)", index, opset)
    assert same_at(model) in (["Slice"], ["Split"])


@pytest.mark.parametrize("index", ["0", "1", "-1"])
def test_single_entries_with_and_without_their_axis(index):
    assert same_at(element("s = SplitToSequence<axis = 1>(x)", index)) == ["Slice"]
    model = element("s = SplitToSequence<axis = 1, keepdims = 0>(x)", index)
    model.graph.output[0].type.tensor_type.shape.dim.pop()
    assert same_at(model) == ["Gather"]


@pytest.mark.parametrize("index", ["0", "1"])
def test_a_size_that_is_known_at_run_time(index):
    make = """z = Constant<value_ints = [0]>() one = Constant<value_int = 1>() two = Constant<value_int = 2>()
    l = Shape<start = 1, end = 2>(x) q = Squeeze(l, z) m = Add(q, one) n = Div(m, two)
    s = SplitToSequence<axis = 1>(x, n)"""
    assert "SequenceAt" not in same_at(element(make, index), (2, 5, 6), (2, 8, 6))


def test_a_sequence_that_is_constructed():
    make = "a = Relu(x) b = Neg(x) s = SequenceConstruct(a, b)"
    assert same_at(element(make, "1")) == ["Neg"]
    assert same_at(element(make, "-2")) == ["Relu"]


def test_a_negative_index_needs_the_number_of_parts():
    unknown = element("n = Constant<value_int = 2>() s = SplitToSequence<axis = 1>(x, n)", "-1")
    assert operators(cleaned(unknown).model) == ["SplitToSequence", "SequenceAt"]
    known = element("n = Constant<value_int = 4>() s = SplitToSequence<axis = 2>(x, n)", "-1", opset=12)
    assert same_at(known) == ["Slice"]


def test_an_index_that_is_not_constant_stays():
    model = parse(
        "g (float[N, L, 6] x, int64 i) => (float[A, B, C] y) { s = SplitToSequence<axis = 1>(x) y = SequenceAt(s, i) }"
    )
    assert operators(cleaned(model).model) == ["SplitToSequence", "SequenceAt"]


def test_the_sequence_stays_for_other_readers():
    model = parse(
        """g (float[N, L, 6] x) => (float[A, B, C] y, int64 z) { n = Constant<value_int = 2>()
        s = SplitToSequence<axis = 1>(x, n) i = Constant<value_int = 0>() y = SequenceAt(s, i) z = SequenceLength(s) }"""
    )
    assert sorted(operators(cleaned(model).model)) == ["SequenceLength", "Slice", "SplitToSequence"]


def test_names_are_kept_and_new_ones_are_free():
    model = element("n = Constant<value_int = 2>() s = SplitToSequence<axis = 1>(x, n)")
    model.graph.node[-1].name = "block/chunk"
    model.graph.node[0].name = "block/chunk_0"
    (node,) = cleaned(model).model.graph.node
    assert (node.name, list(node.output)) == ("block/chunk", ["y"])


def test_all_parts_of_an_attention():
    model = parse(
        """g (float[N, L, 6] x) => (float[N, L, 2] y) { n = Constant<value_int = 2>()
        r = Reshape(x, shape) s = SplitToSequence<axis = -1>(r, n)
        i = Constant<value_int = 0>() j = Constant<value_int = 1>() k = Constant<value_int = 2>()
        a = SequenceAt(s, i) b = SequenceAt(s, j) c = SequenceAt(s, k) d = Mul(a, b) y = Add(d, c) }""",
        {"shape": np.array([0, -1, 6])},
    )
    assert "SequenceAt" not in same_at(model)
