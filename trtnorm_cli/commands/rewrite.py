"""``trtnorm rewrite``: the rewriting alone."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtnorm_cli.commands.options import (
    dynamic_quantization_option,
    export_options,
    json_option,
    own_memory_option,
    precision_option,
    profile_option,
    progress_option,
    snap_option,
    spec_argument,
    verbosity_options,
    weights_option,
)
from trtnorm_cli.report.progress import ProgressChoice, shown_progress
from trtnorm_cli.report.verbosity import Verbosity

if TYPE_CHECKING:
    from trtnorm_cli.export.options import ExportOptions


@click.command("rewrite")
@spec_argument
@click.option("--output", "-o", type=click.Path(path_type=Path), metavar="FIXED.onnx", help="Save the result to this file.")
@profile_option
@precision_option
@dynamic_quantization_option
@snap_option
@weights_option
@export_options
@click.option("--dry-run", is_flag=True, help="Prove every change but write nothing.")
@click.option("--explain", is_flag=True, help="List every normalization with the rule that took it, or why none did.")
@own_memory_option
@json_option
@progress_option
@verbosity_options
def command(
    model: str,
    output: Path | None,
    profile: Path | None,
    precision: str | None,
    dynamic_quantization: str | None,
    snap: bool,
    weights: Path | None,
    exporting: ExportOptions,
    dry_run: bool,
    explain: bool,
    as_json: bool,
    progress: ProgressChoice,
    verbosity: Verbosity,
) -> None:
    """Rewrite the normalization layers of MODEL and save the result.

    MODEL is an ONNX file, or a PyTorch model as `trtnorm export` takes it. A PyTorch model is exported first. Each change is
    kept only when its numeric check passes. A profile adds the shapes to check at, and rules to skip.

    \b
    Example:
      trtnorm rewrite resnet18.onnx -o fixed.onnx --explain
    """
    from trtnorm_cli import api
    from trtnorm_cli.report.json_output import json_text
    from trtnorm_cli.report.next_command import Given, after_rewrite, print_next
    from trtnorm_cli.report.profile import print_proof_notes
    from trtnorm_cli.report.rewrite import print_rewriting

    if output is None and not dry_run:
        raise click.UsageError("give the name of the result with -o FIXED.onnx, or --dry-run to write nothing")
    with shown_progress("rewrite", progress, verbosity):
        done = api.rewrite(
            model,
            None if dry_run else output,
            profile=profile,
            precision=precision,
            dynamic_quantization=dynamic_quantization,
            snap=snap,
            exporting=replace(exporting, weights=weights),
            on_proof=partial(print_proof_notes, verbosity=verbosity),
            in_memory=False,
        )
    if as_json:
        click.echo(json_text("rewrite", done.to_json()))
    print_rewriting(done, explain, as_json, verbosity)
    print_next(after_rewrite(model, done, Given(profile, precision, dynamic_quantization, weights)), as_json, verbosity)
