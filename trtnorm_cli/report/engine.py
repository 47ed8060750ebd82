"""The description of an engine or of its manifest, as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from trtnorm_cli.onnx_model.shapes import NamedType
from trtnorm_cli.records.engine_parts import Kernel, NetworkTensor
from trtnorm_cli.report.build import summary_rows
from trtnorm_cli.report.composite_norms import composite_lines
from trtnorm_cli.report.console import shape_text, table
from trtnorm_cli.report.cost import nodes_text, print_kernels
from trtnorm_cli.report.ends import print_ends
from trtnorm_cli.report.norm_lines import NormLine, outcome_key, print_norm_lines
from trtnorm_cli.report.rules import headline_of
from trtnorm_cli.tensorrt.engine_file import EngineDescription
from trtnorm_cli.tensorrt.manifest import Manifest, Network

_SHOWN = 40


def print_engine(out: Console, found: EngineDescription, every: bool = False, by_name: bool = False) -> None:
    """Print the manifest's summary, inputs, outputs, normalizations and kernels, and what TensorRT's inspector says.

    With ``by_name`` print what there is of the nodes that the user asked for, instead of the summary.
    """
    manifest = found.manifest
    out.print(f"{found.path}: built from {manifest.source.file} by trtnorm {manifest.versions.trtnorm}")
    if found.matches_manifest is False:
        out.print("warning: the engine's bytes are not those that the manifest describes")
    if not by_name:
        network = manifest.network
        print_ends(out, _with_names(network, network.inputs), _with_names(network, network.outputs), every)
        out.print(table("", ("", ""), summary_rows(manifest)), new_line_start=True)
    _print_norms(out, manifest, every)
    if by_name:
        _print_parts(out, manifest, every)
    if manifest.cost is not None and manifest.cost.kernels:
        print_kernels(out, manifest.cost, manifest.network.kernels, every)
    elif by_name:
        _print_kernel_names(out, [one for one in manifest.network.kernels if isinstance(one, Kernel)], every)
    inspector = found.inspector
    if inspector.engine is not None:
        out.print(f"inspector: {len(inspector.engine.get('Layers', []))} layers")
    elif not by_name:
        out.print(f"inspector: {inspector.reason}")


def _with_names(network: Network, tensors: Sequence[NetworkTensor]) -> list[NamedType]:
    """The tensors with the names of dynamic sizes, where the manifest has them."""
    return [NamedType(one.name, one.dtype, _shape(one, network.dimensions.get(one.name))) for one in tensors]


def _shape(tensor: NetworkTensor, declared: Sequence[int | str | None] | None) -> tuple[int | str | None, ...] | None:
    if tensor.shape is None:
        return None if declared is None else tuple(declared)
    names = declared if declared is not None and len(declared) == len(tensor.shape) else [None] * len(tensor.shape)
    return tuple(size if size >= 0 else name for size, name in zip(tensor.shape, names, strict=True))


def _print_norms(out: Console, manifest: Manifest, every: bool) -> None:
    """Print what became of each normalization. With ``every`` none is grouped with others."""

    def headline(rule: str) -> str | None:
        """The sentence of the release that built the engine, or else of this one."""
        document = manifest.rules.get(rule, "").strip()
        return document.splitlines()[0] if document else headline_of(rule)

    norms = manifest.normalizations
    nodes = [NormLine(one.operator, one.node, "", one.outcome, outcome_key(one.outcome)) for one in norms.outcomes]
    for title, lines in (("Normalizations", nodes), ("Normalizations in pieces", composite_lines(norms.composite))):
        kept = [replace(line, key=(line.key, at)) for at, line in enumerate(lines)] if every else lines
        if kept:
            print_norm_lines(out, title, kept, headline)


def _print_parts(out: Console, manifest: Manifest, every: bool) -> None:
    """Print changes of the model and layers of the network."""
    names = () if every else (0,)
    changes = [(one.node, one.rule, f"{one.check.max_rel:.1e}", one.because) for one in manifest.changes]
    layers = [(one.name, one.type, "; ".join(map(_output, one.outputs))) for one in manifest.network.layers]
    for title, columns, rows in (
        ("Changes", ("node", "rule", "check error", "because"), changes),
        ("Network layers", ("layer", "type", "output"), layers),
    ):
        shown = rows if every else rows[:_SHOWN]
        if shown:
            out.print(table(title, columns, shown, names=names), new_line_start=True)
        if len(shown) < len(rows):
            out.print(f"and {len(rows) - len(shown)} more; --all shows them")


def _output(tensor: NetworkTensor) -> str:
    shape = None if tensor.shape is None else [size if size >= 0 else None for size in tensor.shape]
    return f"{shape_text(shape)} {tensor.dtype.lower()}"


def _print_kernel_names(out: Console, kernels: Sequence[Kernel], every: bool) -> None:
    """Print kernels of which no cost is known."""
    if kernels:
        rows = [(one.type, ", ".join(one.onnx_nodes) if every else nodes_text(one.onnx_nodes)) for one in kernels]
        out.print(table("Kernels", ("type", "nodes"), rows), new_line_start=True)
