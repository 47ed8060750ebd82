"""The description of a TensorRT network, which is the layers that the parser made of a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from trtnorm_cli.report.console import counts_text, shape_text, table
from trtnorm_cli.report.ends import print_ends
from trtnorm_cli.report.norm_lines import NormLine, print_norm_lines
from trtnorm_cli.report.notes import print_notes
from trtnorm_cli.report.verbosity import Verbosity
from trtnorm_cli.tensorrt.network.describe import LayerNode, NetworkDescription

_NORMALIZING = ("NORMALIZATION", "SCALE", "LRN")
_SHOWN = 40


def print_network(
    out: Console,
    described: NetworkDescription,
    save_to: Path | None,
    verbosity: Verbosity,
    every: bool = False,
    by_name: bool = False,
) -> None:
    """Print counts, inputs and outputs, the layers that normalize, and all layers where they are few or ``every`` is wanted.

    With ``by_name`` the layers that the user asked for. When quiet, print the file alone.
    """
    if verbosity is Verbosity.QUIET and save_to is not None:
        out.print(str(save_to), soft_wrap=True)
        return
    out.print(f"network of {described.model} by {described.backend} {described.tensorrt}")
    layers = _layers(described.nodes)
    if not by_name:
        counts = dict(sorted(described.layers_by_type.items(), key=lambda item: -item[1]))
        out.print(f"{sum(counts.values())} layers: {counts_text(counts)}")
        print_ends(out, described.inputs, described.outputs, every)
        norms = [layer for layer in layers if layer.type in _NORMALIZING]
        if norms and not every:
            print_norm_lines(out, "Layers that normalize", [_norm_line(layer) for layer in norms], lambda rule: None)
    if every or by_name or len(layers) <= _SHOWN:
        _print_layers(out, layers, every)
    else:
        out.print("\n--all lists the layers, and --nodes PATTERN those whose names fit")
    print_notes(out, (*described.warnings, *described.notes), verbosity)
    if save_to is not None:
        out.print(f"wrote {save_to}", soft_wrap=True)


def _layers(nodes: Sequence[LayerNode]) -> list[LayerNode]:
    """The node of each layer that makes its result. The others that it was translated to are named after the layer."""
    own = (node for node in nodes if not node.name.startswith(f"{node.layer}/{node.operator}"))
    return [node for node in own if node.operator != "Constant"]


def _norm_line(layer: LayerNode) -> NormLine:
    return NormLine(layer.type, layer.name, _outputs(layer), (), ())


def _outputs(layer: LayerNode) -> str:
    return "; ".join(f"{shape_text(o.shape)} {o.dtype}" for o in layer.outputs)


def _print_layers(out: Console, layers: Sequence[LayerNode], every: bool) -> None:
    shown = layers if every else layers[:_SHOWN]
    rows = [(layer.name, layer.type, _outputs(layer)) for layer in shown]
    out.print(table("Layers", ("layer", "type", "output"), rows, names=() if every else (0,)), new_line_start=True)
    if len(shown) < len(layers):
        out.print(f"and {len(layers) - len(shown)} more; --all shows them")
