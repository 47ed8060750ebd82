"""Types and shapes of a model's tensors, as the file states them and at pinned sizes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import batchnorm, parse, random
from trtnorm_cli.onnx_model.shapes import (
    TensorType,
    declared_types,
    default_pins,
    model_inputs,
    pinned_types,
)

FLOAT, INT64 = 1, 7


def test_dimensions_are_numbers_symbols_or_unknown():
    model = parse("g (float[N, 3, ?, 8] x, int64[] s, float q) => (float[] y) { y = Reshape(x, s) }")
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = -1  # written by some exporters
    assert model_inputs(model) == {
        "x": TensorType(FLOAT, ("N", None, None, 8)),
        "s": TensorType(INT64, None),
        "q": TensorType(FLOAT, ()),
    }


def test_initializers_and_sequences_are_no_inputs_to_feed():
    model = parse("g (float[2] x, float[2] w, seq(float[2]) s) => (float[2] y) { y = Add(x, w) }", {"w": random(2)})
    assert list(model_inputs(model)) == ["x"]


@pytest.mark.parametrize(("kind", "static"), [
    (TensorType(FLOAT, (1, 2)), True), (TensorType(FLOAT, ()), True), (TensorType(FLOAT, None), False),
    (TensorType(FLOAT, ("N",)), False), (TensorType(FLOAT, (None,)), False),
])  # fmt: skip
def test_static(kind, static):
    assert kind.is_static is static


IF = """g (float[2, 4] x, bool t) => (float[2, 4] y) {{ y = If (t) <
    then_branch = a () => (float[2, 4] p) {{ c = Relu(x) p = Neg(c) }},
    else_branch = b () => (float[2, 4] q) {{ {rest} }}> }}"""


def test_types_of_branches():
    model = onnx.shape_inference.infer_shapes(parse(IF.format(rest="d = Abs(x) q = Neg(d)")))
    types = declared_types(model)
    assert types["c"] == types["d"] == TensorType(FLOAT, (2, 4))


@pytest.mark.parametrize(("rest", "common"), [
    ("c = Abs(x) q = Neg(c)", TensorType(FLOAT, (2, 4))),
    ("c = Transpose(x) q = Transpose(c)", TensorType(FLOAT, (None, None))),
    ("s = Constant <value = int64[1] {8}>() c = Reshape(x, s) z = Shape(x) q = Reshape(c, z)", TensorType(FLOAT, None)),
    ("c = Shape(x) q = Reshape(x, c)", TensorType(0, None)),
])  # fmt: skip
def test_one_name_for_different_tensors_of_two_branches(rest, common):
    """Valid ONNX: then only what both have in common is known."""
    model = onnx.shape_inference.infer_shapes(parse(IF.format(rest=rest)))
    onnx.checker.check_model(model)
    assert declared_types(model)["c"] == common


def test_default_pins():
    model = parse("g (float[N, 3, H, 8] x, float[?] v, int64 s) => (float[] y) { y = Odd(x, v, s) }")
    assert default_pins(model) == {"x": (2, 3, 32, 8), "v": (2,), "s": ()}
    assert default_pins(model, 64)["x"] == (2, 3, 64, 8)


def test_shapes_at_pinned_sizes():
    model = parse(
        "g (float[N, 2, H, W] x) => (float[N, 4, ?, ?] y)"
        "{ c = Conv <strides=[2, 2]>(x, w) s = Shape(c) f = Flatten(c) y = Reshape(f, s) }",
        {"w": random(4, 2, 3, 3)},
    )
    types = pinned_types(model, {"x": (5, 2, 9, 11)})
    assert types["c"].shape == (5, 4, 4, 5)
    assert types["f"].shape == (5, 80)
    assert types["y"].shape == (5, 4, 4, 5)


def test_stale_shapes_of_the_file_are_not_believed():
    model = parse("g (float[N, 4] x) => (float[7, 4] y) { c = Relu(x) y = Neg(c) }")
    value = model.graph.value_info.add(name="c")
    value.type.CopyFrom(onnx.helper.make_tensor_type_proto(FLOAT, [7, 4]))
    types = pinned_types(model, {"x": (3, 4)})
    assert types["c"].shape == types["y"].shape == (3, 4)


def test_large_weights_are_not_read():
    """Their bytes are in another file, or too many: only type and shape matter."""
    model = parse("g (float[N, 2000] x) => (float[N, 3] y) { y = MatMul(x, w) }")
    model.graph.initializer.append(
        onnx.TensorProto(name="w", data_type=FLOAT, dims=[2000, 3], data_location=onnx.TensorProto.EXTERNAL)
    )
    assert pinned_types(model, {"x": (2, 2000)})["y"].shape == (2, 3)


def test_small_weights_are_shape_arithmetic():
    model = parse("g (float[N, 6] x) => (float[] y) { y = Reshape(x, s) }", {"s": np.array([-1, 2, 3], np.int64)})
    assert pinned_types(model, {"x": (4, 6)})["y"].shape == (4, 2, 3)


def test_the_model_is_not_changed():
    model = parse(
        "g (float[N, 2, 7, 7] x) => (float[N, 4, 5, 5] y) { c = Conv(x, w) y = BatchNormalization(c, gamma, beta, mu, var) }",
        {"w": random(4, 2, 3, 3), **batchnorm(4)},
    )
    before = model.SerializeToString()
    pinned_types(model, {"x": (1, 2, 7, 7)})
    declared_types(model)
    default_pins(model)
    assert model.SerializeToString() == before
