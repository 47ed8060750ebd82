"""int64 as int32 where ranges prove that it fits, between casts.

TensorRT has int64, so that nothing needs to be narrowed. Inputs and outputs keep their type, and so does what decides sizes:
operands such as the shape of a Reshape are int64 in ONNX. A cast is put where a node in int32 reads a tensor of int64 or the
other way round, and nodes are narrowed only as far as they are worth their casts (``precision.cut``).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.names import free_name
from trtnorm_cli.onnx_model.shapes import declared_types
from trtnorm_cli.onnx_model.stored import tensor_array
from trtnorm_cli.onnx_model.walk import all_graphs, all_nodes, subgraphs, tensors_read
from trtnorm_cli.precision.cut import Choice, Flow
from trtnorm_cli.precision.wide.integer_ports import INT32, INT64, IntegerPorts, integer_ports
from trtnorm_cli.precision.wide.integer_ranges import IntegerRanges, Range
from trtnorm_cli.records.types import KeptInteger, NarrowedIntegers

_LEAST, _MOST = -(2**31), 2**31 - 1
_OUTSIDE = "outside"
# A cast costs as much as two nodes in int64 do.
_CAST = 2


@dataclass(frozen=True)
class NarrowIntegers:
    """A model with nodes in int32, and the record of it. Where nothing was narrowed, ``model`` is the one that was given."""

    model: onnx.ModelProto
    record: NarrowedIntegers


def narrow_integers(model: onnx.ModelProto, folder: Path | None, largest: Mapping[str, int]) -> NarrowIntegers:
    """``model`` with int64 as int32 where every element fits at all sizes up to ``largest`` (by symbol), and it pays."""
    plan = _Plan(model, folder, largest)
    chosen = plan.chosen()
    record = NarrowedIntegers(kept=tuple(plan.kept()))
    if not chosen:
        return NarrowIntegers(model, record)
    written = _Writer(model, folder, plan, chosen)
    result = written.model()
    tensors = tuple(name for index in sorted(chosen) for name in plan.made(index))
    nodes = tuple(_named(model.graph.node[index]) for index in sorted(chosen))
    return NarrowIntegers(result, NarrowedIntegers(nodes, tensors, written.casts, record.kept))


class _Plan:
    """The nodes of the main graph that may be int32, by their place."""

    def __init__(self, model: onnx.ModelProto, folder: Path | None, largest: Mapping[str, int]) -> None:
        self.nodes = list(model.graph.node)
        stored = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
        self.types = {**{name: kind.dtype for name, kind in declared_types(model).items()}, **stored}
        self.constants = {**{t.name: t for t in model.graph.initializer}, **_constant_nodes(model)}
        self.types |= {name: tensor.data_type for name, tensor in self.constants.items()}
        self.ranges = IntegerRanges(model, folder, largest, self.types)
        self.outputs = {value.name for value in model.graph.output}
        self.inputs = {value.name for value in model.graph.input} - set(stored)
        self._sizes = self._deciding_sizes()
        self.ports: dict[int, IntegerPorts] = {}
        for index, node in enumerate(self.nodes):
            ports = integer_ports(node, self.types)
            if ports is not None and (ports.typed or ports.made) and not self._decides_sizes(node):
                self.ports[index] = ports

    def _decides_sizes(self, node: onnx.NodeProto) -> bool:
        return not self._sizes.isdisjoint(node.output) or any(map(self.ranges.is_size, node.output))

    def typed_names(self, index: int) -> list[str]:
        """The tensors whose type is that of the node, constants among them."""
        node, ports = self.nodes[index], self.ports[index]
        return [*(node.input[place] for place in ports.typed), *self.made(index)]

    def made(self, index: int) -> list[str]:
        return [self.nodes[index].output[place] for place in self.ports[index].made]

    def chosen(self) -> frozenset[int]:
        """The nodes to narrow."""
        fitting = {index for index in self.ports if all(_fits(self.ranges.of(name)) for name in self.typed_names(index))}
        maker = {name: index for index in fitting for name in self.made(index)}
        readers: dict[str, set[Hashable]] = {}
        for index, node in enumerate(self.nodes):
            for name in self._needed_as_made(index, node, index in fitting):
                readers.setdefault(name, set()).add(_OUTSIDE)
            if index in fitting:
                for place in self.ports[index].typed:
                    readers.setdefault(node.input[place], set()).add(index)
        for name in self.outputs:
            readers.setdefault(name, set()).add(_OUTSIDE)
        flows = [
            Flow(maker.get(name, _OUTSIDE), frozenset(reading), _CAST)
            for name, reading in sorted(readers.items())
            if name not in self.constants and self.types.get(name) == INT64
        ]
        cost: dict[Hashable, int] = dict.fromkeys(fitting, 1)
        settled = Choice({**cost, _OUTSIDE: 0}, {_OUTSIDE: False}, flows).settled()
        return self._worth(frozenset(index for index in fitting if settled.get(index)), maker)

    def _worth(self, chosen: frozenset[int], maker: Mapping[str, int]) -> frozenset[int]:
        """``chosen`` without nodes that stand alone and make nothing in int64, as a comparison of constants does."""
        return chosen if any(self.ports[index].made for index in chosen) else frozenset()

    def _needed_as_made(self, index: int, node: onnx.NodeProto, may_change: bool) -> Iterable[str]:
        """The int64 tensors that a node must read as int64."""
        ports = integer_ports(node, self.types)
        free = set() if ports is None else {node.input[place] for place in ports.any}
        typed = {node.input[place] for place in self.ports[index].typed} if may_change else set()
        fixed = {name for place, name in enumerate(node.input) if ports is None or place not in ports.any}
        return {name for name in tensors_read(node) if name in fixed or name not in free} - typed

    def kept(self) -> list[KeptInteger]:
        """The tensors whose range keeps a node in int64, each once: the first on the way."""
        found: dict[str, KeptInteger] = {}
        for index in self.ports:
            node = self.nodes[index]
            names = self.typed_names(index)
            unknown = [name for name in names if not _fits(self.ranges.of(name))]
            first = next((name for name in unknown if name in self.constants or name in self.inputs), None)
            if first is None and unknown and all(_fits(self.ranges.of(name)) for name in names if name not in self.made(index)):
                first = unknown[0]
            if first is not None:
                found.setdefault(first, KeptInteger(first, _named(node), *_words(self.ranges.of(first))))
        return list(found.values())

    def _deciding_sizes(self) -> set[str]:
        """The tensors that shapes, axes and conditions are made of, and all that they are made of."""
        wanted: set[str] = set()
        for node in reversed(self.nodes):
            ports = integer_ports(node, self.types)
            free = set() if ports is None else {node.input[place] for place in (*ports.typed, *ports.any)}
            if not wanted.isdisjoint(node.output):
                free = set()
            reads = {name for name in tensors_read(node) if self.types.get(name) in (INT64, INT32, 0, None)}
            if node.op_type not in _DATA_ONLY:
                wanted |= reads - free
        return wanted


# Of these no operand decides a size.
_DATA_ONLY = frozenset(("ArgMax", "ArgMin", "GatherND", "NonZero", "OneHot", "ScatterND", "Shape", "Size"))


class _Writer:
    def __init__(self, model: onnx.ModelProto, folder: Path | None, plan: _Plan, chosen: frozenset[int]) -> None:
        self._source, self._folder, self._plan, self._chosen = model, folder, plan, chosen
        self._taken = {name for graph in all_graphs(model.graph) for node in graph.node for name in (*node.input, *node.output)}
        self._taken |= {value.name for value in (*model.graph.input, *model.graph.output)}
        self._taken |= {tensor.name for tensor in model.graph.initializer} | {node.name for node in all_nodes(model)}
        self._narrow: dict[str, str] = {}
        self._nodes: list[onnx.NodeProto] = []
        self._stored: list[onnx.TensorProto] = []
        self.casts = 0

    def model(self) -> onnx.ModelProto:
        needed = self._needed_wide()
        for index, node in enumerate(self._plan.nodes):
            if index not in self._chosen:
                self._nodes.append(self._reading_either(node))
                continue
            copy = onnx.NodeProto()
            copy.CopyFrom(self._reading_either(node))
            ports = self._plan.ports[index]
            for place in ports.typed:
                copy.input[place] = self._version(node.input[place])
            for place in ports.made:
                copy.output[place] = self._narrow[node.output[place]] = self._new(node.output[place])
            _state(copy)
            self._nodes.append(copy)
            for name in self._plan.made(index):
                if name in needed:
                    self._cast(self._narrow[name], name, INT64)
        result = onnx.ModelProto()
        result.CopyFrom(self._source)
        del result.graph.node[:]
        result.graph.node.extend(self._nodes)
        result.graph.initializer.extend(self._stored)
        _drop_unread(result.graph)
        self._write_types(result.graph)
        return result

    def _reading_either(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """``node`` with the int32 version of what it reads in any type, where there is one by now."""
        ports = integer_ports(node, self._plan.types)
        anything = [place for place in (ports.any if ports else ()) if node.input[place] not in self._plan.constants]
        either = [place for place in anything if node.input[place] in self._narrow]
        if not either:
            return node
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        for place in either:
            copy.input[place] = self._narrow[node.input[place]]
        return copy

    def _needed_wide(self) -> set[str]:
        """The tensors that somebody reads as int64."""
        read = set(self._plan.outputs)
        for index, node in enumerate(self._plan.nodes):
            if index in self._chosen:
                ports = self._plan.ports[index]
                read |= {n for p, n in enumerate(node.input) if p not in ports.typed and p not in ports.any}
            else:
                found = integer_ports(node, self._plan.types)
                free = set(found.any) if found else set()
                read |= {name for place, name in enumerate(node.input) if place not in free}
                read |= {name for inner in subgraphs(node) for one in inner.node for name in tensors_read(one)}
                read |= {value.name for inner in subgraphs(node) for value in inner.output}
        return read

    def _version(self, name: str) -> str:
        """The int32 version of a tensor, stored or cast where it is not there yet."""
        if name not in self._narrow:
            made = self._new(name)
            if name in self._plan.constants:
                values = tensor_array(self._plan.constants[name], self._folder).astype(np.int32)
                self._stored.append(numpy_helper.from_array(values, made))
            else:
                self._cast(name, made, INT32)
            self._narrow[name] = made
        return self._narrow[name]

    def _cast(self, source: str, made: str, to: int) -> None:
        name = free_name(f"{made}/cast", self._taken)
        self._nodes.append(onnx.helper.make_node("Cast", [source], [made], name=name, to=to))
        self.casts += 1

    def _new(self, name: str) -> str:
        return free_name(f"{name}_int32", self._taken)

    def _write_types(self, graph: onnx.GraphProto) -> None:
        kinds = {value.name: value for value in (*self._source.graph.value_info, *self._source.graph.input)}
        kinds |= {value.name: value for value in self._source.graph.output}
        made = {name for node in graph.node for name in node.output}
        stated = [value for value in graph.value_info if value.name in made]
        for name, narrow in self._narrow.items():
            if name in kinds and narrow in made:
                value = onnx.ValueInfoProto()
                value.CopyFrom(kinds[name])
                value.name, value.type.tensor_type.elem_type = narrow, INT32
                stated.append(value)
        del graph.value_info[:]
        graph.value_info.extend(stated)


def _drop_unread(graph: onnx.GraphProto) -> None:
    """Drop, in place, stored tensors that are read in their int32 version alone."""
    read = {name for node in graph.node for name in tensors_read(node)} | {value.name for value in graph.output}
    read |= {value.name for value in graph.input}
    for held in (graph.initializer, graph.node):
        unread = [
            place
            for place, one in enumerate(held)
            if (one.name not in read if isinstance(one, onnx.TensorProto) else _is_unread_constant(one, read))
        ]
        for place in reversed(unread):
            del held[place]


def _is_unread_constant(node: onnx.NodeProto, read: set[str]) -> bool:
    return node.op_type == "Constant" and read.isdisjoint(node.output)


def _state(node: onnx.NodeProto) -> None:
    """Let a node that states its type state int32, in place."""
    for attribute in node.attribute:
        if node.op_type == "Cast" and attribute.name == "to":
            attribute.i = INT32
        if node.op_type == "ConstantOfShape" and attribute.name == "value":
            attribute.t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(attribute.t).astype(np.int32), attribute.t.name))


def _constant_nodes(model: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    return {
        node.output[0]: node.attribute[0].t
        for node in model.graph.node
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value"
    }


def _fits(found: Range | None) -> bool:
    return found is not None and found[0] >= _LEAST and found[1] <= _MOST


def _words(found: Range | None) -> tuple[str, int | None]:
    """The reason for which a range does not fit, and the value that does not."""
    if found is None:
        return "its range is not known", None
    value = found[1] if found[1] > _MOST else found[0]
    return f"it may be {value}, beyond int32", value


def _named(node: onnx.NodeProto) -> str:
    return node.name or f"{node.op_type} -> {', '.join(node.output)}"
