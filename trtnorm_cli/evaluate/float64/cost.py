"""What a node or a model will cost, from shapes, before it is evaluated."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import onnx

from trtnorm_cli.evaluate.float64.kernels.call import Call
from trtnorm_cli.evaluate.float64.kernels.windows import windows_of

MULTIPLY_ADDS_PER_SECOND = 5e9
"""Two slow cores; a faster machine only means that the budget is guarded with some reserve."""


def predicted_seconds(call: Call) -> float:
    return multiply_adds(call) / MULTIPLY_ADDS_PER_SECOND


def multiply_adds(call: Call) -> float:
    """Of the operators that multiply matrices; others cost little more than their elements."""
    if call.op_type in ("Conv", "ConvTranspose", "DeformConv"):
        return _convolution(call)
    if call.op_type == "MatMul":
        a, b = call.inputs
        return a.size * (b.shape[-1] if b.ndim > 1 else 1) * _batches(a, b)
    if call.op_type == "Gemm":
        return call.x.size * call.inputs[1].size / max(call.x.shape[0 if call["transA"] else 1], 1)
    return 0.0


def _convolution(call: Call) -> float:
    x, weight = call.inputs[:2]
    if call.op_type == "ConvTranspose":
        return x.shape[0] * math.prod(x.shape[2:]) * weight.size
    output = windows_of(call, x.shape[2:], weight.shape[2:]).output
    return x.shape[0] * math.prod(output) * weight.size


def _batches(a: object, b: object) -> float:
    """How often ``a`` is used again by the broadcasting of a batch of ``b``."""
    batch_a, batch_b = math.prod(a.shape[:-2]), math.prod(b.shape[:-2])  # type: ignore[attr-defined]
    return max(batch_b / max(batch_a, 1), 1.0)


SMALL_ELEMENTS = 1024


def estimate_multiply_adds(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> float:
    """Multiply-adds of the convolutions and matrix products of the main graph for inputs of these ``shapes``.

    Twice the number is what is called FLOPs. A node whose shape cannot be inferred counts nothing, so this is a lower
    bound; divided by :data:`MULTIPLY_ADDS_PER_SECOND` it is a guess of the seconds that a float64 reference takes.
    """
    known = _inferred_shapes(model, shapes)
    return sum(_of_node(node, known) for node in model.graph.node)


def _of_node(node: onnx.NodeProto, known: Mapping[str, list[int]]) -> float:
    if node.op_type not in ("Conv", "ConvTranspose", "DeformConv", "Gemm", "MatMul") or node.output[0] not in known:
        return 0.0
    x, weight = (known.get(name) for name in node.input[:2])
    output = known[node.output[0]]
    if x is None or weight is None:
        return 0.0
    if node.op_type == "ConvTranspose":
        return math.prod(x[2:]) * x[0] * math.prod(weight)
    if node.op_type in ("Conv", "DeformConv"):
        return output[0] * math.prod(output[2:]) * math.prod(weight)
    transposed = any(a.name == "transA" and a.i for a in node.attribute)
    return math.prod(output) * (x[0] if transposed else x[-1])


def _inferred_shapes(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    """Fully known shapes by name; large weights take part with their shapes only, because protobuf ends at 2 GiB."""
    slim = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
    slim.graph.name = "g"
    slim.graph.node.extend(model.graph.node)
    slim.graph.output.extend(model.graph.output)
    large = [tensor for tensor in model.graph.initializer if math.prod(tensor.dims) > SMALL_ELEMENTS]
    slim.graph.initializer.extend(t for t in model.graph.initializer if math.prod(t.dims) <= SMALL_ELEMENTS)
    for value in model.graph.input:
        declared = value.type.tensor_type.elem_type
        shape = shapes.get(value.name)
        known = onnx.helper.make_tensor_value_info(value.name, declared, shape) if shape is not None else value
        slim.graph.input.append(known)
    present = {value.name for value in slim.graph.input}
    slim.graph.input.extend(
        onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in large if t.name not in present
    )
    graph = onnx.shape_inference.infer_shapes(slim, data_prop=True).graph
    found = {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        shape = value.type.tensor_type.shape
        if value.type.tensor_type.HasField("shape") and all(d.HasField("dim_value") for d in shape.dim):
            found.setdefault(value.name, [d.dim_value for d in shape.dim])
    return found
