"""The command line itself: help, exit codes, how errors are shown, and what is imported."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest
import yaml

import trtnorm_cli
from tests.models import batchnorm, parse, random, saved
from trtnorm_cli import cli, errors
from trtnorm_cli.cli import COMMANDS, render, run
from trtnorm_cli.commands import habits
from trtnorm_cli.commands.options import json_option
from trtnorm_cli.profile.builder import BuilderSettings

SNAPSHOTS = Path(__file__).parent / "snapshots"
HEAVY = ("numpy", "onnx", "onnxruntime", "onnx_graphsurgeon", "torch", "tensorrt", "tensorrt_rtx", "pydantic", "rich", "yaml")


def tree(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The path of every command and subcommand."""
    context = click.Context(command)
    inner = command.list_commands(context) if isinstance(command, click.Group) else []
    return [path, *itertools.chain(*(tree(command.get_command(context, name), (*path, name)) for name in inner))]


ALL_COMMANDS = tree(cli.cli)
every_command = pytest.mark.parametrize("path", ALL_COMMANDS, ids=lambda path: "-".join(("trtnorm", *path)))


def trtnorm(*arguments: str | Path, env: dict[str, str] | None = None, **options) -> subprocess.CompletedProcess[str]:
    """The program as a user starts it."""
    command = [sys.executable, "-m", "trtnorm_cli", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(Path(trtnorm_cli.__file__).parents[1]), **(env or {})}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120, **options)


@every_command
def test_help_is_as_reviewed(path, capsys, monkeypatch):
    """Run with UPDATE_SNAPSHOTS=1 to write the files anew, and read the difference."""
    monkeypatch.setenv("COLUMNS", "80")
    assert run([*path, "--help"]) == 0
    shown = capsys.readouterr().out
    snapshot = SNAPSHOTS / f"help{''.join('-' + name for name in path)}.txt"
    if os.environ.get("UPDATE_SNAPSHOTS") == "1":
        snapshot.write_text(shown)
    assert as_any_click_says(shown) == as_any_click_says(snapshot.read_text())


def as_any_click_says(text: str) -> str:
    """``text`` as click before 8.2 puts it, which has no brackets around a command that may be left out."""
    return text.replace("[COMMAND] [ARGS]...", "COMMAND [ARGS]...")


def test_there_is_no_snapshot_of_a_command_that_is_gone():
    expected = {f"help{''.join('-' + name for name in path)}.txt" for path in ALL_COMMANDS}
    assert {path.name for path in SNAPSHOTS.glob("help*.txt")} == expected


