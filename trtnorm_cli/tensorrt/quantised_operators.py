"""Recognise models that are quantised in a way which TensorRT does not take, before any work is spent on them.

TensorRT's quantised models have QuantizeLinear and DequantizeLinear around operators on floats, with scales that are constants.
ONNX Runtime's own quantised operators compute on integers. The installed parser itself is asked whether it knows one of them,
since later releases may.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Sequence

import onnx
from onnx import parser

from trtnorm_cli.errors import TensorRTRefusal
from trtnorm_cli.onnx_model.quantised_nodes import DYNAMIC, MICROSOFT, quantised_nodes
from trtnorm_cli.tensorrt.operators import ask_operators

# Of ONNX itself, each in a model of its own: a parser that refuses this one does not have the operator.
_MODELS = {
    "DynamicQuantizeLinear": "(float[4] x) => (float[4] y) { q,s,z = DynamicQuantizeLinear(x) y = DequantizeLinear(q,s,z) }",
    "MatMulInteger": "(int8[2,4] a, int8[4,2] b) => (int32[2,2] y) { y = MatMulInteger(a, b) }",
    "ConvInteger": "(int8[1,1,4,4] a, int8[1,1,3,3] b) => (int32[1,1,2,2] y) { y = ConvInteger(a, b) }",
    "QLinearMatMul": "(int8[2,4] a, int8[4,2] b, float s, int8 z) => (int8[2,2] y) { y = QLinearMatMul(a,s,z,b,s,z,s,z) }",
    "QLinearConv": "(int8[1,1,4,4] a, int8[1,1,3,3] b, float s, int8 z) => (int8[] y) { y = QLinearConv(a,s,z,b,s,z,s,z) }",
}
FLOATS_OPTION, FLOATS_LINE = "--dynamic-quantization float", "dynamic_quantization: float"
_WEIGHTS_ONLY = re.compile(r"MatMul(NBits|Bnb4|FpQ4)|GatherBlockQuantized")
_MOST_NODES = 3


def require_known_quantisation(
    model: onnx.ModelProto,
    backend: str | None,
    where: str,
    rewritten: Container[str] = (),
    reasons: Sequence[str] = (),
    asked_for: Iterable[str] = (),
) -> None:
    """Raise ``TensorRTRefusal`` when the results of ``model`` depend on quantised operators that the parser does not have.

    Nodes on constants alone do not count, as folding removes them, nor do those that nothing reads, nor functions of the model,
    nor operators that will be ``rewritten``. ``reasons`` say why those were not that rewriting was ``asked_for``.
    """
    found = [node for node in quantised_nodes(model) if node.op_type not in rewritten]
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
        "\n".join([where, f"nodes {', '.join(named[:_MOST_NODES])}{more}", *dict.fromkeys(reasons)]),
        _advice(counts, is_asked_for=not set(DYNAMIC).isdisjoint(asked_for)),
    )


def _probes(nodes: Iterable[onnx.NodeProto]) -> dict[str, onnx.ModelProto]:
    """A small model with the operator of each node, by the operator's name."""
    probes = {}
    for node in nodes:
        body = _MODELS.get(node.op_type) if node.domain != MICROSOFT else None
        graph = body or f"(float[2,4] x) => (float[2,4] y) {{ y = {MICROSOFT}.{node.op_type}(x) }}"
        text = f'<ir_version: 8, opset_import: ["" : 17, "{MICROSOFT}" : 1]> g {graph}'
        probes[node.op_type] = parser.parse_model(text)
    return probes


def _advice(kinds: Iterable[str], is_asked_for: bool) -> str:
    kinds = tuple(kinds)
    if all(_WEIGHTS_ONLY.fullmatch(kind) for kind in kinds):
        return "only its weights are quantised: build from the float model that it was made from"
    static = (
        "or quantise that statically into QuantizeLinear and DequantizeLinear nodes with symmetric int8, as "
        "onnxruntime.quantization.quantize_static does with QuantFormat.QDQ"
    )
    if is_asked_for or set(DYNAMIC).isdisjoint(kinds):
        return f"it was quantised into operators on integers: build from the float model that it was made from,\n{static}"
    return (
        "it was quantised dynamically. To compute with floats, the weights dequantised and no activation rounded to 8 bits, "
        f"give {FLOATS_OPTION}, or write this line in the build profile; how far that moves the results is measured then:\n"
        f"{FLOATS_LINE}\n"
        f"else build from the float model that it was made from, {static}"
    )
