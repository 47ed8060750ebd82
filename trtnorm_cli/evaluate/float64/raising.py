"""A model raised to float64: the exact arithmetic of the function that it describes.

Weights, constants and type annotations of float16, bfloat16 and float32 become float64, and a Cast to one of these
types becomes a Cast to float64, because its rounding is what a reference has to be free of. Integers, booleans, strings
and float8 (whose rounding is quantization, a part of the model) stay. Model-local functions are inlined.

Arithmetic on shapes keeps its type: ``Cast(Shape(x)) · 0.7`` decides in float32 how large a tensor is, and 10 · 0.7f is
7 in float32 and 6.9999999 in float64. Such nodes are copied in their own type for the Cast to an integer that they end
in.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, TypeProto, numpy_helper
from onnx.inliner import inline_local_functions

from trtnorm_cli.evaluate.float64.shape_arithmetic import KEPT, keep_shape_arithmetic
from trtnorm_cli.onnx_model.file_demands import TYPE_ATTRIBUTES
from trtnorm_cli.onnx_model.stored import tensor_array

RAISED = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
DEFAULT_FLOAT = {
    "BlackmanWindow": "output_datatype",
    "HammingWindow": "output_datatype",
    "HannWindow": "output_datatype",
    "MelWeightMatrix": "output_datatype",
    "RandomNormal": "dtype",
    "RandomUniform": "dtype",
    "SequenceEmpty": "dtype",
}
"""Operators whose output is float32 when the attribute is absent."""


class Stored:
    """A floating weight as it is stored. Its numbers are meant in float64, and it is raised where a kernel wants that."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array


def raise_structure(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of ``model`` in float64, without the weights of the main graph.

    The evaluator raises those one by one when it needs them. Only initializers that shape arithmetic needs in their own type
    are there, under new names. Some operators do not allow float64 in ONNX.
    """
    structure = _inlined(_without_weights(model))
    keep_shape_arithmetic(structure.graph, model.graph.initializer)
    _raise_graph(structure.graph)
    del structure.functions[:]
    return structure


def raised_tensor(tensor: TensorProto) -> TensorProto:
    """``tensor`` in float64 where it is float16, bfloat16 or float32, else itself."""
    if tensor.data_type not in RAISED:
        return tensor
    return numpy_helper.from_array(raised_array(tensor_array(tensor)), tensor.name)


def raised_array(array: Any) -> Any:
    """Float16, bfloat16 and float32 as float64; sequences element by element; anything else as it is."""
    if isinstance(array, Stored):
        array = array.array
    if isinstance(array, list):
        return [raised_array(item) for item in array]
    if array is None:
        return None
    array = np.asarray(array)
    return array.astype(np.float64) if array.dtype.name in ("float16", "bfloat16", "float32") else array


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy that shares no large tensor: protobuf cannot copy or serialise more than 2 GiB at once."""
    copy = onnx.ModelProto(ir_version=model.ir_version, graph=GraphProto(name=model.graph.name))
    copy.opset_import.extend(model.opset_import)
    copy.functions.extend(model.functions)
    for field in ("node", "input", "output", "value_info", "sparse_initializer"):
        getattr(copy.graph, field).extend(getattr(model.graph, field))
    return copy


def _inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    if not model.functions:
        return model
    return inline_local_functions(model)


def _raise_graph(graph: GraphProto) -> None:
    for i, tensor in enumerate(graph.initializer):
        if not tensor.name.endswith(KEPT):
            graph.initializer[i].CopyFrom(raised_tensor(tensor))
    for sparse in graph.sparse_initializer:
        sparse.values.CopyFrom(raised_tensor(sparse.values))
    for node in graph.node:
        if not any(name.endswith(KEPT) for name in node.output):
            _raise_node(node)
    for value in (*graph.input, *graph.output, *graph.value_info):
        raise_type(value.type)


def raise_type(kind: TypeProto) -> None:
    """In place, also within sequences and optionals."""
    which = kind.WhichOneof("value")
    if which in ("tensor_type", "sparse_tensor_type"):
        inner = getattr(kind, which)
        inner.elem_type = _raised_number(inner.elem_type)
    elif which in ("sequence_type", "optional_type"):
        raise_type(getattr(kind, which).elem_type)


def _raised_number(number: int) -> int:
    return TensorProto.DOUBLE if number in RAISED else number


def _raise_node(node: NodeProto) -> None:
    for attribute in node.attribute:
        _raise_attribute(node, attribute)
    present = {attribute.name for attribute in node.attribute}
    if node.op_type == "ConstantOfShape" and "value" not in present:
        node.attribute.append(onnx.helper.make_attribute("value", numpy_helper.from_array(np.zeros(1))))
    wanted = DEFAULT_FLOAT.get(node.op_type)
    if wanted is not None and wanted not in present:
        node.attribute.append(onnx.helper.make_attribute(wanted, TensorProto.DOUBLE))


def _raise_attribute(node: NodeProto, attribute: AttributeProto) -> None:
    if attribute.type == AttributeProto.GRAPH:
        _raise_graph(attribute.g)
    elif attribute.type == AttributeProto.INT and attribute.name in TYPE_ATTRIBUTES:
        attribute.i = _raised_number(attribute.i)
    elif attribute.type == AttributeProto.TENSOR:
        attribute.t.CopyFrom(raised_tensor(attribute.t))
    elif attribute.type == AttributeProto.SPARSE_TENSOR:
        attribute.sparse_tensor.values.CopyFrom(raised_tensor(attribute.sparse_tensor.values))
    elif attribute.type == AttributeProto.TYPE_PROTO:
        raise_type(attribute.tp)
    elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
        values = np.asarray(onnx.helper.get_attribute_value(attribute), np.float64)
        attribute.CopyFrom(onnx.helper.make_attribute("value", numpy_helper.from_array(values)))
