"""A model opened for surgery with onnx-graphsurgeon, and closed again without touching what was not operated on.

onnx-graphsurgeon does not carry everything that ONNX can say (node metadata, some attribute types, outputs of subgraphs that
belong to the outer graph, quantization annotations). So the original protobuf stays the ground: graphsurgeon gives the
connections, and on closing every node that was not replaced is taken from the original as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from onnx import numpy_helper
from onnx_graphsurgeon.exporters.onnx_exporter import OnnxExporter
from onnx_graphsurgeon.ir.tensor import LazyValues

from trtnorm_cli.errors import ModelError
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS, default_opset
from trtnorm_cli.onnx_model.functions import add_functions
from trtnorm_cli.onnx_model.shelf import Shelf, ShelvedValues, Shelving, others_see
from trtnorm_cli.onnx_model.stored import file_part, is_external, tensor_array
from trtnorm_cli.onnx_model.walk import all_nodes, operator_may_hold_graphs, subgraphs
from trtnorm_cli.onnx_model.wire import FilePart

_CACHE_BYTES = 64 << 20

gs.logger.G_LOGGER.severity = gs.logger.G_LOGGER.CRITICAL


class ConstantKind(NamedTuple):
    """Shape and type of a constant, known before its value is read."""

    shape: tuple[int, ...]
    dtype: np.dtype


@dataclass
class Surgery:
    """``graph`` is graphsurgeon's view of ``source``; ``folder`` is where external tensors are read from.

    Large values of ``new_constant`` are on the ``shelf``. What ``close`` returned refers to it and must not outlive it.
    """

    source: onnx.ModelProto
    folder: Path | None
    graph: gs.Graph
    protos: dict[int, onnx.NodeProto] = field(default_factory=dict)
    subgraph_protos: dict[int, onnx.GraphProto] = field(default_factory=dict)
    # Nodes that were cut out stay referenced, because everything here is keyed by identity.
    originals: list[gs.Node] = field(default_factory=list)
    # What new nodes call, once for every node.
    functions: list[onnx.FunctionProto] = field(default_factory=list)
    shelf: Shelf = field(default_factory=Shelf)
    _constants: dict[int, tuple[gs.Tensor, np.ndarray]] = field(default_factory=dict)
    _bytes: int = 0
    _begun: dict[str, Shelving] = field(default_factory=dict)

    @property
    def opset(self) -> int:
        """The version of the default domain."""
        return default_opset(self.source.opset_import)

    def graphs(self) -> Iterator[gs.Graph]:
        """The main graph and every subgraph, outermost first."""
        yield self.graph
        for node in self.graph.nodes:
            if operator_may_hold_graphs(node.op) or node.domain not in DEFAULT_DOMAINS:
                yield from node.subgraphs(recursive=True)

    def constant(self, tensor: gs.Tensor) -> np.ndarray | None:
        """The value of an initializer or of a ``Constant`` node's output, or None for a tensor of run time."""
        if id(tensor) not in self._constants:
            value = self._read_constant(tensor)
            if value is None:
                return None
            self._remember(tensor, value)
        return self._constants[id(tensor)][1]

    def constant_kind(self, tensor: gs.Tensor) -> ConstantKind | None:
        """Shape and type of what ``constant`` gives. Reads no initializer."""
        if isinstance(tensor, gs.Constant) and isinstance(tensor._values, LazyValues):
            proto = tensor._values.tensor
            if isinstance(proto, onnx.SparseTensorProto):
                return None
            return ConstantKind(tuple(proto.dims), np.dtype(onnx.helper.tensor_dtype_to_np_dtype(proto.data_type)))
        value = self.constant(tensor)
        return None if value is None else ConstantKind(value.shape, value.dtype)

    def _remember(self, tensor: gs.Tensor, value: np.ndarray) -> None:
        """Keep ``value`` for the next question, within a bound: rules ask for the same weights several times."""
        self._bytes += value.nbytes
        while self._constants and self._bytes > _CACHE_BYTES:
            _, oldest = self._constants.pop(next(iter(self._constants)))
            self._bytes -= oldest.nbytes
        self._constants[id(tensor)] = (tensor, value)

    def place(self, tensor: gs.Tensor) -> FilePart | None:
        """Where a file has the value of an initializer, as other processes find it; None for one in memory."""
        lazy = tensor._values if isinstance(tensor, gs.Constant) else None
        if not isinstance(lazy, LazyValues) or isinstance(lazy.tensor, onnx.SparseTensorProto) or not is_external(lazy.tensor):
            return None
        return others_see(file_part(lazy.tensor, self.folder))

    def begin_constants(self, values: Mapping[str, np.ndarray]) -> None:
        """Begin to write large ``values`` that ``new_constant`` may be given, under these names."""
        for name, value in values.items():
            if (begun := self.shelf.begin(value, name)) is not None:
                self._begun[name] = begun

    def forget_begun(self) -> None:
        """Nobody asks for constants any more that were begun and are not taken."""
        while self._begun:
            self._begun.popitem()[1].take_back()

    def begun_place(self, name: str) -> FilePart | None:
        """Where a file has the value of a constant that was begun, once it is there."""
        begun = self._begun.get(name)
        return None if begun is None or begun.result() is None else others_see(begun.part)

    def new_constant(self, name: str, value: np.ndarray) -> gs.Constant:
        """A constant for nodes that are added to the graph."""
        begun = self._begun.pop(name, None)
        kept = self.shelf.put(value, name) if begun is None else begun.result()
        return gs.Constant(name, value if kept is None else kept)

    def is_constant(self, tensor: gs.Tensor) -> bool:
        """True when the value of ``tensor`` stands in the file. Reads no weights."""
        if isinstance(tensor, gs.Constant):
            return True
        return bool(tensor.inputs and tensor.inputs[0].op == "Constant" and tensor.inputs[0].domain in DEFAULT_DOMAINS)

    def _read_constant(self, tensor: gs.Tensor) -> np.ndarray | None:
        if isinstance(tensor, gs.Constant):
            return self._read_values(tensor)
        producer = tensor.inputs[0] if tensor.inputs else None
        if producer is None or producer.op != "Constant" or producer.domain not in DEFAULT_DOMAINS:
            return None
        proto = self.protos.get(id(producer)) or OnnxExporter.export_node(producer)
        return _constant_node_value(proto, self.folder)

    def _read_values(self, tensor: gs.Constant) -> np.ndarray | None:
        values = tensor._values
        if isinstance(values, np.ndarray):
            return values
        if isinstance(values.tensor, onnx.SparseTensorProto):
            return None
        return tensor_array(values.tensor, self.folder)

    def close(self) -> onnx.ModelProto:
        """The model as it stands now; the source is not changed."""
        result = onnx.ModelProto()
        result.CopyFrom(_without_graph(self.source))
        result.graph.CopyFrom(self._close_graph(self.graph, self.source.graph))
        add_functions(result, self.functions)
        # Initializers that are also graph inputs were obligatory before IR version 4; they are dropped from the inputs.
        result.ir_version = max(result.ir_version, 4)
        return result

    def _close_graph(self, graph: gs.Graph, source: onnx.GraphProto) -> onnx.GraphProto:
        result = onnx.GraphProto()
        result.CopyFrom(_without_lists(source))
        initializer_names = {tensor.name for tensor in source.initializer}
        result.input.extend(value for value in source.input if value.name not in initializer_names)
        result.output.extend(source.output)
        result.node.extend(self._close_node(node) for node in graph.nodes)
        self._close_tensors(result, graph, source)
        return result

    def _close_node(self, node: gs.Node) -> onnx.NodeProto:
        source = self.protos.get(id(node))
        if source is None:
            return OnnxExporter.export_node(node)
        if not any(True for _ in subgraphs(source)):
            return source
        result = onnx.NodeProto()
        result.CopyFrom(source)
        for attribute in result.attribute:
            graph = node.attrs.get(attribute.name)
            if attribute.type == onnx.AttributeProto.GRAPH and isinstance(graph, gs.Graph):
                attribute.g.CopyFrom(self._close_graph(graph, self.subgraph_protos[id(graph)]))
        return result

    def _close_tensors(self, result: onnx.GraphProto, graph: gs.Graph, source: onnx.GraphProto) -> None:
        used = _names_used(result)
        known = {tensor.name for tensor in source.initializer}
        result.initializer.extend(tensor for tensor in source.initializer if tensor.name in used)
        result.sparse_initializer.extend(source.sparse_initializer)
        result.initializer.extend(_new_initializers(graph, self.protos, known))
        produced = {name for node in result.node for name in node.output}
        result.value_info.extend(value for value in source.value_info if value.name in produced)


