"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

from trtnorm_cli.build.backend import NAMES

model_argument = click.argument("model", type=click.Path(path_type=Path))
profile_option = click.option(
    "--profile", "-p", type=click.Path(path_type=Path), metavar="CFG.yaml", help="Build profile; see configs/."
)
weights_option = click.option(
    "--weights",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A .safetensors or .pt file to take parameters from that do not fit.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON to stdout and everything else to stderr.")
backend_option = click.option(
    "--backend",
    type=click.Choice(NAMES),
    help="Which TensorRT; by default tensorrt if it can be imported, else tensorrt-rtx.",
)
