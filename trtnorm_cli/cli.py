"""The command group, the one error boundary, and the exit codes. Commands are imported only when they run."""

from __future__ import annotations

import atexit
import errno
import importlib
import io
import os
import sys
import threading
from contextlib import suppress
from typing import NoReturn

import click

from trtnorm_cli import __version__
from trtnorm_cli.errors import NoRoom, TrtnormError
from trtnorm_cli.heap import keep_freed_memory, put_off_collections
from trtnorm_cli.interrupts import comes_of_interrupt, heed_interrupts
from trtnorm_cli.limits import limit_memory, out_of_memory
from trtnorm_cli.plain_text import shown

# One line for each command; the module is imported when the command runs, so that --help stays quick.
COMMANDS = {
    "build": "Rewrite a model, prove each change, and build a TensorRT engine.",
    "batch": "Build engines of many models for many targets.",
    "export": "Export a PyTorch model to ONNX, with dynamic sizes solved.",
    "rewrite": "Rewrite the normalization layers of a model and save it.",
    "inspect": "Show what is in a model or an engine.",
    "diff": "Show in what two models, networks or engines differ.",
    "report": "Write the report on an engine as one page of HTML.",
    "compare": "Compare a model with its rewriting or with another model.",
    "init": "Write a build profile to start from.",
    "schema": "Print the JSON Schema of the build profile.",
    "doctor": "Show what is installed, what it can build, and what is missing.",
    "rules": "List the rewrite rules, or show one.",
}

# What the program says when it is asked for nothing.
FIRST_STEPS = """\
From a model to a TensorRT engine:

  trtnorm export model.py:callable -o model.onnx    PyTorch only: to ONNX
  trtnorm init model.onnx -o cfg.yaml               its sizes, to be changed
  trtnorm build model.onnx -p cfg.yaml              rewritten, proved, built
  trtnorm inspect model.engine                      what is in the engine
  trtnorm compare model.onnx -p cfg.yaml            how far its results are off

`trtnorm doctor` says what can be built here. `trtnorm --help` lists the
commands, and `trtnorm build --help` the options of one."""

EXIT_DEFECT = 70
EXIT_INTERRUPTED = 130
_ROOM = "make room on that disk, or set TMPDIR to a folder on another one"
_ELSEWHERE = "make room, or send standard output elsewhere"


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
            from trtnorm_cli.commands.habits import about_command

            raise click.UsageError(about_command(args[0], COMMANDS, args), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="trtnorm")
@click.pass_context
def cli(context: click.Context) -> None:
    """Turn PyTorch and ONNX models into TensorRT engines and get every normalization layer right.

    \b
    Example:
      trtnorm build model.onnx --profile cfg.yaml

    \b
    Exit codes:
      0    done
      1    a comparison is out of tolerance, a rebuild has other bytes, or two
           targets differ in what --fail-on names
      2    wrong usage, or an invalid build profile
      3    the model cannot be read or exported, or is not valid ONNX
      4    the model is ambiguous, or needs a change that failed its check
      5    TensorRT refused the model, or a required comparison was not possible
      6    the builder crashed or was killed, time or memory ran out, or a disk is full
      70   a defect in trtnorm
      130  interrupted
    """
    if context.invoked_subcommand is None:
        click.echo(FIRST_STEPS)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit. Every error becomes one message and an exit code here."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names in a model or on the disk need not fit the terminal's encoding
            stream.reconfigure(errors="backslashreplace")
    # NumPy's matrices are small here: with a second thread for them, one waits most of the time, on a core that ONNX Runtime
    # or TensorRT could use. It is read when NumPy is imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    put_off_collections()
    heed_interrupts()
    limit_memory()
    keep_freed_memory(os.environ)
    code = run(arguments)
    if code == EXIT_INTERRUPTED:
        from trtnorm_cli.scratch import remove_left

        remove_left()  # the interrupt came wherever it came, also where somebody was about to
        # Python ends itself with SIGINT when an interrupt has passed through exec(), although it was handled here.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    leave(code)


def leave(code: int) -> NoReturn:
    """End the process as Python does, but for taking apart all that is in its memory: up to a twelfth of a rewriting's time."""
    if _is_watched():
        sys.exit(code)
    # ``_shutdown`` ends the threads of pools, and waits for all others; an interrupt ends the wait.
    for step in (threading._shutdown, atexit._run_exitfuncs):  # type: ignore[attr-defined]
        with suppress(KeyboardInterrupt):
            step()
    for stream in (sys.stdout, sys.stderr):
        with suppress(KeyboardInterrupt, AttributeError, OSError, ValueError):  # there is none, or nobody reads it any more
            stream.flush()
    os._exit(code)


