"""Recognise models that are quantised in a way which TensorRT does not take, before any work is spent on them.

TensorRT's quantised models have QuantizeLinear and DequantizeLinear around operators on floats, with scales that are constants.
ONNX Runtime's own quantised operators compute on integers. The installed parser itself is asked whether it knows one of them,
since later releases may.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import onnx
from onnx import parser

from trtnorm_cli.errors import TensorRTRefusal
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.walk import tensors_read
from trtnorm_cli.tensorrt.operators import ask_operators

_MICROSOFT = "com.microsoft"
# Of ONNX itself, each in a model of its own: a parser that refuses this one does not have the operator.
_MODELS = {
    "DynamicQuantizeLinear": "(float[4] x) => (float[4] y) { q,s,z = DynamicQuantizeLinear(x) y = DequantizeLinear(q,s,z) }",
    "MatMulInteger": "(int8[2,4] a, int8[4,2] b) => (int32[2,2] y) { y = MatMulInteger(a, b) }",
    "ConvInteger": "(int8[1,1,4,4] a, int8[1,1,3,3] b) => (int32[1,1,2,2] y) { y = ConvInteger(a, b) }",
    "QLinearMatMul": "(int8[2,4] a, int8[4,2] b, float s, int8 z) => (int8[2,2] y) { y = QLinearMatMul(a,s,z,b,s,z,s,z) }",
    "QLinearConv": "(int8[1,1,4,4] a, int8[1,1,3,3] b, float s, int8 z) => (int8[] y) { y = QLinearConv(a,s,z,b,s,z,s,z) }",
}
# ONNX Runtime's own, by the names that it gives them.
_CONTRIBUTED = re.compile(
    r"QLinear\w+|QOrdered\w+|QAttention|QGemm|QMoE|QEmbedLayerNormalization|DynamicQuantize\w+|MatMulInteger\w+|MulInteger"
    r"|MatMul(NBits|Bnb4|FpQ4)|GatherBlockQuantized|(De)?[qQ]uantizeBFP|NhwcConvInteger"
)
_DYNAMIC = re.compile(r"Dynamic|Integer")
_WEIGHTS_ONLY = re.compile(r"MatMul(NBits|Bnb4|FpQ4)|GatherBlockQuantized")
_MOST_NODES = 3


def require_known_quantisation(model: onnx.ModelProto, backend: str | None, where: str) -> None:
    """Raise ``TensorRTRefusal`` when the results of ``model`` depend on quantised operators that the parser does not have.

    Nodes on constants alone do not count, as folding removes them, nor do those that nothing reads, nor functions of the model.
    """
    found = quantised_nodes(model)
    kinds = Counter(node.op_type for node in found)
    refused = {name for name, taken in ask_operators(_probes(found), backend).items() if not taken}
    counts = {kind: number for kind, number in kinds.most_common() if kind in refused}
    if not counts:
        return
    listed = ", ".join(f"{number} {kind}" for kind, number in counts.items())
    named = [node.name or f"-> {node.output[0]}" for node in found if node.op_type in counts]
    more = f" and {len(named) - _MOST_NODES} more" if len(named) > _MOST_NODES else ""
    raise TensorRTRefusal(
        f"TensorRT does not have the quantised operators of this model: {listed}",
        f"{where}\nnodes {', '.join(named[:_MOST_NODES])}{more}",
        _advice(counts),
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
        return node.op_type in _MODELS
    return node.domain == _MICROSOFT and _CONTRIBUTED.fullmatch(node.op_type) is not None


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


def _probes(nodes: Iterable[onnx.NodeProto]) -> dict[str, onnx.ModelProto]:
    """A small model with the operator of each node, by the operator's name."""
    probes = {}
    for node in nodes:
        body = _MODELS.get(node.op_type) if node.domain != _MICROSOFT else None
        graph = body or f"(float[2,4] x) => (float[2,4] y) {{ y = {_MICROSOFT}.{node.op_type}(x) }}"
        text = f'<ir_version: 8, opset_import: ["" : 17, "{_MICROSOFT}" : 1]> g {graph}'
        probes[node.op_type] = parser.parse_model(text)
    return probes


def _advice(kinds: Iterable[str]) -> str:
    kinds = tuple(kinds)
    if all(_WEIGHTS_ONLY.fullmatch(kind) for kind in kinds):
        return "only its weights are quantised: build from the float model that it was made from"
    how = "dynamically" if any(_DYNAMIC.search(kind) for kind in kinds) else "into operators on integers"
    return (
        f"it was quantised {how}: build from the float model that it was made from,\n"
        "or quantise that statically into QuantizeLinear and DequantizeLinear nodes with symmetric int8, as "
        "onnxruntime.quantization.quantize_static does with QuantFormat.QDQ"
    )
