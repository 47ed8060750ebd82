"""Cleaning: what becomes of what exporters write, and what cannot be cleaned."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.helper
import pytest
from onnx import numpy_helper

from tests.models import batchnorm, operators, parse, random
from tests.onnx_model.running import cleaned, initializers, run_both, same_values
from trtnorm_cli.errors import ModelError
from trtnorm_cli.onnx_model import fold_library
from trtnorm_cli.onnx_model.clean import clean


def test_the_bias_of_a_convolution_as_dynamo_writes_it_becomes_a_constant():
    model = parse(
        """g (float[N, 2, H, W] x) => (float[N, 4, P, Q] y) {
        zero = Constant<value_int = 0>()
        like = CastLike(zero, x)
        size = Shape<start = 0, end = 1>(w)
        bias = Expand(like, size)
        y = Conv(x, w, bias)
        }""",
        {"w": random(4, 2, 3, 3)},
    )
    result = same_values(model)
    assert operators(result.model) == ["Conv"]
    np.testing.assert_array_equal(initializers(result.model)["bias"], np.zeros(4, np.float32))
    assert result.counts["constants folded"] == 3


def test_parameters_shared_through_identities_are_connected_directly():
    model = parse(
        """g (float[N, 3] x) => (float[N, 3] y) {
        mean = Identity(beta) gain = Identity(gamma) again = Identity(gain)
        y = BatchNormalization(x, again, beta, mean, var) }""",
        batchnorm(3),
    )
    result = same_values(model)
    assert list(result.model.graph.node[0].input) == ["x", "gamma", "beta", "beta", "var"]
    assert result.counts == {"identities removed": 3, "unused initializers removed": 1}


@pytest.mark.parametrize("attribute", ["value = float[1] {2}", "value_float = 2.0", "value_floats = [2.0]"])
def test_constant_nodes_become_initializers(attribute):
    result = same_values(parse(f"g (float[N] x) => (float[N] y) {{ c = Constant<{attribute}>() y = Mul(x, c) }}"))
    assert operators(result.model) == ["Mul"]
    assert initializers(result.model)["c"].reshape(-1).tolist() == [2.0]
    assert result.counts == {"Constant nodes turned into initializers": 1}


@pytest.mark.parametrize(("attribute", "shape"), [("value_int = 3", ()), ("value_ints = [3]", (1,))])
def test_integer_constants_too(attribute, shape):
    result = cleaned(parse(f"g (int64[1] x) => (int64[1] y) {{ c = Constant<{attribute}>() y = Mul(x, c) }}"))
    assert initializers(result.model)["c"].shape == shape


def test_strings_and_outputs_that_are_constants():
    model = parse(
        """g (float[N] x) => (float[N] y, string[2] s, string t, float[1] f) {
        s = Constant<value_strings = ["a", "b"]>() t = Constant<value_string = "c">()
        one = Constant<value_floats = [1.0]>() f = Neg(one) y = Relu(x) }"""
    )
    assert operators(same_values(model).model) == ["Relu", "Identity", "Identity", "Identity"]


@pytest.mark.parametrize("opset", [7, 11, 13, 18, 22, 23])
def test_constants_of_old_and_new_opsets_are_folded(opset):
    model = parse(
        """g (float[N, 4] x) => (float[N, 4] y) {
        a = Exp(w) b = Transpose<perm = [1, 0]>(a) c = Softmax<axis = 0>(w) d = MatMul(b, c) y = MatMul(x, d) }""",
        {"w": random(4, 4)},
        opset=opset,
    )
    result = cleaned(model)
    assert operators(result.model) == ["MatMul"]
    wanted, got = run_both(model, result.model)
    np.testing.assert_allclose(got["y"], wanted["y"], rtol=2e-6, atol=1e-6)


def test_dropout_of_inference_goes_and_that_of_training_stays():
    assert operators(same_values(parse("g (float[N] x) => (float[N] y) { d = Dropout(x) y = Relu(d) }", opset=11)).model) == [
        "Relu"
    ]
    training = "g (float[8] x) => (float[8] y) <bool on = {1}, float half = {0.5}> { d = Dropout(x, half, on) y = Relu(d) }"
    assert operators(cleaned(parse(training)).model) == ["Dropout", "Relu"]
    assert operators(cleaned(parse(training.replace("{1}", "{0}"))).model) == ["Relu"]
    mask = "g (float[8] x) => (float[8] y, bool[8] m) { y, m = Dropout(x) }"
    assert operators(same_values(parse(mask, opset=11)).model) == ["Dropout"]


def test_sparse_tensors_are_refused():
    sparse = onnx.SparseTensorProto(dims=[3])
    sparse.values.CopyFrom(numpy_helper.from_array(np.ones(1, np.float32), "s"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.ones(1, np.int64)))
    model = parse("g (float[3] x) => (float[3] y) { y = Relu(x) }")
    model.graph.sparse_initializer.append(sparse)
    with pytest.raises(ModelError, match="sparse initializers"):
        clean(model)
    model = parse("g (float[3] x) => (float[3] y) { y = Relu(x) }")
    model.graph.node.append(onnx.helper.make_node("Constant", [], ["c"], sparse_value=sparse))
    with pytest.raises(ModelError, match="sparse constants"):
        clean(model)


def test_the_default_domain_under_its_long_name():
    model = parse("g (float[3] x) => (float[3] y) { c = Neg(w) y = Add(x, c) }", {"w": random(3)})
    model.opset_import[0].domain = "ai.onnx"
    for node in model.graph.node:
        node.domain = "ai.onnx"
    assert operators(same_values(model).model) == ["Add"]


def test_a_defect_of_the_library_leaves_the_constants_unfolded(monkeypatch):
    def broken(*args, **kwargs):
        raise AttributeError("'NoneType' object has no attribute 'ndim'")

    monkeypatch.setattr(fold_library, "run_library", broken)
    result = clean(parse("g (float[3] x) => (float[3] y) { i = Identity(x) c = Softsign(w) y = Add(i, c) }", {"w": random(3)}))
    assert operators(result.model) == ["Softsign", "Add"]
    assert "constants were not folded" in result.notes[0]
    assert "has no attribute 'ndim'" in result.notes[0]


def test_an_invalid_result_of_the_library_is_not_used(monkeypatch):
    def invalid(model, *args):
        next(iter(model.graph)).op_type = "NoSuchOperator"

    monkeypatch.setattr(fold_library, "run_library", invalid)
    result = clean(parse("g (float[3] x) => (float[3] y) { c = Neg(x) i = CastLike(c, x) y = Abs(i) }"))
    assert operators(result.model) == ["Neg", "CastLike", "Abs"]
    assert "the folded model is not valid ONNX: No Op registered for NoSuchOperator" in result.notes[0]


def test_annotations_stay_and_training_information_goes_with_a_note():
    model = parse("g (float[N] x) => (float[N] y) <float one = {1}> { i = Identity(x) y = Mul(i, one) }")
    annotation = model.graph.quantization_annotation.add(tensor_name="y")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="one")
    model.training_info.add()
    result = clean(model)
    assert result.model.graph.quantization_annotation == model.graph.quantization_annotation
    assert not result.model.training_info
    assert result.notes == ("the model's training information was dropped",)


def constant_without_a_value(attribute: str, read: str) -> onnx.ModelProto:
    """A sum of ``read`` behind a Constant with an attribute of that name in the place of its value, or with none."""
    model = parse(f"g (float[2] x) => (float[2] y) {{ [c] k = Constant <value_float = 1.0> () y = Add(x, {read}) }}")
    if attribute:
        model.graph.node[0].attribute[0].name = attribute
    else:
        del model.graph.node[0].attribute[:]
    return model


def test_a_constant_with_another_attribute_than_a_value_is_refused_by_name():
    with pytest.raises(ModelError, match="a Constant node holds Loop and no value") as caught:
        clean(constant_without_a_value("Loop", "k"))
    assert caught.value.where == "node c"


def test_a_constant_without_a_value_that_nobody_reads_is_dropped():
    """TensorRT alone refuses it."""
    assert operators(clean(constant_without_a_value("", "x")).model) == ["Add"]