def _is_watched() -> bool:
    """True under a debugger, a profiler or a measurement of coverage, which have work to do once the program has ended."""
    monitoring = getattr(sys, "monitoring", None)  # from Python 3.12 on
    tools = () if monitoring is None else (monitoring.get_tool(number) for number in range(6))
    return sys.gettrace() is not None or sys.getprofile() is not None or any(tools)


def run(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    try:
        # Without standalone mode, a command returns its exit code.
        code = cli.main(arguments, prog_name="trtnorm", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        return _end_of_usage(error, given)
    except TrtnormError as error:
        return _end(render(error), given, error.exit_code, error.summary, error.where, error.hint)
    except (KeyboardInterrupt, click.Abort):
        return _end("interrupted", given, EXIT_INTERRUPTED, "interrupted")
    except (BrokenPipeError, SystemExit):  # click and rich leave when nobody reads the output any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return _end_of_defect(given)
        full = NoRoom(f"a file cannot be written: {error.strerror}", error.filename or None, _ROOM)
        return _end(render(full), given, full.exit_code, full.summary, full.where, full.hint)
    except MemoryError as error:
        reached = out_of_memory("the command", error)
        return _end(render(reached), given, reached.exit_code, reached.summary, reached.where, reached.hint)
    except Exception as error:
        if comes_of_interrupt(error):
            return _end("interrupted", given, EXIT_INTERRUPTED, "interrupted")
        return _end_of_defect(given)


def _end_of_defect(arguments: list[str]) -> int:
    """Tell of a defect, as ``_end`` does, in the handler of its exception."""
    summary, hint = _report_defect()
    return _end(f"error: {summary}\n  fix: {hint}", arguments, EXIT_DEFECT, summary, None, hint)


def _end(
    text: str, arguments: list[str], exit_code: int, summary: str, where: str | None = None, hint: str | None = None
) -> int:
    """Tell what went wrong, as ``text`` on stderr and, with --json, as an object on stdout. Returns the exit code."""
    print(shown(text), file=sys.stderr)
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--json" in options:
        from trtnorm_cli.report.json_error import ErrorOutput, ErrorRecord
        from trtnorm_cli.report.json_output import json_text

        try:
            print(json_text("error", ErrorOutput(ErrorRecord(summary, where, hint, exit_code)).to_json()), flush=True)
        except BrokenPipeError:
            pass
        except OSError as error:
            lost = NoRoom(f"the error cannot be written as JSON: {error.strerror}", "standard output", _ELSEWHERE)
            print(render(lost), file=sys.stderr)
    return exit_code


def _end_of_usage(error: click.ClickException, arguments: list[str]) -> int:
    """Tell what click refuses, as ``_end`` does. For options of other tools it names trtnorm's own way."""
    ways: list[str] = []
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None and (isinstance(error, click.NoSuchOption) or isinstance(context.command, LazyGroup)):
        from trtnorm_cli.commands.habits import about_options

        ways = about_options(arguments, {name for param in context.command.params for name in param.opts})
        if ways and isinstance(error, click.NoSuchOption):
            error = click.NoSuchOption(error.option_name, ctx=context)  # without click's guesses
    hint = "\n".join(ways) or (f"{context.command_path} --help" if context is not None else None)
    place = None if context is None else context.command_path
    return _end(_usage_text(error, ways), arguments, error.exit_code, error.format_message(), place, hint)


def _usage_text(error: click.ClickException, ways: list[str]) -> str:
    """The message of click, with trtnorm's ways of doing it."""
    said = io.StringIO()
    error.show(said)
    return "\n".join([said.getvalue().rstrip("\n"), *(f"  {way}" for way in ways)])


def render(error: TrtnormError) -> str:
    """The error as text, with place and summary on the first line and the hint below."""
    where = error.where or ""
    lines = [f"error: {where}: {error.summary}" if where and "\n" not in where else f"error: {error.summary}"]
    if "\n" in where:
        lines += [f"  {line}" for line in where.splitlines()]
    if error.hint:
        first, *rest = error.hint.splitlines()
        lines += [f"  fix: {first}", *(f"       {line}" for line in rest)]
    return "\n".join(lines)


def _report_defect() -> tuple[str, str]:
    """Write the traceback with versions to a log. Returns what happened and the hint that names the log."""
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
    return f"this is a defect in trtnorm: {last}", f"report it together with {evidence}"


def _versions() -> str:
    from importlib import metadata

    found = []
    for name in ("onnx", "onnx-graphsurgeon", "onnxruntime", "numpy", "tensorrt", "tensorrt-rtx", "torch"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(found)
