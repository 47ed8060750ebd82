"""Refuse QuantizeLinear and DequantizeLinear in forms that TensorRT refuses, or reads as others without a word."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx

from trtnorm_cli.errors import TensorRTRefusal
from trtnorm_cli.onnx_model.stored import tensor_array
from trtnorm_cli.onnx_model.walk import all_graphs
from trtnorm_cli.rewrite.parts.quantised import why_not_taken

_QUANTIZE, _DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
_SHOWN = 4
_Constants = Mapping[str, onnx.TensorProto]


def require_taken_quantisation(model: onnx.ModelProto, folder: Path | None, where: str) -> None:
    """Raise ``TensorRTRefusal`` where a rewritten ``model`` has quantisation that TensorRT does not take.

    Rules have written what can be written otherwise. What is left is read by others than DequantizeLinear, say.
    """
    found = list(_not_taken(model, folder))
    if not found:
        return
    more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    raise TensorRTRefusal(
        "TensorRT does not take the quantisation of this model",
        "\n".join([where, *found[:_SHOWN], *more]),
        "quantise again to signed int8 with positive scales and zero points of 0, as quantize_static does with\n"
        "ActivationSymmetric and WeightSymmetric; or let a DequantizeLinear with constant scales, and nothing else, read\n"
        "what is quantised; or build from the float model",
    )


def _not_taken(model: onnx.ModelProto, folder: Path | None) -> Iterator[str]:
    nodes = [node for graph in all_graphs(model.graph) for node in graph.node]
    if not any(node.op_type in (_QUANTIZE, _DEQUANTIZE) for node in nodes):
        return
    constants = {tensor.name: tensor for graph in all_graphs(model.graph) for tensor in graph.initializer}
    for node in nodes:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            constants[node.output[0]] = node.attribute[0].t
    types = {value.name: value.type.tensor_type.elem_type for value in (*model.graph.value_info, *model.graph.input)}
    for node in nodes:
        if node.op_type in (_QUANTIZE, _DEQUANTIZE):
            reason = _reason(node, constants, types, folder)
            if reason is not None:
                yield reason


def _reason(node: onnx.NodeProto, constants: _Constants, types: Mapping[str, int], folder: Path | None) -> str | None:
    label = f"{node.op_type} {node.name or '-> ' + node.output[0]}"
    values = [constants.get(name) if name else None for name in node.input]
    scale = values[1] if len(values) > 1 else None
    zero = values[2] if len(values) > 2 else None
    number = _quantised_type(node, values[0], zero, types)
    if not number:
        return None  # of what nobody knows, TensorRT's parser will tell
    zeros = np.zeros(()) if zero is None else tensor_array(zero, folder).astype(np.float64)
    # A scale may be computed at run time.
    return why_not_taken(label, number, zeros, np.ones(()) if scale is None else tensor_array(scale, folder))


def _quantised_type(
    node: onnx.NodeProto, data: onnx.TensorProto | None, zero: onnx.TensorProto | None, types: Mapping[str, int]
) -> int:
    if zero is not None:
        return int(zero.data_type)
    if node.op_type == _DEQUANTIZE:
        return int(data.data_type) if data is not None else types.get(node.input[0], 0)
    stated = next((attribute.i for attribute in node.attribute if attribute.name == "output_dtype"), 0)
    return int(stated) or onnx.TensorProto.UINT8
