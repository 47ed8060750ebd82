"""The units of a model: each normalization, and each softmax with the mask in front of it, is made low only as a whole.

Between the mean and the division of a normalization no rounding may come; and a mask is added to scores only to be taken
out by the softmax behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import onnx

from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.normalization_nodes import DEFAULT_EPSILON, PARAMETERS
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.onnx_model.walk import tensors_read
from trtnorm_cli.precision.plan import key_of
from trtnorm_cli.rewrite.norms.record import CompositeNorm

SOFTMAX = "Softmax"
_KINDS = {
    "BatchNormalization": "BatchNorm",
    "InstanceNormalization": "InstanceNorm",
    "GroupNormalization": "GroupNorm",
    "LayerNormalization": "LayerNorm",
    "RMSNormalization": "RMSNorm",
    "SimplifiedLayerNormalization": "RMSNorm",
    "MeanVarianceNormalization": "MeanVarianceNorm",
    "LpNormalization": "LpNorm",
    "LRN": "LRN",
}
_OVER_THE_LAST = frozenset({"LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"})
_HAS_EPSILON = frozenset(_KINDS) - {"MeanVarianceNormalization", "LpNormalization", "LRN"}
_MVN_EPSILON = 1e-9
# What changes neither the order of scores nor which of them are hidden.
_MASKING = frozenset({"Add", "Where", "Sub", "Identity"})


@dataclass(frozen=True)
class Unit:
    """Nodes that belong together, by their keys: they make ``output`` from ``data``.

    Of a normalization, ``axes`` are those of ``data`` that it goes over, where it goes over whole axes, or ``groups`` the
    blocks that each sample is divided into, and ``epsilon`` what is added to the variance. ``native`` is true where one node
    is the whole of it.
    """

    kind: str
    keys: frozenset[str]
    data: str
    output: str
    axes: tuple[int, ...] | None = None
    epsilon: float | None = None
    groups: int | None = None
    native: bool = True

    @property
    def is_norm(self) -> bool:
        """True for all but a softmax."""
        return self.kind != SOFTMAX


def units(model: onnx.ModelProto, types: Mapping[str, TensorType], composites: Iterable[CompositeNorm] = ()) -> list[Unit]:
    """The units of the top graph of ``model``, in the order of execution. No node is in two of them.

    ``composites`` are normalizations in pieces. Those that are no longer in the model, and those that became one node, are
    passed over.
    """
    graph = _Graph(model)
    found = [unit for norm in composites if (unit := _composite(norm, graph)) is not None]
    found += [_norm(node, types) for node in model.graph.node if _is_norm(node)]
    found += [_softmax(node, graph, types) for node in model.graph.node if _is(node, "Softmax", "LogSoftmax")]
    taken: set[str] = set()
    kept = []
    for unit in found:
        if taken.isdisjoint(unit.keys):
            taken |= unit.keys
            kept.append(unit)
    return sorted(kept, key=lambda unit: graph.positions[unit.output])


class _Graph:
    """The connections of the top graph of a model."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.producers = {name: node for node in model.graph.node for name in node.output if name}
        self.positions = {name: i for i, node in enumerate(model.graph.node) for name in node.output if name}
        self.outputs = {value.name for value in model.graph.output}
        self.consumers: dict[str, list[onnx.NodeProto]] = {}
        for node in model.graph.node:
            for name in dict.fromkeys(tensors_read(node)):
                self.consumers.setdefault(name, []).append(node)

    def between(self, source: str, output: str, borders: frozenset[str]) -> list[onnx.NodeProto]:
        """The nodes on the ways from ``source`` to ``output`` that do not cross ``borders``; none where there is no way."""
        behind = self._behind(source, output)
        nodes, seen, waiting = [], {source, *borders}, [output]
        while waiting:
            name = waiting.pop()
            producer = self.producers.get(name)
            if name in seen or name not in behind or producer is None:
                continue
            seen.update(producer.output)
            nodes.append(producer)
            waiting.extend(tensors_read(producer))
        return nodes

    def _behind(self, source: str, output: str) -> set[str]:
        """The tensors that depend on ``source`` and come no later than ``output``."""
        last, found, waiting = self.positions.get(output, -1), {source}, [source]
        while waiting:
            for node in self.consumers.get(waiting.pop(), ()):
                new = [name for name in node.output if name and name not in found and self.positions[name] <= last]
                found.update(new)
                waiting.extend(new)
        return found


