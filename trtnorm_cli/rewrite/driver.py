"""Plan and apply rewrites; the only code that edits a graph.

The driver owns what every rule would otherwise repeat: opset brackets, unknown rank, inner tensors that somebody else uses,
graph outputs, subgraph borders, further outputs of the root, and overlap between matches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import onnx_graphsurgeon as gs

from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.onnx_model.surgery import Surgery
from trtnorm_cli.rewrite.pattern import Mismatch, describe, match, root_fits
from trtnorm_cli.rewrite.realise import Realised, realise
from trtnorm_cli.rewrite.rule import Change, Check, Match, Rejection, Rule, Unprovable

Judge = Callable[[Match, Realised], Check]


@dataclass(frozen=True)
class Plan:
    """Where rules fit, in the order in which they would be applied, and where they were refused. Nothing is edited."""

    matches: tuple[Match, ...]
    rejections: tuple[Rejection, ...]


@dataclass
class Outcome:
    """What ``apply`` did: changes kept, changes whose check failed (not made), and refusals.

    Refused are the places of the last plan, and those where a rule fits but nothing can be compared.
    """

    changes: list[Change] = field(default_factory=list)
    failed: list[Change] = field(default_factory=list)
    rejections: tuple[Rejection, ...] = ()


def plan(
    surgery: Surgery,
    rules: Iterable[Rule],
    types: Mapping[str, TensorType],
    given_up: frozenset[tuple[str, str]] = frozenset(),
) -> Plan:
    """Try every rule at every node. The first rule that fits a node takes it; the others are not asked about it.

    ``given_up`` holds (rule, output tensor) pairs that are not tried again.
    """
    matches: list[Match] = []
    rejections: list[Rejection] = []
    taken: set[int] = set()
    borders = _Borders(surgery)
    for rule in rules:
        for node in borders.nodes:
            if id(node) in taken or not root_fits(rule.pattern, node) or (rule.name, node.outputs[0].name) in given_up:
                continue
            found = _try(rule, node, surgery, types, borders)
            if isinstance(found, Rejection):
                rejections.append(found)
            elif taken.isdisjoint(id(inner) for inner in found.bound.nodes.values()):
                matches.append(found)
                taken.update(id(inner) for inner in found.bound.nodes.values())
    return Plan(tuple(matches), tuple(rejections))


def apply(surgery: Surgery, rules: tuple[Rule, ...], types: Mapping[str, TensorType], judge: Judge) -> Outcome:
    """Make one change after the other until no rule fits any more.

    ``judge`` compares before and after; a change that it does not pass is left out and reported. So is a change about which
    it can say nothing (``Unprovable``), as a refusal.
    """
    outcome = Outcome()
    unproved: list[Rejection] = []
    given_up: set[tuple[str, str]] = set()
    editor = _Editor(surgery)
    while True:
        planned = plan(surgery, rules, types, frozenset(given_up))
        if not planned.matches:
            outcome.rejections = (*unproved, *planned.rejections)
            return outcome
        for found in planned.matches:
            made = editor.make(found, judge)
            if isinstance(made, Rejection):
                unproved.append(made)
            elif made.check.passed:
                outcome.changes.append(made)
                continue
            else:
                outcome.failed.append(made)
            given_up.add((found.rule.name, found.output.name))


class _Borders:
    """Which tensors leave their graph, and which graph a node is in."""

    def __init__(self, surgery: Surgery) -> None:
        # graphsurgeon makes a new tensor for a subgraph output that the outer graph owns, so compare names.
        self.output_names = {tensor.name for graph in surgery.graphs() for tensor in graph.outputs}
        self.graph_of = {id(node): graph for graph in surgery.graphs() for node in graph.nodes}
        self.nodes = [node for graph in surgery.graphs() for node in graph.nodes if node.outputs]


def _try(rule: Rule, node: gs.Node, surgery: Surgery, types: Mapping[str, TensorType], borders: _Borders) -> Match | Rejection:
    def refuse(reason: str) -> Rejection:
        return Rejection(rule.name, describe(node), reason)

    if surgery.opset < rule.since_opset:
        return refuse(f"the model is of opset {surgery.opset}, the rule starts at {rule.since_opset}")
    bound = match(rule.pattern, node, surgery)
    if isinstance(bound, Mismatch):
        return refuse(bound.reason)
    found = Match(rule, node, bound, surgery, types)
    for reason in (_border_reason(found, borders), _rank_reason(found)):
        if reason is not None:
            return refuse(reason)
    for precondition in rule.preconditions:
        reason = precondition(found)
        if reason is not None:
            return refuse(reason)
    return found


def _border_reason(found: Match, borders: _Borders) -> str | None:
    inner = [node for node in found.bound.nodes.values() if node is not found.root]
    for node in inner:
        if borders.graph_of[id(node)] is not borders.graph_of[id(found.root)]:
            return f"{describe(node)} belongs to an outer graph"
        for tensor in node.outputs:
            reason = _escapes(tensor, found, borders)
            if reason is not None:
                return reason
    for tensor in found.root.outputs[1:]:
        if tensor.name and (tensor.outputs or tensor.name in borders.output_names):
            return f"{tensor.name}, a further output of {describe(found.root)}, is used"
    return None


def _escapes(tensor: gs.Tensor, found: Match, borders: _Borders) -> str | None:
    if tensor.name in borders.output_names:
        return f"{tensor.name} is an output of the graph"
    inside = {id(node) for node in found.bound.nodes.values()}
    for consumer in tensor.outputs:
        if id(consumer) not in inside:
            return f"{tensor.name} is also used by {describe(consumer)}"
    return None


def _rank_reason(found: Match) -> str | None:
    for name in found.rule.needs_rank_of:
        tensor = found.tensor(name)
        if tensor is not None and found.rank(name) is None:
            return f"the rank of {tensor.name} is not known"
    return None


class _Editor:
    """Puts replacements into the graph."""

    def __init__(self, surgery: Surgery) -> None:
        self.surgery = surgery
        borders = _Borders(surgery)
        self.output_names = borders.output_names
        self.graph_of = borders.graph_of
        self.used = {name for graph in surgery.graphs() for name in _names(graph)}

    def make(self, found: Match, judge: Judge) -> Change | Rejection:
        """Judge the replacement of ``found`` and, if it passes, put it into the graph."""
        realised = realise(found.rule.replacement(found), found, self._fresh)
        try:
            check = judge(found, realised)
        except Unprovable as reason:
            return Rejection(found.rule.name, describe(found.root), f"the change cannot be proved: {reason}")
        change = Change(
            rule=found.rule.name,
            node=describe(found.root),
            removed=tuple(describe(node) for node in reversed(found.bound.nodes.values())),
            added=tuple(node.name for node in realised.nodes),
            because=found.rule.because,
            check=check,
        )
        if change.check.passed:
            self._replace(found, realised)
        return change

    def _fresh(self, wish: str) -> str:
        """``wish``, or ``wish_2`` … when the model uses that name already."""
        name, number = wish, 1
        while name in self.used:
            number += 1
            name = f"{wish}_{number}"
        self.used.add(name)
        return name

    def _replace(self, found: Match, realised: Realised) -> None:
        graph = self.graph_of[id(found.root)]
        old = list(found.bound.nodes.values())
        feeders = [producer for node in old for tensor in node.inputs for producer in tensor.inputs]
        output = found.output
        # Everything that the replacement takes exists before the root, so the root's place is late enough.
        position = _index(graph, found.root)
        # Only the producers are cut off. Clearing an input's consumers as well would break every other branch it feeds.
        for node in old:
            node.inputs.clear()
            node.outputs.clear()
        new = _gs_nodes(realised, output)
        graph.nodes[position : position + 1] = new
        self.graph_of.update((id(node), graph) for node in new)
        for node in old:
            if node is not found.root:
                del graph.nodes[_index(graph, node)]
        self._remove_dead(feeders)

    def _remove_dead(self, candidates: list[gs.Node]) -> None:
        """Remove nodes that only fed what was replaced, and what only fed them."""
        for node in candidates:
            if not node.outputs or any(t.outputs or t.name in self.output_names for t in node.outputs):
                continue
            graph = self.graph_of[id(node)]
            feeders = [producer for tensor in node.inputs for producer in tensor.inputs]
            del graph.nodes[_index(graph, node)]
            node.inputs.clear()
            node.outputs.clear()
            self._remove_dead(feeders)


def _names(graph: gs.Graph) -> Iterable[str]:
    yield from graph.tensors()
    for node in graph.nodes:
        yield node.name


def _index(graph: gs.Graph, node: gs.Node) -> int:
    """Position by identity: graphsurgeon compares nodes by content."""
    return next(index for index, other in enumerate(graph.nodes) if other is node)


def _gs_nodes(realised: Realised, output: gs.Tensor) -> list[gs.Node]:
    tensors: dict[str, gs.Tensor] = {**realised.taken, output.name: output, "": gs.Variable.empty()}
    for name, value in realised.constants.items():
        tensors[name] = gs.Constant(name, value)
    made = []
    for node in realised.nodes:
        for name in node.outputs:
            tensors.setdefault(name, gs.Variable(name, dtype=output.dtype))
        inputs = [tensors[name] for name in node.inputs]
        made.append(gs.Node(node.op, node.name, dict(node.attrs), inputs, [tensors[name] for name in node.outputs]))
    return made
