"""Biases of convolutions that are no vectors of one value a channel.

PyTorch's dynamo exporter writes the missing bias of a Conv3d as zeros of shape [channels, batch], which ONNX Runtime and
TensorRT refuse. A bias can only mean one value for each output channel, so one that repeats a single value, or has another
rank and as many values as there are channels, has one meaning. A vector of another length has none.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx_ir as ir

from trtnorm_cli.onnx_model.ir_walk import every_node


def make_biases_vectors(model: ir.Model, counts: Counter[str]) -> None:
    """Replace biases of another shape than [channels] where that has one meaning; others stay as they are."""
    for node in list(every_node(model.graph)):
        if node.op_type in ("Conv", "ConvTranspose") and node.domain == "" and len(node.inputs) > 2:
            vector = _vector(node)
            if vector is not None:
                _replace(node, vector)
                counts["biases of convolutions made vectors"] += 1


def _vector(node: ir.Node) -> np.ndarray | None:
    """The bias as a vector; None where it is one already, or what it means is not known."""
    bias, channels = node.inputs[2], _channels(node)
    values = None if bias is None else _values(bias)
    if values is None or channels is None or values.size == 0:
        return None
    if values.ndim == 1 and (values.size > 1 or channels == 1):
        return None
    if values.size == channels:
        return values.reshape(channels)
    if bool((values == values.flat[0]).all()):
        return np.full(channels, values.flat[0], values.dtype)
    return None


def _values(bias: ir.Value) -> np.ndarray | None:
    """The constant, or the one value that an Expand to a shape known at run time repeats."""
    producer = bias.producer()
    if producer is not None and producer.op_type == "Expand" and producer.domain == "" and producer.inputs[0] is not None:
        repeated = producer.inputs[0].const_value
        return repeated.numpy().reshape(1) if repeated is not None and repeated.size == 1 else None
    return None if bias.const_value is None else bias.const_value.numpy()


def _channels(node: ir.Node) -> int | None:
    weight = node.inputs[1]
    shape = None if weight is None else weight.shape if weight.const_value is None else weight.const_value.shape
    if shape is None or len(shape) < 2:
        return None
    group = node.attributes.get("group")
    size, factor = (shape[0], 1) if node.op_type == "Conv" else (shape[1], 1 if group is None else group.as_int())
    return size * factor if isinstance(size, int) else None


def _replace(node: ir.Node, vector: np.ndarray) -> None:
    graph, bias = node.graph, node.inputs[2]
    assert isinstance(graph, ir.Graph)
    assert bias is not None
    tensor = ir.tensor(vector)
    value = ir.Value(name=_free_name(graph, f"{bias.name}_vector"), const_value=tensor, type=ir.TensorType(tensor.dtype))
    value.shape = ir.Shape(vector.shape)
    graph.register_initializer(value)
    node.replace_input_with(2, value)


def _free_name(graph: ir.Graph, name: str) -> str:
    taken = {value.name for node in every_node(graph) for value in node.outputs} | set(graph.initializers)
    number = 0
    while (f"{name}_{number}" if number else name) in taken:
        number += 1
    return f"{name}_{number}" if number else name
