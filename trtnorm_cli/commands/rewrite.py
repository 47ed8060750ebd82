"""``trtnorm rewrite``: the rewriting alone."""

from __future__ import annotations

import json
from pathlib import Path

import click

from trtnorm_cli.commands.options import json_option, model_argument, profile_option, snap_option, weights_option


@click.command("rewrite")
@model_argument
@click.option("--output", "-o", type=click.Path(path_type=Path), metavar="FIXED.onnx", help="Where to save the result.")
@profile_option
@snap_option
@weights_option
@click.option("--dry-run", is_flag=True, help="Prove every change, and write nothing.")
@click.option("--explain", is_flag=True, help="List every normalization with the rule that took it, or why none did.")
@json_option
def command(
    model: Path,
    output: Path | None,
    profile: Path | None,
    snap: bool,
    weights: Path | None,
    dry_run: bool,
    explain: bool,
    as_json: bool,
) -> None:
    """Rewrite the normalization layers of MODEL and save the result.

    Each change is kept only when its numeric check passes. The profile's rules and shapes are used when it is given.

    \b
    Example:
      trtnorm rewrite resnet18.onnx -o fixed.onnx --explain
    """
    from trtnorm_cli import pipeline
    from trtnorm_cli.prepare import rewrite_alone
    from trtnorm_cli.report.profile import print_notes
    from trtnorm_cli.report.rewrite import print_rewriting, rewriting_json

    if output is None and not dry_run:
        raise click.UsageError("give the name of the result with -o FIXED.onnx, or --dry-run to write nothing")
    loaded, rewriting = rewrite_alone(model, profile, weights, snap, print_notes)
    written = []
    if output is not None and not dry_run:
        written = pipeline.rewrite_to(rewriting, loaded, output, profile)
    else:
        rewriting.require_all_checks_passed()
    if as_json:
        click.echo(json.dumps(rewriting_json(loaded, rewriting, written), indent=2))
    print_rewriting(loaded, rewriting, written, explain, stderr=as_json)
