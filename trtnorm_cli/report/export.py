"""The table at the end of an export."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from trtnorm_cli.compare.result import NOT_COMPARED
from trtnorm_cli.onnx_model.shapes import format_shape
from trtnorm_cli.records.comparison import ComparisonRecord
from trtnorm_cli.records.export import ExportRecord, LearntDimension
from trtnorm_cli.report.accidents import accident_lines, print_accidents, print_weights, weight_warnings
from trtnorm_cli.report.compare import finite
from trtnorm_cli.report.console import console, print_warnings, table
from trtnorm_cli.report.norm_modules import print_norm_modules
from trtnorm_cli.report.notes import print_notes, print_results_alone
from trtnorm_cli.report.precision import print_precision
from trtnorm_cli.report.verbosity import Verbosity

if TYPE_CHECKING:
    from trtnorm_cli.export.command import WrittenExport


def print_export(done: WrittenExport, as_json: bool = False, verbosity: Verbosity = Verbosity.NORMAL) -> None:
    """Print which exporter ran and why, inputs and outputs, what was learnt about sizes, and how far the result is off."""
    if verbosity is Verbosity.QUIET:
        print_results_alone((done.path, done.manifest_path), export_warnings(done.manifest), as_json)
        return
    out = console(as_json)
    out.print(table("", ("", ""), export_rows(done.manifest)), new_line_start=True)
    print_export_details(out, done.manifest, verbosity)
    if done.manifest.precision is not None:
        print_precision(out, done.manifest.precision, verbosity)
    if done.updated:
        out.print("\nbuild profile updated: " + "; ".join(map(str, done.updated)))
    elif done.suggested:
        out.print("\nto write this into the build profile, add --update-profile:")
        for line in done.suggested:
            out.print(f"  {line}", soft_wrap=True)
    out.print(f"\nmodel     {done.path}\nmanifest  {done.manifest_path}", soft_wrap=True)


def print_export_details(out: Console, manifest: ExportRecord, verbosity: Verbosity = Verbosity.NORMAL) -> None:
    """Print what was put right in the module, the warnings, and the notes."""
    print_weights(out, manifest.weights)
    print_accidents(out, manifest.accidents)
    print_warnings(out, dimension_warnings(manifest))
    print_notes(out, [*manifest.skipped, *manifest.notes, *manifest.exporter_warnings], verbosity)


def print_export_manifest(out: Console, path: Path, found: ExportRecord, every: bool, verbosity: Verbosity) -> None:
    """Print the manifest of an export, as the export ended with it, and the normalization modules."""
    made_by = f"trtnorm {found.versions.trtnorm} with PyTorch {found.versions.torch}"
    out.print(f"{path}: {found.model.file}, exported from {found.spec} by {made_by}")
    out.print(table("", ("", ""), export_rows(found)), new_line_start=True)
    remark = "these are the modules of the PyTorch model, before the export"
    print_norm_modules(out, found.normalizations, remark, every)
    print_export_details(out, found, verbosity)
    if found.precision is not None:
        print_precision(out, found.precision, verbosity)


def export_warnings(manifest: ExportRecord) -> list[str]:
    """The warnings of an export."""
    return [
        *weight_warnings(manifest.weights),
        *accident_lines(manifest.accidents, "warning"),
        *dimension_warnings(manifest),
    ]


def export_rows(manifest: ExportRecord) -> list[tuple[str, str]]:
    """The record of an export as rows of a table, which a build shows at its end as well."""
    inputs = [f"{held.name}: {held.dtype} {format_shape(held.shape)}" for held in manifest.inputs]
    return [
        ("exporter", f"{manifest.exporter}, opset {manifest.opset} ({manifest.because})"),
        ("inputs", "; ".join(inputs)),
        ("outputs", ", ".join(manifest.outputs)),
        *[(f"  {d.name}", _dimension_text(d)) for d in manifest.dimensions if d.multiple_of > 1 or d.reasons],
        ("against PyTorch", _comparison_text(manifest.comparison)),
    ]


def dimension_warnings(manifest: ExportRecord) -> list[str]:
    """A line for each dimension that takes fewer sizes than were asked for."""
    warnings = []
    for d in manifest.dimensions:
        if d.changed:
            asked, taken = (f"{values[0]} to {values[2]}" for values in (d.asked, d.taken))
            multiple = f", multiples of {d.multiple_of}" if d.multiple_of > 1 else ""
            warnings.append(f"{d.name} was asked for from {asked}; the model takes {taken}{multiple}")
    return warnings


def _dimension_text(d: LearntDimension) -> str:
    multiple = f"multiples of {d.multiple_of} " if d.multiple_of > 1 else ""
    lines = [f"{multiple}from {d.taken[0]} to {d.taken[2]}"]
    if d.reasons:
        more = len(d.reasons) - 1
        lines.append(f"because {d.reasons[0]}" + (f", and {more} more" if more else ""))
    return ", ".join(lines)


def _comparison_text(comparison: ComparisonRecord | None) -> str:
    if comparison is None:
        return "not compared"
    worst = finite(output.native_distance for candidate in comparison.candidates for output in candidate.outputs)
    if comparison.state == NOT_COMPARED:
        return f"NOT COMPARED: {'; '.join(comparison.not_compared)}"
    return f"{comparison.state} at {', '.join(comparison.at)}" + (f", at most {max(worst):.1e} away" if worst else "")
