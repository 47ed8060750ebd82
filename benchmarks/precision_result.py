"""The types in a converted file: casts, float32 islands, and bytes of weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto

from trtnorm_cli.onnx_model.infer import sound_types
from trtnorm_cli.onnx_model.light_copy import light_copy
from trtnorm_cli.onnx_model.stored import tensor_bytes

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)


def described(path: Path) -> dict[str, Any]:
    """Casts, nodes that make float32, the islands that these form, and the bytes of floating weights."""
    model = onnx.load(path)
    casts = sum(node.op_type == "Cast" for node in model.graph.node)
    weights = sum(tensor_bytes(tensor) for tensor in model.graph.initializer if tensor.data_type in _FLOATS)
    found = {"casts": casts, "weight_bytes": weights}
    tables = sound_types(light_copy(model), data_prop=False)
    if tables is None:
        return found
    known = tables[0]
    wide = [
        node
        for node in model.graph.node
        if node.op_type not in ("Cast", "Constant")
        and any(name in known and known[name].dtype == TensorProto.FLOAT for name in node.output if name)
    ]
    return {**found, "float32_nodes": len(wide), "islands": _groups(wide)}


def _groups(nodes: list[onnx.NodeProto]) -> int:
    """The number of groups of ``nodes`` that read from each other."""
    parent = list(range(len(nodes)))
    makers = {name: number for number, node in enumerate(nodes) for name in node.output if name}

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    for number, node in enumerate(nodes):
        for name in node.input:
            if name in makers:
                parent[root(number)] = root(makers[name])
    return len({root(number) for number in range(len(nodes))})
