"""The shapes of operators without a rule of our own, as ONNX infers them node by node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from trtnorm_cli.shapes.expression import Size
from trtnorm_cli.shapes.tensor import UNKNOWN, SymbolicTensor

_INFERENCE_ERRORS = (onnx.shape_inference.InferenceError, onnx.checker.ValidationError)


def infer_with_onnx(
    node: onnx.NodeProto, inputs: Sequence[SymbolicTensor | None], model: onnx.ModelProto
) -> list[SymbolicTensor]:
    """The types that the operator's schema states of its outputs, or nothing where there is none or an input type is unknown.

    A size goes in as a dimension with a made-up name and is known again where it comes out.
    """
    version = next((entry.version for entry in model.opset_import if entry.domain == node.domain), None)
    if version is None or not onnx.defs.has(node.op_type, node.domain):
        return []
    types: dict[str, onnx.TypeProto] = {}
    data: dict[str, onnx.TensorProto] = {}
    sizes: dict[str, Size] = {}
    for name, tensor in zip(node.input, inputs, strict=True):
        if not name:
            continue
        if tensor is None or not tensor.dtype:
            return []
        types[name] = _type(tensor, sizes)
        known = tensor.integers()
        if known is not None and tensor.elements is not None and tensor.dtype in (6, 7):
            array = np.array(known, dtype=np.int64 if tensor.dtype == 7 else np.int32).reshape(tensor.elements.shape)
            data[name] = onnx.numpy_helper.from_array(array, name)
    try:
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
        found = onnx.shape_inference.infer_node_outputs(
            schema, node, types, data, opset_imports=list(model.opset_import), ir_version=max(model.ir_version, 4)
        )
    except (RuntimeError, ValueError, TypeError, onnx.defs.SchemaError, *_INFERENCE_ERRORS):
        return []
    return [_tensor(found[name], sizes) if name in found else UNKNOWN for name in node.output]


def _type(tensor: SymbolicTensor, sizes: dict[str, Size]) -> onnx.TypeProto:
    if tensor.shape is None:
        return onnx.helper.make_tensor_type_proto(tensor.dtype, None)
    dims: list[int | str | None] = []
    for size in tensor.shape:
        if size is None or isinstance(size, int):
            dims.append(size)
        else:
            name = f"trtnorm_{len(sizes)}"
            sizes[name] = size
            dims.append(next((known for known, value in sizes.items() if value == size), name))
    return onnx.helper.make_tensor_type_proto(tensor.dtype, dims)


def _tensor(kind: onnx.TypeProto, sizes: dict[str, Size]) -> SymbolicTensor:
    if not kind.HasField("tensor_type"):
        return UNKNOWN
    tensor = kind.tensor_type
    if not tensor.HasField("shape"):
        return SymbolicTensor(tensor.elem_type)
    return SymbolicTensor(tensor.elem_type, tuple(_size(dim, sizes) for dim in tensor.shape.dim))


def _size(dim: onnx.TensorShapeProto.Dimension, sizes: dict[str, Size]) -> Size | None:
    return int(dim.dim_value) if dim.HasField("dim_value") else sizes.get(dim.dim_param)
