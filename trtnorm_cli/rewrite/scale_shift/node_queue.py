"""Nodes that wait to be visited, in an order of their own, and each once however often it is asked for."""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs


class NodeQueue:
    """The waiting node with the smallest place comes out first, of several the one that came first. It may wait again.

    Nodes of different graphs have equal places.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._entries: list[tuple[int, int, gs.Node]] = []
        self._waiting: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._entries)

    def put(self, node: gs.Node, place: int) -> None:
        if id(node) not in self._waiting:
            self._waiting.add(id(node))
            heapq.heappush(self._entries, (place, next(self._numbers), node))

    def next(self) -> gs.Node:
        _, _, node = heapq.heappop(self._entries)
        self._waiting.remove(id(node))
        return node
