"""Copies of a model without its large tensors, for tools that need no weights."""

from __future__ import annotations

import math

import onnx

from trtnorm_cli.onnx_model.domains import default_opset
from trtnorm_cli.onnx_model.stored import bring_in, external_tensors, is_external, is_own_reference, raw_length, tensor_bytes
from trtnorm_cli.onnx_model.walk import all_nodes, may_hold_graphs, subgraphs

# Initializers with more elements cannot be shape arithmetic; their bytes are withheld, so that a model of any size passes.
SHAPE_ELEMENTS = 1024
# From this opset on Constant can hold a sparse tensor, and so stand for one of any size.
SPARSE_CONSTANTS_SINCE = 11
_WIDEST_ELEMENT = 16


def light_copy(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which large and external initializers are inputs of the same type, so that it has no large data."""
    light = onnx.ModelProto()
    light.ir_version = max(model.ir_version, 4)
    light.opset_import.extend(model.opset_import)
    light.functions.extend(model.functions)
    heavy = {tensor.name for tensor in model.graph.initializer if is_heavy(tensor)}
    graph = light.graph
    graph.name = model.graph.name or "graph"
    graph.node.extend(model.graph.node)
    graph.output.extend(model.graph.output)
    graph.value_info.extend(model.graph.value_info)
    graph.input.extend(value for value in model.graph.input if value.name not in heavy)
    for tensor in model.graph.initializer:
        if tensor.name in heavy:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
        else:
            graph.initializer.append(tensor)
    empty_inner_tensors(light)
    return light


def is_heavy(tensor: onnx.TensorProto) -> bool:
    """True for an initializer that a light copy does without."""
    return math.prod(tensor.dims) > SHAPE_ELEMENTS or is_external(tensor)


def empty_inner_tensors(light: onnx.ModelProto) -> None:
    """Let nodes, subgraphs and functions do without the tensors that are in files, in place."""
    if default_opset(light.opset_import) < SPARSE_CONSTANTS_SINCE:
        return
    for node in all_nodes(light):
        if node.op_type == "Constant":
            _empty_constant(node)
        elif may_hold_graphs(node):
            for graph in subgraphs(node):
                _make_nodes_of_external_initializers(graph)


def _empty_constant(node: onnx.NodeProto) -> None:
    if len(node.attribute) == 1 and is_external(node.attribute[0].t):
        attribute = node.attribute[0]
        attribute.CopyFrom(onnx.helper.make_attribute("sparse_value", _without_values(attribute.t)))


def _make_nodes_of_external_initializers(graph: onnx.GraphProto) -> None:
    held = [tensor for tensor in graph.initializer if not is_external(tensor)]
    if len(held) == len(graph.initializer):
        return
    for tensor in graph.initializer:
        if is_external(tensor):
            graph.node.insert(0, onnx.helper.make_node("Constant", [], [tensor.name], sparse_value=_without_values(tensor)))
    copies = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in held]
    del graph.initializer[:]
    graph.initializer.extend(copies)


def _without_values(tensor: onnx.TensorProto) -> onnx.SparseTensorProto:
    """A sparse tensor of the same type and shape, which needs no bytes."""
    empty = onnx.SparseTensorProto(dims=tensor.dims)
    empty.values.CopyFrom(onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=[0]))
    empty.indices.CopyFrom(onnx.TensorProto(data_type=onnx.TensorProto.INT64, dims=[0]))
    return empty


def with_stand_ins(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with a single zero in the place of each tensor that stayed in the model's own file.

    For the ONNX checker without inference: it asks of a tensor whether it has as many bytes as its shape needs. Those that
    have not are left whole, so that the checker says it.
    """
    if not any(map(is_own_reference, external_tensors(model))):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for tensor in filter(is_own_reference, list(external_tensors(copy))):
        if raw_length(tensor) != tensor_bytes(tensor):
            bring_in(tensor, None)
            continue
        del tensor.dims[:], tensor.external_data[:]
        tensor.dims.append(1)
        tensor.raw_data = bytes(_WIDEST_ELEMENT)
        tensor.ClearField("data_location")
    return copy
