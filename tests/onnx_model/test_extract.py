"""Nodes cut out of a model as a model of their own."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import operators, parse, random
from trtnorm_cli.onnx_model.extract import CannotBeCut, extract
from trtnorm_cli.onnx_model.shapes import TensorType, pinned_types

MODEL = parse(
    "g (float[N, 4] x) => (float[N, 4] y, float[N, 4] d) { k = Constant <value = float {2}> () a = Relu(x) b = Mul(a, k) "
    "c = Add(b, w) d = Neg(b) y = Add(c, a) }",
    {"w": random(4), "unused": random(2)},
)


def cut(*wanted: int, model: onnx.ModelProto = MODEL) -> onnx.ModelProto:
    part = extract(model, wanted, pinned_types(model, {"x": (2, 4)}))
    onnx.checker.check_model(part)
    return part


def shape(value: onnx.ValueInfoProto) -> list[int]:
    return [dim.dim_value for dim in value.type.tensor_type.shape.dim]


def test_a_part_in_the_middle():
    part = cut(2, 3)  # Mul, Add
    assert operators(part) == ["Constant", "Mul", "Add"]
    assert [(value.name, shape(value)) for value in part.graph.input] == [("a", [2, 4])]
    assert [value.name for value in part.graph.output] == ["b", "c"], "b is read outside, too"
    assert [tensor.name for tensor in part.graph.initializer] == ["w"]


def test_what_nobody_reads_is_an_output():
    assert [value.name for value in cut(1).graph.output] == ["a"]
    assert [value.name for value in cut(1, 2, 3, 4, 5).graph.output] == ["d", "y"]


def test_the_whole_model_computes_the_same():
    import onnxruntime as ort

    part = cut(*range(6))
    feed = {"x": random(2, 4)}
    cpu = ["CPUExecutionProvider"]
    (y, d), again = (ort.InferenceSession(m.SerializeToString(), providers=cpu).run(["y", "d"], feed) for m in (MODEL, part))
    np.testing.assert_array_equal(y, again[0])
    np.testing.assert_array_equal(d, again[1])


def test_what_a_branch_reads_from_outside_is_an_input():
    model = parse(
        "g (float[2] x, bool c) => (float[2] y) { a = Abs(x) b = Neg(x) y = If (c) <then_branch = t () => (float[2] s) "
        "{ m = Relu(a) s = Add(m, b) }, else_branch = e () => (float[2] o) { o = Identity(x) }> }"
    )
    part = extract(model, [2], pinned_types(model, {"x": (2,), "c": ()}))
    onnx.checker.check_model(part)
    assert sorted(value.name for value in part.graph.input) == ["a", "b", "c", "x"]


def test_a_tensor_of_unknown_rank_cannot_be_cut_at():
    with pytest.raises(CannotBeCut, match="a"):
        extract(MODEL, [2], {"a": TensorType(onnx.TensorProto.FLOAT, None)})
    with pytest.raises(CannotBeCut, match="a"):
        extract(MODEL, [2], {})


def test_the_model_is_not_changed():
    before = MODEL.SerializeToString(deterministic=True)
    cut(2, 3)
    assert MODEL.SerializeToString(deterministic=True) == before
