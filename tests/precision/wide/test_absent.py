"""Types that TensorRT does not have: folded away where constant, or refused with the node before TensorRT."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.models import parse, saved
from trtnorm_cli.errors import TensorRTRefusal
from trtnorm_cli.precision.session import typed_session
from trtnorm_cli.precision.wide.absent import absent_types
from trtnorm_cli.rewrite.prepare import OpenedModel, prepare


def session(model, folder):
    return typed_session(prepare(OpenedModel.of_file(saved(model, folder / "model.onnx"))))


REFUSED = {
    "input x is uint16": "g (uint16[4] x) => (float[4] y) { y = Cast <to = 1> (x) }",
    "output y is int16": "g (float[4] x) => (int16[4] y) { y = Cast <to = 5> (x) }",
    "the output t of Cast c is uint64": "g (float[4] x) => (float[4] y) { [c] t = Cast <to = 13> (x) y = Cast <to = 1> (t) }",
    "input x is string": "g (string[4] x) => (string[4] y) { y = Identity(x) }",
}  # fmt: skip


@pytest.mark.parametrize(("place", "graph"), REFUSED.items())
def test_refused_with_the_place_and_what_to_do(place, graph, tmp_path):
    with pytest.raises(TensorRTRefusal) as caught:
        session(parse(graph), tmp_path)
    assert caught.value.exit_code == 5
    assert place in caught.value.where
    assert caught.value.hint


def test_a_hint_for_each_kind(tmp_path):
    with pytest.raises(TensorRTRefusal) as caught:
        session(parse(REFUSED["input x is uint16"]), tmp_path)
    assert caught.value.summary == "TensorRT does not have the type uint16"
    assert caught.value.hint == "export the model with int32 there, and convert uint16 before or after the engine"


@pytest.mark.parametrize("kind", [np.int16, np.uint16, np.uint32, np.uint64])
def test_a_constant_that_becomes_another_type_is_folded(kind, tmp_path):
    model = parse("g (float[4] x) => (float[4] y) { f = Cast <to = 1> (c) y = Add(x, f) }", {"c": np.arange(4).astype(kind)})
    (constant,) = session(model, tmp_path).rewrite().model.graph.initializer
    assert constant.data_type == TensorProto.FLOAT


def test_a_constant_that_nobody_reads_does_no_harm(tmp_path):
    model = parse("g (float[4] x) => (float[4] y) { y = Relu(x) }", {"c": np.zeros(4, np.uint64)})
    assert list(session(model, tmp_path).rewrite().model.graph.initializer) == []


def test_what_is_stored_and_read():
    model = parse("g (int64[2] i) => (float[2] y) { g = Gather(c, i) y = Cast <to = 1> (g) }", {"c": np.zeros(4, np.uint16)})
    assert [one.what for one in absent_types(model)] == ["constant c, which Gather reads,"]


def test_types_in_branches_and_sequences():
    model = parse(
        "g (bool c, float[2] x) => (float[2] y) { y = If (c) <then_branch = t () => (float[2] p) { h = Cast <to = 12> (x) "
        "p = Cast <to = 1> (h) }, else_branch = e () => (float[2] q) { q = Neg(x) }> }"
    )
    assert [one.what for one in absent_types(model)] == ["the output h of Cast"]
    strings = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.STRING, [2]))
    model.graph.input.append(helper.make_value_info("words", strings))
    assert next(one.what for one in absent_types(model)) == "input words"
