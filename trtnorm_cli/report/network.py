"""What is in a TensorRT network: the layers that the parser made of a model."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import onnx
from rich.console import Console

from trtnorm_cli.compare.network import network_of
from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.onnx_model.load import load_model
from trtnorm_cli.onnx_model.shapes import TensorType, declared_types
from trtnorm_cli.report.console import counts_text, shape_text, table
from trtnorm_cli.report.notes import print_notes
from trtnorm_cli.report.verbosity import Verbosity


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


def print_network(out: Console, described: dict[str, Any], save_to: Path | None, verbosity: Verbosity) -> None:
    """Counts, inputs and outputs, and the network as ONNX nodes named after TensorRT's layers; when quiet, the file alone."""
    if verbosity is Verbosity.QUIET and save_to is not None:
        out.print(str(save_to), soft_wrap=True)
        return
    out.print(f"network of {described['model']} by {described['backend']} {described['tensorrt']}")
    out.print(f"layers: {counts_text(described['layers_by_type'])}")
    rows = [
        (kind, v["name"], v["dtype"], shape_text(v["shape"])) for kind in ("input", "output") for v in described[kind + "s"]
    ]
    out.print(table("", ("", "name", "type", "shape"), rows))
    nodes = [
        (node["operator"], node["name"], "; ".join(f"{shape_text(o['shape'])} {o['dtype']}" for o in node["outputs"]))
        for node in described["nodes"]
        if node["operator"] != "Constant"
    ]
    out.print(table("Layers as ONNX", ("operator", "layer", "output"), nodes), new_line_start=True)
    print_notes(out, (*described["warnings"], *described["notes"]), verbosity)
    if save_to is not None:
        out.print(f"wrote {save_to}", soft_wrap=True)
