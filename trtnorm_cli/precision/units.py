"""The units of a model: each normalization, and each softmax with the mask in front of it, is made low only as a whole.

Between the mean and the division of a normalization no rounding may come; a mask is added to scores only to be taken out by the
softmax behind it; and a product of quantised tensors needs both scales in one type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.normalization_nodes import DEFAULT_EPSILON, PARAMETERS
from trtnorm_cli.onnx_model.shapes import TensorType, declared_types
from trtnorm_cli.onnx_model.surgery import open_model
from trtnorm_cli.precision.connections import Connections, is_operator
from trtnorm_cli.precision.operator_kinds import ELEMENTWISE, HEAVY, MOVES
from trtnorm_cli.precision.plan import key_of
from trtnorm_cli.precision.quantised_products import quantised_products
from trtnorm_cli.precision.tensor_types import complete_types
from trtnorm_cli.rewrite.norms.record import CompositeNorm, composite_norms

SOFTMAX, PRODUCT = "Softmax", "product of quantised tensors"
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
# The scores on their way from their product to the softmax: masks, biases, and other shapes of the same.
_MASKING = frozenset({"Add", "Where", "Sub"})
_RESHAPING = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze"})


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
        """True for all but a softmax and a product."""
        return self.kind not in (SOFTMAX, PRODUCT)


def units_of(model: onnx.ModelProto, folder: Path | None) -> tuple[list[Unit], dict[str, TensorType]]:
    """The units of a rewritten model, and the types of its tensors, those included that rules have added."""
    types = complete_types(model, declared_types(model))
    return units(model, types, composite_norms(open_model(model, folder), types)), types


def units(model: onnx.ModelProto, types: Mapping[str, TensorType], composites: Iterable[CompositeNorm] = ()) -> list[Unit]:
    """The units of the top graph of ``model``, in the order of execution. No node is in two of them.

    ``composites`` are normalizations in pieces. Those that are no longer in the model, and those that became one node, are
    passed over.
    """
    graph = Connections(model)
    found = [unit for norm in composites if (unit := _composite(norm, graph)) is not None]
    found += [_norm(node, types) for node in model.graph.node if _is_norm(node)]
    found += [_softmax(node, graph, types) for node in model.graph.node if is_operator(node, "Softmax", "LogSoftmax")]
    found += [_product(node, keys) for node, keys in quantised_products(model, graph)]
    taken: set[str] = set()
    kept = []
    for unit in found:
        if taken.isdisjoint(unit.keys):
            taken |= unit.keys
            kept.append(unit)
    return sorted(kept, key=lambda unit: graph.positions[unit.output])


def _product(node: onnx.NodeProto, keys: frozenset[str]) -> Unit:
    return Unit(PRODUCT, keys, node.input[0], node.output[0])


def _is_norm(node: onnx.NodeProto) -> bool:
    return node.op_type in PARAMETERS and node.domain in DEFAULT_DOMAINS


def _composite(norm: CompositeNorm, graph: Connections) -> Unit | None:
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


def _softmax(node: onnx.NodeProto, graph: Connections, types: Mapping[str, TensorType]) -> Unit:
    """A softmax with what masks its scores: additions and choices that nothing else reads."""
    nodes = [node, *_masking(node, graph, types)]
    while nodes[-1].op_type in _RESHAPING:
        nodes.pop()
    kind = types.get(node.input[0])
    rank = None if kind is None or kind.shape is None else len(kind.shape)
    axis = next((a.i for a in node.attribute if a.name == "axis"), -1)
    axes = None if rank is None else (axis % rank,)
    return Unit(SOFTMAX, frozenset(map(key_of, nodes)), scores_of(nodes[-1], graph, types), node.output[0], axes)


def _masking(node: onnx.NodeProto, graph: Connections, types: Mapping[str, TensorType]) -> Iterator[onnx.NodeProto]:
    name = node.input[0]
    while True:
        producer = graph.producers.get(name)
        if producer is None or not is_operator(producer, *_MASKING, *_RESHAPING):
            return
        if len(graph.consumers.get(name, ())) > 1 or name in graph.outputs:
            return
        yield producer
        name = scores_of(producer, graph, types)


def scores_of(node: onnx.NodeProto, graph: Connections, types: Mapping[str, TensorType]) -> str:
    """The input of ``node`` that holds the scores: a product of matrices in the shape of the result, or what comes last."""
    if is_operator(node, "Softmax", "LogSoftmax", *_RESHAPING):
        return str(node.input[0])
    data = [name for name in node.input[1 if is_operator(node, "Where") else 0 :] if name]
    made = types.get(key_of(node))

    def likeness(name: str) -> tuple[bool, bool, int]:
        kind = types.get(name)
        is_whole = made is None or kind is None or made.shape is None or kind.shape is None or made.shape == kind.shape
        return _is_of_products(name, graph), is_whole, graph.positions.get(name, -1)

    return max(data, key=likeness)


def _is_of_products(name: str, graph: Connections) -> bool:
    """True where a tensor is made from a matrix product, by nothing but arithmetic at each place and movement."""
    passed = graph.upstream([name], lambda node: is_operator(node, *ELEMENTWISE, *MOVES))
    read = {name, *(tensor for node in passed for tensor in node.input)}
    return any(is_operator(graph.producers[tensor], *HEAVY) for tensor in read if tensor in graph.producers)
