"""``trtnorm init``: a build profile to start from."""

from __future__ import annotations

import json
from pathlib import Path

import click

from trtnorm_cli.commands.options import json_option, model_argument, verbosity_options
from trtnorm_cli.report.verbosity import Verbosity


@click.command("init")
@model_argument
@click.option("--output", "-o", type=click.Path(path_type=Path), metavar="CFG.yaml", help="Default: print it.")
@json_option
@verbosity_options
def command(model: Path, output: Path | None, as_json: bool, verbosity: Verbosity) -> None:
    """Write a commented build profile for MODEL: it loads and fits as it is, and its numbers are meant to be changed.

    What the model demands of its sizes is worked out, and written beside them.

    An existing file is not overwritten.

    \b
    Example:
      trtnorm init resnet18.onnx -o cfg.yaml
    """
    from trtnorm_cli.onnx_model.load import load_model
    from trtnorm_cli.prepare import inputs_of
    from trtnorm_cli.profile.paste import starting_profile
    from trtnorm_cli.profile.start import start_for
    from trtnorm_cli.report.profile import starting_profile_json

    proto = load_model(model).proto
    inputs = inputs_of(proto)
    text = starting_profile(model.name, inputs, start_for(proto, inputs))
    if output is not None:
        _write_new(text, output)
    if as_json:
        click.echo(json.dumps(starting_profile_json(text, output), indent=2))
    elif output is None:
        click.echo(text, nl=False)
    else:
        click.echo(str(output) if verbosity is Verbosity.QUIET else f"wrote {output}")


def _write_new(text: str, output: Path) -> None:
    from trtnorm_cli.errors import UsageProblem

    try:
        with output.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError as error:
        raise UsageProblem("the file exists and is not overwritten", str(output), "give another name with -o") from error
    except OSError as error:
        raise UsageProblem(f"the file cannot be written: {error.strerror}", str(output), "choose another folder") from error
