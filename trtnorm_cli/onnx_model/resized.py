"""Scales of a Resize by which ONNX's shape inference gets other sizes than runtimes.

The specification has scales in float32, and runtimes multiply in it: 224 pixels times 225 / 224, rounded, are 225. ONNX
multiplies in double, where they are a little less and become 224. ONNX Runtime does not run a model that says so. With the next
larger scale both get 225, which is for the inference alone.
"""

from __future__ import annotations

import numpy as np
import onnx

from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS, default_opset

_SCALES_SECOND_UNTIL = 10
# No image grows as much. What is infinite or NaN says nothing.
_LARGEST_SCALE = 1e6
_MARK = "trtnorm.scales"


def with_scales_for_inference(model: onnx.ModelProto, known: onnx.ModelProto) -> onnx.ModelProto | None:
    """A copy of ``model`` in which ONNX infers the sizes that runtimes get; None where it does already.

    ``known`` is the model with the types that are known of it. Nodes of the main graph are looked at.
    """
    types = {value.name: value.type for value in (*known.graph.value_info, *known.graph.input, *known.graph.output)}
    found: dict[int, np.ndarray] = {}
    for number, node in enumerate(model.graph.node):
        if node.op_type not in ("Resize", "Upsample") or node.domain not in DEFAULT_DOMAINS:
            continue
        scales, kind = _scales(node, model), types.get(node.input[0])
        if scales is None or kind is None or not np.all((scales > 0) & (scales < _LARGEST_SCALE)):
            continue
        larger = _larger(scales, [dim.dim_value for dim in kind.tensor_type.shape.dim])
        if larger is not None:
            found[number] = larger
    if not found:
        return None
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for number, scales in found.items():
        # A node gets further scales where its own input turns out larger, each under a name of its own.
        node, name = copy.graph.node[number], f"{_MARK}/{len(copy.graph.initializer)}"
        stated = next((attribute for attribute in node.attribute if attribute.name == "scales"), None)
        if stated is not None:
            stated.floats[:] = scales.tolist()
        else:
            node.input[_place_of_scales(node, model)] = name
            copy.graph.initializer.append(onnx.numpy_helper.from_array(scales, name))
    return copy


def _larger(scales: np.ndarray, sizes: list[int]) -> np.ndarray | None:
    """The next larger scales where float32 gets more than double of the known ``sizes``; None where it does nowhere."""
    if len(sizes) != len(scales):
        return None
    larger = scales.copy()
    for place, (size, scale) in enumerate(zip(sizes, scales, strict=True)):
        if size > 0 and np.floor(np.float32(size) * scale) > np.floor(float(scale) * size):
            larger[place] = np.nextafter(scale, np.float32(np.inf))
    return None if np.array_equal(larger, scales) else larger


def _scales(node: onnx.NodeProto, model: onnx.ModelProto) -> np.ndarray | None:
    """The constant scales of ``node``, one for each axis; None where it has none, or sizes."""
    attributes = {attribute.name: attribute for attribute in node.attribute}
    if "scales" in attributes:
        return np.array(attributes["scales"].floats, np.float32)
    place = _place_of_scales(node, model)
    name = node.input[place] if len(node.input) > place else ""
    if not name or "axes" in attributes or any(node.input[3:]):
        return None
    held = [tensor for tensor in model.graph.initializer if tensor.name == name]
    held += [a.t for each in model.graph.node if each.op_type == "Constant" and each.output[0] == name for a in each.attribute]
    is_read = bool(held) and held[0].data_type == onnx.TensorProto.FLOAT and not held[0].external_data
    return onnx.numpy_helper.to_array(held[0]) if is_read else None


def _place_of_scales(node: onnx.NodeProto, model: onnx.ModelProto) -> int:
    return 1 if node.op_type == "Upsample" or default_opset(model.opset_import) <= _SCALES_SECOND_UNTIL else 2