def open_model(model: onnx.ModelProto, folder: Path | None) -> Surgery:
    """Open ``model`` for surgery. External tensors are read from ``folder``, and only when a value is asked for."""
    surgery = Surgery(model, folder, _imported(model))
    _pair(surgery, surgery.graph, model.graph)
    return surgery


def _imported(model: onnx.ModelProto) -> gs.Graph:
    """``model`` as graphsurgeon sees it, which decodes string attributes: some hold anything, as a serialised configuration.

    Nodes that are not replaced are written as they were read.
    """
    try:
        return gs.import_onnx(model)
    except UnicodeDecodeError:
        pass
    attributes = [attribute for node in all_nodes(model) for attribute in node.attribute]
    single = [(attribute, attribute.s) for attribute in attributes if attribute.s]
    lists = [(attribute, list(attribute.strings)) for attribute in attributes if attribute.strings]
    try:
        for attribute, value in single:
            attribute.s = _as_text(value)
        for attribute, values in lists:
            attribute.strings[:] = map(_as_text, values)
        return gs.import_onnx(model)
    finally:
        for attribute, value in single:
            attribute.s = value
        for attribute, values in lists:
            attribute.strings[:] = values


def _as_text(value: bytes) -> bytes:
    return value.decode(errors="replace").encode()


