"""Two ONNX graphs held against each other, node by node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from itertools import count
from typing import TypeAlias

import onnx

from trtnorm_cli.differences.graph_nodes import (
    ABSENT,
    CONSTANT,
    Constant,
    Graph,
    Node,
    Opsets,
    Scope,
    captured_by,
    fed_inputs,
    input_name,
    read_graph,
)
from trtnorm_cli.differences.matching import Outline, Source, match, regions
from trtnorm_cli.differences.record import GraphDiff, Matched, NodeChange, NodeName, Region, Renamed, WeightDifference
from trtnorm_cli.differences.weights import few_values, weight_difference
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.load import LoadedModel
from trtnorm_cli.onnx_model.normalization_nodes import is_normalization

_MOST_BESIDE = 3
# Numbers of tensors around a body begin here, above those of inputs.
_AROUND = 1 << 24

AnyGraph: TypeAlias = onnx.GraphProto | onnx.FunctionProto


@dataclass
class _Found:
    """The differences that were found so far."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(Matched.__dataclass_fields__, 0))
    regions: list[Region] = field(default_factory=list)
    changed: list[NodeChange] = field(default_factory=list)
    weights: dict[tuple[str, str, str], WeightDifference | None] = field(default_factory=dict)
    renamed: dict[tuple[str, str, str], Renamed] = field(default_factory=dict)

    def rename(self, what: str, first: str, second: str) -> None:
        if first and second and first != second:
            self.renamed.setdefault((what, first, second), Renamed(what, first, second))


def graph_diff(first: LoadedModel, second: LoadedModel) -> GraphDiff:
    """The differences between the graphs and the functions of two models."""
    found = _Found()
    sides = (first, second)
    _compare((first.proto.graph, second.proto.graph), sides, (_opsets(first.proto), _opsets(second.proto)), found, "")
    for key, (one, other) in _common_functions(first.proto, second.proto).items():
        _compare((one, other), sides, (_opsets(one), _opsets(other)), found, f"function {key}")
    weights = [one for one in found.weights.values() if one is not None]
    return GraphDiff(
        Matched(**found.counts),
        tuple(found.regions),
        tuple(found.changed),
        tuple(sorted(weights, key=_by_worst)),
        len(found.weights) - len(weights),
        tuple(found.renamed.values()),
    )


def _by_worst(one: WeightDifference) -> float:
    return -(one.relative if one.relative is not None else float("inf"))


def _opsets(proto: onnx.ModelProto | onnx.FunctionProto) -> Opsets:
    return {"" if entry.domain in DEFAULT_DOMAINS else entry.domain: entry.version for entry in proto.opset_import}


def _common_functions(
    first: onnx.ModelProto, second: onnx.ModelProto
) -> dict[str, tuple[onnx.FunctionProto, onnx.FunctionProto]]:
    one, other = ({f"{f.domain}::{f.name}": f for f in model.functions} for model in (first, second))
    return {key: (one[key], other[key]) for key in one if key in other}


def _compare(
    graphs: tuple[AnyGraph, AnyGraph],
    models: tuple[LoadedModel, LoadedModel],
    opsets: tuple[Opsets, Opsets],
    found: _Found,
    title: str,
    outer: tuple[Scope | None, Scope | None] = (None, None),
) -> None:
    """Add the differences of two graphs, and of the bodies of nodes that both have, to ``found``."""
    names = _partners(fed_inputs(graphs[0]), fed_inputs(graphs[1]))
    for input_names in names:
        found.rename("input", *(name or "" for name in input_names))
    sides = []
    for place, (graph, versions, model, around) in enumerate(zip(graphs, opsets, models, outer, strict=True)):
        numbers = {pair[place] or "": number for number, pair in enumerate(names) if pair[place]}
        sides.append(read_graph(graph, versions, model.folder, numbers, around))
    comparison = _Comparison(sides[0], sides[1], found, title)
    comparison.run()
    for own, theirs in ((sides[0].nodes[one], sides[1].nodes[other]) for one, other in comparison.pairs.items()):
        for name in [name for name in own.bodies if name in theirs.bodies]:
            bodies = own.bodies[name], theirs.bodies[name]
            inside = f"{title + ', ' if title else ''}{name} of {own.known_as.node}"
            _compare(bodies, models, opsets, found, inside, comparison.around(bodies))


