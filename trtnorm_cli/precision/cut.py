"""The cheapest choice between float32 and the low type for the nodes that may have either, as a minimum cut.

Every tensor that is read in the other type than it was made in costs one cast, however many read it. Every node that is
computed in float32 without need costs a little. The sum is smallest where a graph of nodes and tensors is cut between the
low side and the float32 side (Picard & Ratliff 1975, "Minimum cuts and related problems"): for a tensor that p makes and c
read, one auxiliary node takes p's side only if all c are on it, and a second one likewise the other way round.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from trtnorm_cli.light_dataclass import dataclass

_LOW, _FLOAT = "low side", "float32 side"
_NEVER = 1 << 40


@dataclass(frozen=True)
class Flow:
    """A tensor: the variable that makes it, those that read it, and the cost of a cast."""

    maker: Hashable
    readers: frozenset[Hashable]
    cost: int


@dataclass
class Choice:
    """Variables with the cost of computing them in float32; ``forced`` are those that have no choice: True means low."""

    float_cost: dict[Hashable, int]
    forced: dict[Hashable, bool]
    flows: list[Flow]

    def settled(self) -> dict[Hashable, bool]:
        """Every variable with its choice: True means low. Where both are as cheap, it is low."""
        result = {variable: self.forced.get(variable, True) for variable in self.float_cost}
        for part in self._parts():
            # Without a float32 neighbour nothing speaks against low.
            if any(self.forced.get(one) is False for flow in part for one in (flow.maker, *flow.readers)):
                result.update(self._cut(part))
        return result

    def _parts(self) -> Iterable[list[Flow]]:
        """The flows in groups that share no variable that may be either."""
        parent: dict[Hashable, Hashable] = {}

        def root(one: Hashable) -> Hashable:
            parent.setdefault(one, one)
            while parent[one] != one:
                parent[one] = parent[parent[one]]
                one = parent[one]
            return one

        for flow in self.flows:
            free = [one for one in (flow.maker, *flow.readers) if one not in self.forced]
            for one in free[1:]:
                parent[root(one)] = root(free[0])
        parts: dict[Hashable, list[Flow]] = {}
        for flow in self.flows:
            free = [one for one in (flow.maker, *flow.readers) if one not in self.forced]
            if free:
                parts.setdefault(root(free[0]), []).append(flow)
        return parts.values()

    def _cut(self, flows: list[Flow]) -> Mapping[Hashable, bool]:
        import networkx
        from networkx.algorithms.flow import boykov_kolmogorov

        graph = networkx.DiGraph()
        graph.add_nodes_from((_LOW, _FLOAT))
        variables = dict.fromkeys(one for flow in flows for one in (flow.maker, *flow.readers))
        for one in variables:
            if one in self.forced:
                graph.add_edge(*((_LOW, one) if self.forced[one] else (one, _FLOAT)), capacity=_NEVER)
            else:
                graph.add_edge(_LOW, one, capacity=self.float_cost[one])
        for number, flow in enumerate(flows):
            raised, lowered = ("raised", number), ("lowered", number)
            graph.add_edge(flow.maker, raised, capacity=flow.cost)
            graph.add_edge(lowered, flow.maker, capacity=flow.cost)
            for reader in flow.readers:
                graph.add_edge(raised, reader, capacity=_NEVER)
                graph.add_edge(reader, lowered, capacity=_NEVER)
        residual = boykov_kolmogorov(graph, _LOW, _FLOAT)
        # The float32 side is the smallest that is possible: what still reaches it through unused capacity.
        from_float = {_FLOAT}
        waiting: list[Hashable] = [_FLOAT]
        while waiting:
            here = waiting.pop()
            for before in residual.predecessors(here):
                edge = residual[before][here]
                if before not in from_float and edge["flow"] < edge["capacity"]:
                    from_float.add(before)
                    waiting.append(before)
        return {one: one not in from_float for one in variables if one not in self.forced}
