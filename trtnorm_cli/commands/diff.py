"""``trtnorm diff``: two engines held against each other."""

from __future__ import annotations

import json
from pathlib import Path

import click

from trtnorm_cli.commands.options import json_option

# In the words of ``tensorrt.engine_diff``, which ``--help`` must not import.
KINDS = (
    "versions", "model", "sizes", "types", "norms", "rewriting", "layers", "kernels", "time", "traffic", "size", "errors",
)  # fmt: skip


@click.command("diff")
@click.argument("first", type=click.Path(path_type=Path), metavar="A.engine")
@click.argument("second", type=click.Path(path_type=Path), metavar="B.engine")
@click.option(
    "--fail-on", multiple=True, type=click.Choice([*KINDS, "anything"]), metavar="WHAT",
    help=f"Fail with exit code 1 when the engines differ in WHAT: {', '.join(KINDS)}, or anything.",
)  # fmt: skip
@click.option("--all", "every", is_flag=True, help="Show every part whose kernels differ.")
@json_option
def command(first: Path, second: Path, fail_on: tuple[str, ...], every: bool, as_json: bool) -> None:
    """Show in what two engines differ, and which kernels each has for the same nodes.

    A and B are engines or their manifests: before and after a change, in two precisions, of two releases of TensorRT. Kernels
    are matched by the ONNX nodes that they come from. Times are estimates, and differ where that is by more than 1 %.

    \b
    Example:
      trtnorm diff old.engine new.engine
      trtnorm diff old.engine new.engine --fail-on time --fail-on kernels
    """
    from trtnorm_cli.report.console import console
    from trtnorm_cli.report.diff import print_diff
    from trtnorm_cli.tensorrt.engine_diff import engine_diff
    from trtnorm_cli.tensorrt.engine_file import manifest_beside

    diff = engine_diff(manifest_beside(first)[1], manifest_beside(second)[1])
    click.echo(json.dumps(diff.to_json(), indent=2)) if as_json else print_diff(console(), diff, every)
    failing = diff.kinds if "anything" in fail_on else diff.kinds & set(fail_on)
    if failing:
        click.echo(f"the engines differ in {', '.join(sorted(failing))}", err=True)
        raise click.exceptions.Exit(1)
