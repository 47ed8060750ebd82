"""The nodes of an ONNX graph as they are compared: constants are no nodes, and attributes have their defaults."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import field
from functools import cache
from pathlib import Path

import onnx

from trtnorm_cli.differences.matching import Outline, Source
from trtnorm_cli.differences.record import NodeName
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.stored import tensor_array

# Sources that are no node's output and no input of the graph.
CONSTANT: Source = (-(1 << 40) - 1, 0)
ABSENT: Source = (-(1 << 40) - 2, 0)
# Nothing in the other graph has a source like this.
_UNKNOWN = -(1 << 40) - 3
_HEAVY = 16

Opsets = Mapping[str, int]


class Constant:
    """A tensor that stands in the file. Its digest is that of type, sizes and values."""

    def __init__(self, name: str, tensor: onnx.TensorProto, folder: Path | None) -> None:
        self.name, self.tensor, self.folder = name, tensor, folder
        self._digest: bytes | None = None

    @property
    def type_text(self) -> str:
        """Type and sizes, such as ``float[64, 3]``."""
        return onnx.TensorProto.DataType.Name(self.tensor.data_type).lower() + str(list(self.tensor.dims))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.dims)

    @property
    def digest(self) -> bytes:
        if self._digest is None:
            value = tensor_array(self.tensor, self.folder)
            content = repr(value.tolist()).encode() if value.dtype.hasobject else memoryview(value.tobytes())
            self._digest = hashlib.blake2b(content, digest_size=16, key=self.type_text.encode()[:64]).digest()
        return self._digest


@dataclass
class Node:
    """A node. ``inputs`` are its sources, with the constants among them by their place in ``constants``."""

    proto: onnx.NodeProto
    operator: str
    attributes: dict[str, str]
    inputs: list[Source]
    constants: dict[int, Constant]
    bodies: dict[str, onnx.GraphProto]

    @property
    def known_as(self) -> NodeName:
        """The node as users know it."""
        first = next(filter(None, self.proto.output), "nothing")
        return NodeName(self.proto.name or f"{self.proto.op_type} -> {first}", self.operator)


@dataclass
class Scope:
    """The names that a graph can read, with what they are."""

    sources: dict[str, Source] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)

    def look_up(self, name: str) -> tuple[Source, Constant | None]:
        if not name:
            return ABSENT, None
        if (constant := self.constants.get(name)) is not None:
            return CONSTANT, constant
        return self.sources.get(name, (_UNKNOWN, 0)), None


@dataclass
class Graph:
    """A graph as it is compared. ``inputs`` are those that are fed, ``results`` the sources of ``outputs``."""

    nodes: list[Node]
    scope: Scope
    outputs: list[str]
    results: list[Source]
    opsets: Opsets
    folder: Path | None
    _consumers: dict[int, list[int]] = field(default_factory=dict)

    def consumers(self, node: int) -> list[int]:
        """The nodes that compute from an output of ``node``."""
        if not self._consumers:
            for consumer, other in enumerate(self.nodes):
                for producer, _ in other.inputs:
                    self._consumers.setdefault(producer, []).append(consumer)
        return self._consumers.get(node, [])

    def outline(self) -> Outline:
        """The graph as it is matched: exact, but for the values of constants, and by the operator alone."""
        strict: list[Hashable] = []
        loose: list[Hashable] = []
        heavy = []
        for node in self.nodes:
            attributes = tuple(sorted(node.attributes.items()))
            used = sum(1 for name in node.proto.output if name)
            places = sorted(node.constants.items())
            strict.append((node.operator, attributes, used, tuple((place, one.digest) for place, one in places)))
            loose.append((node.operator, attributes, used, tuple((place, one.shape) for place, one in places)))
            heavy.append(any(_count(one.shape) >= _HEAVY for one in node.constants.values()))
        operators = [node.operator for node in self.nodes]
        names = [node.proto.name for node in self.nodes]
        return Outline((strict, loose, operators), names, [node.inputs for node in self.nodes], self.results, heavy)


def fed_inputs(graph: onnx.GraphProto | onnx.FunctionProto) -> list[str]:
    """The names of the inputs that are fed: not those that are initializers."""
    if isinstance(graph, onnx.FunctionProto):
        return list(graph.input)
    stored = {tensor.name for tensor in graph.initializer}
    return [value.name for value in graph.input if value.name not in stored]


def output_names(graph: onnx.GraphProto | onnx.FunctionProto) -> list[str]:
    """The names of the outputs."""
    return list(graph.output) if isinstance(graph, onnx.FunctionProto) else [value.name for value in graph.output]


def read_graph(
    graph: onnx.GraphProto | onnx.FunctionProto,
    opsets: Opsets,
    folder: Path | None,
    inputs: Mapping[str, int],
    outer: Scope | None = None,
) -> Graph:
    """The graph as it is compared. ``inputs`` have a number that is the same to both graphs; ``outer`` is what is around it."""
    scope = Scope({}, {}) if outer is None else Scope(dict(outer.sources), dict(outer.constants))
    for name, number in inputs.items():
        scope.constants.pop(name, None)
        scope.sources[name] = (-1 - number, 0)
    if isinstance(graph, onnx.GraphProto):
        scope.constants |= {tensor.name: Constant(tensor.name, tensor, folder) for tensor in graph.initializer}
    protos: list[onnx.NodeProto] = []
    for proto in graph.node:
        if (tensor := _constant_of(proto)) is not None:
            scope.constants[proto.output[0]] = Constant(proto.output[0], tensor, folder)
            continue
        for port, name in enumerate(proto.output):
            if name:
                scope.constants.pop(name, None)
                scope.sources[name] = (len(protos), port)
        protos.append(proto)
    nodes = [_node(proto, scope, opsets) for proto in protos]
    outputs = output_names(graph)
    return Graph(nodes, scope, outputs, [scope.look_up(name)[0] for name in outputs], opsets, folder)


def _node(proto: onnx.NodeProto, scope: Scope, opsets: Opsets) -> Node:
    bodies = {attribute.name: attribute.g for attribute in proto.attribute if attribute.type == onnx.AttributeProto.GRAPH}
    captured = [name for body in bodies.values() for name in captured_by(body)]
    found = [scope.look_up(name) for name in (*proto.input, *dict.fromkeys(captured))]
    while found and found[-1][0] == ABSENT:  # an input that is left out and one that is not there are the same
        found.pop()
    constants = {place: constant for place, (_, constant) in enumerate(found) if constant is not None}
    domain = "" if proto.domain in DEFAULT_DOMAINS else f"{proto.domain}::"
    return Node(proto, domain + proto.op_type, _attributes(proto, opsets), [source for source, _ in found], constants, bodies)


def captured_by(graph: onnx.GraphProto) -> list[str]:
    """The tensors of graphs around ``graph`` that it reads, in the order of their first use."""
    own = {tensor.name for tensor in graph.initializer} | {value.name for value in graph.input}
    own |= {name for node in graph.node for name in node.output}
    read = [name for node in graph.node for name in node.input]
    read += [
        name for node in graph.node for a in node.attribute if a.type == onnx.AttributeProto.GRAPH for name in captured_by(a.g)
    ]
    read += [value.name for value in graph.output]
    return [name for name in dict.fromkeys(read) if name and name not in own]


def _attributes(proto: onnx.NodeProto, opsets: Opsets) -> dict[str, str]:
    found = dict(_defaults(proto.op_type, proto.domain, opsets.get(proto.domain or "", opsets.get("ai.onnx", 0))))
    for attribute in proto.attribute:
        if attribute.type not in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
            found[attribute.name] = _text(attribute)
    return found


@cache
def _defaults(operator: str, domain: str, opset: int) -> tuple[tuple[str, str], ...]:
    try:
        schema = onnx.defs.get_schema(operator, opset, "" if domain in DEFAULT_DOMAINS else domain)
    except onnx.defs.SchemaError:
        return ()
    given = ((name, attribute.default_value) for name, attribute in schema.attributes.items())
    return tuple((name, _text(value)) for name, value in given if value.name)


def _text(attribute: onnx.AttributeProto) -> str:
    if attribute.ref_attr_name:
        return f"@{attribute.ref_attr_name}"
    value = onnx.helper.get_attribute_value(attribute)
    if attribute.type == onnx.AttributeProto.FLOAT:
        return f"{value:.9g}"
    if attribute.type == onnx.AttributeProto.FLOATS:
        return "[" + ", ".join(f"{one:.9g}" for one in value) + "]"
    if attribute.type in (onnx.AttributeProto.INT, onnx.AttributeProto.INTS):
        return str(list(value) if attribute.type == onnx.AttributeProto.INTS else value)
    if attribute.type == onnx.AttributeProto.STRING:
        return str(value.decode("utf-8", "backslashreplace"))
    if attribute.type == onnx.AttributeProto.STRINGS:
        return str([one.decode("utf-8", "backslashreplace") for one in value])
    digest = hashlib.blake2b(attribute.SerializeToString(deterministic=True), digest_size=6).hexdigest()
    return f"{onnx.AttributeProto.AttributeType.Name(attribute.type).lower()} {digest}"


def _constant_of(proto: onnx.NodeProto) -> onnx.TensorProto | None:
    """The value of a Constant node, as an initializer would have it. A sparse one stays a node."""
    if proto.op_type != "Constant" or proto.domain not in DEFAULT_DOMAINS or len(proto.attribute) != 1:
        return None
    (attribute,) = proto.attribute
    kind = _SPELLINGS.get(attribute.name)
    if attribute.ref_attr_name or (attribute.name != "value" and kind is None):
        return None
    if kind is None:
        return attribute.t
    value = onnx.helper.get_attribute_value(attribute)
    is_list = attribute.name.endswith("s")
    return onnx.helper.make_tensor("", kind, [len(value)] if is_list else [], list(value) if is_list else [value])


_SPELLINGS = {
    "value_float": onnx.TensorProto.FLOAT,
    "value_floats": onnx.TensorProto.FLOAT,
    "value_int": onnx.TensorProto.INT64,
    "value_ints": onnx.TensorProto.INT64,
    "value_string": onnx.TensorProto.STRING,
    "value_strings": onnx.TensorProto.STRING,
}


def _count(shape: Iterable[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def input_name(node: Node, place: int, opsets: Opsets) -> str:
    """The name of an input as the operator's definition has it, or its number."""
    try:
        schema = onnx.defs.get_schema(node.proto.op_type, opsets.get(node.proto.domain or "", 0), node.proto.domain)
    except onnx.defs.SchemaError:
        return f"input {place}"
    names = [one.name for one in schema.inputs]
    return names[place] if place < len(names) and len(names) > 1 else f"input {place}"
