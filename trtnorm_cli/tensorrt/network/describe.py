"""Describe a TensorRT network: the layers that the parser made of a model, as JSON values."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import onnx

from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.onnx_model.load import load_model
from trtnorm_cli.onnx_model.shapes import TensorType, declared_types
from trtnorm_cli.tensorrt.network import network_of


def describe_network(model: Path, save_to: Path | None, backend: str | None) -> dict[str, Any]:
    """Layers, inputs and outputs of the network; its ONNX form is saved when ``save_to`` is given."""
    load_model(model)
    if save_to is not None and not save_to.absolute().parent.is_dir():
        raise UsageProblem("there is no such folder", str(save_to.parent), "choose another one with -o")
    with tempfile.TemporaryDirectory(prefix="trtnorm-inspect-") as scratch:
        target = save_to or Path(scratch) / "network.onnx"
        translation = network_of(model, target, backend)
        proto = onnx.load(str(target), load_external_data=False)
    types = declared_types(proto)
    return {
        "model": model.name,
        "backend": translation.backend,
        "tensorrt": translation.version,
        "layers_by_type": translation.layers,
        "inputs": [_value(value.name, types) for value in proto.graph.input],
        "outputs": [_value(value.name, types) for value in proto.graph.output],
        "nodes": [
            {"operator": node.op_type, "name": node.name, "outputs": [_value(name, types) for name in node.output if name]}
            for node in proto.graph.node
        ],
        "warnings": list(translation.warnings),
        "notes": list(translation.notes),
    }


def _value(name: str, types: dict[str, TensorType]) -> dict[str, Any]:
    kind = types.get(name)
    if kind is None:
        return {"name": name, "dtype": "?", "shape": None}
    return {"name": name, "dtype": onnx.TensorProto.DataType.Name(kind.dtype).lower(), "shape": kind.shape}
