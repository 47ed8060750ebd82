"""Plan and apply rewrites; the only code that edits a graph.

The driver owns what every rule would otherwise repeat: opset brackets, unknown rank, inner tensors that somebody else uses,
graph outputs, subgraph borders, further outputs of the root, and overlap between matches.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx_graphsurgeon as gs

from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.onnx_model.surgery import Surgery
from trtnorm_cli.rewrite.borders import Borders, reads_shape_only
from trtnorm_cli.rewrite.new_types import inferred_types
from trtnorm_cli.rewrite.pattern import Bound, Mismatch, describe, match, root_fits
from trtnorm_cli.rewrite.realise import Realised, realise
from trtnorm_cli.rewrite.rule import Change, Check, Match, Reach, Rejection, Rule, Unprovable
from trtnorm_cli.rewrite.settings import RewriteSettings

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
    settings: RewriteSettings | None = None,
    origins: Mapping[str, str] | None = None,
    memory: dict[Hashable, Any] | None = None,
) -> Plan:
    """Try every rule at every node. The first rule that fits a node takes it; the others are not asked about it. What a
    taken node feeds has to wait for the next plan, and so has a node whose rule would have to change a taken one too.

    ``given_up`` holds (rule, output tensor) pairs that are not tried again. ``origins`` and ``memory`` are those of ``Match``.
    """
    matches: list[Match] = []
    rejections: list[Rejection] = []
    taken: set[int] = set()
    waiting: set[int] = set()
    borders = Borders(surgery.graphs())
    ground = _Ground(surgery, types, settings or RewriteSettings(), borders, origins or {}, {} if memory is None else memory)
    for rule in rules:
        for node in borders.nodes:
            if id(node) in taken or id(node) in waiting or not _concerns(rule, node, surgery):
                continue
            if (rule.name, node.outputs[0].name) in given_up:
                continue
            found = _try(rule, node, ground)
            if found is None:
                continue
            if isinstance(found, Rejection):
                rejections.append(found)
            elif _is_fed_by(found.nodes, taken) or not taken.isdisjoint(id(inner) for inner in found.nodes):
                waiting.add(id(node))
                rejections.append(Rejection(rule.name, describe(node), "what feeds it changes first, then it is tried again"))
            else:
                matches.append(found)
                taken.update(id(inner) for inner in found.nodes)
    return Plan(tuple(matches), tuple(rejections))


def _concerns(rule: Rule, node: gs.Node, surgery: Surgery) -> bool:
    return root_fits(rule.pattern, node) and rule.concerns(node, surgery)


def _is_fed_by(nodes: Iterable[gs.Node], taken: set[int]) -> bool:
    """True when a taken node outside ``nodes`` feeds one of them: after that change a better rule may fit."""
    inner = {id(node) for node in nodes}
    return any(id(p) in taken and id(p) not in inner for node in nodes for t in node.inputs for p in t.inputs)


def apply(
    surgery: Surgery,
    rules: tuple[Rule, ...],
    types: Mapping[str, TensorType],
    judge: Judge,
    settings: RewriteSettings | None = None,
) -> Outcome:
    """Make one change after the other until no rule fits any more.

    ``judge`` compares before and after; a change that it does not pass is left out and reported. So is a change about which
    it can say nothing (``Unprovable``), as a refusal.
    """
    outcome = Outcome()
    unproved: list[Rejection] = []
    given_up: set[tuple[str, str]] = set()
    memory: dict[Hashable, Any] = {}
    editor = _Editor(surgery, dict(types))
    while True:
        planned = plan(surgery, rules, editor.types, frozenset(given_up), settings, editor.origins, memory)
        if not planned.matches:
            outcome.rejections = (*unproved, *planned.rejections)
            return outcome
        for found in [found for found in planned.matches if not found.rule.last_resort] or planned.matches:
            made = editor.make(found, judge)
            if isinstance(made, Rejection):
                unproved.append(made)
            elif made.check.passed:
                outcome.changes.append(made)
                continue
            else:
                outcome.failed.append(made)
            given_up.add((found.rule.name, found.site.outputs[0].name))


@dataclass(frozen=True)
class _Ground:
    """What matches are looked for in, the same for every rule and node of one plan."""

    surgery: Surgery
    types: Mapping[str, TensorType]
    settings: RewriteSettings
    borders: Borders
    origins: Mapping[str, str]
    memory: dict[Hashable, Any]

    def match(self, rule: Rule, node: gs.Node, bound: Bound) -> Match:
        used = _used_outputs(node, self.borders)
        return Match(rule, node, bound, self.surgery, self.types, self.settings, used, self.borders, self.origins, self.memory)


def _try(rule: Rule, node: gs.Node, ground: _Ground) -> Match | Rejection | None:
    surgery, borders = ground.surgery, ground.borders

    def refuse(reason: str) -> Rejection:
        return Rejection(rule.name, describe(node), reason)

    if surgery.opset < rule.since_opset:
        return refuse(f"the model is of opset {surgery.opset}, the rule starts at {rule.since_opset}")
    bound = match(rule.pattern, node, surgery)
    if isinstance(bound, Mismatch):
        return refuse(bound.reason)
    found = ground.match(rule, node, bound)
    for reason in (_border_reason(found, borders), _rank_reason(found), _choice_reason(found)):
        if reason is not None:
            return refuse(reason)
    for precondition in rule.preconditions:
        reason = precondition(found)
        if reason is not None:
            return refuse(reason)
    if rule.reach is None:
        return found
    reach = rule.reach(found)
    if not isinstance(reach, Reach):
        return None if reach is None else refuse(reach)
    found = found.reaching(reach)
    reason = _border_reason(found, borders)
    return found if reason is None else refuse(reason)


def _choice_reason(found: Match) -> str | None:
    """Why a change that only improves the model is not wanted here."""
    if found.rule.optional is None or not found.rule.optional(found):
        return None
    if found.settings.optimize == "never":
        return "TensorRT takes it as it is, and the build profile says optimize: never"
    if found.output.name in found.settings.left_out:
        return "TensorRT takes it as it is, and the engine has fewer kernels or is smaller without the change"
    return None


def _border_reason(found: Match, borders: Borders) -> str | None:
    inner = [node for node in found.nodes if node is not found.root]
    for node in inner:
        if borders.graph_of[id(node)] is not borders.graph_of[id(found.root)]:
            return f"{describe(node)} belongs to an outer graph"
        for tensor in node.outputs:
            reason = _escapes(tensor, found, borders)
            if reason is not None:
                return reason
    if len(found.used_outputs) > 1 and not found.rule.replaces_further_outputs:
        further = found.root.outputs[found.used_outputs[1]]
        return f"{further.name}, a further output of {describe(found.root)}, is used"
    return None


def _used_outputs(node: gs.Node, borders: Borders) -> tuple[int, ...]:
    used = [i for i, t in enumerate(node.outputs) if i and t.name and (t.outputs or t.name in borders.output_names)]
    return (0, *used)


def _escapes(tensor: gs.Tensor, found: Match, borders: Borders) -> str | None:
    if any(tensor is kept for kept in found.kept):
        return None
    if tensor.name in borders.output_names:
        return f"{tensor.name} is an output of the graph"
    inside = {id(node) for node in found.nodes}
    for consumer in tensor.outputs:
        if id(consumer) not in inside and not (found.reach is not None and reads_shape_only(consumer)):
            return f"{tensor.name} is also used by {describe(consumer)}"
    return None


def _rank_reason(found: Match) -> str | None:
    for name in found.rule.needs_rank_of:
        tensor = found.tensor(name)
        if tensor is not None and found.rank(name) is None:
            return f"the rank of {tensor.name} is not known"
    return None


class _Editor:
    """Puts replacements into the graph. ``types`` and ``origins`` grow by the tensors that it adds."""

    def __init__(self, surgery: Surgery, types: dict[str, TensorType]) -> None:
        self.surgery, self.types = surgery, types
        self.origins: dict[str, str] = {}
        borders = Borders(surgery.graphs())
        self.output_names = borders.output_names
        self.graph_of = borders.graph_of
        self.used = {name for graph in surgery.graphs() for name in _names(graph)}

    def make(self, found: Match, judge: Judge) -> Change | Rejection:
        """Judge the replacement of ``found`` and, if it passes, put it into the graph."""
        realised = realise(found.rule.replacement(found), found, self._fresh)
        try:
            check = judge(found, realised)
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
            compared_with_reference=found.rule.reference is not None,
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
        old = found.nodes
        feeders = [producer for node in old for tensor in node.inputs for producer in tensor.inputs]
        produced = [t for t in (*found.root.outputs, *found.kept) if t.name in realised.outputs]
        readers = [(r, t) for node in old for t in node.outputs for r in t.outputs if found.reach and reads_shape_only(r)]
        place_of = {id(node): place for place, node in enumerate(graph.nodes)}
        places = _places(realised, place_of, place_of[id(found.root)])
        # Only the producers are cut off. Clearing an input's consumers as well would break every other branch it feeds.
        for node in old:
            node.inputs.clear()
            node.outputs.clear()
        tensors = _tensors(realised, produced)
        new = _gs_nodes(realised, tensors)
        graph.nodes[:] = _merged(graph.nodes, {id(node) for node in old}, new, places)
        self.graph_of.update((id(node), graph) for node in new)
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
        graph.nodes[_index(graph, reader)] = again
        self.graph_of[id(again)] = graph

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


def _merged(nodes: Iterable[gs.Node], gone: set[int], new: list[gs.Node], places: list[int]) -> list[gs.Node]:
    """``nodes`` without those that are ``gone`` and with the ``new`` ones before the node at their place."""
    at: dict[int, list[gs.Node]] = {}
    for node, place in zip(new, places, strict=True):
        at.setdefault(place, []).append(node)
    merged = []
    for place, node in enumerate(nodes):
        merged += at.get(place, [])
        merged += [] if id(node) in gone else [node]
    return merged


def _tensors(realised: Realised, produced: list[gs.Tensor]) -> dict[str, gs.Tensor]:
    """Every tensor of the replacement by name."""
    tensors: dict[str, gs.Tensor] = {**realised.taken, **{t.name: t for t in produced}, "": gs.Variable.empty()}
    for name, value in realised.constants.items():
        tensors[name] = gs.Constant(name, value)
    for node in realised.nodes:
        for name in node.outputs:
            tensors.setdefault(name, gs.Variable(name, dtype=produced[0].dtype))
    return tensors


def _gs_nodes(realised: Realised, tensors: Mapping[str, gs.Tensor]) -> list[gs.Node]:
    return [
        gs.Node(n.op, n.name, dict(n.attrs), [tensors[name] for name in n.inputs], [tensors[name] for name in n.outputs])
        for n in realised.nodes
    ]
