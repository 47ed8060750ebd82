"""What is in an ONNX model, as JSON and as text."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import onnx
from rich.console import Console

from trtnorm_cli.onnx_model.load import load_model
from trtnorm_cli.onnx_model.normalization import Normalization, normalizations
from trtnorm_cli.onnx_model.plugin_nodes import plugin_nodes
from trtnorm_cli.onnx_model.shapes import declared_types, model_inputs, tensor_type
from trtnorm_cli.onnx_model.walk import all_nodes
from trtnorm_cli.report.composite_norms import composite_json, composite_table, planned_changes, print_composites
from trtnorm_cli.report.console import FittedTable, counts_text, shape_text, table
from trtnorm_cli.report.norm_nodes import node_table, print_nodes, why_kept
from trtnorm_cli.report.notes import print_notes
from trtnorm_cli.report.verbosity import Verbosity
from trtnorm_cli.rewrite import driver
from trtnorm_cli.rewrite.norms.record import composite_norms
from trtnorm_cli.rewrite.pattern import describe
from trtnorm_cli.rewrite.rewriting import plan


def describe_model(path: Path) -> dict[str, Any]:
    """Inputs, outputs, opset, and every normalization node with what ``build`` would do with it.

    The nodes are those after cleaning: functions inlined, constants folded.
    """
    loaded = load_model(path)
    surgery, planned, cleaning = plan(loaded)
    composites = composite_norms(surgery, declared_types(cleaning.model))
    model = loaded.proto
    return {
        "file": path.name,
        "sha256": loaded.sha256,
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
        "ir_version": model.ir_version,
        "opset": {entry.domain or "ai.onnx": entry.version for entry in model.opset_import},
        "inputs": [
            {"name": name, "dtype": onnx.TensorProto.DataType.Name(kind.dtype).lower(), "shape": kind.shape}
            for name, kind in model_inputs(model).items()
        ],
        "outputs": [_output(value) for value in model.graph.output],
        "nodes": dict(Counter(node.op_type for node in all_nodes(model)).most_common()),
        "cleaning": dict(sorted(cleaning.counts.items())),
        "plugins": [asdict(node) for node in plugin_nodes(model)],
        "normalizations": [{**_norm(norm), "build": _outcome(norm, planned)} for norm in normalizations(cleaning.model)],
        "composite_normalizations": composite_json(composites, planned_changes(planned), planned.rejections),
        "warnings": [*loaded.warnings, *cleaning.notes],
    }


def _output(value: onnx.ValueInfoProto) -> dict[str, Any]:
    kind = tensor_type(value)
    if kind is None:
        return {"name": value.name, "dtype": "not a tensor", "shape": None}
    return {"name": value.name, "dtype": onnx.TensorProto.DataType.Name(kind.dtype).lower(), "shape": kind.shape}


def _norm(norm: Normalization) -> dict[str, Any]:
    entry = asdict(norm)
    entry["attributes"] = {key: _plain(value) for key, value in norm.attributes.items()}
    entry["epsilon"] = _plain(norm.epsilon)
    return entry


def _plain(value: object) -> object:
    """``value`` as JSON can say it: NaN and infinity as words, tensors and graphs by the name of their type."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, int | float | str | None) else type(value).__name__


def _outcome(norm: Normalization, planned: driver.Plan) -> list[str]:
    """The rule that takes the node, or why none does."""
    taken = [m.rule.name for m in planned.matches if any(describe(n) == norm.label for n in m.bound.nodes.values())]
    return taken or why_kept(norm, planned.rejections)


def print_model(out: Console, path: Path, described: dict[str, Any], verbosity: Verbosity = Verbosity.NORMAL) -> None:
    """The description as text."""
    opsets = ", ".join(f"{domain} {version}" for domain, version in described["opset"].items())
    out.print(f"{path}: {described['producer'] or 'unknown producer'}, opset {opsets}")
    out.print(f"nodes: {counts_text(described['nodes'])}")
    rows = [("input", i["name"], i["dtype"], shape_text(i["shape"])) for i in described["inputs"]]
    rows += [("output", o["name"], o["dtype"], shape_text(o["shape"])) for o in described["outputs"]]
    out.print(table("", ("", "name", "type", "shape"), rows), new_line_start=True)
    print_notes(out, described["warnings"], verbosity)
    if described["plugins"]:
        out.print(_plugin_table(described["plugins"]), new_line_start=True)
    nodes, pieces = described["normalizations"], described["composite_normalizations"]
    if not nodes and not pieces:
        out.print("\nno normalizations")
    in_full = verbosity is Verbosity.VERBOSE
    if nodes:
        out.print(node_table(nodes), new_line_start=True) if in_full else print_nodes(out, nodes)
    if pieces:
        out.print(composite_table(pieces), new_line_start=True) if in_full else print_composites(out, pieces)
    if (nodes or pieces) and not in_full:
        out.print("\nwith -v: every normalization on its own, and each rule's reason")


def _plugin_table(plugins: list[dict[str, Any]]) -> FittedTable:
    """Nodes that ask TensorRT for a plugin, and whether anybody else can run them."""
    columns = ("plugin", "name", "version", "namespace", "attributes", "elsewhere")
    rows = [
        (p["operator"], p["node"], p["version"], p["namespace"], ", ".join(p["attributes"]), _elsewhere(p)) for p in plugins
    ]
    return table("Plugin nodes", columns, rows)


def _elsewhere(plugin: dict[str, Any]) -> str:
    return "runs as the function in the file" if plugin["has_function"] else "does not run: the file has no function for it"
