"""``trtnorm inspect``: the contents of a model, a TensorRT network or an engine."""

from __future__ import annotations

import json
from pathlib import Path

import click

from trtnorm_cli.commands.options import (
    backend_option,
    json_option,
    own_memory_option,
    progress_option,
    verbosity_options,
    weights_option,
)
from trtnorm_cli.report.progress import ProgressChoice, shown_progress
from trtnorm_cli.report.verbosity import Verbosity


@click.command("inspect")
@click.argument("target", metavar="MODEL")
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    metavar="NETWORK.onnx",
    help="Save the network that network:MODEL.onnx shows, as ONNX.",
)
@weights_option
@backend_option
@own_memory_option
@json_option
@progress_option
@verbosity_options
def command(
    target: str,
    output: Path | None,
    weights: Path | None,
    backend: str | None,
    as_json: bool,
    progress: ProgressChoice,
    verbosity: Verbosity,
) -> None:
    """Show what is in a model, in the network that TensorRT's parser makes of it, or in an engine.

    MODEL is one of these:

    \b
      model.onnx          shows inputs, outputs and every normalization, and what
                          `build` would do with each
      network:model.onnx  shows the layers that TensorRT's parser makes of it
      model.engine        shows what it was made of
      model.py:callable   shows every normalization module of a PyTorch model

    \b
    Example:
      trtnorm inspect resnet18.onnx
      trtnorm inspect network:resnet18.onnx -o network.onnx
      trtnorm inspect resnet18.engine
      trtnorm inspect model.py:resnet18
    """
    from trtnorm_cli.report.console import console
    from trtnorm_cli.target import parse_target

    spec = parse_target(target)
    showing = shown_progress("inspect", progress, verbosity)
    if output is not None and spec.kind != "network":
        raise click.UsageError("-o saves the network of network:MODEL.onnx; a model or an engine is a file already")
    if spec.is_pytorch:
        from trtnorm_cli.export.inspecting import inspect_module
        from trtnorm_cli.report.norm_modules import print_module

        with showing:
            found = inspect_module(spec, weights)
        click.echo(json.dumps(found.to_json(), indent=2)) if as_json else print_module(console(), spec.text, found, verbosity)
    elif spec.kind == "engine":
        from trtnorm_cli.report.engine import print_engine
        from trtnorm_cli.tensorrt.engine_file import inspect_engine

        with showing:
            engine = inspect_engine(spec.path)
        click.echo(json.dumps(engine.to_json(), indent=2)) if as_json else print_engine(console(), spec.path, engine)
    elif spec.kind == "network":
        from trtnorm_cli.report.network import print_network
        from trtnorm_cli.tensorrt.network.describe import describe_network

        with showing:
            described = describe_network(spec.path, output, backend)
        click.echo(json.dumps(described.to_json(), indent=2)) if as_json else print_network(
            console(), described, output, verbosity
        )
    else:
        from trtnorm_cli.report.model import print_model
        from trtnorm_cli.rewrite.describe import describe_model

        with showing:
            model = describe_model(spec.path)
        if as_json:
            click.echo(json.dumps(model.to_json(), indent=2))
        else:
            print_model(console(), spec.path, model, verbosity)
