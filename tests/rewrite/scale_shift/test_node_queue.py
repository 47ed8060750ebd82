"""The queue of nodes to visit: in order, each once, and without a look at all that wait."""

from __future__ import annotations

import onnx_graphsurgeon as gs

from trtnorm_cli.rewrite.scale_shift.node_queue import NodeQueue


class Place(int):
    """A place that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Place.compared += 1
        return int(self) == other

    def __lt__(self, other: int) -> bool:
        Place.compared += 1
        return int(self) < int(other)

    __hash__ = int.__hash__


def test_nodes_come_out_in_order_and_each_once():
    nodes = [gs.Node("Relu") for _ in range(5)]
    queue = NodeQueue()
    for place in (3, 1, 4, 1, 0, 3):
        queue.put(nodes[place], place)
    assert [queue.next(), queue.next()] == [nodes[0], nodes[1]]
    queue.put(nodes[0], 0)
    assert [queue.next() for _ in range(3)] == [nodes[0], nodes[3], nodes[4]]
    assert not queue


def test_of_nodes_at_equal_places_the_first_comes_first():
    """As nodes of different graphs are. Their order in memory would be another one in each run."""
    nodes = [gs.Node("Relu") for _ in range(20)]
    for ordered in (nodes, nodes[::-1]):
        queue = NodeQueue()
        for node in ordered:
            queue.put(node, 7)
        assert [queue.next() for _ in ordered] == ordered


def test_the_work_is_in_proportion_to_the_nodes():
    nodes = [gs.Node("Relu") for _ in range(1000)]
    queue, Place.compared = NodeQueue(), 0
    for number, node in enumerate(nodes):
        queue.put(node, Place(number))
    assert Place.compared <= 10 * len(nodes)
