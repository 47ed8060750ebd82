"""Give a BatchNormalization the outputs that its mode has, where the file leaves some out or lists some too many.

From opset 7 to 13 further outputs mean training, and there are four; since opset 14 an attribute says so, and there are two
(ONNX operator specification, changelog). An empty name is an output that is left out. ONNX Runtime dies of a node in training
mode with such names, and refuses one outside of training with further outputs.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS, default_opset
from trtnorm_cli.onnx_model.names import free_name
from trtnorm_cli.onnx_model.walk import nodes_within, subgraphs

_ATTRIBUTE_SINCE = 14
_FURTHER = ("running_mean", "running_variance", "saved_mean", "saved_variance")
_FURTHER_SINCE_14 = _FURTHER[:2]


def settle_batchnorm_outputs(model: onnx.ModelProto) -> list[str]:
    """Complete or shorten the outputs in place, where that has one meaning; returns the first outputs of the nodes."""
    graph = model.graph
    settled = _settle_scope(graph.node, {value.name for value in graph.output}, model.opset_import)
    for function in model.functions:
        settled += _settle_scope(function.node, set(function.output), function.opset_import)
    return settled


def _settle_scope(nodes: Iterable[onnx.NodeProto], outputs: set[str], imports: Iterable[onnx.OperatorSetIdProto]) -> list[str]:
    """Settle the nodes of one graph or function, those of its subgraphs included."""
    within = list(nodes_within(nodes))
    batchnorms = [node for node in within if node.op_type == "BatchNormalization" and node.domain in DEFAULT_DOMAINS]
    if not batchnorms:
        return []
    opset = default_opset(imports)
    leaving = {value.name for node in within for inner in subgraphs(node) for value in inner.output}
    read = {name for node in within for name in node.input} | leaving | outputs
    taken = read | {name for node in within for name in node.output}
    settled = []
    for node in batchnorms:
        wanted = _settled(node, opset, read, taken)
        if wanted != list(node.output):
            del node.output[:]
            node.output.extend(wanted)
            settled.append(node.output[0])
    return settled


def _settled(node: onnx.NodeProto, opset: int, read: set[str], taken: set[str]) -> list[str]:
    """The outputs that ``node`` should have; ``taken`` are names that are not free."""
    outputs = list(node.output)
    if not any(outputs[1:]) and not _in_training(node, opset):
        return outputs[:1]
    further = _FURTHER if opset < _ATTRIBUTE_SINCE else _FURTHER_SINCE_14
    if opset < _ATTRIBUTE_SINCE:
        return _completed(outputs, further, taken) if len(outputs) == 1 + len(further) else outputs
    if _in_training(node, opset) or not read.isdisjoint(filter(None, outputs[1:])):
        return _completed(outputs, further, taken)
    return outputs[:1] if len(outputs) <= 1 + len(further) else outputs


def _in_training(node: onnx.NodeProto, opset: int) -> bool:
    """True where the attribute says so, which opsets before had not."""
    return opset >= _ATTRIBUTE_SINCE and any(a.name == "training_mode" and a.i for a in node.attribute)


def _completed(outputs: list[str], further: tuple[str, ...], taken: set[str]) -> list[str]:
    """``outputs`` with names for those that were left out; unchanged when there are more than can be."""
    if len(outputs) > 1 + len(further):
        return outputs
    given = outputs[1:] + [""] * (1 + len(further) - len(outputs))
    return [outputs[0], *(name or free_name(f"{outputs[0]}_{what}", taken) for name, what in zip(given, further, strict=True))]
