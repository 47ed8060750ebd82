"""Plan and apply rewrites; with ``editor.py``, the only code that edits a graph.

The driver owns what every rule would otherwise repeat: opset brackets, unknown rank, inner tensors that somebody else uses,
graph outputs, subgraph borders, further outputs of the root, and overlap between matches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace

import onnx_graphsurgeon as gs

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.onnx_model.surgery import Surgery
from trtnorm_cli.profile.rewriting import RewriteSettings
from trtnorm_cli.progress import each, stage
from trtnorm_cli.rewrite.borders import Borders, reads_shape_only
from trtnorm_cli.rewrite.editor import Editor, Prove
from trtnorm_cli.rewrite.pattern import Bindings, Mismatch, describe, match, root_fits
from trtnorm_cli.rewrite.rule import Cache, Change, Extent, Match, Rejection, Rule, Undone
from trtnorm_cli.rewrite.undoing import breakage, is_optional, left_out


@dataclass(frozen=True)
class RewritePlan:
    """Where rules fit, in the order in which they would be applied, and where they were refused. Nothing is edited.

    ``undone`` are places where a rule that only improves the model ended in an exception.
    """

    matches: tuple[Match, ...]
    rejections: tuple[Rejection, ...]
    undone: tuple[Undone, ...] = ()


@dataclass
class Outcome:
    """The result of ``apply``: changes kept, changes that are needed and whose check failed (not made), and refusals.

    Refused are the places of the last plan, and those where a rule fits but nothing can be compared. ``undone`` are changes
    that the model can do without: optional ones, and those in whose place another rule made one. For each of the changes kept,
    ``sites`` has the first output of the node at which its rule was tried. ``is_whole`` is false where an exception left the
    graph half edited.
    """

    changes: list[Change] = field(default_factory=list)
    failed: list[Change] = field(default_factory=list)
    rejections: tuple[Rejection, ...] = ()
    undone: list[Undone] = field(default_factory=list)
    sites: list[str] = field(default_factory=list)
    is_whole: bool = True


def plan(
    surgery: Surgery,
    rules: Iterable[Rule],
    types: Mapping[str, TensorType],
    given_up: frozenset[tuple[str, str]] = frozenset(),
    settings: RewriteSettings | None = None,
    origins: Mapping[str, str] | None = None,
    cache: Cache | None = None,
    asks_values: bool = True,
) -> RewritePlan:
    """Try every rule at every node. The first rule that fits a node takes it; the others are not asked about it. What a
    taken node feeds has to wait for the next plan, and so has a node whose rule would have to change a taken one too.

    ``given_up`` holds (rule, output tensor) pairs that are not tried again. ``origins`` and ``cache`` are those of
    ``Match``, and what the cache has of the graph must hold for it as it is. Preconditions on large values are left open
    unless it ``asks_values``.
    """
    matches: list[Match] = []
    rejections: list[Rejection] = []
    undone: list[Undone] = []
    taken: set[int] = set()
    waiting: set[int] = set()
    borders = Borders(surgery.graphs())
    cache = cache or Cache()
    context = _MatchContext(surgery, types, settings or RewriteSettings(), borders, origins or {}, cache, asks_values)
    for rule in rules:
        for node in borders.nodes_of(rule.pattern.types):
            if id(node) in taken or id(node) in waiting or not _concerns(rule, node, surgery):
                continue
            if (rule.name, node.outputs[0].name) in given_up:
                continue
            found = _try_safely(rule, node, context)
            if found is None:
                continue
            if isinstance(found, Undone):
                undone.append(found)
                continue
            if isinstance(found, Rejection):
                rejections.append(found)
            elif _is_fed_by(found.nodes, taken) or not taken.isdisjoint(id(inner) for inner in found.nodes):
                waiting.add(id(node))
                rejections.append(Rejection(rule.name, describe(node), "what feeds it changes first, then it is tried again"))
            else:
                matches.append(found)
                taken.update(id(inner) for inner in found.nodes)
    return RewritePlan(tuple(matches), tuple(rejections), tuple(undone))


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
    prove: Prove,
    settings: RewriteSettings | None = None,
    excluded: frozenset[tuple[str, str]] = frozenset(),
    cache: Cache | None = None,
) -> Outcome:
    """Make one change after the other until no rule fits any more.

    ``prove`` compares before and after; a change that it does not pass is left out and reported. So is a change about which
    it can say nothing (``Unprovable``): as undone where the model can do without, else as a refusal. ``excluded`` holds (rule,
    output tensor) pairs that are not tried. ``cache`` has what is known already of the graph as it is.
    """
    outcome = Outcome()
    unproved: list[Rejection] = []
    refused_late: list[tuple[gs.Node, Rejection]] = []
    failures: list[tuple[gs.Node, Change, Undone]] = []
    gone: dict[int, gs.Node] = {}
    given_up = set(excluded)
    cache = cache or Cache()
    editor = Editor(surgery, dict(types))
    while outcome.is_whole:
        with stage("plan"):
            planned = plan(surgery, rules, editor.types, frozenset(given_up), settings, editor.origins, cache, False)
        outcome.undone += planned.undone
        given_up |= {undone.key for undone in planned.undone}
        if not planned.matches:
            late = (refusal for node, refusal in refused_late if id(node) not in gone)
            outcome.rejections = (*unproved, *late, *planned.rejections)
            break
        refused = _Refusals(planned, rules)
        chosen = [found for found in planned.matches if not found.rule.last_resort] or planned.matches
        for found, told in each("prove", chosen, "changes"):
            nodes, site = found.nodes, found.site.outputs[0].name
            told.at(f"{found.rule.name} at {describe(found.site)}")
            made = _make_safely(editor, found, prove)
            if isinstance(made, Change) and made.check.passed:
                outcome.changes.append(refused.told_of(made) if found.rule.last_resort else made)
                outcome.sites.append(site)
                gone.update((id(node), node) for node in nodes)
                continue
            given_up.add((found.rule.name, site))
            if isinstance(made, _RefusedLate):
                refused_late.append((found.site, made.rejection))
            elif isinstance(made, Rejection):
                unproved.append(made)
            elif isinstance(made, Undone):
                outcome.undone.append(made)
            else:
                failures.append((found.site, made, left_out(found, made.check.reason)))
            if not editor.is_whole:
                outcome.is_whole = False
                break
        editor.settle()
        cache.forget_graph()
    for node, change, undone in failures:
        # Where another rule took the node in the end, the model can be right without the change.
        if id(node) in gone:
            outcome.undone.append(undone)
        else:
            outcome.failed.append(change)
    return outcome


@dataclass(frozen=True)
class _RefusedLate:
    """A place that was planned for a rule, and is refused now that its values were read. Nothing was tried."""

    rejection: Rejection


def _make_safely(editor: Editor, found: Match, prove: Prove) -> Change | Rejection | Undone | _RefusedLate:
    """As ``Editor.make``, but a change that the model can do without is undone whatever happens to it."""
    optional, undone = is_optional(found), left_out(found, "")
    try:
        for precondition in found.rule.value_preconditions:
            if (reason := precondition(found)) is not None:
                return _RefusedLate(Rejection(found.rule.name, describe(found.site), reason))
        made = editor.make(found, prove)
    except Exception as error:
        if not optional:
            raise
        return replace(undone, reason=breakage(error))
    if not optional or (isinstance(made, Change) and made.check.passed):
        return made
    if isinstance(made, Rejection):
        return replace(undone, reason=made.reason, provable=False)
    return replace(undone, reason=made.check.reason)


class _Refusals:
    """The reasons of the rules that searched further than their pattern, by the node at which they were tried."""

    def __init__(self, planned: RewritePlan, rules: tuple[Rule, ...]) -> None:
        searching = {rule.name for rule in rules if rule.extent is not None}
        self._of_node: dict[str, list[str]] = {}
        for refusal in planned.rejections:
            if refusal.rule in searching:
                self._of_node.setdefault(refusal.node, []).append(f"{refusal.rule}: {refusal.reason}")

    def told_of(self, change: Change) -> Change:
        """``change`` with the reasons at its node."""
        return replace(change, refused=tuple(self._of_node.get(change.node, ())))


@dataclass(frozen=True)
class _MatchContext:
    """The context that every match of one plan shares: graph, types, settings and cache."""

    surgery: Surgery
    types: Mapping[str, TensorType]
    settings: RewriteSettings
    borders: Borders
    origins: Mapping[str, str]
    cache: Cache
    asks_values: bool

    def match(self, rule: Rule, node: gs.Node, bindings: Bindings) -> Match:
        used = _used_outputs(node, self.borders)
        return Match(
            rule, node, bindings, self.surgery, self.types, self.settings, used, self.borders, self.origins, self.cache
        )


def _try_safely(rule: Rule, node: gs.Node, context: _MatchContext) -> Match | Rejection | Undone | None:
    """As ``_try``, but a rule that only improves the model may end in an exception."""
    try:
        return _try(rule, node, context)
    except Exception as error:
        bindings = match(rule.pattern, node, context.surgery)
        if isinstance(bindings, Mismatch) or not is_optional(found := context.match(rule, node, bindings)):
            raise
        return left_out(found, breakage(error))


def _try(rule: Rule, node: gs.Node, context: _MatchContext) -> Match | Rejection | None:
    surgery, borders = context.surgery, context.borders

    def refuse(reason: str) -> Rejection:
        return Rejection(rule.name, describe(node), reason)

    if surgery.opset < rule.since_opset:
        return refuse(f"the model is of opset {surgery.opset}, the rule starts at {rule.since_opset}")
    bindings = match(rule.pattern, node, surgery)
    if isinstance(bindings, Mismatch):
        return refuse(bindings.reason)
    found = context.match(rule, node, bindings)
    for reason in (_border_reason(found, borders), _rank_reason(found), _choice_reason(found)):
        if reason is not None:
            return refuse(reason)
    if rule.subject is not None and rule.subject(found) is None:
        return None
    asked = (*rule.preconditions, *rule.value_preconditions) if context.asks_values else rule.preconditions
    for precondition in asked:
        reason = precondition(found)
        if reason is not None:
            return refuse(reason)
    if rule.extent is None:
        return found
    extent = rule.extent(found)
    if not isinstance(extent, Extent):
        return None if extent is None else refuse(extent)
    found = found.extended_to(extent)
    # Another tensor may be the output now, by which the change is known.
    reason = _border_reason(found, borders) or _choice_reason(found)
    return found if reason is None else refuse(reason)


def _choice_reason(found: Match) -> str | None:
    """Why a change that only improves the model is not wanted here."""
    if found.rule.optional is None or not found.rule.optional(found):
        return None
    if found.settings.optimize == "never":
        return "TensorRT takes it as it is, and the build profile says optimize: never"
    if found.output.name in found.settings.left_out:
        return "TensorRT takes it as it is, and the engine is faster by the estimate, or has fewer kernels, without the change"
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
        if id(consumer) not in inside and not (found.extent is not None and reads_shape_only(consumer)):
            return f"{tensor.name} is also used by {describe(consumer)}"
    return None


def _rank_reason(found: Match) -> str | None:
    for name in found.rule.needs_rank_of:
        tensor = found.tensor(name)
        if tensor is not None and found.rank(name) is None:
            return f"the rank of {tensor.name} is not known"
    return None
