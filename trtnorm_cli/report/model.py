"""The description of an ONNX model, as text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from trtnorm_cli.onnx_model.plugin_nodes import PluginNode
from trtnorm_cli.report.composite_norms import composite_lines, composite_table
from trtnorm_cli.report.console import FittedTable, counts_text, shape_text, table
from trtnorm_cli.report.ends import print_ends
from trtnorm_cli.report.norm_lines import print_norm_lines
from trtnorm_cli.report.norm_nodes import node_lines, node_table
from trtnorm_cli.report.notes import print_notes
from trtnorm_cli.report.rules import headline_of
from trtnorm_cli.report.verbosity import Verbosity
from trtnorm_cli.rewrite.describe import ListedNode, ModelDescription

_SHOWN_NODES = 40


def print_model(
    out: Console, path: Path, described: ModelDescription, every: bool = False, verbosity: Verbosity = Verbosity.NORMAL
) -> None:
    """Print the description. With ``every`` each normalization stands on its own, with all that is known of it."""
    opsets = ", ".join(f"{domain} {version}" for domain, version in described.opset.items())
    out.print(f"{path}: {described.producer or 'unknown producer'}, opset {opsets}")
    if described.fitting:
        _print_fitting(out, described.fitting, every)
    else:
        out.print(f"{sum(described.nodes.values())} nodes: {counts_text(described.nodes)}")
        print_ends(out, described.inputs, described.outputs, every)
    print_notes(out, described.warnings, verbosity)
    if described.plugins:
        out.print(_plugin_table(described.plugins), new_line_start=True)
    nodes, pieces = described.normalizations, described.composite_normalizations
    if not nodes and not pieces:
        out.print("\nno normalizations" + (" among them" if described.fitting else ""))
    if nodes and every:
        out.print(node_table(nodes), new_line_start=True)
    elif nodes:
        print_norm_lines(out, "Normalizations", node_lines(nodes), headline_of)
    if pieces and every:
        out.print(composite_table(pieces), new_line_start=True)
    elif pieces:
        print_norm_lines(out, "Normalizations in pieces", composite_lines(pieces), headline_of)


def _print_fitting(out: Console, nodes: Sequence[ListedNode], every: bool) -> None:
    """Print the nodes that the user asked for by name."""
    shown = nodes if every else nodes[:_SHOWN_NODES]
    rows = [(node.name, node.operator, "; ".join(f"{shape_text(o.shape)} {o.dtype}" for o in node.outputs)) for node in shown]
    title = f"{len(nodes)} nodes fit" if len(nodes) > 1 else "1 node fits"
    out.print(table(title, ("name", "operator", "output"), rows, names=() if every else (0,)), new_line_start=True)
    if len(shown) < len(nodes):
        out.print(f"and {len(nodes) - len(shown)} more; --all shows them")


def _plugin_table(plugins: Sequence[PluginNode]) -> FittedTable:
    """Nodes that ask TensorRT for a plugin, and whether anybody else can run them."""
    columns = ("plugin", "name", "version", "namespace", "attributes", "elsewhere")
    rows = [(p.operator, p.node, p.version, p.namespace, ", ".join(p.attributes), _elsewhere(p)) for p in plugins]
    return table("Plugin nodes", columns, rows)


def _elsewhere(plugin: PluginNode) -> str:
    return "runs as the function in the file" if plugin.has_function else "does not run: the file has no function for it"
