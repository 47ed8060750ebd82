"""Loops without a condition are given one, where the specification and ONNX Runtime agree about what they do."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import parse, random, saved
from tests.onnx_model.running import run
from trtnorm_cli import cli
from trtnorm_cli.onnx_model.clean import clean

COUNT = "Loops given a condition"
PASSED_ON = "more = Identity(go)"
ALWAYS = "more = Constant <value = bool {1}> ()"
NEVER = "more = Constant <value = bool {0}> ()"
DECIDED = "four = Constant <value = int64 {4}> () more = Less(i, four)"


def loop(more: str, given: str = "n, , x") -> onnx.ModelProto:
    body = f"b (int64 i, bool go, float[2, 3] s) => (bool more, float[2, 3] t) {{ t = Mul(s, w) {more} }}"
    text = f"g (float[2, 3] x) => (float[2, 3] y) <int64 n = {{5}}, bool c = {{1}}> {{ y = Loop <body = {body}> ({given}) }}"
    return parse(text, {"w": random(2, 3)})


def condition(model: onnx.ModelProto) -> str:
    (node,) = (node for node in model.graph.node if node.op_type == "Loop")
    return node.input[1]


@pytest.mark.parametrize("more", [PASSED_ON, ALWAYS], ids=["passed on", "always"])
def test_a_loop_without_a_condition_is_given_true(more):
    model, x = loop(more), random(2, 3, seed=1)
    result = clean(model)
    assert result.counts[COUNT] == 1
    (given,) = (tensor for tensor in result.model.graph.initializer if tensor.name == condition(result.model))
    assert onnx.numpy_helper.to_array(given).item() is True
    np.testing.assert_array_equal(run(result.model, {"x": x})["y"], run(model, {"x": x})["y"])
    assert clean(result.model).model == result.model


@pytest.mark.parametrize(
    ("more", "given"),
    [(NEVER, "n, , x"), (DECIDED, "n, , x"), (PASSED_ON, "n, c, x"), (DECIDED, ", c, x")],
    ids=["ends at once", "decides", "has one", "no trip count"],
)
def test_others_stay(more, given):
    result = clean(loop(more, given))
    assert COUNT not in result.counts
    assert bool(condition(result.model)) == ("c" in given)


def test_onnx_runtime_stops_by_what_the_body_decides_and_the_specification_does_not():
    """Why such a Loop is left alone: it would have to be said which of the two was meant."""
    x = random(2, 3, seed=1)
    np.testing.assert_array_equal(run(loop(NEVER), {"x": x})["y"], x * random(2, 3))


def test_two_loops_get_conditions_of_different_names():
    model = loop(PASSED_ON)
    (node,) = model.graph.node
    other = model.graph.node.add()
    other.CopyFrom(node)
    other.input[2], other.output[0] = node.output[0], "z"
    model.graph.output[0].name = "z"
    for each in model.graph.node:
        each.name = "same"
    result = clean(model)
    assert result.counts[COUNT] == 2
    assert len({each.input[1] for each in result.model.graph.node if each.op_type == "Loop"}) == 2


@pytest.mark.rtx
def test_tensorrt_takes_it(tmp_path, capsys):
    pytest.importorskip("tensorrt_rtx")
    path = saved(loop(PASSED_ON), tmp_path / "m.onnx")
    assert cli.run(["build", str(path), "-o", str(tmp_path / "m.engine")]) == 0, capsys.readouterr().err
    refused = saved(loop(DECIDED, ", c, x"), tmp_path / "refused.onnx")
    assert cli.run(["build", str(refused), "-o", str(tmp_path / "refused.engine"), "--no-compare"]) == 5
    assert "give a Loop both" in capsys.readouterr().err
