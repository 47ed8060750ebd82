"""The snippets of docs/ci.md: YAML that parses, with commands that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from trtnorm_cli.cli import cli

PAGE = (Path(__file__).parents[1] / "docs" / "ci.md").read_text(encoding="utf-8")
GITHUB, GITLAB, PRE_COMMIT = (yaml.safe_load(text) for text in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.S | re.M))
STEPS = GITHUB["jobs"]["engine"]["steps"]
(HOOK,) = PRE_COMMIT["repos"][0]["hooks"]
COMMANDS = [
    *(step["run"] for step in STEPS if "run" in step),
    *GITLAB["engine"]["script"],
    HOOK["entry"],
    *re.findall(r"^```sh\n(.*?)\n```", PAGE, re.S | re.M),
]


def parsed(line: str) -> dict[str, Any]:
    """The parameters of a command line of trtnorm."""
    program, name, *arguments = shlex.split(line)
    assert program == "trtnorm"
    command = cli.get_command(None, name)
    assert command is not None, line
    # A command remembers the help options of the first context that it is parsed in.
    return command.make_context(name, arguments, parent=click.Context(cli, info_name="trtnorm", **cli.context_settings)).params


@pytest.mark.parametrize("line", dict.fromkeys(line for line in COMMANDS if not line.startswith("pip install ")))
def test_every_command_takes_what_it_is_given(line):
    parsed(line)


def test_each_builds_and_keeps_the_report():
    for lines in ([step.get("run", "") for step in STEPS], GITLAB["engine"]["script"], [HOOK["entry"]]):
        assert any(line.startswith("trtnorm build ") and "--report engine.html" in line for line in lines)


def test_what_is_kept_is_what_is_written():
    """The names under which jobs keep files are those that the commands give them."""
    written = {"model.engine", "model.engine.json", "engine.html", "compare.xml"}
    kept = STEPS[-1]["with"]["path"].split("\n")
    assert all(any(Path(name).match(pattern) for pattern in kept) for name in written)
    assert GITHUB[True] == ["push"]  # YAML 1.1 takes `on` for a truth value, and so does GitHub's reader of it
    artifacts = GITLAB["engine"]["artifacts"]
    assert {*artifacts["paths"], artifacts["reports"]["junit"]} == written
    assert re.match(HOOK["files"], "model.onnx")
    assert not re.match(HOOK["files"], "other_model.onnx")


def test_what_is_installed_are_extras_of_the_package():
    extras = re.findall(r"^(\w+) = \[", (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"), re.M)
    for line in COMMANDS:
        for named in re.findall(r"^pip install '\./trtnorm\[(.*)\]'$", line):
            assert set(named.split(",")) <= set(extras)
