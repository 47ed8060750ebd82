"""Small values that are computed from constants through large ones: the mean and the variance of a large weight, say.

The large values are evaluated on the way and not stored, so that the model does not grow by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Protocol

import numpy as np
import onnx_ir as ir

from trtnorm_cli.light_dataclass import dataclass

# No value on the way may be larger, and so much is kept for the next small value that needs it, too.
_MOST_BYTES = 1 << 27


class Policy(Protocol):
    """The policy of a folding, as far as it matters here."""

    too_large: set[ir.Node]

    def may_be_known(self, node: ir.Node) -> bool:
        """Tell whether the value of ``node`` may be evaluated, however large it is."""

    def size_of(self, node: ir.Node) -> int | None:
        """The bytes of what ``node`` makes, None where that is not known."""

    def is_small(self, node: ir.Node, size: int) -> bool:
        """Tell whether ``size`` bytes that ``node`` makes may be stored."""

    def evaluate_in_a_row(
        self, nodes: Sequence[ir.Node], outputs: Sequence[str], known: Mapping[str, np.ndarray]
    ) -> Mapping[str, np.ndarray] | None:
        """The ``outputs`` of ``nodes`` in the order of the graph, some inputs of which are ``known``; None where that fails."""

    def evaluation_failed(self, node: ir.Node) -> None: ...


def evaluate_through_large(model: ir.Model, policy: Policy, replace: Callable[[ir.Node, list[np.ndarray]], None]) -> None:
    """Evaluate the small values behind the nodes that ``policy`` found too large, and ``replace`` their nodes by them."""
    if not policy.too_large:
        return
    way = _Way({}, {})
    for node in list(model.graph):
        if node in policy.too_large:
            if (policy.size_of(node) or _MOST_BYTES + 1) <= _MOST_BYTES:
                way.add(node)
        elif way.leads_to(node) and policy.may_be_known(node) and (size := policy.size_of(node)) is not None:
            if not policy.is_small(node, size):
                if size <= _MOST_BYTES:
                    way.add(node)
            elif (results := way.evaluated(node, policy)) is not None:
                feeders = [value.producer() for value in node.inputs if value is not None]
                replace(node, results)
                _remove_unread(feeders)


@dataclass
class _Way:
    """Large values that can be computed, with the nodes that do, in the order of the graph.

    ``known`` are some of those that others read than what was evaluated with them. The rest stays with ONNX Runtime, which
    gives only what is small.
    """

    makers: dict[ir.Value, ir.Node]
    known: dict[str, np.ndarray]

    def add(self, node: ir.Node) -> None:
        self.makers.update((value, node) for value in node.outputs if value.name)

    def leads_to(self, node: ir.Node) -> bool:
        """True of a node that reads large values of this way, and constants besides."""
        inputs = [value for value in node.inputs if value is not None]
        return any(value in self.makers for value in inputs) and all(
            value in self.makers or value.const_value is not None for value in inputs
        )

    def evaluated(self, node: ir.Node, policy: Policy) -> list[np.ndarray] | None:
        if sum(array.nbytes for array in self.known.values()) > _MOST_BYTES:
            self.known.clear()
        before, results = self._before(node), _names(node)
        row = {*before, node}
        shared = [value.name for maker in before for value in maker.outputs if value.name and _is_read_beside(value, row)]
        found = policy.evaluate_in_a_row([*before, node], [*shared, *results], self.known)
        if found is None:
            return self._one_by_one(before, node, policy)
        self.known.update((name, found[name]) for name in shared)
        return [found[name] for name in results]

    def _one_by_one(self, before: Sequence[ir.Node], node: ir.Node, policy: Policy) -> list[np.ndarray] | None:
        """The same, telling ``policy`` which node fails."""
        for maker in [*before, node]:
            found = policy.evaluate_in_a_row([maker], _names(maker), self.known)
            if found is None:
                policy.evaluation_failed(maker)
                self._give_up(maker)
                return None
            self.known.update(found)
        return [self.known.pop(name) for name in _names(node)]

    def _give_up(self, failed: ir.Node) -> None:
        """Forget ``failed`` and what is made from it."""
        lost = set(failed.outputs)
        for value, maker in self.makers.items():
            if maker is failed or not lost.isdisjoint(maker.inputs):
                lost.add(value)
        self.makers = {value: maker for value, maker in self.makers.items() if value not in lost}

    def _before(self, node: ir.Node) -> list[ir.Node]:
        """The nodes that have to be evaluated before ``node``."""
        waiting, found = [node], set[ir.Node]()
        while waiting:
            for value in waiting.pop().inputs:
                maker = None if value is None or value.name in self.known else self.makers.get(value)
                if maker is not None and maker not in found:
                    found.add(maker)
                    waiting.append(maker)
        return [maker for maker in dict.fromkeys(self.makers.values()) if maker in found]


def _names(node: ir.Node) -> list[str]:
    """The names of what ``node`` makes."""
    return [value.name for value in node.outputs if value.name]


def _is_read_beside(value: ir.Value, row: Set[ir.Node]) -> bool:
    return any(reader not in row for reader, _ in value.uses())


def _remove_unread(nodes: list[ir.Node | None]) -> None:
    """Remove those of ``nodes`` that nobody reads any more, and what only they read."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node is None or node.graph is None or any(_is_read(value) for value in node.outputs):
            continue
        waiting += _producers(node)
        node.graph.remove(node, safe=True)


def _is_read(value: ir.Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()


def _producers(node: ir.Node) -> Iterator[ir.Node | None]:
    return (value.producer() for value in node.inputs if value is not None)
