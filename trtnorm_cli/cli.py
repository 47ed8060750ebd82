"""The command group, the one error boundary, and the exit codes. Commands are imported only when they run."""

from __future__ import annotations

import difflib
import importlib
import io
import os
import signal
import sys
from typing import NoReturn

import click

from trtnorm_cli import __version__
from trtnorm_cli.errors import TrtnormError

# One line for each command; the module is imported when the command runs, so that --help stays quick.
COMMANDS = {
    "build": "Rewrite a model, prove each change, and build a TensorRT engine.",
    "export": "Export a PyTorch model to ONNX, with dynamic sizes solved.",
    "rewrite": "Rewrite the normalization layers of a model and save it.",
    "inspect": "Show what is in a model or an engine.",
    "compare": "Compare a model with its rewriting or with another model.",
    "init": "Write a build profile to start from.",
    "schema": "Print the JSON Schema of the build profile.",
    "doctor": "Show what is installed, what it can build, and what is missing.",
    "rules": "List the rewrite rules, or show one.",
}

EXIT_DEFECT = 70
EXIT_INTERRUPTED = 130


class LazyGroup(click.Group):
    """A group whose commands live in ``trtnorm_cli.commands.<name>`` as ``command``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"trtnorm_cli.commands.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise click.UsageError(f"there is no command '{args[0]}'{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="trtnorm")
def cli() -> None:
    """Turn PyTorch and ONNX models into TensorRT engines and get every normalization layer right.

    \b
    Example:
      trtnorm build model.onnx --profile cfg.yaml

    Exit codes: 0 done, 1 out of tolerance, 2 usage or build profile, 3 model cannot be read, 4 a rewrite was refused,
    5 TensorRT refused the model, 6 the builder died, 70 a defect in trtnorm, 130 interrupted.
    """


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit; every error becomes one message and an exit code here."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names in a model or on the disk need not fit the terminal's encoding
            stream.reconfigure(errors="backslashreplace")
    # Being asked to end is being interrupted: what is half done is removed on the way out.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    code = run(arguments)
    if code == EXIT_INTERRUPTED:
        # Python ends itself with SIGINT when an interrupt has passed through exec(), although it was handled here.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def run(arguments: list[str] | None = None) -> int:
    try:
        # Without standalone mode, a command returns its exit code.
        code = cli.main(arguments, prog_name="trtnorm", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except TrtnormError as error:
        print(render(error), file=sys.stderr)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except (BrokenPipeError, SystemExit):  # click and rich leave when nobody reads the output any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception:
        print(_report_defect(), file=sys.stderr)
        return EXIT_DEFECT


def render(error: TrtnormError) -> str:
    """The error as text: where and what on the first line, the hint below."""
    where = error.where or ""
    lines = [f"error: {where}: {error.summary}" if where and "\n" not in where else f"error: {error.summary}"]
    if "\n" in where:
        lines += [f"  {line}" for line in where.splitlines()]
    if error.hint:
        first, *rest = error.hint.splitlines()
        lines += [f"  fix: {first}", *(f"       {line}" for line in rest)]
    return "\n".join(lines)


def _report_defect() -> str:
    """Write the traceback with versions to a log and return the message that names it."""
    import platform
    import tempfile
    import traceback

    text = f"trtnorm {__version__}, Python {platform.python_version()}, {platform.platform()}\n{_versions()}\n"
    text += f"command: {sys.argv[1:]}\n\n{traceback.format_exc()}"
    last = traceback.format_exc().strip().splitlines()[-1]
    try:
        with tempfile.NamedTemporaryFile("w", prefix="trtnorm-defect-", suffix=".log", delete=False, encoding="utf-8") as log:
            log.write(text)
        evidence = log.name
    except OSError as error:
        evidence = f"what follows (it cannot be saved: {error.strerror})\n\n{text}"
    return f"error: this is a defect in trtnorm: {last}\n  fix: report it together with {evidence}"


def _versions() -> str:
    from importlib import metadata

    found = []
    for name in ("onnx", "onnx-graphsurgeon", "onnxruntime", "numpy", "tensorrt", "tensorrt-rtx", "torch"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(found)
