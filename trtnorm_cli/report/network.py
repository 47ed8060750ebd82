"""The description of a TensorRT network, which is the layers that the parser made of a model."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from trtnorm_cli.report.console import counts_text, shape_text, table
from trtnorm_cli.report.notes import print_notes
from trtnorm_cli.report.verbosity import Verbosity
from trtnorm_cli.tensorrt.network.describe import NetworkDescription


def print_network(out: Console, described: NetworkDescription, save_to: Path | None, verbosity: Verbosity) -> None:
    """Print counts, inputs and outputs, and the network as ONNX nodes named after TensorRT's layers.

    When quiet, print the file alone.
    """
    if verbosity is Verbosity.QUIET and save_to is not None:
        out.print(str(save_to), soft_wrap=True)
        return
    out.print(f"network of {described.model} by {described.backend} {described.tensorrt}")
    out.print(f"layers: {counts_text(described.layers_by_type)}")
    rows = [("input", v.name, v.dtype, shape_text(v.shape)) for v in described.inputs]
    rows += [("output", v.name, v.dtype, shape_text(v.shape)) for v in described.outputs]
    out.print(table("", ("", "name", "type", "shape"), rows))
    nodes = [
        (node.operator, node.name, "; ".join(f"{shape_text(o.shape)} {o.dtype}" for o in node.outputs))
        for node in described.nodes
        if node.operator != "Constant"
    ]
    out.print(table("Layers as ONNX", ("operator", "layer", "output"), nodes), new_line_start=True)
    print_notes(out, (*described.warnings, *described.notes), verbosity)
    if save_to is not None:
        out.print(f"wrote {save_to}", soft_wrap=True)
