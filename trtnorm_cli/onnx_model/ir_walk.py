"""Walk the nodes of an onnx-ir graph: cleaning goes over all of them some forty times, and most can hold no graph."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from trtnorm_cli.onnx_model.walk import WITHOUT_GRAPHS, operator_may_hold_graphs


def every_node(graph: ir.Graph | ir.Function) -> Iterator[ir.Node]:
    """The nodes of ``graph`` and of its subgraphs, each before what is inside it, as ``all_nodes`` of onnx-ir gives them.

    A node may be removed while it is looked at.
    """
    for node in graph:
        yield node
        if node.op_type in WITHOUT_GRAPHS and not node.domain:
            continue
        if may_hold_graphs(node):
            for inner in graphs_of(node):
                yield from every_node(inner)


def every_graph(graph: ir.Graph) -> list[ir.Graph]:
    """``graph`` and all graphs inside it, outermost first."""
    found = [graph]
    for node in graph:
        if node.op_type in WITHOUT_GRAPHS and not node.domain:
            continue
        if may_hold_graphs(node):
            for inner in graphs_of(node):
                found += every_graph(inner)
    return found


def graphs_of(node: ir.Node) -> Iterator[ir.Graph]:
    """The graphs in the attributes of ``node``."""
    if not may_hold_graphs(node):
        return
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def holds_graphs(node: ir.Node) -> bool:
    """True when an attribute of ``node`` is a graph."""
    return may_hold_graphs(node) and any(True for _ in graphs_of(node))


def may_hold_graphs(node: ir.Node) -> bool:
    """False for an operator of ONNX none of whose attributes is a graph."""
    return node.domain != "" or operator_may_hold_graphs(node.op_type)