@every_command
def test_help_has_an_example_and_fits_a_terminal(path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    run([*path, "-h"])
    shown = capsys.readouterr().out
    assert re.search(r"^  Example:\n +trtnorm ", shown, re.MULTILINE)
    assert all(len(line) <= 100 for line in shown.splitlines())


@pytest.mark.parametrize("line", COMMANDS.values(), ids=COMMANDS)
def test_the_line_in_the_list_of_commands_is_short(line):
    assert line.endswith(".")
    assert len(line) <= 66


@every_command
def test_help_imports_nothing_heavy(path):
    code = (
        "import sys\nfrom trtnorm_cli.cli import run\n"
        f"assert run({[*path, '--help']!r}) == 0\n"
        f"heavy = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "sys.exit('imported: ' + ', '.join(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_help_is_quick():
    """Imports are what takes time, and unlike time they can be counted on a busy machine: Click's and a few of its own."""
    code = (
        "import sys\nbefore = set(sys.modules)\nfrom trtnorm_cli.cli import run\nassert run(['--help']) == 0\n"
        "print('\\n'.join(sorted(set(sys.modules) - before)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = done.stderr.split()
    own = [name for name in imported if name.startswith("trtnorm_cli")]
    assert len(own) <= 7, own
    assert len(imported) <= 100, imported


@pytest.mark.parametrize(("arguments", "code", "words"), [
    (["--version"], 0, f"trtnorm, version {trtnorm_cli.__version__}"),
    (["biuld"], 2, "there is no command 'biuld'; did you mean 'build'?"),
    (["zzzz"], 2, "there is no command 'zzzz'"),
    (["build"], 2, "Missing argument 'MODEL'"),
    (["build", "m.onnx", "--nonsense"], 2, "--nonsense"),
    (["build", "m.onnx", "--timeout", "0"], 2, "Invalid value for '--timeout'"),
    (["build", "m.onnx", "--timeout", "soon"], 2, "Invalid value for '--timeout'"),
    (["build", "m.onnx", "--backend", "tensorrt-lite"], 2, "Invalid value for '--backend'"),
    (["build", "m.onnx", "--memory", "4096"], 2, "'4096' has no unit: write 4096MiB or 4096B"),
    (["compare", "m.onnx", "--memory", "4096"], 2, "'4096' has no unit: write 4096MiB or 4096B"),
    (["compare", "m.onnx", "--memory", "4 bananas"], 2, "expected a size such as '2GiB'"),
    (["rewrite", "m.onnx"], 2, "give the name of the result with -o FIXED.onnx, or --dry-run"),
    (["rules", "show", "no-such-rule"], 2, "there is no rule named 'no-such-rule'"),
    (["rules", "show"], 2, "Missing argument 'NAME'"),
])  # fmt: skip
def test_usage(capsys, arguments, code, words):
    assert run(arguments) == code
    shown = capsys.readouterr()
    assert words in (shown.err if code else shown.out)
    assert "Traceback" not in shown.err


SHAPES = "--profile cfg.yaml holds min, opt and max; `trtnorm init m.onnx -o cfg.yaml` writes one to start from"


@pytest.mark.parametrize(("arguments", "words"), [
    (["build", "m.onnx", "--minShapes=x:1x3", "--optShapes=x:2x3"], [f"--minShapes → {SHAPES}", f"--optShapes → {SHAPES}"]),
    (["build", "m.onnx", "--trt-max-shapes", "x:[1,3]"], [f"--trt-max-shapes → {SHAPES}"]),
    (["build", "m.onnx", "--shapes=x:1x3"], [f"--shapes → {SHAPES}"]),
    (["build", "m.onnx", "--fp16"], ["--fp16 → types follow the model", "module.half()"]),
    (["build", "m.onnx", "--bf16"], ["convert the model to bfloat16"]),
    (["build", "m.onnx", "--int8"], ["QuantizeLinear and DequantizeLinear"]),
    (["build", "m.onnx", "--workspace=4096"], ["--workspace → `builder: {workspace: 2GiB}` in the build profile"]),
    (["build", "--onnx=m.onnx", "--saveEngine=m.engine"], ["trtnorm build m.onnx", "--saveEngine → -o OUT.engine"]),
    (["--onnx=m.onnx"], ["--onnx → the model is an argument without an option: trtnorm build m.onnx"]),
    (["build", "--loadEngine=m.engine"], ["trtnorm inspect OUT.engine"]),
    (["rules", "--verbose"], ["--verbose → -v after the command"]),
    (["build", "m.onnx", "--quiet", "--trt"], ["trtnorm compare m.onnx"]),
    (["m.onnx"], ["a command comes before the model: `trtnorm build m.onnx` makes an engine"]),
    (["m.onnx", "--fp16"], ["trtnorm build m.onnx", "--fp16 → types follow the model"]),
    (["m.engine"], ["trtnorm inspect m.engine"]),
    (["cfg.yaml"], ["trtnorm build MODEL.onnx -p cfg.yaml"]),
    (["convert", "m.onnx", "-o", "m.engine"], ["there is no command 'convert'; the trtnorm way: trtnorm build m.onnx"]),
    (["run", "m.onnx", "--trt", "--onnxrt"], ["there is no command 'run'; the trtnorm way: trtnorm compare m.onnx"]),
    (["surgeon", "sanitize", "m.onnx"], ["trtnorm rewrite m.onnx -o FIXED.onnx"]),
])  # fmt: skip
def test_habits_from_other_tools_get_the_trtnorm_way(capsys, arguments, words):
    assert run(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert all(word in shown.err for word in words), shown.err
    assert "Did you mean" not in shown.err


def test_every_setting_that_a_habit_names_is_one_of_the_build_profile():
    needed = {"l2_limit": {"tiling": "fast"}, "exclude_lean_runtime": {"version_compatible": True}}
    for line in habits._SETTINGS.values():
        said = yaml.safe_load(line)
        BuilderSettings.model_validate({**said, **needed.get(next(iter(said)), {})})


@pytest.mark.parametrize(("arguments", "error"), [
    (["inspect", "no.onnx", "--json"],
     {"summary": "there is no such file", "where": "no.onnx", "hint": "check the path of the model", "exit_code": 3}),
    (["build", "m.onnx", "--json", "--fp17"], {"summary": "No such option", "exit_code": 2}),
    (["zzzz", "--json"], {"summary": "there is no command 'zzzz'", "where": "trtnorm", "exit_code": 2}),
    (["rules", "show", "no-such-rule", "--json"], {"summary": "there is no rule named 'no-such-rule'", "exit_code": 2}),
])  # fmt: skip
def test_errors_as_json(capsys, arguments, error):
    assert run(arguments) == error["exit_code"]
    shown = capsys.readouterr()
    found = json.loads(shown.out)["error"]
    assert found.keys() == {"summary", "where", "hint", "exit_code"}
    assert found["summary"].startswith(error["summary"])
    assert {**found, **error, "summary": found["summary"]} == found
    assert error["summary"] in shown.err, "and as text on stderr"


def test_what_stands_behind_a_double_dash_is_no_option(capsys):
    assert run(["inspect", "--", "--json"]) == 3
    assert capsys.readouterr().out == ""


def test_an_interrupt_and_a_defect_as_json(raising, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for outcome, code, summary in (
        (KeyboardInterrupt(), 130, "interrupted"),
        (ZeroDivisionError("oops"), 70, "this is a defect in trtnorm: ZeroDivisionError: oops"),
    ):
        raising(outcome, json_option)
        assert run(["fake", "--json"]) == code
        found = json.loads(capsys.readouterr().out)["error"]
        assert (found["summary"], found["exit_code"]) == (summary, code)


@pytest.mark.parametrize("command", ["build", "rewrite", "compare", "export", "inspect", "init"])
def test_quiet_and_verbose_exclude_each_other(capsys, command):
    needed = {"rewrite": ["--dry-run"]}.get(command, [])
    assert run([command, "m.onnx", "-q", "-v", *needed]) == 2
    assert "--quiet and --verbose exclude each other" in capsys.readouterr().err


def test_no_command_says_where_help_is(capsys):
    assert run([]) == 0
    assert "`trtnorm --help` lists the" in capsys.readouterr().out


@pytest.fixture
def raising(monkeypatch):
    """A command ``fake`` that raises the given error, or returns the given value."""

    def install(outcome: object, *options) -> None:
        @click.command("fake")
        def command(**arguments: object) -> object:
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome

        for option in options:
            command = option(command)
        module = ModuleType("trtnorm_cli.commands.fake")
        module.command = command
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(COMMANDS, "fake", "Raise.")

    return install


CODES = {
    errors.NotReproducible: 1, errors.NotCompared: 5,
    errors.OutOfTolerance: 1, errors.UsageProblem: 2, errors.ProfileError: 2, errors.ModelError: 3, errors.RewriteError: 4,
    errors.TensorRTRefusal: 5, errors.BuilderDied: 6, errors.LimitReached: 6, errors.NoRoom: 6,
}  # fmt: skip


@pytest.mark.parametrize(("kind", "code"), CODES.items(), ids=lambda value: getattr(value, "__name__", str(value)))
def test_each_error_has_its_exit_code(raising, capsys, kind, code):
    raising(kind("it went wrong", "m.onnx", "mend it"))
    assert run(["fake"]) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "error: m.onnx: it went wrong\n  fix: mend it\n"


def test_every_error_is_in_the_table_of_exit_codes():
    kinds = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.TrtnormError)}
    families = {errors.TrtnormError, errors.BuilderFailure}
    assert kinds - families == CODES.keys()


@pytest.mark.parametrize(("outcome", "code"), [(None, 0), (0, 0), (1, 1), (4, 4), ("text", 0)])
def test_a_command_returns_its_exit_code(raising, outcome, code):
    raising(outcome)
    assert run(["fake"]) == code


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), click.Abort()])
def test_an_interrupt(raising, capsys, interrupt):
    raising(interrupt)
    assert run(["fake"]) == 130
    assert capsys.readouterr().err.strip() == "interrupted"


def test_a_defect_leaves_a_log_and_no_traceback(raising, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    raising(ZeroDivisionError("oops"))
    assert run(["fake"]) == 70
    shown = capsys.readouterr().err
    assert shown.startswith("error: this is a defect in trtnorm: ZeroDivisionError: oops\n  fix: report it together with ")
    assert "Traceback" not in shown
    (log,) = tmp_path.glob("trtnorm-defect-*.log")
    assert str(log) in shown
    text = log.read_text()
    assert f"trtnorm {trtnorm_cli.__version__}, Python {sys.version.split()[0]}" in text
    assert "numpy " in text
    assert "onnxruntime " in text
    assert "Traceback (most recent call last)" in text
    assert "ZeroDivisionError: oops" in text


def test_a_defect_without_a_place_for_the_log(raising, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    raising(ZeroDivisionError("oops"))
    assert run(["fake"]) == 70
    shown = capsys.readouterr().err
    assert shown.startswith("error: this is a defect in trtnorm: ZeroDivisionError: oops\n  fix: report it together with ")
    assert "Traceback (most recent call last)" in shown, "there is nowhere else to put it"


@pytest.mark.parametrize(("error", "text"), [
    (errors.ModelError("a"), "error: a"),
    (errors.ModelError("a", "w"), "error: w: a"),
    (errors.ModelError("a", None, "h"), "error: a\n  fix: h"),
    (errors.ModelError("a", "w\nx", "h\ni"), "error: a\n  w\n  x\n  fix: h\n       i"),
    (errors.ModelError("a\nb", "w"), "error: w: a\nb"),
])  # fmt: skip
def test_rendering(error, text):
    assert render(error) == text


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    made = parse(
        "g (float[N, 2, 7, 7] x) => (float[N, 4, 5, 5] y)"
        ' { ["卷积"] c = Conv(x, w) ["规范"] y = BatchNormalization(c, gamma, beta, mu, var) }',
        {"w": random(4, 2, 3, 3), **batchnorm(4)},
    )
    return saved(made, tmp_path_factory.mktemp("cli") / "m.onnx")


def test_a_reader_that_goes_away_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    for arguments in (["schema"], ["rules"], ["--help"]):
        done = subprocess.run(
            [sys.executable, "-m", "trtnorm_cli", *arguments], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), arguments
    os.close(writer)


def test_names_that_the_terminal_cannot_show(model):
    done = trtnorm("inspect", model, env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}, encoding="ascii")
    assert done.returncode == 0, done.stderr
    assert "\\u89c4\\u8303" in done.stdout


def test_a_file_name_that_is_not_utf_8(model, tmp_path):
    name = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.onnx")
    Path(name).write_bytes(model.read_bytes())
    done = trtnorm("inspect", name, encoding="utf-8")
    assert done.returncode == 3
    assert "\\udcff.onnx" in done.stderr
    assert "the file's name is not UTF-8" in done.stderr


def test_shell_completion_lists_the_commands():
    done = trtnorm(env={"_TRTNORM_COMPLETE": "bash_complete", "COMP_WORDS": "trtnorm ", "COMP_CWORD": "1"})
    assert {line.partition(",")[2] for line in done.stdout.splitlines()} == set(COMMANDS)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
def test_an_error_that_cannot_be_written_as_json_is_told():
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "trtnorm_cli", "inspect", "nowhere.onnx", "--json"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert done.returncode == 3
    first, *_, lost, fix = done.stderr.splitlines()
    assert "nowhere.onnx" in first
    assert lost == "error: standard output: the error cannot be written as JSON: No space left on device"
    assert fix == "  fix: make room, or send standard output elsewhere"


def test_an_interrupt_while_modules_are_loaded(model):
    """The first moments are spent on imports; Ctrl-C there must not end in a traceback either."""
    code = """
import sys
import time
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
from trtnorm_cli.cli import main
main(sys.argv[2:])
"""
    for module in ("trtnorm_cli.commands.inspect", "onnx", "numpy"):
        command = [sys.executable, "-c", code, module, "inspect", str(model)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.strip()) == (130, "interrupted")


def test_nothing_is_left_in_the_temporary_folder_and_nothing_is_reported(model, tmp_path):
    """ONNX Runtime writes a file with an identifier there when it is about to report its use."""
    done = trtnorm("rewrite", model, "--dry-run", env={"TMPDIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []
