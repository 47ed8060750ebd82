"""Walk the nodes of an onnx-ir graph: cleaning goes over all of them some forty times, and most can hold no graph."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import onnx
import onnx_ir as ir


def every_node(graph: ir.Graph | ir.Function) -> Iterator[ir.Node]:
    """The nodes of ``graph`` and of its subgraphs, each before what is inside it, as ``all_nodes`` of onnx-ir gives them.

    A node may be removed while it is looked at.
    """
    for node in graph:
        yield node
        if may_hold_graphs(node):
            for inner in graphs_of(node):
                yield from every_node(inner)


def every_graph(graph: ir.Graph) -> list[ir.Graph]:
    """``graph`` and all graphs inside it, outermost first."""
    found = [graph]
    for node in graph:
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
    return node.domain != "" or _can_hold_graphs(node.op_type)


@cache
def _can_hold_graphs(operator: str) -> bool:
    if not onnx.defs.has(operator):
        return True
    kinds = (attribute.type for attribute in onnx.defs.get_schema(operator).attributes.values())
    return any(kind in (onnx.defs.OpSchema.AttrType.GRAPH, onnx.defs.OpSchema.AttrType.GRAPHS) for kind in kinds)
