"""Loops that run a number of times and have no condition are given the constant true, without which TensorRT takes none.

TensorRT for RTX 1.7 says that a node of the body reads a tensor that is not registered. Without a condition the one that the
body computes counts for nothing (Loop in the ONNX operator specification), and ONNX Runtime stops by it all the same. So only
bodies that pass the condition on, or always give true, are meant: both agree about these.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx_ir as ir

from trtnorm_cli.onnx_model.ir_walk import every_graph, every_node
from trtnorm_cli.onnx_model.names import free_name

_TRIPS, _CONDITION = 0, 1


def give_loops_a_condition(model: ir.Model, counts: Counter[str]) -> None:
    """Give the constant true to Loops that have a trip count and no condition, and never end before it."""
    for node in list(every_node(model.graph)):
        if node.op_type != "Loop" or node.domain != "" or len(node.inputs) == 0 or not isinstance(node.graph, ir.Graph):
            continue
        has_condition = len(node.inputs) > _CONDITION and node.inputs[_CONDITION] is not None
        if node.inputs[_TRIPS] is None or has_condition or not _goes_on(node.attributes["body"].as_graph()):
            continue
        truth = ir.tensor(np.array(True))
        name = free_name(f"{node.name or node.outputs[0].name}/condition", _names(model))
        value = ir.Value(name=name, const_value=truth, type=ir.TensorType(truth.dtype), shape=ir.Shape(()))
        node.graph.register_initializer(value)
        if len(node.inputs) <= _CONDITION:
            node.resize_inputs(_CONDITION + 1)
        node.replace_input_with(_CONDITION, value)
        counts["Loops given a condition"] += 1


def _names(model: ir.Model) -> set[str]:
    made = (value for node in every_node(model.graph) for value in node.outputs)
    held = (value for graph in every_graph(model.graph) for value in (*graph.inputs, *graph.initializers.values()))
    return {value.name or "" for values in (made, held) for value in values}


def _goes_on(body: ir.Graph) -> bool:
    """True where ``body`` gives the condition that it was given, or true."""
    value: ir.Value | None = body.outputs[0]
    while value is not None and (producer := value.producer()) is not None:
        if producer.op_type != "Identity" or producer.domain != "":
            break
        value = producer.inputs[0]
    if value is None or value is body.inputs[1]:
        return value is not None
    constant = None if value.is_graph_input() else ir.convenience.get_const_tensor(value)
    return constant is not None and bool(np.all(constant.numpy()))
