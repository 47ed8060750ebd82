"""``trtnorm inspect``: the contents of a model, a TensorRT network, an engine or a manifest."""

from __future__ import annotations

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
@click.option("--all", "every", is_flag=True, help="Show each normalization, layer and kernel on its own, with whole names.")
@click.option(
    "--nodes", multiple=True, metavar="PATTERN",
    help="Show only nodes whose names fit, with * for any characters and ? for one. Repeatable.",
)  # fmt: skip
@weights_option
@backend_option
@own_memory_option
@json_option
@progress_option
@verbosity_options
def command(
    target: str,
    output: Path | None,
    every: bool,
    nodes: tuple[str, ...],
    weights: Path | None,
    backend: str | None,
    as_json: bool,
    progress: ProgressChoice,
    verbosity: Verbosity,
) -> None:
    """Show what is in a model, in the network that TensorRT's parser makes of it, in an engine, or in a manifest.

    MODEL is one of these:

    \b
      model.onnx          shows inputs, outputs and every normalization, and what
                          `build` would do with each
      network:model.onnx  shows the layers that TensorRT's parser makes of it
      model.engine        shows what it was made of, and its kernels
      model.engine.json   shows the same; the engine need not be there
      model.py:callable   shows every normalization module of a PyTorch model
      model.onnx.json     shows how `export` made the model

    Normalizations that are alike share a line, with a pattern that their names fit.

    \b
    Example:
      trtnorm inspect resnet18.onnx
      trtnorm inspect resnet18.onnx --nodes 'layer4*' --all
      trtnorm inspect network:resnet18.onnx -o network.onnx
      trtnorm inspect resnet18.engine
      trtnorm inspect model.py:resnet18
    """
    from trtnorm_cli import api
    from trtnorm_cli.report.json_output import DESCRIPTIONS, json_text
    from trtnorm_cli.target import parse_target

    spec = parse_target(target)
    showing = shown_progress("inspect", progress, verbosity)
    if output is not None and spec.kind != "network":
        raise click.UsageError("-o saves the network of network:MODEL.onnx; a model or an engine is a file already")
    with showing:
        described = api.inspect(target, output=output, weights=weights, backend=backend, nodes=nodes)
    if as_json:
        click.echo(json_text(DESCRIPTIONS[type(described).__name__], described.to_json()))
        return
    from trtnorm_cli.report.console import console
    from trtnorm_cli.report.inspection import print_inspection
    from trtnorm_cli.report.next_command import Given, after_inspection, print_next

    print_inspection(console(), spec, described, output, verbosity, every, bool(nodes))
    print_next(after_inspection(spec, described, Given(weights=weights, backend=backend), every), as_json, verbosity)
