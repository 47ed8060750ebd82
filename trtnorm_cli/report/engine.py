"""The description of an engine, as text."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from trtnorm_cli.report.build import summary_rows
from trtnorm_cli.report.console import shape_text, table
from trtnorm_cli.report.cost import print_kernels
from trtnorm_cli.tensorrt.engine_file import EngineDescription


def print_engine(out: Console, path: Path, found: EngineDescription) -> None:
    """The manifest's summary, inputs and outputs, and the inspector's layer count where there is a GPU."""
    manifest = found.manifest
    out.print(f"{path}: built from {manifest.source.file} by trtnorm {manifest.versions.trtnorm}")
    if not found.matches_manifest:
        out.print("warning: the engine's bytes are not those that the manifest describes")
    rows = [("input", t.name, t.dtype, shape_text(t.shape)) for t in manifest.network.inputs]
    rows += [("output", t.name, t.dtype, shape_text(t.shape)) for t in manifest.network.outputs]
    out.print(table("", ("", "name", "type", "shape"), rows))
    out.print(table("", ("", ""), summary_rows(manifest)), new_line_start=True)
    if manifest.cost is not None:
        print_kernels(out, manifest.cost, manifest.network.kernels)
    inspector = found.inspector
    if inspector.engine is not None:
        out.print(f"inspector: {len(inspector.engine.get('Layers', []))} layers")
    else:
        out.print(f"inspector: {inspector.reason}")
