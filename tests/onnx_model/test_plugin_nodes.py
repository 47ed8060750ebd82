"""Plugin nodes: found, stripped for the builder, and read back as the operators that they stand for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.models import loaded, operators, parse, random
from tests.onnx_model.running import assert_same
from tests.rewritings import rewrite
from trtnorm_cli.onnx_model.clean import clean
from trtnorm_cli.onnx_model.functions import add_functions
from trtnorm_cli.onnx_model.plugin_functions import instance_norm_function, is_own
from trtnorm_cli.onnx_model.plugin_nodes import DOMAIN, by_definition, for_builder, has_definitions, plugin_nodes
from trtnorm_cli.profile.rewriting import Implementations, RewriteSettings

ALL = RewriteSettings(instance_norm=Implementations("plugin"), group_norm=Implementations("plugin"))


def model_with(activation: str, kind: str = "float", opset: int = 17) -> onnx.ModelProto:
    dtype = np.float32 if kind == "float" else np.float16
    return parse(
        f"g ({kind}[N, 3, H, W] x) => ({kind}[N, 3, H, W] y) {{"
        f" [in0] n = InstanceNormalization(x, s, b) [act] a = {activation}(n) y = Add(a, x) }}",
        {"s": random(3, dtype=dtype), "b": random(3, seed=1, dtype=dtype)},
        opset=opset,
    )


def with_plugin(model: onnx.ModelProto, tmp_path: Path) -> onnx.ModelProto:
    rewriting = rewrite(loaded(model, tmp_path), settings=ALL)
    rewriting.require_all_checks_passed()
    return rewriting.model


def test_a_plugin_node_is_found(tmp_path):
    (found,) = plugin_nodes(with_plugin(model_with("Relu"), tmp_path))
    assert (found.node, found.operator, found.version, found.namespace) == ("in0", "InstanceNormalization_TRT", "3", "")
    assert found.attributes == {"epsilon": "FLOAT", "scales": "FLOATS", "bias": "FLOATS", "relu": "INT", "alpha": "FLOAT"}
    assert found.has_function
    assert found.is_own


def test_plugin_nodes_of_others_say_so_or_have_unknown_operators():
    model = parse(
        'g (float[2] x) => (float[2] y) { [a] b = Mine <plugin_version="2", plugin_namespace="n", k=[1, 2]> (x)'
        " [c] d = Yours(b) y = Relu(d) }"
    )
    (found,) = plugin_nodes(model)
    assert (found.node, found.version, found.namespace, found.attributes) == ("a", "2", "n", {"k": "INTS"})
    assert not found.has_function
    assert not found.is_own
    assert [(node.node, node.version) for node in plugin_nodes(model, every=True)] == [("a", "2"), ("c", "1")]


def test_the_builder_gets_no_function(tmp_path):
    model = with_plugin(model_with("Relu"), tmp_path)
    before = model.SerializeToString(deterministic=True)
    stripped = for_builder(model)
    assert model.SerializeToString(deterministic=True) == before
    assert [(node.op_type, node.domain) for node in stripped.graph.node] == [("InstanceNormalization_TRT", ""), ("Add", "")]
    assert len(stripped.functions) == 0
    assert [entry.domain for entry in stripped.opset_import] == [""]
    assert stripped.graph.node[0].attribute == model.graph.node[0].attribute


def test_a_model_without_plugin_nodes_is_handed_on():
    model = model_with("Relu")
    assert for_builder(model) is model


def test_definitions_in_the_place_of_plugins(tmp_path):
    model = with_plugin(model_with("Relu"), tmp_path)
    assert has_definitions(model)
    written_out = by_definition(model)
    assert not has_definitions(written_out)
    assert {node.domain for node in written_out.graph.node} == {""}
    assert "InstanceNormalization" in operators(written_out)
    assert_same(model, written_out)


def test_functions_of_others_stay():
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    other = onnx.parser.parse_function('<domain: "mine", opset_import: ["" : 17]> f (x) => (y) { y = Neg(x) }')
    add_functions(model, [other, instance_norm_function(17)])
    assert [function.name for function in for_builder(model).functions] == ["f"]
    assert [function.name for function in by_definition(model).functions] == ["f"]


@pytest.mark.parametrize(("kind", "opset"), [("float", 17), ("float16", 17), ("float", 9), ("float16", 14)])
@pytest.mark.parametrize("activation", ["Relu", "LeakyRelu <alpha=0.3> ", "Elu"])
def test_cleaning_reads_them_as_they_were(tmp_path, activation, kind, opset):
    model = model_with(activation, kind, opset)
    cleaned = clean(with_plugin(model, tmp_path))
    assert operators(cleaned.model) == operators(model)
    assert len(cleaned.model.functions) == 0
    assert cleaned.counts["plugin nodes read as operators"] == 1
    norm, act = cleaned.model.graph.node[:2]
    source_norm, source_act = model.graph.node[:2]
    assert norm.name == "in0"
    assert [a.name for a in norm.attribute] == ["epsilon"]
    assert list(act.attribute) == list(source_act.attribute)
    kept = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in cleaned.model.graph.initializer}
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    for ours, theirs in zip(norm.input[1:], source_norm.input[1:], strict=True):
        assert kept[ours].dtype == stored[theirs].dtype
        np.testing.assert_array_equal(kept[ours], stored[theirs])


def test_parameters_that_the_type_of_the_data_does_not_hold_are_not_rounded(tmp_path):
    """The plugin has them in float32, and so has its definition."""
    model = parse(
        "g (float16[N, 3, H, W] x) => (float16[N, 3, H, W] y) { [in0] y = InstanceNormalization(x, s, b) }",
        {"s": random(3), "b": random(3, seed=1)},
    )
    rewritten = with_plugin(model, tmp_path)
    cleaned = clean(rewritten)
    assert "InstanceNormalization_TRT" not in operators(cleaned.model)
    held = [onnx.numpy_helper.to_array(tensor) for tensor in cleaned.model.graph.initializer]
    assert any(value.dtype == np.float32 and np.array_equal(value, random(3)) for value in held)
    assert_same(rewritten, cleaned.model)


def test_a_rewritten_file_rewritten_again_is_the_same(tmp_path):
    once = with_plugin(model_with("Relu"), tmp_path)
    again = with_plugin(once, tmp_path)
    assert again.SerializeToString(deterministic=True) == once.SerializeToString(deterministic=True)


def test_a_group_norm_is_read_back(tmp_path):
    model = parse(
        "g (float[2, 6, 4, 4] x) => (float[2, 6, 4, 4] y) { [gn0] y = GroupNormalization <num_groups=3> (x, s, b) }",
        {"s": random(6), "b": random(6, seed=1)},
        opset=21,
    )
    cleaned = clean(with_plugin(model, tmp_path))
    assert operators(cleaned.model) == ["GroupNormalization"]
    assert_same(model, cleaned.model)


def test_a_function_that_means_something_else_is_followed():
    """The domain alone does not say what a node computes."""
    text = f'<domain: "{DOMAIN}", opset_import: ["" : 17]> InstanceNormalization_TRT (x) => (y) {{ y = Neg(x) }}'
    function = onnx.parser.parse_function(text)
    assert not is_own(function)
    model = parse("g (float[2, 3, 4, 4] x) => (float[2, 3, 4, 4] y) { y = InstanceNormalization_TRT(x) }")
    model.graph.node[0].domain = DOMAIN
    add_functions(model, [function])
    assert operators(clean(model).model) == ["Neg"]


def test_a_plugin_of_others_with_a_function_is_its_function():
    function = onnx.parser.parse_function('<domain: "mine", opset_import: ["" : 17]> F (x) => (y) { y = Neg(x) }')
    model = parse('g (float[2] x) => (float[2] y) { [a] y = F <plugin_version="1"> (x) }')
    model.graph.node[0].domain = "mine"
    add_functions(model, [function])
    cleaned = clean(model)
    assert operators(cleaned.model) == ["Neg"]
    assert cleaned.notes == ("a asks for the plugin F, but its function in the file is used instead",)


def test_another_function_of_the_same_name_is_no_match():
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    add_functions(model, [instance_norm_function(17)])
    add_functions(model, [instance_norm_function(17)])
    assert len(model.functions) == 1
    with pytest.raises(ValueError, match=r"another function trtnorm\.plugins::InstanceNormalization_TRT"):
        add_functions(model, [instance_norm_function(18)])
