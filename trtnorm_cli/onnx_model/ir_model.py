"""A protobuf model opened with onnx-ir, without a second copy of its weights, and closed again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from trtnorm_cli.errors import ModelError
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.ir_walk import every_graph, every_node
from trtnorm_cli.onnx_model.stored import (
    external_entries,
    external_tensors,
    file_part,
    is_external,
    is_own_reference,
    raw_length,
    read_part,
    tensor_array,
)

# Larger tensors stay in the source; smaller ones are cheap to copy.
_WITHHELD_BYTES = 1 << 16
# External tensors up to this size are read: shape inference and folding need them, and they are cheap.
_READ_BYTES = 1 << 10


class WithheldTensor(ir.serde.TensorProtoTensor):
    """A tensor of the source model, read only when its value is asked for.

    One in a file serialises as the reference that it is, another as a stub without data.
    """

    def __init__(self, source: onnx.TensorProto, folder: Path | None) -> None:
        stub = onnx.TensorProto(name=source.name, data_type=source.data_type, dims=source.dims)
        if is_external(source):
            stub.CopyFrom(source)
        super().__init__(stub)
        self.source, self.folder = source, folder

    def numpy(self) -> np.ndarray:
        if is_external(self.source):
            return tensor_array(self.source, self.folder)
        return ir.serde.TensorProtoTensor(self.source).numpy()

    def tobytes(self) -> bytes:
        if is_external(self.source):
            return read_part(file_part(self.source, self.folder), self.name).tobytes()
        return ir.serde.TensorProtoTensor(self.source).tobytes()


@dataclass(frozen=True)
class IrModel:
    """``model`` is a working copy of ``source`` that shares its large tensors; ``source`` is never changed.

    ``declared`` is what the file says of each tensor, and ``unnamed`` are the nodes that had no name.
    """

    source: onnx.ModelProto
    model: ir.Model
    declared: dict[ir.Value, tuple[Any, ir.Shape | None]]
    unnamed: frozenset[ir.Node]

    def filled(self, closed: onnx.ModelProto) -> onnx.ModelProto:
        """``closed``, changed in place: the stubs of withheld tensors replaced by the tensors."""
        held = self.model.graph.initializers
        for tensor in closed.graph.initializer:
            value = held[tensor.name].const_value
            if isinstance(value, WithheldTensor):
                name = tensor.name
                tensor.CopyFrom(value.source)
                tensor.name = name
        return closed


def open_ir(source: onnx.ModelProto, base_dir: Path | None) -> IrModel:
    """Open ``source``; external tensors are relative to ``base_dir``. Raises ``ModelError`` when one is missing."""
    large = {tensor.name: tensor for tensor in source.graph.initializer if _is_withheld(tensor)}
    try:
        model = ir.serde.deserialize_model(_working_copy(source, set(large)))
    except ir.serde.SerdeError as error:
        raise ModelError(f"the model's graph cannot be read: {_root(error)}", None, "export the model again") from error
    for name, tensor in large.items():
        _require_its_file(tensor, base_dir)
        model.graph.initializers[name].const_value = WithheldTensor(tensor, base_dir)
    _connect_external_data(model, base_dir, _own_references(source))
    declared = {value: (value.type, value.shape) for value in _values(model.graph)}
    unnamed = frozenset(node for node in every_node(model.graph) if not node.name)
    return IrModel(source, model, declared, unnamed)


def _root(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error) or type(error).__name__


def close_ir(opened: IrModel, shapes: dict[ir.Value, ir.Shape]) -> onnx.ModelProto:
    """The working copy as a protobuf model in which withheld tensors are stubs (see ``IrModel.filled``).

    It states the ``shapes``, and for other tensors what the source stated.
    """
    for value in _values(opened.model.graph):
        kind, shape = opened.declared.get(value, (value.type, None))
        value.type, value.shape = kind or value.type, shapes.get(value, shape)
    for node in every_node(opened.model.graph):
        if node in opened.unnamed:
            node.name = None
    closed = ir.serde.serialize_model(opened.model)
    del closed.graph.input[:], closed.graph.output[:]
    closed.graph.input.extend(_fed_inputs(opened.source))
    closed.graph.output.extend(opened.source.graph.output)
    return closed


def _fed_inputs(source: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    initializers = {tensor.name for tensor in source.graph.initializer}
    return [value for value in source.graph.input if value.name not in initializers]


def _working_copy(source: onnx.ModelProto, large: set[str]) -> onnx.ModelProto:
    """A copy with stubs for the ``large`` initializers, none of them inputs, and one name for the default domain."""
    copy = onnx.ModelProto()
    _copy_fields(source, copy, leave_out=("graph",))
    _copy_fields(source.graph, copy.graph, leave_out=("initializer", "input"))
    copy.graph.input.extend(_fed_inputs(source))
    for tensor in source.graph.initializer:
        if tensor.name in large:
            copy.graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        else:
            copy.graph.initializer.append(tensor)
    # Before version 4 every initializer had to be an input.
    copy.ir_version = max(source.ir_version, 4)
    for entry in copy.opset_import:
        entry.domain = "" if entry.domain == "ai.onnx" else entry.domain
    return copy


def _copy_fields(source: Any, target: Any, leave_out: tuple[str, ...]) -> None:
    for descriptor, value in source.ListFields():
        if descriptor.name in leave_out:
            continue
        try:
            setattr(target, descriptor.name, value)
        except AttributeError:  # a repeated field
            getattr(target, descriptor.name).extend(value)


def _is_withheld(tensor: onnx.TensorProto) -> bool:
    return raw_length(tensor) > _READ_BYTES if is_external(tensor) else tensor.ByteSize() > _WITHHELD_BYTES


Place = tuple[str, int | None]


def _own_references(source: onnx.ModelProto) -> dict[Place, onnx.TensorProto]:
    """The tensors that stayed in the model's file, by where they are: onnx-ir does not keep that it is this file."""
    own = filter(is_own_reference, external_tensors(source))
    return {(file_part(tensor, None).file.name, file_part(tensor, None).offset): tensor for tensor in own}


