"""Inputs that choose a branch, such as a sampling rate or a flag. One engine serves one choice."""

from __future__ import annotations

import onnx

from trtnorm_cli.onnx_model.shapes import model_inputs
from trtnorm_cli.onnx_model.walk import all_nodes

_COMPARISONS = frozenset({"Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"})
_LOGIC = frozenset({"Not", "And", "Or", "Xor"})
# With one element there is one to take.
_KEEP = frozenset(
    {"Cast", "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Gather", "Slice", "ReduceMax", "ReduceMin"}
)
_TYPES = (onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.BOOL)


def deciding_inputs(model: onnx.ModelProto) -> dict[str, int]:
    """Inputs of one integer or flag on which the condition of an If depends, each with a value to begin with.

    That is a number with which the model compares it, else 1, and false for a flag.
    """
    conditions = {node.input[0] for node in all_nodes(model) if node.op_type == "If" and node.input}
    constants = _single_constants(model)
    found = {}
    for name, kind in model_inputs(model).items():
        if kind.dtype in _TYPES and kind.shape in ((), (1,)):
            reached, compared = _followed(model, name, constants)
            if reached & conditions:
                found[name] = next(iter(compared), 0 if kind.dtype == onnx.TensorProto.BOOL else 1)
    return found


def _followed(model: onnx.ModelProto, name: str, constants: dict[str, int]) -> tuple[set[str], list[int]]:
    """The conditions that are computed from the input ``name``, and the numbers that it is compared with on the way."""
    reached, compared = {name}, []
    for node in model.graph.node:
        if reached.isdisjoint(node.input) or node.op_type not in _COMPARISONS | _LOGIC | _KEEP:
            continue
        reached.update(node.output)
        if node.op_type in _COMPARISONS:
            compared += [constants[other] for other in node.input if other in constants]
    return reached, compared


def _single_constants(model: onnx.ModelProto) -> dict[str, int]:
    """The stored integers of one element, by name."""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    tensors |= {
        node.output[0]: attribute.t
        for node in model.graph.node
        for attribute in node.attribute
        if node.op_type == "Constant" and attribute.name == "value"
    }
    return {
        name: int(onnx.numpy_helper.to_array(tensor).reshape(-1)[0])
        for name, tensor in tensors.items()
        if tensor.data_type in _TYPES and list(tensor.dims) in ([], [1]) and tensor.data_location != onnx.TensorProto.EXTERNAL
    }
