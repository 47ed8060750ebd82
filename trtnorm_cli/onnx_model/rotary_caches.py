"""Caches of RotaryEmbedding that are meant for every batch entry.

PyTorch's dynamo exporter writes cosines and sines of shape [1, sequence, half], where the operator has [batch, sequence, half]
and no broadcasting; ONNX Runtime and TensorRT refuse the model. One entry for several can only be meant for each of them.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx_ir as ir

from trtnorm_cli.onnx_model.ir_walk import every_node
from trtnorm_cli.onnx_model.sequences import Made


def expand_rotary_caches(model: ir.Model, counts: Counter[str]) -> int:
    """Expand caches whose batch size is 1 to that of the data; returns how many. Those of unknown size stay."""
    expanded = 0
    for node in list(every_node(model.graph)):
        if node.op_type != "RotaryEmbedding" or node.domain != "" or not isinstance(node.graph, ir.Graph):
            continue
        if len(node.inputs) > 3 and node.inputs[3] is not None:  # with positions the caches have no batch
            continue
        for index in (1, 2):
            if _is_for_every_entry(node.inputs[index], node.inputs[0]):
                _expand(node, index)
                expanded += 1
    counts["caches of RotaryEmbedding expanded"] += expanded
    return expanded


def _is_for_every_entry(cache: ir.Value | None, data: ir.Value | None) -> bool:
    if cache is None or data is None:
        return False
    shape = cache.const_value.shape if cache.const_value is not None else cache.shape
    batch = None if data.shape is None else data.shape[0]
    return shape is not None and len(shape) == 3 and shape[0] == 1 and batch != 1


def _expand(node: ir.Node, index: int) -> None:
    data, cache, graph = node.inputs[0], node.inputs[index], node.graph
    assert data is not None
    assert cache is not None
    assert isinstance(graph, ir.Graph)
    made = Made(graph, node)
    batch = made.call("Shape", data, start=0, end=1)
    shape = made.call("Concat", batch, made.constant(np.array([1, 1])), axis=0)
    made.insert(made.call("Expand", cache, shape), index)
