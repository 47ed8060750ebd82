"""``trtnorm inspect``: what is in a model or an engine."""

from __future__ import annotations

import json
from pathlib import Path

import click

from trtnorm_cli.commands.options import json_option


@click.command("inspect")
@click.argument("target", metavar="MODEL.onnx|OUT.engine", type=click.Path(path_type=Path))
@json_option
def command(target: Path, as_json: bool) -> None:
    """Show inputs, outputs and every normalization node of a model, or what an engine was made of.

    An engine is recognised by its manifest (OUT.engine.json) or by its first bytes.

    \b
    Example:
      trtnorm inspect resnet18.onnx
      trtnorm inspect resnet18.engine
    """
    from trtnorm_cli.report.console import console

    if _is_engine(target):
        from trtnorm_cli.engine import inspect_engine
        from trtnorm_cli.report.engine import print_engine

        found = inspect_engine(target)
        click.echo(json.dumps(found, indent=2)) if as_json else print_engine(console(), target, found)
        return
    from trtnorm_cli.report.model import describe_model, print_model

    described = describe_model(target)
    click.echo(json.dumps(described, indent=2)) if as_json else print_model(console(), target, described)


def _is_engine(target: Path) -> bool:
    from trtnorm_cli.engine import looks_like_engine

    return looks_like_engine(target)
