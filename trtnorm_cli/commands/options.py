"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

from trtnorm_cli.build.backend import NAMES

model_argument = click.argument("model", type=click.Path(path_type=Path))
profile_option = click.option(
    "--profile", "-p", type=click.Path(path_type=Path), metavar="CFG.yaml", help="Build profile; see configs/."
)
snap_option = click.option(
    "--snap", is_flag=True, help="Move sizes in the profile that do not fit the model to the nearest ones that do."
)
weights_option = click.option(
    "--weights",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A .safetensors or .pt file to take parameters from that do not fit.",
)


def _size(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Bytes of a size such as ``4GiB``."""
    from pydantic import ValidationError

    from trtnorm_cli.profile.scalars import read_bytes

    try:
        return None if value is None else read_bytes(int(value) if value.isdigit() else value)
    except ValidationError as error:
        raise click.BadParameter(error.errors()[0]["msg"]) from None


memory_option = click.option("--memory", callback=_size, metavar="SIZE", help="Stop the builder above, as in 4GiB.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON to stdout and everything else to stderr.")
backend_option = click.option(
    "--backend",
    type=click.Choice(NAMES),
    help="Which TensorRT; by default tensorrt if it can be imported, else tensorrt-rtx.",
)
