"""The description of an ONNX model, as text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from trtnorm_cli.onnx_model.plugin_nodes import PluginNode
from trtnorm_cli.report.composite_norms import composite_table, print_composites
from trtnorm_cli.report.console import FittedTable, counts_text, shape_text, table
from trtnorm_cli.report.norm_nodes import node_table, print_nodes
from trtnorm_cli.report.notes import print_notes
from trtnorm_cli.report.verbosity import Verbosity
from trtnorm_cli.rewrite.describe import ModelDescription


def print_model(out: Console, path: Path, described: ModelDescription, verbosity: Verbosity = Verbosity.NORMAL) -> None:
    """The description as text."""
    opsets = ", ".join(f"{domain} {version}" for domain, version in described.opset.items())
    out.print(f"{path}: {described.producer or 'unknown producer'}, opset {opsets}")
    out.print(f"nodes: {counts_text(described.nodes)}")
    rows = [("input", i.name, i.dtype, shape_text(i.shape)) for i in described.inputs]
    rows += [("output", o.name, o.dtype, shape_text(o.shape)) for o in described.outputs]
    out.print(table("", ("", "name", "type", "shape"), rows), new_line_start=True)
    print_notes(out, described.warnings, verbosity)
    if described.plugins:
        out.print(_plugin_table(described.plugins), new_line_start=True)
    nodes, pieces = described.normalizations, described.composite_normalizations
    if not nodes and not pieces:
        out.print("\nno normalizations")
    in_full = verbosity is Verbosity.VERBOSE
    if nodes:
        out.print(node_table(nodes), new_line_start=True) if in_full else print_nodes(out, nodes)
    if pieces:
        out.print(composite_table(pieces), new_line_start=True) if in_full else print_composites(out, pieces)
    if (nodes or pieces) and not in_full:
        out.print("\nwith -v: every normalization on its own, and each rule's reason")


def _plugin_table(plugins: Sequence[PluginNode]) -> FittedTable:
    """Nodes that ask TensorRT for a plugin, and whether anybody else can run them."""
    columns = ("plugin", "name", "version", "namespace", "attributes", "elsewhere")
    rows = [(p.operator, p.node, p.version, p.namespace, ", ".join(p.attributes), _elsewhere(p)) for p in plugins]
    return table("Plugin nodes", columns, rows)


def _elsewhere(plugin: PluginNode) -> str:
    return "runs as the function in the file" if plugin.has_function else "does not run: the file has no function for it"
