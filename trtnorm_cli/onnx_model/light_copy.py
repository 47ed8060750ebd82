"""Copies of a model without its large tensors, for tools that need no weights."""

from __future__ import annotations

import math

import onnx

# Initializers with more elements cannot be shape arithmetic; their bytes are withheld, so that a model of any size passes.
_SHAPE_ELEMENTS = 1024


def light_copy(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which large and external initializers are inputs of the same type, so that it has no large data."""
    light = onnx.ModelProto()
    light.ir_version = max(model.ir_version, 4)
    light.opset_import.extend(model.opset_import)
    light.functions.extend(model.functions)
    heavy = {tensor.name for tensor in model.graph.initializer if _is_heavy(tensor)}
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
    return light


def _is_heavy(tensor: onnx.TensorProto) -> bool:
    return math.prod(tensor.dims) > _SHAPE_ELEMENTS or tensor.data_location == onnx.TensorProto.EXTERNAL
