"""The writer of a model in a low type: each node in its type, and of each tensor the versions that are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx

from trtnorm_cli.onnx_model.names import free_name
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.onnx_model.shelf import Shelf
from trtnorm_cli.onnx_model.walk import all_graphs, nodes_within, subgraphs
from trtnorm_cli.precision.islands import absorber, groups
from trtnorm_cli.precision.labels import Borders, labels
from trtnorm_cli.precision.low_constants import Constants, in_type, stored_low
from trtnorm_cli.precision.plan import TypePlan
from trtnorm_cli.precision.ports import FLOAT, Role, TypedNode, typed_nodes
from trtnorm_cli.precision.units import Unit


class Writer:
    """Writes the nodes of a model again, each in its type. A float32 tensor has a version in each type in which it is read."""

    def __init__(
        self,
        source: onnx.ModelProto,
        plan: TypePlan,
        units: Sequence[Unit],
        types: Mapping[str, TensorType],
        constants: Constants,
    ) -> None:
        self.source, self.plan, self.low, self.shelf = source, plan, plan.low, Shelf()
        self.casts = 0
        self.constants = constants
        self.types = dict(types)
        for name in self.constants:
            tensor = self.constants.tensor(name)
            self.types[name] = TensorType(tensor.data_type, tuple(tensor.dims))
        self._floats = {name for name in constants if constants.is_float32(name)}
        self._captured = _captured(source)
        self.nodes = typed_nodes(source, self.types, self.constants, self.low)
        self.borders = self._borders()
        self.is_low = labels(self.nodes, plan.kept, units, self._floats, self.types, self.borders)
        self._taken = _names(source)
        self._read = self._demands()
        self._names: dict[tuple[str, bool], str] = {}
        self._made_low: set[str] = set()
        self._aliases: dict[str, str] = {}
        self._bounded = self._to_bound()
        self._written: list[onnx.NodeProto] = []
        self._bounds: list[onnx.TensorProto] = []
        self._fixed_names = {value.name for value in source.graph.output} | self._captured

    def _borders(self) -> Borders:
        low = self.plan.io == "low"
        constants = set(self.constants)
        inputs = [value.name for value in self.source.graph.input if value.name not in constants]
        outputs = [value.name for value in self.source.graph.output]
        is_float = {name for name, kind in self.types.items() if kind.dtype == FLOAT}
        return Borders({n: low for n in inputs if n in is_float}, {n: low for n in outputs if n in is_float})

    def _demands(self) -> set[tuple[str, bool]]:
        """The versions of float32 tensors that are read: a name, and True for the low one."""
        wanted = {(name, is_low) for name, is_low in self.borders.outputs.items()}
        for node in self.nodes:
            low = self.is_low.get(node.key, False)
            wanted |= {(name, low) for name in node.names(node.reads)}
            wanted |= {(name, False) for name in (*node.names(node.reads_float), *node.captured)}
        return wanted

    # Names.

    def _keeps_its_name(self, name: str, is_low: bool) -> bool | None:
        """True where this version must have the tensor's own name; None where either may."""
        if name in self.borders.outputs:
            return self.borders.outputs[name] == is_low
        return not is_low if name in self._fixed_names else None

    def _new_name(self, name: str, is_low: bool) -> str:
        return free_name(f"{name}_{self.low.name if is_low else 'fp32'}", self._taken)

    def _make(self, name: str, is_low: bool) -> str:
        """The name under which a node writes the tensor ``name`` in a type."""
        own = self._keeps_its_name(name, is_low) is not False
        written = name if own else self._new_name(name, is_low)
        self._names[name, is_low] = written
        if is_low:
            self._made_low.add(name)
        return written

    def _version(self, name: str, is_low: bool) -> str:
        """The name of the version of a tensor in a type, cast or stored if it is not there yet."""
        if (name, is_low) not in self._names:
            if name in self.constants and self.types[name].dtype == FLOAT:
                self._names[name, is_low] = self._name_of_constant(name, is_low)
            else:
                self._cast(name, is_low)
        return self._names[name, is_low]

    def _name_of_constant(self, name: str, is_low: bool) -> str:
        own = self._keeps_its_name(name, is_low)
        if own is None:
            own = not is_low or (name, False) not in self._read
        return name if own else self._new_name(name, is_low)

    def _cast(self, name: str, is_low: bool) -> None:
        have = self._names.get((name, not is_low), name)
        own = self._keeps_its_name(name, is_low) is True and name != have
        made = name if own else self._new_name(name, is_low)
        target = self.low.onnx_type if is_low else FLOAT
        self._written.append(onnx.helper.make_node("Cast", [have], [made], name=f"{made}/cast", to=target))
        self.casts += 1
        self._names[name, is_low] = made

    # Nodes.

    def model(self) -> onnx.ModelProto:
        """The model in its types."""
        graph = onnx.GraphProto(name=self.source.graph.name, doc_string=self.source.graph.doc_string)
        graph.metadata_props.extend(self.source.graph.metadata_props)
        graph.quantization_annotation.extend(self.source.graph.quantization_annotation)
        for name, is_low in self.borders.inputs.items():
            self._names[name, is_low] = name
            if is_low:
                self._made_low.add(name)
        for node in self.nodes:
            self._write(node)
        for name, is_low in self.borders.outputs.items():
            self._version(name, is_low)
        graph.node.extend(self._written)
        graph.input.extend(self._values(self.source.graph.input, self.borders.inputs))
        graph.output.extend(self._values(self.source.graph.output, self.borders.outputs))
        self._write_constants(graph)
        self._write_types(graph)
        return _with_graph(self.source, graph)

    def _write(self, node: TypedNode) -> None:
        if node.role is Role.WIDENS:
            source = node.node.input[0]
            self._names[node.node.output[0], True] = self._aliases.get(source, source)
            return
        if node.role is Role.NARROWS and self._vanishes(node):
            return
        if node.node.output and node.node.output[0] in self.constants.nodes and node.node.output[0] in self._floats:
            return
        result = onnx.NodeProto()
        result.CopyFrom(node.node)
        is_low = self.is_low.get(node.key, False)
        for place, name in enumerate(node.node.input):
            if place in node.reads:
                result.input[place] = self._version(name, is_low)
            elif place in node.reads_float:
                result.input[place] = self._version(name, False)
            elif name:
                result.input[place] = self._as_made(name)
        for name in sorted(node.captured):
            self._version(name, False)
        for place in sorted(node.writes):
            result.output[place] = self._make(node.node.output[place], is_low)
        for place in sorted(node.writes_float):
            result.output[place] = self._make(node.node.output[place], False)
        bounded = self._bound(result) if node.key in self._bounded else None
        if is_low:
            _state(result, self.low.onnx_type)
        self._written.append(result)
        if bounded is not None:
            self._written.append(bounded)

    def _to_bound(self) -> set[str]:
        """The lone products and convolutions in float32 that TensorRT would compute in the low type after all.

        A Clip behind them keeps them float32, in as many kernels. It bounds what the cast behind it would make infinite.
        """
        found = set()
        for group in groups(self.nodes, self.is_low):
            lone = absorber(group)
            outputs = {name for node in group for name in node.node.output}
            wanted = lone is not None and self.plan.kept.get(lone.key)
            if lone is not None and wanted and wanted.cause != "type" and outputs.isdisjoint(self.borders.outputs):
                found.add(lone.key)
        return found

    def _bound(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """A Clip that takes the place of the first output of ``node``."""
        made = node.output[0]
        inner = free_name(f"{made}_unbounded", self._taken)
        node.output[0] = inner
        names = [free_name(f"{made}_{side}", self._taken) for side in ("lowest", "largest")]
        for name, value in zip(names, (-self.low.largest, self.low.largest), strict=True):
            self._bounds.append(onnx.numpy_helper.from_array(np.array(value, np.float32), name))
        return onnx.helper.make_node("Clip", [inner, *names], [made], name=f"{made}/bound")

    def _vanishes(self, node: TypedNode) -> bool:
        """Let a cast to the low type go, where its input is there in that type; False where it must stay."""
        name, made = node.node.input[0], node.node.output[0]
        if (name, True) not in self._names and (name, False) in self._names:
            self._written.append(_with_input(node.node, self._names[name, False]))
            self._names[name, True] = made
            return True
        have = self._version(name, True)
        if made in self._fixed_names:
            self._written.append(onnx.helper.make_node("Identity", [have], [made], name=node.node.name))
        else:
            self._aliases[made] = have
        return True

    def _as_made(self, name: str) -> str:
        """The name of a tensor for a node that takes it in any type."""
        if name in self._aliases:
            return self._aliases[name]
        versions = [
            self._names[name, is_low] for is_low in (name in self._made_low, True, False) if (name, is_low) in self._names
        ]
        if versions:
            return versions[0]
        return self._version(name, False) if name in self._floats else name

    # What stands around the nodes.

    def _values(self, values: Iterable[onnx.ValueInfoProto], given: Mapping[str, bool]) -> Iterable[onnx.ValueInfoProto]:
        for value in values:
            if value.name in self.constants and given is self.borders.inputs:
                continue  # a graph input with a stored value is a constant for TensorRT
            if given.get(value.name):
                changed = onnx.ValueInfoProto()
                changed.CopyFrom(value)
                changed.type.tensor_type.elem_type = self.low.onnx_type
                yield changed
            else:
                yield value

    def _write_constants(self, graph: onnx.GraphProto) -> None:
        floats = self._floats
        for tensor in self.source.graph.initializer:
            is_as_it_was = tensor.name not in floats or self._is_read_as_stored(tensor.name)
            if is_as_it_was and not self.constants.is_replaced(tensor.name):
                graph.initializer.append(tensor)
        graph.initializer.extend(self._bounds)
        graph.sparse_initializer.extend(self.source.graph.sparse_initializer)
        for (name, is_low), made in self._names.items():
            if name not in floats:
                continue
            if is_low:
                graph.initializer.append(stored_low(made, in_type(self.constants.value(name), self.low), self.shelf))
            elif self.constants.is_replaced(name):
                graph.initializer.append(onnx.numpy_helper.from_array(self.constants.value(name), made))
            elif name in self.constants.nodes or made != name:
                copy = onnx.TensorProto()
                copy.CopyFrom(self.constants.tensor(name))
                copy.name = made
                graph.initializer.append(copy)

    def _is_read_as_stored(self, name: str) -> bool:
        """True of an initializer that is read in float32 under its own name, also in a subgraph."""
        if self._names.get((name, False)) == name:
            return True
        return name in self._captured and (name, True) not in self._names

    def _write_types(self, graph: onnx.GraphProto) -> None:
        """State the types of the tensors that are written now."""
        stated = {value.name: value for value in self.source.graph.value_info}
        borders = {value.name for value in (*graph.input, *graph.output)}
        versions: dict[str, list[tuple[str, bool]]] = {}
        for (name, is_low), made in self._names.items():
            versions.setdefault(name, []).append((made, is_low))
        constants = set(self.constants)
        produced = {name for node in graph.node for name in node.output if name}
        for name, value in stated.items():
            if name in constants:
                continue
            for made, is_low in versions.get(name, [(name, False)]):
                if made not in produced or made in borders:
                    continue
                changed = graph.value_info.add()
                changed.CopyFrom(value)
                changed.name = made
                if is_low:
                    changed.type.tensor_type.elem_type = self.low.onnx_type


def _names(model: onnx.ModelProto) -> set[str]:
    taken: set[str] = set()
    for graph in all_graphs(model.graph):
        taken.update(value.name for value in (*graph.input, *graph.output, *graph.value_info))
        taken.update(tensor.name for tensor in graph.initializer)
        taken.update(name for node in graph.node for name in (*node.input, *node.output))
    return taken


def _captured(model: onnx.ModelProto) -> set[str]:
    """The names that subgraphs read or hand on, whatever their types."""
    return {name for node in model.graph.node for graph in subgraphs(node) for name in _reads_within(graph)}


def _reads_within(graph: onnx.GraphProto) -> set[str]:
    names = {value.name for inner in all_graphs(graph) for value in inner.output}
    return names | {name for node in nodes_within(graph.node) for name in node.input if name}


def _with_input(node: onnx.NodeProto, name: str) -> onnx.NodeProto:
    result = onnx.NodeProto()
    result.CopyFrom(node)
    result.input[0] = name
    return result


def _state(node: onnx.NodeProto, data_type: int) -> None:
    """Let a node that states the type of what it makes make another type, in place."""
    for attribute in node.attribute:
        if node.op_type == "Cast" and attribute.name == "to":
            attribute.i = data_type
        if node.op_type == "ConstantOfShape" and attribute.name == "value":
            dtype = onnx.helper.tensor_dtype_to_np_dtype(data_type)
            value = onnx.numpy_helper.to_array(attribute.t).astype(dtype)
            attribute.t.CopyFrom(onnx.numpy_helper.from_array(value, attribute.t.name))


def _with_graph(source: onnx.ModelProto, graph: onnx.GraphProto) -> onnx.ModelProto:
    """A model like ``source`` around another graph."""
    result = onnx.ModelProto(
        ir_version=max(source.ir_version, 4),
        producer_name=source.producer_name,
        producer_version=source.producer_version,
        domain=source.domain,
        model_version=source.model_version,
        doc_string=source.doc_string,
    )
    result.opset_import.extend(source.opset_import)
    result.metadata_props.extend(source.metadata_props)
    result.functions.extend(source.functions)
    result.graph.CopyFrom(graph)
    return result