def _is(node: onnx.NodeProto, *operators: str) -> bool:
    return node.op_type in operators and node.domain in DEFAULT_DOMAINS


def _is_norm(node: onnx.NodeProto) -> bool:
    return node.op_type in PARAMETERS and node.domain in DEFAULT_DOMAINS


def _composite(norm: CompositeNorm, graph: _Graph) -> Unit | None:
    """The unit of a normalization in pieces; None where no pieces of it are in the graph."""
    nodes = graph.between(norm.data, norm.output, frozenset(norm.adaptive))
    if norm.misgiving or not nodes or any(_is_norm(node) for node in nodes):
        return None
    keys = frozenset(map(key_of, nodes))
    axes = norm.axes if norm.groups is None else None
    return Unit(norm.kind, keys, norm.data, norm.output, axes, norm.epsilon, norm.groups, native=False)


def _norm(node: onnx.NodeProto, types: Mapping[str, TensorType]) -> Unit:
    values = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    kind = types.get(node.input[0])
    rank = None if kind is None or kind.shape is None else len(kind.shape)
    epsilon = float(values.get("epsilon", DEFAULT_EPSILON)) if node.op_type in _HAS_EPSILON else None
    if node.op_type == "MeanVarianceNormalization":
        epsilon = _MVN_EPSILON
    return Unit(
        kind=_KINDS[node.op_type],
        keys=frozenset({key_of(node)}),
        data=node.input[0],
        output=node.output[0],
        axes=_axes(node.op_type, values, rank),
        epsilon=epsilon,
        groups=values.get("num_groups"),
    )


def _axes(operator: str, values: Mapping[str, object], rank: int | None) -> tuple[int, ...] | None:
    """The axes that a normalization node takes statistics over; None where it takes none of whole axes, or is not known."""
    given = values.get("axis", 1 if operator == "Softmax" else -1)
    if operator in _OVER_THE_LAST and rank is not None and isinstance(given, int):
        return tuple(range(given % rank, rank))
    if operator == "InstanceNormalization" and rank is not None:
        return tuple(range(2, rank))
    if operator == "LpNormalization" and rank is not None and isinstance(given, int):
        return (given % rank,)
    if operator == "MeanVarianceNormalization":
        chosen = values.get("axes", (0, 2, 3))
        return tuple(chosen) if isinstance(chosen, list | tuple) else None
    return None


def _softmax(node: onnx.NodeProto, graph: _Graph, types: Mapping[str, TensorType]) -> Unit:
    """A softmax with what masks its scores: additions and choices that nothing else reads."""
    nodes = [node, *_masking(node, graph, types)]
    kind = types.get(node.input[0])
    rank = None if kind is None or kind.shape is None else len(kind.shape)
    axis = next((a.i for a in node.attribute if a.name == "axis"), -1)
    axes = None if rank is None else (axis % rank,)
    return Unit(SOFTMAX, frozenset(map(key_of, nodes)), _scores(nodes[-1], graph, types), node.output[0], axes)


def _masking(node: onnx.NodeProto, graph: _Graph, types: Mapping[str, TensorType]) -> Iterator[onnx.NodeProto]:
    name = node.input[0]
    while True:
        producer = graph.producers.get(name)
        if producer is None or not _is(producer, *_MASKING):
            return
        if len(graph.consumers.get(name, ())) > 1 or name in graph.outputs:
            return
        yield producer
        name = _scores(producer, graph, types)


def _scores(node: onnx.NodeProto, graph: _Graph, types: Mapping[str, TensorType]) -> str:
    """The input of ``node`` that holds the scores: the one that is computed last, of as many dimensions as the output."""
    data = [name for name in node.input[1 if _is(node, "Where") else 0 :] if name]
    rank = _rank(types.get(key_of(node)))
    whole = [name for name in data if rank is None or _rank(types.get(name)) in (None, rank)] or data
    return max(whole, key=lambda name: graph.positions.get(name, -1))


def _rank(kind: TensorType | None) -> int | None:
    return None if kind is None or kind.shape is None else len(kind.shape)
