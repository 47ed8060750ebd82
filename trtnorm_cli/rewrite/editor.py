"""Put a proved replacement into the graph; with ``driver.py``, the only code that edits one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import onnx_graphsurgeon as gs

from trtnorm_cli.onnx_model.names import free_name
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.onnx_model.surgery import Surgery
from trtnorm_cli.rewrite.borders import Borders, reads_shape_only
from trtnorm_cli.rewrite.new_types import inferred_types
from trtnorm_cli.rewrite.pattern import describe
from trtnorm_cli.rewrite.realise import Realised, realise, region_of
from trtnorm_cli.rewrite.rule import Change, Check, Match, Rejection, Unprovable

Prove = Callable[[Match, Realised], Check]


class NodeList:
    """The list of a graph's nodes, edited at many places in one pass: ``settle`` makes the edits."""

    def __init__(self, graph: gs.Graph) -> None:
        self.graph = graph
        self.place_of = {id(node): place for place, node in enumerate(graph.nodes)}
        # Nodes are held, so that no new one gets the identity of one that is gone.
        self._gone: dict[int, gs.Node] = {}
        self._new: dict[int, list[gs.Node]] = {}

    def insert(self, node: gs.Node, place: int) -> None:
        """Put ``node`` before the one that was at ``place``, behind others that were put there."""
        self._new.setdefault(place, []).append(node)
        self.place_of[id(node)] = place

    def remove(self, node: gs.Node) -> None:
        self._gone[id(node)] = node

    def settle(self) -> None:
        merged: list[gs.Node] = []
        for place, node in enumerate(self.graph.nodes):
            merged += self._new.get(place, ())
            merged.append(node)
        self.graph.nodes[:] = [node for node in merged if id(node) not in self._gone]


