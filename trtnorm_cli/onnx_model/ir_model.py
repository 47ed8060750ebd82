"""A protobuf model opened with onnx-ir, without a second copy of its weights, and closed again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from trtnorm_cli.errors import ModelError

# Larger tensors stay in the source; smaller ones are cheap to copy.
_WITHHELD_BYTES = 1 << 16
# External tensors up to this size are read: shape inference and folding need them, and they are cheap.
_READ_BYTES = 1 << 10


class WithheldTensor(ir.serde.TensorProtoTensor):
    """A tensor of the source model. It is read in place, and serialises as a stub without data."""

    def __init__(self, source: onnx.TensorProto) -> None:
        super().__init__(onnx.TensorProto(name=source.name, data_type=source.data_type, dims=source.dims))
        self.source = source

    def numpy(self) -> np.ndarray:
        return ir.serde.TensorProtoTensor(self.source).numpy()

    def tobytes(self) -> bytes:
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
    large = {tensor.name: tensor for tensor in source.graph.initializer if tensor.ByteSize() > _WITHHELD_BYTES}
    model = ir.serde.deserialize_model(_working_copy(source, set(large)))
    for name, tensor in large.items():
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            model.graph.initializers[name].const_value = WithheldTensor(tensor)
    _connect_external_data(model, base_dir)
    declared = {value: (value.type, value.shape) for value in _values(model.graph)}
    unnamed = frozenset(node for node in model.graph.all_nodes() if not node.name)
    return IrModel(source, model, declared, unnamed)


def close_ir(opened: IrModel, shapes: dict[ir.Value, ir.Shape]) -> onnx.ModelProto:
    """The working copy as a protobuf model in which withheld tensors are stubs (see ``IrModel.filled``).

    It states the ``shapes``, and for other tensors what the source stated.
    """
    for value in _values(opened.model.graph):
        kind, shape = opened.declared.get(value, (value.type, None))
        value.type, value.shape = kind or value.type, shapes.get(value, shape)
    for node in opened.model.graph.all_nodes():
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
        if tensor.name in large and tensor.data_location != onnx.TensorProto.EXTERNAL:
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


def _connect_external_data(model: ir.Model, base_dir: Path | None) -> None:
    if base_dir is not None:
        ir.external_data.set_base_dir(model.graph, base_dir)
    for graph in model.graphs():
        for value in graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                value.const_value = _external(value.const_value)
    for node in model.graph.all_nodes():
        for attribute in node.attributes.values():
            if isinstance(attribute.value, ir.ExternalTensor):
                _external(attribute.value)  # for its check; the value of a Constant stays where it is


def _external(tensor: ir.ExternalTensor) -> ir.TensorProtocol:
    if not Path(tensor.path).is_file():
        raise ModelError(
            f"the external data file {tensor.location} is missing",
            f"tensor {tensor.name}",
            "a model with external data is two files: copy both",
        )
    if tensor.nbytes > _READ_BYTES:
        return tensor
    return ir.Tensor(tensor.numpy().copy(), dtype=tensor.dtype, shape=tensor.shape, name=tensor.name)


def _values(graph: ir.Graph) -> list[ir.Value]:
    """Inputs and node outputs of ``graph`` and its subgraphs."""
    found = [*graph.inputs, *(value for inner in graph.subgraphs() for value in inner.inputs)]
    return found + [value for node in graph.all_nodes() for value in node.outputs]
