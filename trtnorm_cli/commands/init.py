"""``trtnorm init``: a build profile to start from."""

from __future__ import annotations

from pathlib import Path

import click

from trtnorm_cli.commands.options import json_option, model_argument, own_memory_option, progress_option, verbosity_options
from trtnorm_cli.report.progress import ProgressChoice, shown_progress
from trtnorm_cli.report.verbosity import Verbosity


@click.command("init")
@model_argument
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    metavar="CFG.yaml",
    help="Write the profile to this file instead of printing it.",
)
@click.option("--no-run", is_flag=True, help="Skip trying the sizes in ONNX Runtime and TensorRT's parser.")
@own_memory_option
@json_option
@progress_option
@verbosity_options
def command(
    model: Path, output: Path | None, no_run: bool, as_json: bool, progress: ProgressChoice, verbosity: Verbosity
) -> None:
    """Write a commented build profile for MODEL. It fits the model as it is. Change its numbers to your needs.

    Works out what the model demands of its sizes, and writes that beside them. Runs the model in ONNX Runtime at the smallest
    and the usual sizes, and looks for other sizes where it does not run. This takes about a minute at most.

    An existing file is not overwritten.

    \b
    Example:
      trtnorm init resnet18.onnx -o cfg.yaml
    """
    from trtnorm_cli.first_profile import first_profile
    from trtnorm_cli.onnx_model.load import load_model
    from trtnorm_cli.report.json_output import json_text
    from trtnorm_cli.report.profile import starting_profile

    if output is not None and output.exists():
        raise _exists(output)
    with shown_progress("init", progress, verbosity):
        found = first_profile(load_model(model), run=not no_run)
    if verbosity is not Verbosity.QUIET:
        for note in found.notes:
            click.echo(f"note: {note}", err=True)
    if output is not None:
        _write_new(found.text, output)
    if as_json:
        click.echo(json_text("init", starting_profile(found.text, output, found.notes).to_json()))
    elif output is None:
        click.echo(found.text, nl=False)
    else:
        from trtnorm_cli.report.next_command import print_next

        click.echo(str(output) if verbosity is Verbosity.QUIET else f"wrote {output}")
        print_next(["build", str(model), "-p", str(output)], as_json, verbosity)


def _exists(output: Path) -> Exception:
    from trtnorm_cli.errors import UsageProblem

    return UsageProblem("the file exists and is not overwritten", str(output), "give another name with -o")


def _write_new(text: str, output: Path) -> None:
    from trtnorm_cli.files import cannot_write

    is_begun = False
    try:
        with output.open("x", encoding="utf-8") as stream:
            is_begun = True
            stream.write(text)
    except FileExistsError as error:
        raise _exists(output) from error
    except OSError as error:
        if is_begun:
            output.unlink(missing_ok=True)
        raise cannot_write("the file", output, error, "choose another folder") from error
