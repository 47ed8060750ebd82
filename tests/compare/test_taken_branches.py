"""A model in whose place of each If stands the branch that its shapes decide for."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from tests.compare.test_smaller_inputs import DOWN, PLAIN, SIZES, SMALLER
from tests.models import parse, random
from trtnorm_cli.compare import smaller_inputs
from trtnorm_cli.compare.taken_branches import with_branches_taken
from trtnorm_cli.onnx_model.walk import all_nodes


@pytest.fixture(autouse=True)
def _however_quick(monkeypatch):
    monkeypatch.setattr(smaller_inputs, "_FEW_MULTIPLY_ADDS", 0)


# Both branches call what they make the same, and as the graph calls something else.
ASKS = """s = Shape<start=2, end=3>(x) z = Squeeze(s) large = {condition} i = If(large) <
        then_branch = t () => (float[1, 4, 48, 48] r) {{ k = Neg(a) p = Constant<value_float=1.5>() r = Mul(k, p) }},
        else_branch = e () => (float[1, 4, 48, 48] r) {{ k = Exp(a) r = Identity(k) }}
    >
    k = Add(i, a)
    r = Relu(k)"""
BY_SIZE, BY_DATA = "Greater(z, limit)", "Greater(first, none)"
NUMBERS = {"limit": np.array(64), "none": np.array(0.0, np.float32), "zero": np.array([0]), "one": np.array([1])}


def asking(condition: str) -> onnx.ModelProto:
    asks = ASKS.format(condition=condition)
    if condition == BY_DATA:
        asks = "f = Flatten<axis=0>(x) g = Slice(f, zero, one, one) first = Squeeze(g) " + asks
    return parse(PLAIN.replace("r = Relu(a)", asks), DOWN | NUMBERS)


def outputs(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


@pytest.mark.parametrize("limit", [64, 128], ids=["then", "else"])
def test_the_branch_stands_in_its_place_and_gives_the_same(limit: int):
    model = asking(BY_SIZE)
    next(tensor for tensor in model.graph.initializer if tensor.name == "limit").CopyFrom(
        onnx.numpy_helper.from_array(np.array(limit), "limit")
    )
    taken = with_branches_taken(model, SIZES)
    assert [node.op_type for node in all_nodes(taken) if node.op_type in ("If", "Neg", "Exp")] == [
        "Neg" if limit == 64 else "Exp"
    ]
    onnx.checker.check_model(taken, full_check=True)
    x = random(*SIZES["x"])
    np.testing.assert_array_equal(outputs(taken, x), outputs(model, x))
    assert any(node.op_type == "If" for node in model.graph.node)


def test_at_smaller_inputs_the_branch_of_the_models_own_is_taken():
    """The length that is asked for is below the limit there."""
    found = smaller_inputs.smaller_inputs(asking(BY_SIZE), SIZES)
    assert found.shapes == SMALLER
    always = asking(BY_SIZE.replace("limit", "none64"))
    always.graph.initializer.append(onnx.numpy_helper.from_array(np.array(0), "none64"))
    there = onnx.ModelProto()
    there.CopyFrom(found.model)
    for model in (there, always):
        for axis, size in zip((2, 3), SMALLER["x"][2:], strict=True):
            model.graph.input[0].type.tensor_type.shape.dim[axis].dim_value = size
        del model.graph.value_info[:]
        for node in model.graph.node:
            for branch in (attribute.g for attribute in node.attribute if node.op_type == "If"):
                branch.output[0].type.tensor_type.ClearField("shape")
    x = random(*SMALLER["x"])
    np.testing.assert_array_equal(outputs(there, x), outputs(always, x))


def test_what_data_decide_is_left_and_there_are_no_smaller_inputs():
    model = asking(BY_DATA)
    assert with_branches_taken(model, SIZES) == model
    assert smaller_inputs.smaller_inputs(model, SIZES) is None


def test_names_that_graphs_within_a_branch_take_from_it_follow():
    text = """g (float[2, 3] x, bool c) => (float[2, 3] y) {
        s = Size(x) b = Greater(s, limit) k = Neg(x)
        y = If(b) <then_branch = t () => (float[2, 3] o) {
            k2 = Abs(k) m = Mul(k2, k2)
            o = If(c) <then_branch = u () => (float[2, 3] p) { p = Sub(m, k) },
                       else_branch = v () => (float[2, 3] q) { m2 = Neg(m) q = Identity(m2) }>
        }, else_branch = e () => (float[2, 3] w) { w = Identity(x) }>
    }"""
    model = parse(text, {"limit": np.array(5)})
    taken = with_branches_taken(model, {"x": (2, 3), "c": ()})
    onnx.checker.check_model(taken, full_check=True)
    assert [node.op_type for node in taken.graph.node] == ["Size", "Greater", "Neg", "Abs", "Mul", "If", "Identity"]
    x = random(2, 3)
    for c in (True, False):
        one, other = (
            ort.InferenceSession(each.SerializeToString()).run(None, {"x": x, "c": np.array(c)})[0] for each in (model, taken)
        )
        np.testing.assert_array_equal(one, other)
