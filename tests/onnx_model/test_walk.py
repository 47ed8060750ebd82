"""Every graph, node and tensor of a model is found, wherever it is."""

from __future__ import annotations

import onnx

from tests.models import parse, random
from trtnorm_cli.onnx_model.walk import all_graphs, all_nodes, all_tensors, tensors_read

NESTED = """g (float[2] x, bool t) => (float[2] y) {
    k = Constant <value = float[2] {1, 2}>()
    y = If (t) <
        then_branch = a () => (float[2] p) { p = If (t) <
            then_branch = c () => (float[2] r) { m = Constant <value = float[2] {3, 4}>() r = Add(k, m) },
            else_branch = d () => (float[2] s) { s = Neg(x) }> },
        else_branch = b () => (float[2] q) { q = Abs(x) }>
}"""


def nested() -> onnx.ModelProto:
    model = parse(NESTED, {"w": random(2)})
    model.graph.node[1].attribute[1].g.initializer.add(name="inner", data_type=1, dims=[1], raw_data=bytes(4))
    function = model.functions.add(name="f", domain="mine")
    function.node.add(op_type="Constant", output=["k"]).attribute.add(name="value", type=4).t.name = "in function"
    branch = function.node.add(op_type="If", output=["o"]).attribute.add(name="then_branch", type=5).g
    branch.node.add(op_type="Sin")
    branch.initializer.add(name="in branch of function")
    sparse = model.graph.sparse_initializer.add()
    sparse.values.name, sparse.indices.name = "values", "indices"
    return model


def test_graphs():
    assert [graph.name for graph in all_graphs(nested().graph)] == ["g", "a", "c", "d", "b"]


def test_nodes():
    operators = [node.op_type for node in all_nodes(nested())]
    assert operators == ["Constant", "If", "If", "Constant", "Add", "Neg", "Abs", "Constant", "If", "Sin"]


def test_tensors():
    names = [tensor.name for tensor in all_tensors(nested())]
    assert {name for name in names if name} == {"w", "inner", "in function", "in branch of function", "values", "indices"}
    assert len(names) == 8


def test_a_node_reads_what_its_branches_read_and_hand_on():
    model = nested()
    model.graph.node[1].attribute[1].g.output[0].name = "outer"
    assert set(tensors_read(model.graph.node[1])) >= {"t", "k", "x", "outer"}
