"""Opening and closing a model: nothing that was not operated on may change."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest

from tests.models import batchnorm, parse, random
from trtnorm_cli.onnx_model.surgery import open_model


def value(model: onnx.ModelProto, name: str, folder=None) -> np.ndarray | None:
    surgery = open_model(model, folder)
    return surgery.constant(surgery.graph.tensors()[name])


EVERYTHING = """g (float[N, 2, 7, 7] x, bool t) => (float[] y, float[] z) {
    [conv] c = Conv <strides=[1, 1]>(x, w)
    k = Constant <value_ints=[1, 2, 3]>()
    s = Constant <value_string="text">()
    y = If (t) <then_branch = a () => (float[] p) { p = Relu(c) }, else_branch = b () => (float[] q)
        { e = Abs(c) q = Loop (n, t, e) <body = l (int64 i, bool go, float[] r) => (bool stay, float[] o)
            { stay = Identity(go) o = Mul(r, v) }> }>
    z = custom.domain.Odd <mode="x", ratio=0.1, floats=[0.1, 0.2]>(c, "", k)
}"""


def everything() -> onnx.ModelProto:
    model = parse(
        EVERYTHING.replace("custom.domain.Odd", "Odd"),
        {"w": random(4, 2, 3, 3), "v": random(1), "n": np.array(3, np.int64)},
    )
    odd = model.graph.node[-1]
    odd.domain = "custom.domain"
    model.opset_import.add(domain="custom.domain", version=1)
    model.producer_name, model.producer_version, model.doc_string, model.model_version = "me", "1.2", "words", 7
    model.metadata_props.add(key="license", value="none")
    model.graph.doc_string = "graph words"
    model.graph.metadata_props.add(key="a", value="b")
    model.graph.node[0].doc_string = "node words"
    model.graph.node[0].metadata_props.add(key="source", value="resnet.py:12")
    odd.attribute.add(name="type", type=onnx.AttributeProto.TYPE_PROTO).tp.CopyFrom(onnx.helper.make_tensor_type_proto(1, [2]))
    annotation = model.graph.quantization_annotation.add(tensor_name="c")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="v")
    info = model.graph.value_info.add(name="c")
    info.type.CopyFrom(onnx.helper.make_tensor_type_proto(1, ["N", 4, 5, 5]))
    info.doc_string = "tensor words"
    return model


def test_what_was_not_touched_is_byte_for_byte_the_same():
    model = everything()
    before = model.SerializeToString(deterministic=True)
    closed = open_model(model, None).close()
    assert closed == model
    assert model.SerializeToString(deterministic=True) == before


def test_functions_and_training_information_are_kept():
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    model.functions.add(name="f", domain="mine").node.add(op_type="Relu", input=["a"], output=["b"])
    assert open_model(model, None).close() == model


def test_initializers_that_nobody_reads_are_dropped_and_those_of_branches_kept():
    model = parse(
        "g (float[2] x, bool t) => (float[2] y) { y = If (t) <then_branch = a () => (float[2] p) { p = Add(x, w) },"
        " else_branch = b () => (float[2] v) { }> }",
        {"w": random(2), "v": random(2), "unused": random(2)},
    )
    model.graph.output.add(name="given").type.CopyFrom(onnx.helper.make_tensor_type_proto(1, [2]))
    model.graph.initializer.add(name="given", data_type=1, dims=[2], raw_data=bytes(8))
    closed = open_model(model, None).close()
    names = {t.name for t in closed.graph.initializer}
    assert names == {"w", "v", "given"}


def test_initializers_leave_the_list_of_inputs():
    """Since IR version 4 an initializer that is an input too is one that a user may override; here it is a constant."""
    model = parse("g (float[2] x, float[2] w) => (float[2] y) { y = Add(x, w) }", {"w": random(2)}, ir=3)
    closed = open_model(model, None).close()
    assert [v.name for v in closed.graph.input] == ["x"]
    assert closed.ir_version == 4


CONSTANTS = {
    "value": ("value = float[2] {1, 2}", np.array([1, 2], np.float32)),
    "value of one element": ("value = int64[1] {3}", np.array([3], np.int64)),
    "value_float": ("value_float = 2.5", np.array(2.5, np.float32)),
    "value_floats": ("value_floats = [1.5, 2.5]", np.array([1.5, 2.5], np.float32)),
    "value_int": ("value_int = 7", np.array(7, np.int64)),
    "value_ints": ("value_ints = [7, 8]", np.array([7, 8], np.int64)),
}


@pytest.mark.parametrize(("attribute", "expected"), CONSTANTS.values(), ids=CONSTANTS)
def test_values_of_constant_nodes(attribute, expected):
    model = parse(f"g (float[2] x) => (float[] y) {{ k = Constant <{attribute}>() y = Odd(x, k) }}")
    found = value(model, "k")
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int64, np.int8, np.bool_])
def test_values_of_initializers(dtype):
    weights = {"w": np.arange(6).reshape(2, 3).astype(dtype)}
    found = value(parse("g (float[2] x) => (float[] y) { y = Odd(x, w) }", weights), "w")
    np.testing.assert_array_equal(found, weights["w"])
    assert found.dtype == np.dtype(dtype)


@pytest.mark.parametrize("tensor", ["x", "r", "k"])
def test_tensors_of_run_time_have_no_value(tensor):
    """Nor has what an operator of another domain makes, whatever it is called."""
    text = "g (float[2] x) => (float[2] y) { r = Relu(x) k = Constant() y = Add(r, k) }"
    model = parse(text)
    next(node for node in model.graph.node if node.op_type == "Constant").domain = "com.example"
    surgery = open_model(model, None)
    found = surgery.graph.tensors()[tensor]
    assert surgery.constant(found) is None
    assert not surgery.is_constant(found)


def test_strings_and_sparse_constants_are_not_read():
    model = parse('g (float[2] x) => (float[] y) { k = Constant <value_string="text">() y = Odd(x, k) }')
    assert value(model, "k") is None


def test_values_in_an_external_file(tmp_path):
    model = parse("g (float[2] x) => (float[2] y) { y = Add(x, w) }", {"w": np.array([1, 2], np.float32)})
    onnx.save(model, str(tmp_path / "m.onnx"), save_as_external_data=True, location="w.bin", size_threshold=0)
    source = onnx.load(str(tmp_path / "m.onnx"), load_external_data=False)
    np.testing.assert_array_equal(value(source, "w", tmp_path), [1, 2])
    assert open_model(source, tmp_path).close() == source


def test_values_inside_branches():
    model = parse(
        "g (float[2] x, bool t) => (float[2] y) { y = If (t) <then_branch = a () => (float[2] p)"
        " { k = Constant <value = float[2] {1, 2}>() p = Add(x, k) }, else_branch = b () => (float[2] q) { q = Add(x, w) }> }",
        {"w": np.array([3, 4], np.float32)},
    )
    surgery = open_model(model, None)
    found = [surgery.constant(node.inputs[1]) for g in surgery.graphs() for node in g.nodes if node.op == "Add"]
    np.testing.assert_array_equal(found, [[1, 2], [3, 4]])


def test_values_are_remembered_within_a_bound(monkeypatch):
    monkeypatch.setattr("trtnorm_cli.onnx_model.surgery._CACHE_BYTES", 100)
    names = [f"k{i}" for i in range(9)]
    nodes = " ".join(f"{n} = Constant <value_floats=[{i}.0, 1.0, 1.0]>()" for i, n in enumerate(names))
    surgery = open_model(parse(f"g (float[2] x) => (float[] y) {{ {nodes} y = Odd({', '.join(names)}) }}"), None)
    tensors = surgery.graph.tensors()
    for _ in range(2):
        assert [surgery.constant(tensors[n])[0] for n in names] == list(range(9))
    assert len(surgery._constants) <= 100 // 12
    assert surgery.constant(tensors["k8"]) is surgery.constant(tensors["k8"])


def test_opening_reads_no_weights(tmp_path):
    model = parse("g (float[2] x) => (float[2] y) { y = Add(x, w) }")
    tensor = model.graph.initializer.add(name="w", data_type=1, dims=[2], data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="not there")
    surgery = open_model(model, tmp_path)
    assert surgery.is_constant(surgery.graph.tensors()["w"])
    assert surgery.close() == model


def test_the_opset_is_that_of_the_default_domain():
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }", opset=19)
    model.opset_import.add(domain="custom", version=3)
    model.opset_import.extend(list(model.opset_import)[::-1])
    del model.opset_import[:2]
    assert open_model(model, None).opset == 19


def test_a_new_node_is_written_beside_the_old_ones():
    model = parse("g (float[N, 4, 5, 5] x) => (float[N, 4, 5, 5] y) { r = Relu(x) y = Neg(r) }", batchnorm(4))
    model.graph.node[0].metadata_props.add(key="kept", value="yes")
    surgery = open_model(model, None)
    old = surgery.graph.nodes[1]
    output = old.outputs[0]
    old.outputs.clear()
    surgery.graph.nodes[1] = gs.Node("Mul", "new", inputs=[old.inputs[0], gs.Constant("k", random(1))], outputs=[output])
    closed = surgery.close()
    onnx.checker.check_model(closed, full_check=True)
    assert closed.graph.node[0] == model.graph.node[0]
    assert [t.name for t in closed.graph.initializer] == ["k"]
