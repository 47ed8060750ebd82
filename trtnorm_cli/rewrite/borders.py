"""Where the graphs of a model end: what leaves them, which node is in which, and in what order they run."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import TYPE_CHECKING

from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs


class Borders:
    """The tensors that leave their graph, and the graph that each node is in. Good until the next edit."""

    def __init__(self, graphs: Iterable[gs.Graph]) -> None:
        every = list(graphs)
        # graphsurgeon makes a new tensor for a subgraph output that the outer graph owns, so compare names.
        self.output_names = {tensor.name for graph in every for tensor in graph.outputs}
        self.graph_of = {id(node): graph for graph in every for node in graph.nodes}
        self.nodes = [node for graph in every for node in graph.nodes if node.outputs]
        self.positions = {id(node): place for graph in every for place, node in enumerate(graph.nodes)}
        self._by_operator: dict[str, list[tuple[int, gs.Node]]] = {}
        for place, node in enumerate(self.nodes):
            self._by_operator.setdefault(node.op, []).append((place, node))

    @classmethod
    def nowhere(cls) -> Borders:
        """The borders of no graph."""
        return cls(())

    def nodes_of(self, operators: Iterable[str]) -> list[gs.Node]:
        """Those of ``nodes`` that are of one of ``operators``, in the same order."""
        found = [self._by_operator.get(operator, []) for operator in dict.fromkeys(operators)]
        return [node for _, node in heapq.merge(*found, key=lambda entry: entry[0])]

    def leaves(self, tensor: gs.Tensor) -> bool:
        """True when ``tensor`` is an output of its graph."""
        return tensor.name in self.output_names

    def are_together(self, node: gs.Node, other: gs.Node) -> bool:
        """True when both nodes are in the same graph."""
        return self.graph_of.get(id(node)) is self.graph_of.get(id(other))


def reads_shape_only(node: gs.Node) -> bool:
    """True for an operator to which the values of its input do not matter."""
    return node.op in ("Shape", "Size") and node.domain in DEFAULT_DOMAINS
