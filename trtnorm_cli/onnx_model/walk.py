"""Walk a model's graphs, nodes and tensors, subgraphs and functions included."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

import onnx

from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS

_HOLDS_GRAPHS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
# The operators of ONNX that were met and hold none. A walk looks here: for most nodes a call takes longer than all else.
WITHOUT_GRAPHS: set[str] = set()


@cache
def operator_may_hold_graphs(operator: str) -> bool:
    """False for an operator of ONNX none of whose attributes is a graph."""
    if not isinstance(operator, str) or not onnx.defs.has(operator):  # a damaged file may hold bytes that are no text
        return True
    kinds = (attribute.type for attribute in onnx.defs.get_schema(operator).attributes.values())
    found = any(kind in (onnx.defs.OpSchema.AttrType.GRAPH, onnx.defs.OpSchema.AttrType.GRAPHS) for kind in kinds)
    if not found:
        WITHOUT_GRAPHS.add(operator)
    return found


def may_hold_graphs(node: onnx.NodeProto) -> bool:
    """False for a node of ONNX's own whose operator has no graphs: to look at all attributes takes several times as long."""
    return operator_may_hold_graphs(node.op_type) or node.domain not in DEFAULT_DOMAINS


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs in a node's attributes: branches of If, bodies of Loop and Scan."""
    if not may_hold_graphs(node):
        return
    for attribute in node.attribute:
        if attribute.type in _HOLDS_GRAPHS:
            yield from _graphs_in(attribute)


def _graphs_in(attribute: onnx.AttributeProto) -> Iterable[onnx.GraphProto]:
    return [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs


def all_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """``graph`` and every graph nested in it, outermost first."""
    yield graph
    for node in graph.node:
        if node.op_type in WITHOUT_GRAPHS and not node.domain:
            continue
        if may_hold_graphs(node):
            for inner in subgraphs(node):
                yield from all_graphs(inner)


def nodes_within(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """``nodes`` and those of their subgraphs, each before what is inside it."""
    for node in nodes:
        yield node
        if node.op_type in WITHOUT_GRAPHS and not node.domain:
            continue
        if may_hold_graphs(node):
            for inner in subgraphs(node):
                yield from nodes_within(inner.node)


def tensor_names(graph: onnx.GraphProto) -> frozenset[str]:
    """The names of what the nodes of ``graph`` give, without those of its subgraphs."""
    return frozenset(name for node in graph.node for name in node.output if name)


def tensors_read(node: onnx.NodeProto) -> Iterator[str]:
    """The names of the tensors that ``node`` reads, those that its subgraphs read or hand on included."""
    for within in nodes_within([node]):
        yield from filter(None, within.input)
        for inner in subgraphs(within):
            yield from (value.name for value in inner.output)


def all_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Every node of the model: the graph's, its subgraphs', and those of its functions."""
    yield from nodes_within(model.graph.node)
    for function in model.functions:
        yield from nodes_within(function.node)


def all_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor stored in the model: initializers of all graphs and tensors in attributes."""
    for graph in all_graphs(model.graph):
        yield from _initializers(graph)
    for node in all_nodes(model):
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
            elif attribute.type == onnx.AttributeProto.TENSORS:
                yield from attribute.tensors
    for function in model.functions:
        for node in function.node:
            for inner in subgraphs(node):
                for graph in all_graphs(inner):
                    yield from _initializers(graph)


def _initializers(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
        yield sparse.indices
