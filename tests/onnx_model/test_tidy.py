"""Functions inlined, identities and dead nodes gone, and every name that a user sees kept."""

from __future__ import annotations

from collections import Counter

import onnx
import onnx.parser
import pytest

from tests.models import batchnorm, operators, parse
from tests.onnx_model.running import cleaned, same_values
from trtnorm_cli.errors import ModelError
from trtnorm_cli.onnx_model.clean import clean
from trtnorm_cli.onnx_model.late_imports import import_onnx_ir


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
    result = cleaned(model).model  # ONNX Runtime 1.23 does not tell them apart itself
    assert [(node.op_type, list(node.output)) for node in result.graph.node] == [("Neg", ["y"]), ("Exp", ["z"])]


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


@pytest.mark.parametrize(
    ("node", "left"),
    [
        ('LayerNormalization(x, s, "")', ["x", "s"]),
        ('Clip(x, "", "")', ["x"]),
        ('Clip(x, "", m)', ["x", "", "m"]),
    ],
)
def test_empty_inputs_at_the_end_are_left_out(node, left):
    graph = f"g (float[N, 3] x) => (float[N, 3] y) <float[3] s = {{1, 2, 3}}, float m = {{0.5}}> {{ y = {node} }}"
    result = same_values(parse(graph))
    (made,) = result.model.graph.node
    assert list(made.input) == left
    assert result.counts.get("empty inputs left out", 0) == node.count('""') - left.count("")


def test_constants_are_lifted_without_asking_of_each_tensor_whether_it_is_one(monkeypatch):
    """That takes longer than all else about it, before Python 3.12."""
    import_onnx_ir()
    import onnx_ir as ir

    from trtnorm_cli.onnx_model.tidy import lift_constants

    nodes = " ".join(f"c{i} = Constant <value = float[1] {{{i}}}> () y{i + 1} = Add(y{i}, c{i})" for i in range(4))
    graph = (
        f"g (float[N] y0) => (float[N] y5) {{ {nodes} n = Constant <value_int = 3> () k = Cast <to = 1> (n) y5 = Add(y4, k) }}"
    )
    model = ir.from_proto(parse(graph))
    asked: list[object] = []
    as_tensor = ir.Attr.as_tensor
    monkeypatch.setattr(ir.Attr, "as_tensor", lambda self: asked.append(self) or as_tensor(self))
    counts: Counter[str] = Counter()
    lift_constants(model, counts)
    assert counts["Constant nodes turned into initializers"] == 5
    assert {name: value.const_value.numpy().item() for name, value in model.graph.initializers.items()} == {
        **{f"c{i}": i for i in range(4)},
        "n": 3,
    }
    assert asked == []
