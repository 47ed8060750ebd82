"""The walk over onnx-ir graphs gives what onnx-ir's own gives."""

from __future__ import annotations

import onnx_ir as ir

from tests.models import parse
from trtnorm_cli.onnx_model.ir_walk import every_node, graphs_of

NESTED = """g (float[3] x, bool c) => (float[3] z) {
  a = Relu(x)
  b = If(c) <
    then_branch = t () => (float[3] t2) { t1 = Neg(a)
      t2 = If(c) <then_branch = tt () => (float[3] p) { p = Abs(t1) }, else_branch = te () => (float[3] q) { q = Exp(t1) }> },
    else_branch = e () => (float[3] e1) { e1 = Sqrt(a) }
  >
  z = Cast<to = 1>(b)
}"""


def opened(graph: str = NESTED) -> ir.Model:
    return ir.serde.deserialize_model(parse(graph))


def test_nested_graphs_are_walked_in_the_same_order():
    model = opened()
    assert list(every_node(model.graph)) == list(model.graph.all_nodes())
    assert [node.op_type for node in every_node(model.graph)] == ["Relu", "If", "Neg", "If", "Abs", "Exp", "Sqrt", "Cast"]


def test_a_node_of_another_domain_may_hold_a_graph():
    model = opened()
    branch = next(node for node in model.graph if node.op_type == "If")
    branch.domain, branch.op_type = "somebodys", "Cast"
    assert [graph.name for graph in graphs_of(branch)] == ["t", "e"]
    assert list(every_node(model.graph)) == list(model.graph.all_nodes())


def test_nodes_may_be_removed_on_the_way():
    model = opened("g (float[3] x) => (float[3] z) { a = Relu(x) b = Neg(x) z = Abs(x) }")
    for node in every_node(model.graph):
        if node.op_type == "Neg":
            model.graph.remove(node)
    assert [node.op_type for node in every_node(model.graph)] == ["Relu", "Abs"]
