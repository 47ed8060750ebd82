"""``trtnorm diff``: two models, networks or engines held against each other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtnorm_cli.commands.options import (
    backend_option,
    export_options,
    json_option,
    own_memory_option,
    profile_option,
    progress_option,
    weights_option,
)
from trtnorm_cli.report.progress import ProgressChoice, shown_progress

if TYPE_CHECKING:
    from trtnorm_cli.export.options import ExportOptions

# In the words of ``differences.record``, which ``--help`` must not import.
KINDS = (
    "versions", "model", "metadata", "sizes", "types", "names", "operators", "weights", "norms", "rewriting", "layers",
    "kernels", "time", "traffic", "size", "errors",
)  # fmt: skip


@click.command("diff")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option(
    "--fail-on", multiple=True, type=click.Choice([*KINDS, "anything"]), metavar="WHAT",
    help=f"Fail with exit code 1 when the two differ in WHAT: {', '.join(KINDS)}, or anything. Repeatable.",
)  # fmt: skip
@click.option("--all", "every", is_flag=True, help="Show every node, weight and part that differs.")
@click.option("--exported", is_flag=True, help="Compare two PyTorch models node by node, as they are exported.")
@profile_option
@weights_option
@export_options
@backend_option
@own_memory_option
@json_option
@progress_option
def command(
    first: str,
    second: str,
    fail_on: tuple[str, ...],
    every: bool,
    exported: bool,
    profile: Path | None,
    weights: Path | None,
    exporting: ExportOptions,
    backend: str | None,
    as_json: bool,
    progress: ProgressChoice,
) -> None:
    """Show in what two models, networks or engines differ.

    A and B are two of these:

    \b
      model.onnx          its nodes, weights, normalizations, types and sizes
      network:model.onnx  the network that TensorRT's parser makes of it
      model.engine        or its manifest: versions, sizes, kernels, estimates
      model.py:callable   its normalization modules; its graph beside a model.onnx,
                          or with --exported

    Nodes are matched by their place in the graph and by their names, so that a node put in is one difference. Kernels are
    matched by the ONNX nodes that they come from. An engine beside a model shows whether it was built from that. Times are
    estimates, and differ where that is by more than 1 %.

    \b
    Example:
      trtnorm diff model.onnx fixed.onnx
      trtnorm diff old.engine new.engine --fail-on time --fail-on kernels
    """
    from trtnorm_cli import api
    from trtnorm_cli.report.console import console
    from trtnorm_cli.report.diff import print_diff
    from trtnorm_cli.report.json_output import json_text
    from trtnorm_cli.report.next_command import after_diff, print_next
    from trtnorm_cli.target import parse_target

    options = replace(exporting, backend=backend, weights=weights)
    with shown_progress("diff", progress):
        diff = api.diff(first, second, exported=exported, profile=profile, backend=backend, exporting=options)
    click.echo(json_text("diff", diff.to_json())) if as_json else print_diff(console(), diff, every)
    print_next(after_diff(parse_target(first), parse_target(second), bool(diff.kinds), exported), as_json)
    failing = diff.kinds if "anything" in fail_on else diff.kinds & set(fail_on)
    if failing:
        click.echo(f"the two differ in {', '.join(sorted(failing))}", err=True)
        raise click.exceptions.Exit(1)