def _pair(surgery: Surgery, graph: gs.Graph, source: onnx.GraphProto) -> None:
    """Remember which protobuf each graphsurgeon node and subgraph was made from."""
    surgery.subgraph_protos[id(graph)] = source
    for node, proto in zip(graph.nodes, source.node, strict=True):
        surgery.protos[id(node)] = proto
        surgery.originals.append(node)
        for attribute in proto.attribute:
            inner = node.attrs.get(attribute.name)
            if attribute.type == onnx.AttributeProto.GRAPH and isinstance(inner, gs.Graph):
                _pair(surgery, inner, attribute.g)


def _without_graph(model: onnx.ModelProto) -> onnx.ModelProto:
    result = onnx.ModelProto()
    for descriptor, value in model.ListFields():
        if descriptor.name == "graph":
            continue
        _copy_field(result, descriptor.name, value)
    return result


def _without_lists(graph: onnx.GraphProto) -> onnx.GraphProto:
    """The graph's name, documentation, metadata and annotations, without nodes, tensors and values."""
    result = onnx.GraphProto()
    for descriptor, value in graph.ListFields():
        if descriptor.name in ("node", "initializer", "sparse_initializer", "input", "output", "value_info"):
            continue
        _copy_field(result, descriptor.name, value)
    return result


def _copy_field(target: Any, name: str, value: Any) -> None:
    try:
        setattr(target, name, value)
    except AttributeError:
        getattr(target, name).extend(value)


def _names_used(graph: onnx.GraphProto) -> set[str]:
    """Names that nodes, nested nodes and outputs of ``graph`` read."""
    used = {value.name for value in graph.output}
    for node in graph.node:
        used.update(node.input)
        for inner in subgraphs(node):
            used |= _names_used(inner)
    return used


def _new_initializers(graph: gs.Graph, protos: dict[int, onnx.NodeProto], known: set[str]) -> list[onnx.TensorProto]:
    """Constants that nodes added to ``graph`` brought along."""
    found: dict[str, onnx.TensorProto] = {}
    for node in graph.nodes:
        if id(node) in protos:
            continue
        for tensor in node.inputs:
            if not isinstance(tensor, gs.Constant) or tensor.name in known or tensor.name in found:
                continue
            if isinstance(tensor._values, np.ndarray):
                # graphsurgeon does not pack the types of 4 bits.
                found[tensor.name] = numpy_helper.from_array(tensor._values, tensor.name)
            elif isinstance(tensor._values, ShelvedValues):
                found[tensor.name] = tensor._values.tensor
    return list(found.values())


def _constant_node_value(node: onnx.NodeProto, folder: Path | None) -> np.ndarray | None:
    """The value of a ``Constant`` node, whichever of its attributes holds it; None for strings and sparse tensors."""
    if not node.attribute:
        raise ModelError("a Constant node holds no value", f"node {node.name or node.output[0]}", "export the model again")
    attribute = node.attribute[0]
    readers = {
        "value": lambda: tensor_array(attribute.t, folder),
        "value_float": lambda: np.asarray(attribute.f, dtype=np.float32),
        "value_floats": lambda: np.asarray(attribute.floats, dtype=np.float32),
        "value_int": lambda: np.asarray(attribute.i, dtype=np.int64),
        "value_ints": lambda: np.asarray(attribute.ints, dtype=np.int64),
    }
    reader = readers.get(attribute.name)
    return None if reader is None else np.asarray(reader())