class Editor:
    """Puts replacements into the graph. ``types`` and ``origins`` grow by the tensors that it adds.

    The lists of nodes are edited when ``settle`` is called, all else at once. ``is_whole`` is false while the graph is being
    edited, and for good where an exception ended that.
    """

    def __init__(self, surgery: Surgery, types: dict[str, TensorType]) -> None:
        self.surgery, self.types = surgery, types
        self.origins: dict[str, str] = {}
        self.is_whole = True
        borders = Borders(surgery.graphs())
        self.output_names = borders.output_names
        self.graph_of = borders.graph_of
        self.used = {name for graph in surgery.graphs() for name in _names(graph)}
        self._lists: dict[int, NodeList] = {}

    def settle(self) -> None:
        """Bring the lists of nodes up to date."""
        for edited in self._lists.values():
            edited.settle()
        self._lists.clear()

    def _list_of(self, graph: gs.Graph) -> NodeList:
        if id(graph) not in self._lists:
            self._lists[id(graph)] = NodeList(graph)
        return self._lists[id(graph)]

    def make(self, found: Match, prove: Prove) -> Change | Rejection:
        """Prove the replacement of ``found`` and, if it passes, put it into the graph."""
        realised = realise(found.rule.replacement(found), found, lambda wanted: free_name(wanted, self.used))
        # Most changes pass, so their weights are written while they are proved.
        self.surgery.begin_constants(realised.constants)
        try:
            return self._proved(found, realised, prove)
        finally:
            self.surgery.forget_begun()

    def _proved(self, found: Match, realised: Realised, prove: Prove) -> Change | Rejection:
        try:
            check = prove(found, realised)
        except Unprovable as reason:
            return Rejection(found.rule.name, describe(found.site), f"the change cannot be proved: {reason}")
        change = Change(
            rule=found.rule.name,
            node=describe(found.site),
            removed=tuple(describe(node) for node in reversed(found.nodes)),
            added=tuple(node.name for node in realised.nodes),
            because=found.rule.because,
            check=check,
            warning=(found.rule.warning(found) or "") if found.rule.warning else "",
            tensor=found.output.name,
            optional=bool(found.rule.optional and found.rule.optional(found)),
            changes_meaning=bool(found.rule.changes_meaning and found.rule.changes_meaning(found)),
            compared_with_reference=found.rule.reference is not None and not found.rule.restates,
            region=region_of(found, realised),
            in_passing=bool(found.rule.in_passing and found.rule.in_passing(found)),
        )
        if change.check.passed:
            self.is_whole = False
            self._replace(found, realised)
            self.is_whole = True
        return change

    def _replace(self, found: Match, realised: Realised) -> None:
        graph = self.graph_of[id(found.root)]
        order, old = self._list_of(graph), found.nodes
        feeders = [producer for node in old for tensor in node.inputs for producer in tensor.inputs]
        produced = [t for t in (*found.root.outputs, *found.kept) if t.name in realised.outputs]
        gone = {id(node) for node in old}
        read = [(r, t) for node in old for t in node.outputs for r in t.outputs if id(r) not in gone]
        readers = [(r, t) for r, t in read if found.extent and reads_shape_only(r)]
        places = _places(realised, order.place_of, order.place_of[id(found.root)])
        # Only the producers are cut off. Clearing an input's consumers as well would break every other branch it feeds.
        for node in old:
            node.inputs.clear()
            node.outputs.clear()
        tensors = _tensors(self.surgery, realised, produced)
        new = _gs_nodes(realised, tensors)
        for node in old:
            order.remove(node)
        for node, place in zip(new, places, strict=True):
            order.insert(node, place)
        self.graph_of.update((id(node), graph) for node in new)
        self.surgery.functions += realised.functions
        self._remember(realised)
        for reader, tensor in readers:
            if tensor.name not in realised.outputs:
                self._redirect(reader, tensors[realised.substitute(tensor.name)])
        self._remove_dead(feeders)

    def _remember(self, realised: Realised) -> None:
        """Types of the tensors that are new."""
        for new, old in realised.stands_for.items():
            if new not in self.types and old in self.types:
                self.types[new] = self.types[old]
                self.origins[new] = self.origins.get(old, old)
        if any(name not in self.types for node in realised.nodes for name in node.outputs):
            for new, kind in inferred_types(realised, self.types, self.surgery.source.opset_import).items():
                self.types.setdefault(new, kind)

    def _redirect(self, reader: gs.Node, tensor: gs.Tensor) -> None:
        """Let ``reader``, which asks for a shape only, read another tensor of that shape."""
        graph = self.graph_of[id(reader)]
        outputs = list(reader.outputs)
        reader.inputs.clear()
        reader.outputs.clear()
        # A new node, because the closed model has the old one as the file wrote it.
        again = gs.Node(reader.op, reader.name, dict(reader.attrs), [tensor], outputs)
        order = self._list_of(graph)
        order.insert(again, order.place_of[id(reader)])
        order.remove(reader)
        self.graph_of[id(again)] = graph

    def _remove_dead(self, candidates: list[gs.Node]) -> None:
        """Remove nodes that only fed what was replaced, and what only fed them."""
        waiting = candidates[::-1]
        while waiting:
            node = waiting.pop()
            if not node.outputs or any(t.outputs or t.name in self.output_names for t in node.outputs):
                continue
            feeders = [producer for tensor in node.inputs for producer in tensor.inputs]
            self._list_of(self.graph_of[id(node)]).remove(node)
            node.inputs.clear()
            node.outputs.clear()
            waiting += feeders[::-1]


def _names(graph: gs.Graph) -> Iterable[str]:
    yield from graph.tensors()
    for node in graph.nodes:
        yield node.name


def _places(realised: Realised, place_of: Mapping[int, int], last: int) -> list[int]:
    """Where in the order of execution each new node goes: where the old one was, or just before it is needed."""
    needed: dict[str, int] = {}
    places = [last] * len(realised.nodes)
    for number, node in reversed(list(enumerate(realised.nodes))):
        old = realised.instead_of.get(number)
        own = last if old is None else place_of[id(old)]
        places[number] = min((own, *(needed[name] for name in node.outputs if name in needed)))
        for name in filter(None, node.inputs):
            needed[name] = min(needed.get(name, places[number]), places[number])
    return places


def _tensors(surgery: Surgery, realised: Realised, produced: list[gs.Tensor]) -> dict[str, gs.Tensor]:
    """Every tensor of the replacement by name."""
    tensors: dict[str, gs.Tensor] = {**realised.taken, **{t.name: t for t in produced}, "": gs.Variable.empty()}
    for name, value in realised.constants.items():
        tensors[name] = surgery.new_constant(name, value)
    for node in realised.nodes:
        for name in node.outputs:
            tensors.setdefault(name, gs.Variable(name, dtype=produced[0].dtype))
    return tensors


def _gs_nodes(realised: Realised, tensors: Mapping[str, gs.Tensor]) -> list[gs.Node]:
    return [
        gs.Node(
            n.op,
            n.name,
            dict(n.attrs),
            [tensors[name] for name in n.inputs],
            [tensors[name] for name in n.outputs],
            domain=n.domain or None,
        )
        for n in realised.nodes
    ]
