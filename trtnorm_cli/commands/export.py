"""``trtnorm export``: a PyTorch model to ONNX."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtnorm_cli.commands.options import (
    backend_option,
    dynamic_quantization_option,
    export_options,
    json_option,
    own_memory_option,
    precision_option,
    profile_option,
    progress_option,
    verbosity_options,
    weights_option,
)
from trtnorm_cli.report.progress import ProgressChoice, shown_progress
from trtnorm_cli.report.verbosity import Verbosity

if TYPE_CHECKING:
    from trtnorm_cli.export.options import ExportOptions


@click.command("export")
@click.argument("spec", metavar="SPEC")
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), metavar="MODEL.onnx",
    help="Write the ONNX model to this file. Default: the callable's name in the current folder.",
)  # fmt: skip
@profile_option
@precision_option
@dynamic_quantization_option
@weights_option
@export_options
@click.option("--update-profile", is_flag=True, help="Write the sizes that the model turned out to take into CFG.yaml.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Draw the random inputs of the comparison from this seed.",
)
@backend_option
@own_memory_option
@json_option
@progress_option
@verbosity_options
def command(
    spec: str,
    output: Path | None,
    profile: Path | None,
    precision: str | None,
    dynamic_quantization: str | None,
    weights: Path | None,
    exporting: ExportOptions,
    update_profile: bool,
    seed: int,
    backend: str | None,
    as_json: bool,
    progress: ProgressChoice,
    verbosity: Verbosity,
) -> None:
    """Export the PyTorch model SPEC to ONNX, and compare the ONNX model with it.

    SPEC is path/to/file.py:callable, package.module:callable, or a saved program.pt2. The callable returns the module, or
    (module, example inputs). Dynamic sizes come from the build profile. Sizes that the model's code does not accept are
    found and left out. With --precision the model is rewritten and converted too,
    with --dynamic-quantization float rewritten.

    \b
    Example:
      trtnorm export model.py:flow_network -p cfg.yaml -o flow.onnx
    """
    from trtnorm_cli import api
    from trtnorm_cli.report.export import print_export
    from trtnorm_cli.report.json_output import json_text
    from trtnorm_cli.report.next_command import Given, after_export, print_next

    options = replace(exporting, backend=backend, seed=seed, weights=weights)
    if update_profile and profile is None:
        raise click.UsageError("--update-profile needs the build profile: --profile CFG.yaml")
    with shown_progress("export", progress, verbosity):
        done = api.export(
            spec,
            output,
            profile=profile,
            precision=precision,
            dynamic_quantization=dynamic_quantization,
            options=options,
            update_profile=update_profile,
        )
    if as_json:
        click.echo(json_text("export", done.manifest.to_json()))
    print_export(done, as_json, verbosity)
    misfits = bool(done.suggested) and not done.updated
    print_next(after_export(done.path, done.manifest, Given(profile, backend=backend), misfits), as_json, verbosity)
