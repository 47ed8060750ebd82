"""Floating-point arithmetic that decides a size: found, and copied in its own type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from onnx import AttributeProto, GraphProto, NodeProto, TensorProto

from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS

KEPT = "::own_type"
"""The end of the names of copies; no exporter writes it."""
FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
SCALES_INPUT = {"Resize": (1, 2), "Upsample": (1,)}
"""Inputs that the specification has in float32 only (in Resize, roi is among them until opset 10's scales)."""


def keep_shape_arithmetic(graph: GraphProto, initializers: Iterable[TensorProto]) -> None:
    """Copy what leads from shapes and constants to a Cast to an integer, or to a scale, in its own type.

    ``initializers`` are those of ``graph`` if they are held elsewhere; the needed ones are copied into it. The copies
    serve only these casts and scales; the originals stay for every other consumer.
    """
    _Copier(graph, [*graph.initializer, *initializers]).run()
    for inner in _subgraphs(graph):
        keep_shape_arithmetic(inner, ())


def _subgraphs(graph: GraphProto) -> Iterator[GraphProto]:
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield attribute.g


class _Copier:
    def __init__(self, graph: GraphProto, initializers: list[TensorProto]) -> None:
        self._graph = graph
        self._weights = {tensor.name: tensor for tensor in initializers}
        self._producers = {name: node for node in graph.node for name in node.output if name}
        self._static: dict[str, bool] = {}
        self._copies: dict[str, str] = {}
        self._new: list[NodeProto] = []

    def run(self) -> None:
        nodes = []
        for node in self._graph.node:
            self._new = []
            for index in _sinks(node):
                name = node.input[index]
                if name and self._is_static(name) and self._has_floats(name):
                    node.input[index] = self._copy(name)
            nodes += [*self._new, node]
        if len(nodes) > len(self._graph.node):
            ordered = [_detached(node) for node in nodes]
            del self._graph.node[:]
            self._graph.node.extend(ordered)

    def _is_static(self, name: str) -> bool:
        """Does the tensor depend on constants and shapes alone?"""
        for known in _depth_first(name, self._inputs_of_static):
            if known in self._static:
                continue
            node = self._producers.get(known)
            if node is None:
                self._static[known] = known in self._weights
            elif node.op_type in ("Shape", "Size", "Constant"):
                self._static[known] = True
            else:
                self._static[known] = _is_plain(node) and all(self._static.get(i, False) for i in node.input if i)
        return self._static[name]

    def _inputs_of_static(self, name: str) -> list[str]:
        node = self._producers.get(name)
        if node is None or name in self._static or node.op_type in ("Shape", "Size") or not _is_plain(node):
            return []
        return [i for i in node.input if i]

    def _has_floats(self, name: str) -> bool:
        return any(_is_float(self._producers.get(n), self._weights.get(n)) for n in _depth_first(name, self._ancestors))

    def _ancestors(self, name: str) -> list[str]:
        node = self._producers.get(name)
        return [] if node is None or node.op_type in ("Shape", "Size") else [i for i in node.input if i]

    def _copy(self, name: str) -> str:
        for known in _depth_first(name, self._ancestors):
            if known not in self._copies:
                self._copies[known] = self._copy_one(known)
        return self._copies[name]

    def _copy_one(self, name: str) -> str:
        node = self._producers.get(name)
        if node is not None and node.op_type in ("Shape", "Size"):
            return name
        if node is None:
            tensor = self._graph.initializer.add()
            tensor.CopyFrom(self._weights[name])
            tensor.name = name + KEPT
            return tensor.name
        copy = _detached(node)
        copy.input[:] = [self._copies[i] if i else "" for i in node.input]
        copy.output[:] = [o + KEPT if o else "" for o in node.output]
        self._copies.update({o: o + KEPT for o in node.output if o})
        self._new.append(copy)
        return name + KEPT


def _depth_first(name: str, parents: object) -> Iterator[str]:
    """Every name after those that it is made from; without recursion, because graphs are thousands of nodes deep."""
    stack: list[tuple[str, bool]] = [(name, False)]
    seen: set[str] = set()
    while stack:
        current, expanded = stack.pop()
        if expanded:
            yield current
        elif current not in seen:
            seen.add(current)
            stack.append((current, True))
            stack.extend((parent, False) for parent in parents(current))  # type: ignore[operator]


def _detached(node: NodeProto) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    return copy


def _sinks(node: NodeProto) -> list[int]:
    """The inputs for which rounding matters: those of a Cast to an integer, and scales."""
    if node.domain not in DEFAULT_DOMAINS:
        return []
    if node.op_type == "Cast":
        to = next((a.i for a in node.attribute if a.name == "to"), 0)
        return [0] if to not in (*FLOATS, TensorProto.DOUBLE, TensorProto.STRING) else []
    return [i for i in SCALES_INPUT.get(node.op_type, ()) if i < len(node.input)]


def _is_plain(node: NodeProto) -> bool:
    """Deterministic, without a body, of the standard's domain."""
    if node.domain not in DEFAULT_DOMAINS or node.op_type.startswith(("Random", "Bernoulli", "Multinomial")):
        return False
    return not any(attribute.type == AttributeProto.GRAPH for attribute in node.attribute)


def _is_float(node: NodeProto | None, weight: TensorProto | None) -> bool:
    if weight is not None:
        return weight.data_type in FLOATS
    if node is None:
        return False
    for attribute in node.attribute:
        if attribute.name == "to" and attribute.i in FLOATS:
            return True
        if attribute.name == "value" and attribute.t.data_type in FLOATS:
            return True
        if attribute.name in ("value_float", "value_floats"):
            return True
    return False