def _partners(first: list[str], second: list[str]) -> list[tuple[str | None, str | None]]:
    """Inputs or outputs together: by their names, and what is left in its order."""
    left = [name for name in second if name not in first]
    found: list[tuple[str | None, str | None]] = []
    alone = []
    for name in first:
        if name in second:
            found.append((name, name))
        elif left:
            found.append((name, left.pop(0)))
        else:
            alone.append((name, None))
    return [*found, *alone, *((None, name) for name in left)]


class _Comparison:
    """Two graphs, the nodes of both that belong together, and the differences of these."""

    def __init__(self, first: Graph, second: Graph, found: _Found, title: str) -> None:
        self.first, self.second, self.found, self.title = first, second, found, title
        self._outlines = self._with_common_outputs()
        self.pairs = match(*self._outlines)
        self._back = {other: one for one, other in self.pairs.items()}

    def _with_common_outputs(self) -> tuple[Outline, Outline]:
        """The graphs as they are matched, with their outputs in one order."""
        results = _partners(self.first.outputs, self.second.outputs)
        outlines = []
        for place, graph in enumerate((self.first, self.second)):
            by_name = dict(zip(graph.outputs, graph.results, strict=True))
            nothing: Source = (ABSENT[0] - 1, 0)
            outlines.append(replace(graph.outline(), results=[by_name.get(pair[place] or "", nothing) for pair in results]))
        return outlines[0], outlines[1]

    def run(self) -> None:
        self._outputs()
        counts = self.found.counts
        for one, other in self.pairs.items():
            self._pair(self.first.nodes[one], self.second.nodes[other], counts)
        counts["only_first"] += len(self.first.nodes) - len(self.pairs)
        counts["only_second"] += len(self.second.nodes) - len(self.pairs)
        for own, others in regions(*self._outlines, self.pairs):
            self.found.regions.append(self._region(own, others))

    def around(self, bodies: tuple[onnx.GraphProto, onnx.GraphProto]) -> tuple[Scope, Scope]:
        """The tensors that bodies of two nodes can read, with one number for what is the same to both."""
        numbers = count(_AROUND)
        known: dict[Source, int] = {}
        scopes = []
        for place, (graph, body) in enumerate(zip((self.first, self.second), bodies, strict=True)):
            scope = Scope({}, {})
            for name in captured_by(body):
                source, constant = graph.scope.look_up(name)
                if constant is not None:
                    scope.constants[name] = constant
                    continue
                if source[0] >= 0:
                    partner = source[0] if place == 0 else self._back.get(source[0])
                    key = (partner, source[1]) if partner is not None else (-1 - source[0], 1 << 30)
                    source = -1 - known.setdefault(key, next(numbers)), 0
                scope.sources[name] = source
            scopes.append(scope)
        return scopes[0], scopes[1]

    def _outputs(self) -> None:
        for one, other in _partners(self.first.outputs, self.second.outputs):
            if one is None or other is None:
                continue
            self.found.rename("output", one, other)
            sources = [graph.scope.look_up(name)[0] for graph, name in ((self.first, one), (self.second, other))]
            if not self._is_same(*sources) and not self._is_explained(*sources):
                self._change(
                    "operators", NodeName(one, "output"), NodeName(other, "output"), "computed by", *self._texts(*sources)
                )

    def _pair(self, one: Node, other: Node, counts: dict[str, int]) -> None:
        kind = "norms" if is_normalization(one.proto) or is_normalization(other.proto) else "operators"
        is_in_place = len(one.inputs) == len(other.inputs)
        for place in range(max(len(one.inputs), len(other.inputs))):
            is_in_place &= self._input(one, other, place, kind)
        has_name = one.proto.name == other.proto.name
        counts[_STANDING[has_name, is_in_place]] += 1
        if one.operator != other.operator:
            self._change(kind, one.known_as, other.known_as, "operator", one.operator, other.operator)
        for name in dict.fromkeys((*one.attributes, *other.attributes)):
            was, now = one.attributes.get(name, "not set"), other.attributes.get(name, "not set")
            if was != now:
                self._change(kind, one.known_as, other.known_as, name, was, now)
        self.found.rename("node", one.proto.name, other.proto.name)
        for mine, theirs in zip(one.proto.output, other.proto.output, strict=False):
            if mine not in self.first.outputs:
                self.found.rename("tensor", mine, theirs)

    def _input(self, one: Node, other: Node, place: int, kind: str) -> bool:
        """Tell in what an input of two nodes differs. False where it is computed from something else."""
        sources = [node.inputs[place] if place < len(node.inputs) else ABSENT for node in (one, other)]
        mine, theirs = (node.constants.get(place) for node in (one, other))
        if mine is not None and theirs is not None:
            self._constants(one, other, place, kind, mine, theirs)
            return True
        if self._is_same(*sources):
            return True
        if not self._is_explained(*sources):
            source_texts = self._texts(*sources)
            texts = [
                _short(constant) if constant else text for constant, text in zip((mine, theirs), source_texts, strict=True)
            ]
            self._change(kind, one.known_as, other.known_as, input_name(one, place, self.first.opsets), *texts)
        return False

    def _constants(self, one: Node, other: Node, place: int, kind: str, mine: Constant, theirs: Constant) -> None:
        key = (mine.name, theirs.name, self.title)
        if key in self.found.weights:
            return
        if (self.first.scope.constants.get(mine.name) is mine) or mine.tensor.name:
            self.found.rename("weight", mine.name, theirs.name)
        if mine.digest == theirs.digest:
            self.found.weights[key] = None
            return
        texts = [few_values(constant) for constant in (mine, theirs)]
        if texts[0] is not None and texts[1] is not None and texts[0] != texts[1]:
            self._change(kind, one.known_as, other.known_as, input_name(one, place, self.first.opsets), *map(str, texts))
            return
        self.found.weights[key] = weight_difference(mine, theirs, one.known_as.node)

    def _change(self, kind: str, one: NodeName, other: NodeName, what: str, was: str, now: str) -> None:
        self.found.changed.append(NodeChange(kind, one, other, what, was, now, self.title))

    def _is_same(self, one: Source, other: Source) -> bool:
        if one[0] < 0 or other[0] < 0:
            return one == other
        return self.pairs.get(one[0]) == other[0] and one[1] == other[1]

    def _is_explained(self, one: Source, other: Source) -> bool:
        """True where a node without a partner makes one of them: it is told as such."""
        return (one[0] >= 0 and one[0] not in self.pairs) or (other[0] >= 0 and other[0] not in self._back)

    def _texts(self, one: Source, other: Source) -> tuple[str, str]:
        return _source_text(self.first, one), _source_text(self.second, other)

    def _region(self, own: list[int], others: list[int]) -> Region:
        graphs = ((self.first, own), (self.second, others))
        names = [tuple(graph.nodes[node].known_as for node in nodes) for graph, nodes in graphs]
        is_norm = any(is_normalization(graph.nodes[node].proto) for graph, nodes in graphs for node in nodes)
        behind, before = self._beside(own, others)
        return Region("norms" if is_norm else "operators", names[0], names[1], behind, before, self.title)

    def _beside(self, own: Iterable[int], others: Iterable[int]) -> tuple[tuple[NodeName, ...], tuple[NodeName, ...]]:
        """The nodes that both graphs have in front of and behind a region, as the first graph calls them."""
        behind: dict[NodeName, None] = {}
        before: dict[NodeName, None] = {}
        for place, (graph, nodes) in enumerate(((self.first, set(own)), (self.second, set(others)))):
            partners: Mapping[int, int] = self.pairs if place == 0 else self._back
            for node in sorted(nodes):
                for producer, _ in graph.nodes[node].inputs:
                    if producer >= 0 and producer in partners:
                        behind[self._name(place, producer)] = None
                for consumer in graph.consumers(node):
                    if consumer in partners:
                        before[self._name(place, consumer)] = None
        return tuple(behind)[:_MOST_BESIDE], tuple(before)[:_MOST_BESIDE]

    def _name(self, place: int, node: int) -> NodeName:
        return self.first.nodes[node if place == 0 else self._back[node]].known_as


_STANDING = {
    (True, True): "by_name_and_structure",
    (False, True): "by_structure",
    (True, False): "by_name",
    (False, False): "by_surroundings",
}


def _short(constant: Constant) -> str:
    values = few_values(constant)
    return values if values is not None else f"the constant {constant.name} {constant.type_text}"


def _source_text(graph: Graph, source: Source) -> str:
    if source[0] >= 0:
        node = graph.nodes[source[0]]
        return node.known_as.node if source[1] == 0 else f"output {source[1]} of {node.known_as.node}"
    if source == ABSENT:
        return "not there"
    if source == CONSTANT:
        return "a constant"
    names = [name for name, known in graph.scope.sources.items() if known == source]
    return f"input {names[0]}" if names else "nothing"
