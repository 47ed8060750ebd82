"""Models of opset 1 to 6 keep their meaning in opset 7, or are not raised."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.models import batchnorm, random
from tests.oracle import evaluate
from trtnorm_cli.onnx_model.domains import default_opset
from trtnorm_cli.onnx_model.old_opsets import raise_old_opset


def model(
    nodes: list[onnx.NodeProto],
    weights: dict[str, np.ndarray] | None = None,
    shape: tuple[int, ...] = (2, 4, 5, 3),
    opset: int = 6,
    ir: int = 3,
    rank: int = 4,
) -> onnx.ModelProto:
    """One input ``x`` and one output ``y``; weights are inputs too, as was obligatory."""
    tensors = [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()]
    inputs = [helper.make_tensor_value_info("x", 1, shape)]
    inputs += [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in tensors]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", 1, [None] * rank)], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)


def node(op: str, *inputs: str, outputs: tuple[str, ...] = ("y",), **attributes) -> onnx.NodeProto:
    return helper.make_node(op, inputs, outputs, **attributes)


def raised(before: onnx.ModelProto) -> onnx.ModelProto:
    content = before.SerializeToString(deterministic=True)
    after = raise_old_opset(before).model
    assert before.SerializeToString(deterministic=True) == content, "the model is not changed"
    assert after is not None
    assert default_opset(after.opset_import) == 7
    onnx.checker.check_model(after)
    return after


X = random(2, 4, 5, 3).astype(np.float64)


def output(after: onnx.ModelProto) -> np.ndarray:
    return evaluate(after, {"x": X})["y"]


@pytest.mark.parametrize(
    ("b_shape", "attributes", "aligned"),
    [
        ((4,), {"broadcast": 1, "axis": 1}, (4, 1, 1)),
        ((4, 5), {"broadcast": 1, "axis": 1}, (4, 5, 1)),
        ((2, 4), {"broadcast": 1, "axis": 0}, (2, 4, 1, 1)),
        ((3,), {"broadcast": 1}, (3,)),
        ((5, 3), {"broadcast": 1, "axis": -2}, (5, 3)),
        ((), {"broadcast": 1}, ()),
        ((2, 4, 5, 3), {}, (2, 4, 5, 3)),
    ],
)
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
def test_broadcasting(op, b_shape, attributes, aligned):
    b = random(*b_shape) + np.float32(3)
    after = raised(model([node(op, "x", "b", **attributes)], {"b": b}))
    wanted = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}[op](
        X, b.astype(np.float64).reshape(aligned)
    )
    np.testing.assert_allclose(output(after), wanted, rtol=1e-14)


def test_broadcasting_behind_a_convolution():
    """The bias of old exporters; the rank comes from what has been raised before."""
    weights = {"w": random(6, 4, 1, 1), "b": random(6), "s": random(6)}
    nodes = [
        node("Conv", "x", "w", outputs=("c",), kernel_shape=[1, 1]),
        node("Add", "c", "b", outputs=("d",), broadcast=1, axis=1),
        node("Mul", "d", "s", broadcast=1, axis=1),
    ]
    w, b, s = (value.astype(np.float64) for value in weights.values())
    wanted = (np.einsum("nihw,oi->nohw", X, w[:, :, 0, 0]) + b.reshape(6, 1, 1)) * s.reshape(6, 1, 1)
    np.testing.assert_allclose(output(raised(model(nodes, weights))), wanted, rtol=1e-12)


def test_a_slope_per_channel():
    slope = np.abs(random(4))
    after = raised(model([node("PRelu", "x", "s")], {"s": slope}))
    np.testing.assert_allclose(output(after), np.where(X < 0, X * slope.reshape(4, 1, 1).astype(np.float64), X), rtol=1e-14)


@pytest.mark.parametrize("opset", [1, 4])
def test_reshape_with_an_attribute(opset):
    after = raised(model([node("Reshape", "x", shape=[2, 60])], opset=opset, rank=2))
    np.testing.assert_array_equal(output(after), X.reshape(2, 60))
    assert {value.name for value in after.graph.input} == {"x", "y_shape"}, "initializers are inputs before IR version 4"


def test_other_attributes():
    padded = raised(model([node("Pad", "x", paddings=[0, 0, 1, 1, 0, 0, 1, 1])], opset=1))
    np.testing.assert_array_equal(output(padded), np.pad(X, [(0, 0), (0, 0), (1, 1), (1, 1)]))
    joined = raised(model([node("Concat", "x", "x")], opset=1))
    np.testing.assert_array_equal(output(joined), np.concatenate([X, X], axis=1))
    cast = raised(model([node("Cast", "x", outputs=("i",), to="INT64"), node("Cast", "i", to="FLOAT")], opset=1))
    np.testing.assert_array_equal(output(cast), np.trunc(X))
    relu = raised(model([node("Relu", "x", consumed_inputs=[0])], opset=1))
    np.testing.assert_array_equal(output(relu), np.maximum(X, 0))
    dropout = raised(model([node("Dropout", "x", is_test=1)], opset=6))
    np.testing.assert_array_equal(output(dropout), X)


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_upsample(mode):
    after = raised(model([node("Upsample", "x", height_scale=2.0, width_scale=3.0, mode=mode)], opset=1))
    attributes = {a.name: helper.get_attribute_value(a) for a in after.graph.node[0].attribute}
    assert attributes == {"mode": b"linear" if mode == "bilinear" else b"nearest", "scales": [1.0, 1.0, 2.0, 3.0]}


def bn(outputs: tuple[str, ...] = ("y",), **attributes) -> onnx.ModelProto:
    return model([node("BatchNormalization", "x", "gamma", "beta", "mu", "var", outputs=outputs, **attributes)], batchnorm(4))


def test_inference_has_one_output():
    for outputs in (("y",), ("y", "m", "v", "sm", "sv")):
        (after,) = raised(bn(outputs, is_test=1)).graph.node
        assert list(after.output) == ["y"]
        assert [a.name for a in after.attribute] == []


@pytest.mark.parametrize("outputs", [("y",), ("y", "m", "v"), ("y", "m", "v", "sm", "sv")])
def test_training_mode_keeps_all_outputs(outputs):
    for attributes in ({}, {"is_test": 0}):
        (after,) = raised(bn(outputs, **attributes)).graph.node
        assert list(after.output)[: len(outputs)] == list(outputs)
        assert len(after.output) == 5
        assert len(set(after.output)) == 5


def test_names_do_not_clash():
    taken = bn()
    taken.graph.node[0].output[0] = "b"
    taken.graph.node.extend([node("Relu", "b", outputs=("b_mean",)), node("Relu", "b_mean")])
    after = raised(taken)
    names = [name for n in after.graph.node for name in n.output]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("before", "why_not"),
    [
        (model([node("Selu", "x")], opset=5), "Selu changed between opset 5 and 7 in a way that is not handled"),
        (model([node("Tile", "x", "t", "a")], {"t": np.float32(2), "a": np.float32(1)}, opset=1), "Tile changed"),
        (model([node("Affine", "x", alpha=1.0)], opset=1), "Affine changed"),
        (model([node("Dropout", "x")], opset=6), "the Dropout that makes y is in training mode"),
        (
            bn(("n", "y"), is_test=1),
            "n is normalized in inference mode, but the statistics of its batch are used",
        ),
    ],
)
def test_what_cannot_be_raised(before, why_not):
    raising = raise_old_opset(before)
    assert raising.model is None
    assert why_not in raising.why_not


def test_an_unknown_rank():
    nodes = [node("Reshape", "x", "s", outputs=("r",)), node("Add", "r", "b", broadcast=1, axis=1)]
    unknown = model(nodes, {"b": random(4)}, opset=5)
    unknown.graph.input.append(helper.make_tensor_value_info("s", onnx.TensorProto.INT64, ["K"]))
    raising = raise_old_opset(unknown)
    assert (raising.model, raising.why_not) == (None, "the rank of r is not known")


def test_other_domains_and_subgraphs_are_left_alone():
    assert raise_old_opset(model([helper.make_node("Odd", ["x"], ["y"], domain="somewhere.else")])).model is None


def test_the_default_domain_may_be_spelled_out():
    spelled = model([node("Relu", "x")])
    spelled.opset_import[0].domain = "ai.onnx"
    assert default_opset(spelled.opset_import) == 6
    assert default_opset(raised(spelled).opset_import) == 7
