"""Operators that compute on integers which stand for floats, other than QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

import re

import onnx

from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.walk import tensors_read

MICROSOFT = "com.microsoft"
OF_ONNX = ("DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv")
# ONNX Runtime's own, by the names that it gives them.
_CONTRIBUTED = re.compile(
    r"QLinear\w+|QOrdered\w+|QAttention|QGemm|QMoE|QEmbedLayerNormalization|DynamicQuantize\w+|MatMulInteger\w+|MulInteger"
    r"|MatMul(NBits|Bnb4|FpQ4)|GatherBlockQuantized|(De)?[qQ]uantizeBFP|NhwcConvInteger"
)
# With these activations are quantised by the range that they have at run time.
DYNAMIC = (
    *("DynamicQuantizeLinear", "MatMulInteger", "ConvInteger"),
    *("DynamicQuantizeMatMul", "MatMulIntegerToFloat", "DynamicQuantizeLSTM"),
)


def quantised_nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """The quantised nodes of the graph between its inputs and its outputs that no function of the model defines."""
    functions = {(function.domain, function.name) for function in model.functions}
    candidates = [node for node in model.graph.node if _is_quantised(node) and (node.domain, node.op_type) not in functions]
    if not candidates:
        return []
    varying, needed = _varying(model.graph), _needed(model.graph)
    return [node for node in candidates if varying & set(node.input) and needed & set(node.output)]


def _is_quantised(node: onnx.NodeProto) -> bool:
    if node.domain in DEFAULT_DOMAINS:
        return node.op_type in OF_ONNX
    return node.domain == MICROSOFT and _CONTRIBUTED.fullmatch(node.op_type) is not None


def _varying(graph: onnx.GraphProto) -> set[str]:
    """The tensors that depend on an input of the graph. Its nodes stand in the order in which they run."""
    varying = {value.name for value in graph.input} - {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        if not varying.isdisjoint(tensors_read(node)):
            varying |= set(filter(None, node.output))
    return varying


def _needed(graph: onnx.GraphProto) -> set[str]:
    """The tensors on which an output of the graph depends."""
    needed = {value.name for value in graph.output}
    for node in reversed(graph.node):
        if needed & set(node.output):
            needed.update(tensors_read(node))
    return needed
