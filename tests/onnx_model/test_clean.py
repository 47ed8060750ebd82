"""Cleaning: what a model must keep, what goes, and what is left alone with a note."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.helper
import onnx.parser
import pytest
from onnx import numpy_helper
from onnx.external_data_helper import convert_model_to_external_data

from tests.models import batchnorm, operators, parse, random
from tests.onnx_model.running import run_both
from trtnorm_cli.errors import ModelError
from trtnorm_cli.onnx_model.clean import Cleaning, clean


def cleaned(model: onnx.ModelProto) -> Cleaning:
    """``clean(model)``, after the promises that hold for every model are checked."""
    before = model.SerializeToString(deterministic=True)
    result = clean(model)
    assert model.SerializeToString(deterministic=True) == before, "the input was changed"
    assert list(result.model.graph.output) == list(model.graph.output)
    weights = {tensor.name for tensor in model.graph.initializer}
    assert list(result.model.graph.input) == [value for value in model.graph.input if value.name not in weights]
    assert [e.version for e in result.model.opset_import if not e.domain] == [
        e.version for e in model.opset_import if e.domain in ("", "ai.onnx")
    ]
    again = clean(result.model)
    assert again.model == result.model
    assert again.counts == {}
    return result


def same_values(model: onnx.ModelProto) -> Cleaning:
    """``cleaned(model)``, which must compute the same in ONNX Runtime."""
    result = cleaned(model)
    wanted, got = run_both(model, result.model)
    for name in wanted:
        np.testing.assert_array_equal(got[name], wanted[name], err_msg=name)
    return result


def initializers(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


# What exporters write


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


# What a graph must keep


@pytest.mark.parametrize(
    "graph",
    [
        "g (float[N, 3] x) => (float[N, 3] x, float[N, 3] y) { y = Identity(x) }",
        "g (float[N, 3] x) => (float[2] w, float[2] v, float[N, 3] y) <float[2] w = {1, 2}> { v = Neg(w) y = Relu(x) }",
        "g (float[N, 3] x) => (float[N, 3] y, float[N, 3] y) { y = Relu(x) }",
        "g (float[N, 3] x) => (float[N, 3] a, float[N, 3] b, float[N, 3] c)"
        " { r = Relu(x) a = Identity(r) b = Identity(r) c = Identity(a) }",
        "g (float[N, 3] x) => (float[N, 3] a, float[N, 3] r) { r = Relu(x) a = Identity(r) }",
        "g (float[N, 3] x, float[2] unused) => (float[N, 3] y) { y = Relu(x) }",
    ],
    ids=["input", "initializer", "twice", "identities", "output-behind-output", "unused-input"],
)
def test_no_input_or_output_is_lost(graph):
    same_values(parse(graph))


def test_an_output_that_is_an_input_or_an_initializer_stays_one():
    graph = "g (float[N] x) => (float[N] x, float[1] w, float[N] y) <float[1] w = {1}> { y = Mul(x, w) }"
    assert operators(same_values(parse(graph)).model) == ["Mul"]


def test_names_documentation_and_metadata_of_nodes_stay():
    model = parse("g (float[N] x) => (float[N] y) <float[1] w = {1}> { i = Identity(x) y = Mul(i, w) z = Exp(x) }")
    model.graph.node[1].name, model.graph.node[1].doc_string = "times", "why"
    model.graph.node[1].metadata_props.add(key="from", value="layer")
    model.metadata_props.add(key="made", value="by hand")
    result = cleaned(model)
    (node,) = result.model.graph.node
    assert (node.name, node.doc_string) == ("times", "why")
    assert [(entry.key, entry.value) for entry in node.metadata_props] == [("from", "layer")]
    assert result.model.metadata_props == model.metadata_props
    assert result.counts == {"identities removed": 1, "dead nodes removed": 1}


def test_a_model_without_anything_to_clean_keeps_its_graph():
    model = parse("g (float[N] x) => (float[N] y) { r = Relu(x) y = Neg(r) }")
    result = cleaned(model)
    assert result.counts == {}
    assert [(list(n.input), n.op_type, list(n.output)) for n in result.model.graph.node] == [
        (["x"], "Relu", ["r"]),
        (["r"], "Neg", ["y"]),
    ]


def test_initializers_that_are_inputs_become_constants():
    graph = "g (float[N, 3] x, float[3] gamma, float[3] beta, float[3] mu, float[3] var) => (float[N, 3] y)"
    body = "{ g2 = Identity(gamma) y = BatchNormalization(x, g2, beta, mu, var) }"
    old = cleaned(parse(f"{graph} {body}", batchnorm(3), ir=3, opset=9))
    assert old.model.ir_version == 4
    assert [value.name for value in old.model.graph.input] == ["x"]
    assert old.counts["initializers taken off the input list"] == 4
    assert old.notes == ()
    (note,) = cleaned(parse(f"{graph} {body}", batchnorm(3))).notes
    assert "gamma, beta, mu, …" in note


# Functions


def with_functions(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def test_functions_of_one_name_in_two_domains_are_told_apart():
    model = with_functions(
        """<ir_version: 10, opset_import: ["" : 17, "a" : 1, "b" : 1]> g (float[3] x) => (float[3] y, float[3] z)
        { y = a.F(x) z = b.F(x) }
        <domain: "a", opset_import: ["" : 17, "b" : 1]> F (x) => (y) { t = Neg(x) y = b.F(t) }
        <domain: "b", opset_import: ["" : 17]> F (x) => (y) { y = Exp(x) }"""
    )
    result = same_values(model)
    assert operators(result.model) == ["Neg", "Exp", "Exp"]
    assert result.counts == {"function calls inlined": 3}
    assert not result.model.functions
    assert [entry.domain for entry in result.model.opset_import] == [""]


def test_overloads_are_told_apart():
    model = with_functions(
        """<ir_version: 10, opset_import: ["" : 17, "a" : 1]> g (float[3] x) => (float[3] y, float[3] z)
        { y = a.F:one(x) z = a.F:two(x) }
        <domain: "a", overload: "one", opset_import: ["" : 17]> F (x) => (y) { y = Neg(x) }
        <domain: "a", overload: "two", opset_import: ["" : 17]> F (x) => (y) { y = Exp(x) }"""
    )
    assert operators(same_values(model).model) == ["Neg", "Exp"]


def test_a_function_with_the_name_of_an_operator_in_its_own_domain_is_inlined():
    model = with_functions(
        """<ir_version: 8, opset_import: ["" : 17, "mine" : 1]> g (float[3] x) => (float[3] y) { y = mine.Relu(x) }
        <domain: "mine", opset_import: ["" : 17]> Relu (x) => (y) { y = Neg(x) }"""
    )
    assert operators(same_values(model).model) == ["Neg"]


def test_a_function_that_shadows_an_onnx_operator_is_dropped():
    model = with_functions(
        """<ir_version: 10, opset_import: ["" : 17]> g (float[3] x) => (float[3] y) { y = Relu(x) }
        <domain: "", opset_import: ["" : 17]> Relu (x) => (y) { y = Neg(x) }"""
    )
    result = same_values(model)
    assert operators(result.model) == ["Relu"]
    assert "the function Relu was dropped" in result.notes[0]


def test_default_attributes_and_omitted_inputs_of_functions():
    model = with_functions(
        """<ir_version: 9, opset_import: ["" : 17, "a" : 1]> g (float[3] x) => (float[3] y, float[3] z)
        { top = Constant<value_float = 0.5>() k = a.F<alpha = 0.5>(x) y = a.G(k, , top) z = a.F(x) }
        <domain: "a", opset_import: ["" : 17]> F <alpha: float = 0.1>(x) => (y) { y = LeakyRelu<alpha: float = @alpha>(x) }
        <domain: "a", opset_import: ["" : 17]> G (x, low, high) => (y) { y = Clip(x, low, high) }"""
    )
    assert operators(same_values(model).model) == ["LeakyRelu", "Clip", "LeakyRelu"]


def test_functions_in_branches_and_branches_in_functions():
    model = with_functions(
        """<ir_version: 8, opset_import: ["" : 17, "a" : 1]> g (float[3] x, bool c) => (float[3] y, float[3] k) {
        k = If (c) <then_branch = t () => (float[3] p) { q = a.F(x, c) p = a.F(q, c) },
                    else_branch = e () => (float[3] p) { p = Abs(x) }>
        y = a.F(k, c) }
        <domain: "a", opset_import: ["" : 17]> F (x, c) => (y) { k = Neg(x) y = If (c)
        <then_branch = t () => (a) { q = Exp(k) a = Add(q, x) }, else_branch = e () => (a) { a = Abs(k) }> }"""
    )
    result = same_values(model)
    assert result.counts["function calls inlined"] == 3


def test_an_input_handed_through_by_a_function_keeps_its_name():
    model = with_functions(
        """<ir_version: 8, opset_import: ["" : 17, "a" : 1]> g (float[3] x) => (float[3] y, float[3] z)
        { p, z = a.F(x, x) y = Abs(p) }
        <domain: "a", opset_import: ["" : 17]> F (p, q) => (r, s) { r = Identity(p) s = Neg(q) }"""
    )
    assert operators(same_values(model).model) == ["Neg", "Abs"]


def test_a_function_for_another_opset_is_inlined_when_its_operators_are_the_same():
    text = """<ir_version: 8, opset_import: ["" : 17, "a" : 1]> g (float[3] x) => (float[3] y) { y = a.F(x) }
        <domain: "a", opset_import: ["" : 18]> F (x) => (y) { y = OP(x) }"""
    assert operators(cleaned(with_functions(text.replace("OP", "Relu"))).model) == ["Relu"]
    with pytest.raises(ModelError, match="written for opset 18 and the model for opset 17, and ReduceMean differs") as caught:
        clean(with_functions(text.replace("OP", "ReduceMean")))
    assert "F" in (caught.value.where or "")
    assert "version_converter" in (caught.value.hint or "")


def test_recursive_functions_are_refused():
    model = with_functions(
        """<ir_version: 8, opset_import: ["" : 17, "a" : 1]> g (float[3] x) => (float[3] y) { y = a.F(x) }
        <domain: "a", opset_import: ["" : 17, "a" : 1]> F (x) => (y) { y = a.F(x) }"""
    )
    with pytest.raises(ModelError, match="the function F calls itself"):
        clean(model)


# Files


def with_external_weights(folder, *names: str) -> onnx.ModelProto:
    """A convolution with its weights in ``weights.bin``, loaded by reference."""
    weight = random(4, 2, 3, 3)
    model = parse(
        "g (float[N, 2, 5, 5] x) => (float[N, 4, 3, 3] y) { b2 = Neg(b) w2 = Identity(w) y = Conv(x, w2, b2) }",
        {"w": weight, "b": random(4)},
    )
    convert_model_to_external_data(model, location="weights.bin", size_threshold=0)
    onnx.save(model, folder / "m.onnx")
    return onnx.load(folder / "m.onnx", load_external_data=False)


def test_external_weights_stay_in_their_file_and_small_ones_are_folded(tmp_path):
    model = with_external_weights(tmp_path)
    original = onnx.load(tmp_path / "m.onnx")
    weight = model.graph.initializer[0]
    weight.dims[:] = [4, 2, 3, 3]
    result = clean(model, tmp_path)
    assert operators(result.model) == ["Conv"]
    onnx.load_external_data_for_model(result.model, str(tmp_path))
    wanted, got = run_both(original, result.model)
    np.testing.assert_array_equal(got["y"], wanted["y"])


def test_large_external_weights_are_references_in_the_result(tmp_path):
    model = parse(
        "g (float[N, 64] x) => (float[N, 64] y) { w2 = Identity(w) t = MatMul(x, w2) y = Relu(t) }", {"w": random(64, 64)}
    )
    convert_model_to_external_data(model, location="weights.bin", size_threshold=0)
    onnx.save(model, tmp_path / "m.onnx")
    model = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    (tensor,) = clean(model, tmp_path).model.graph.initializer
    assert tensor == model.graph.initializer[0]


def test_missing_external_data_is_an_error(tmp_path):
    model = with_external_weights(tmp_path)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ModelError, match=r"weights\.bin is missing") as caught:
        clean(model, tmp_path)
    assert caught.value.where == "tensor w"


def test_large_weights_in_memory_come_back_as_they_were():
    weight = random(256, 256)
    model = parse("g (float[N, 256] x) => (float[N, 256] y) { v = Identity(w) y = MatMul(x, v) }", {"w": weight})
    model.graph.initializer[0].doc_string = "kept"
    assert cleaned(model).model.graph.initializer == model.graph.initializer


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
    import onnxscript.optimizer

    def broken(*args, **kwargs):
        raise AttributeError("'NoneType' object has no attribute 'ndim'")

    monkeypatch.setattr(onnxscript.optimizer, "fold_constants", broken)
    result = clean(parse("g (float[3] x) => (float[3] y) { i = Identity(x) c = Neg(w) y = Add(i, c) }", {"w": random(3)}))
    assert operators(result.model) == ["Neg", "Add"]
    assert "constants were not folded" in result.notes[0]
    assert "has no attribute 'ndim'" in result.notes[0]


def test_an_invalid_result_of_the_library_is_not_used(monkeypatch):
    import onnxscript.optimizer

    def invalid(model, **kwargs):
        next(iter(model.graph)).op_type = "NoSuchOperator"

    monkeypatch.setattr(onnxscript.optimizer, "fold_constants", invalid)
    result = clean(parse("g (float[3] x) => (float[3] y) { c = Neg(x) y = Abs(c) }"))
    assert operators(result.model) == ["Neg", "Abs"]
    assert "the folded model is not valid ONNX: No Op registered for NoSuchOperator" in result.notes[0]