def _connect_external_data(model: ir.Model, base_dir: Path | None, own: Mapping[Place, onnx.TensorProto]) -> None:
    """Let the external tensors of subgraphs and nodes, and small ones, be read from ``base_dir``."""
    for graph in model.graphs():
        for value in graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                value.const_value = _connected(value.const_value, base_dir, own)
    for owner in (model.graph, *model.functions.values()):
        for node in every_node(owner):
            for attribute in list(node.attributes.values()):
                if isinstance(attribute.value, ir.ExternalTensor):
                    tensor = _connected(attribute.value, base_dir, own)
                    node.attributes[attribute.name] = ir.Attr(attribute.name, attribute.type, tensor, attribute.doc_string)


def _connected(tensor: ir.ExternalTensor, base_dir: Path | None, own: Mapping[Place, onnx.TensorProto]) -> ir.TensorProtocol:
    source = onnx.TensorProto()
    ir.serde.serialize_tensor_into(source, tensor)
    if (kept := own.get((str(tensor.location), tensor.offset))) is not None:
        source.CopyFrom(kept)
    _require_its_file(source, base_dir)
    if tensor.nbytes > _READ_BYTES:
        return WithheldTensor(source, base_dir)
    return ir.Tensor(tensor_array(source, base_dir), dtype=tensor.dtype, shape=tensor.shape, name=tensor.name)


def _require_its_file(tensor: onnx.TensorProto, base_dir: Path | None) -> None:
    if is_external(tensor) and not file_part(tensor, base_dir).file.is_file():
        raise ModelError(
            f"the external data file {external_entries(tensor).get('location')} is missing",
            f"tensor {tensor.name}",
            "a model with external data is two files: copy both",
        )


def _values(graph: ir.Graph) -> list[ir.Value]:
    """Inputs and node outputs of ``graph`` and its subgraphs."""
    found = [*graph.inputs, *(value for inner in every_graph(graph)[1:] for value in inner.inputs)]
    return found + [value for node in every_node(graph) for value in node.outputs]
