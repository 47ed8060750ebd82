"""The sizes of what a Resize by constant scales gives, where ONNX's shape inference says others.

The specification has scales in float32, and runtimes multiply in it: 224 pixels times 225 / 224, rounded, are 225. ONNX
multiplies in double, where they are a little less and become 224. ONNX Runtime does not run a model that says so.
"""

from __future__ import annotations

import numpy as np
import onnx

from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.walk import all_graphs

_RESIZES = frozenset({"Resize", "Upsample"})


def resized_in_float32(model: onnx.ModelProto) -> dict[str, onnx.TypeProto]:
    """The types of such tensors in ``model``, which states those of what is resized, and says what it likes of the results."""
    found: dict[str, onnx.TypeProto] = {}
    for graph in all_graphs(model.graph):
        resizing = [node for node in graph.node if node.op_type in _RESIZES and node.domain in DEFAULT_DOMAINS]
        known = {value.name: value.type for value in (*graph.value_info, *graph.input, *graph.output)} if resizing else {}
        for node in resizing:
            scales, before, said = _scales(node, graph), known.get(node.input[0]), known.get(node.output[0])
            if scales is None or before is None or said is None:
                continue
            kind = onnx.TypeProto()
            kind.CopyFrom(said)
            sizes = (one.tensor_type.shape.dim for one in (before, kind))
            for scale, size, result in zip(scales, *sizes, strict=False):
                product = np.float32(size.dim_value) * scale
                if np.floor(product) != np.floor(float(scale) * size.dim_value):
                    result.dim_value = int(product)
                    found[node.output[0]] = kind
    return found


def _scales(node: onnx.NodeProto, graph: onnx.GraphProto) -> np.ndarray | None:
    """The constant scales of ``node``, one for each axis; None where it has none."""
    attributes = {attribute.name: attribute for attribute in node.attribute}
    if "scales" in attributes:
        return np.array(attributes["scales"].floats, np.float32)
    if "axes" in attributes:
        return None
    # Resize of opset 10 and Upsample have them second, later ones third.
    name = next((each for each in (*node.input[2:3], *node.input[1:2]) if each), "")
    held = [tensor for tensor in graph.initializer if tensor.name == name]
    held += [a.t for each in graph.node if each.op_type == "Constant" and each.output[0] == name for a in each.attribute]
    is_read = name and held and held[0].data_type == onnx.TensorProto.FLOAT and not held[0].external_data
    return onnx.numpy_helper.to_array(held[0]) if is_read else None
