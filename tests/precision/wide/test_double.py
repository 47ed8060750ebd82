"""Models without their doubles: the types everywhere, and the record of what was narrowed."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.models import parse, random
from trtnorm_cli.evaluate.ort_runner import OrtRunner
from trtnorm_cli.onnx_model.save import save_model
from trtnorm_cli.precision.wide.double import has_doubles, without_doubles


def test_a_model_without_doubles_has_none():
    assert not has_doubles(parse("g (float[2] x, int64[2] i) => (float[2] y) { y = Add(x, w) }", {"w": random(2)}))


CASES = {
    "inputs, outputs and weights": parse(
        "g (double[N, 4] x) => (double[N, 3] y) { h = MatMul(x, w) y = Add(h, b) }",
        {"w": random(4, 3, dtype=np.float64), "b": random(3, dtype=np.float64)},
    ),
    "a cast there and back": parse(
        "g (float[4] x) => (float[4] y) { d = Cast <to = 11> (x) e = Mul(d, c) y = Cast <to = 1> (e) }",
        {"c": np.array(0.1)},
    ),
    "constants of nodes": parse(
        "g (float[4] x) => (float[4] y) { d = Cast <to = 11> (x) c = Constant <value = double {0.1}> () e = Mul(d, c) "
        "s = Shape(e) f = ConstantOfShape <value = double[1] {0.2}> (s) h = Add(e, f) y = Cast <to = 1> (h) }"
    ),
    "branches": parse(
        "g (double[4] x, bool c) => (double[4] y) { y = If (c) <then_branch = t () => (double[4] p) { k = Constant "
        "<value = double {0.1}> () p = Mul(x, k) }, else_branch = e () => (double[4] q) { q = Neg(x) }> }"
    ),
}  # fmt: skip


@pytest.mark.parametrize("model", CASES.values(), ids=CASES)
def test_no_double_is_left_and_the_results_are_those_of_the_file(model, tmp_path):
    assert has_doubles(model)
    narrowed = without_doubles(onnx.shape_inference.infer_shapes(model), None)
    assert not has_doubles(narrowed.model)
    onnx.checker.check_model(narrowed.model, full_check=True)
    save_model(model, tmp_path / "wide.onnx")
    save_model(narrowed.model, tmp_path / "narrow.onnx")
    feeds = {}
    for value in model.graph.input:
        kind = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        sizes = [size.dim_value or 2 for size in value.type.tensor_type.shape.dim]
        feeds[value.name] = np.array(True) if kind == np.bool_ else random(*sizes, dtype=kind)
    halved = {name: value.astype(np.float32) if value.dtype == np.float64 else value for name, value in feeds.items()}
    with OrtRunner() as runner:
        (wanted,) = runner.run(tmp_path / "wide.onnx", feeds).values()
        (got,) = runner.run(tmp_path / "narrow.onnx", halved).values()
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_the_record_says_what_was_narrowed():
    doubles = without_doubles(CASES["inputs, outputs and weights"], None).doubles
    assert (doubles.inputs, doubles.outputs, doubles.computed) == (("x",), ("y",), 1)
    assert [(c.name, c.reader, c.elements) for c in doubles.constants] == [("w", "MatMul -> h", 12), ("b", "Add -> y", 3)]
    assert all(0 < c.worst_relative <= 2**-24 for c in doubles.constants)


def test_types_within_sequences_and_attributes():
    nodes = [helper.make_node("SequenceConstruct", ["x"], ["s"]), helper.make_node("SequenceAt", ["s", "i"], ["y"])]
    double = helper.make_tensor_type_proto(TensorProto.DOUBLE, [2])
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.DOUBLE, [2])],
        [helper.make_tensor_value_info("y", TensorProto.DOUBLE, [2])],
        [numpy_helper.from_array(np.array(0), "i")],
        value_info=[helper.make_value_info("s", helper.make_sequence_type_proto(double))],
    )  # fmt: skip
    made = without_doubles(helper.make_model(graph), None).model
    assert made.graph.value_info[0].type.sequence_type.elem_type.tensor_type.elem_type == TensorProto.FLOAT
    onnx.checker.check_model(made, full_check=True)


def test_large_constants_stay_off_the_message(tmp_path):
    values = random(300, 300, dtype=np.float64)
    model = parse("g (double[2, 300] x) => (double[2, 300] y) { y = MatMul(x, w) }", {"w": values})
    narrowed = without_doubles(model, None)
    assert narrowed.model.ByteSize() < 1000
    save_model(narrowed.model, tmp_path / "m.onnx")
    stored = numpy_helper.to_array(onnx.load(tmp_path / "m.onnx").graph.initializer[0])
    np.testing.assert_array_equal(stored, values.astype(np.float32))
