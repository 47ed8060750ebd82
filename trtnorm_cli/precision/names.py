"""Names for what is added to a model."""

from __future__ import annotations

import onnx

from trtnorm_cli.onnx_model.walk import all_graphs


def free_prefix(model: onnx.ModelProto, wanted: str) -> str:
    """A prefix, ``wanted/`` or with a number, that no tensor of the model begins with."""
    graphs = list(all_graphs(model.graph))
    names = {name for graph in graphs for node in graph.node for name in (*node.input, *node.output)}
    names.update(value.name for graph in graphs for value in (*graph.input, *graph.initializer))
    prefix, number = f"{wanted}/", 1
    while any(name.startswith(prefix) for name in names):
        number += 1
        prefix = f"{wanted}{number}/"
    return prefix
