"""Squeezes of axes that are longer than 1, which take nothing away.

``torch.squeeze(x, axis)`` leaves an axis alone that is not 1 long. PyTorch's dynamo exporter writes a Squeeze all the same,
which no runtime takes, beside the shapes that PyTorch made. Only where these keep the axis is it known what was meant.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import numpy_helper

from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.names import free_name
from trtnorm_cli.onnx_model.walk import all_graphs

Shape = tuple[int | None, ...]


def keep_long_axes(model: onnx.ModelProto) -> list[str]:
    """Keep axes that are known to be longer than 1 where the file's own shapes keep them."""
    mended = []
    for graph in all_graphs(model.graph):
        squeezes = [node for node in graph.node if node.op_type == "Squeeze" and node.domain in DEFAULT_DOMAINS]
        if not squeezes:
            continue
        shapes, vectors = _stated_shapes(graph), _vectors(graph)
        for node in squeezes:
            axes = _axes(node, vectors)
            kept = None if axes is None else _left_to_remove(node, axes, shapes)
            if kept is not None:
                mended.append(node.name or node.output[0])
                _remove_only(graph, node, kept)
    return mended


def _stated_shapes(graph: onnx.GraphProto) -> dict[str, Shape]:
    stated = (value for values in (graph.input, graph.value_info, graph.output) for value in values)
    return {
        value.name: tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in value.type.tensor_type.shape.dim)
        for value in stated
        if value.type.tensor_type.HasField("shape")
    }


def _vectors(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """The constants of ``graph`` that can be axes."""
    held = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and len(node.attribute) == 1 and node.attribute[0].name == "value":
            held[node.output[0]] = node.attribute[0].t
    return {
        name: tensor
        for name, tensor in held.items()
        if tensor.data_type == onnx.TensorProto.INT64 and tensor.data_location != onnx.TensorProto.EXTERNAL
    }


def _axes(node: onnx.NodeProto, vectors: Mapping[str, onnx.TensorProto]) -> list[int] | None:
    """The axes that ``node`` names; None where it names none, or they are computed."""
    for attribute in node.attribute:
        if attribute.name == "axes":
            return list(attribute.ints)
    tensor = vectors.get(node.input[1]) if len(node.input) > 1 else None
    return None if tensor is None else [int(axis) for axis in numpy_helper.to_array(tensor).reshape(-1)]


def _left_to_remove(node: onnx.NodeProto, axes: list[int], shapes: Mapping[str, Shape]) -> list[int] | None:
    """The axes that go, where others stay by the shapes of the file; None where the node is as it should be."""
    source, made = shapes.get(node.input[0]), shapes.get(node.output[0])
    if source is None or made is None or not all(-len(source) <= axis < len(source) for axis in axes):
        return None
    going = [axis for axis in axes if source[axis] in (None, 1)]
    return going if len(going) < len(axes) and len(made) == len(source) - len(going) else None


def _remove_only(graph: onnx.GraphProto, node: onnx.NodeProto, axes: list[int]) -> None:
    named_by_input = not any(attribute.name == "axes" for attribute in node.attribute)
    del node.attribute[:]
    if not axes:
        node.op_type = "Identity"
        del node.input[1:]
    elif named_by_input:
        taken = {tensor.name for tensor in graph.initializer} | {name for each in graph.node for name in each.output}
        name = free_name(f"{node.input[1]}_kept", taken)
        graph.initializer.append(onnx.helper.make_tensor(name, onnx.TensorProto.INT64, [len(axes)], axes))
        node.input[1] = name
    else:
        node.attribute.append(onnx.helper.make_attribute("axes", axes))
