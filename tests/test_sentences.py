"""Docstrings and help texts are in one dialect: they begin with what a thing is or with a verb that says what it does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import trtnorm_cli
from trtnorm_cli import cli

PACKAGE = Path(trtnorm_cli.__file__).parent
NOT_FIRST = ("What", "Which", "Whether", "Return", "Returns")

# A help text tells what its command or option does. Another verb belongs here, another part of speech does not.
VERBS = {
    "Accept", "Allow", "Build", "Choose", "Compare", "Compute", "Draw", "Export", "Fail", "Find", "Leave", "List", "Load",
    "Match", "Move", "Print", "Prove", "Read", "Rewrite", "Save", "Show", "Skip", "Stop", "Turn", "Write",
}  # fmt: skip


def docstrings(file: Path) -> Iterator[tuple[int, str]]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text


def test_no_docstring_begins_with_a_question_word_or_return():
    found = [
        f"{file.relative_to(PACKAGE)}:{line}: {text.splitlines()[0]}"
        for file in sorted(PACKAGE.rglob("*.py"))
        for line, text in docstrings(file)
        if text.split()[0].rstrip(",") in NOT_FIRST
    ]
    assert not found, "\n".join(found)


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            yield from commands(found, f"{name} {inner}")


ALL_COMMANDS = dict(commands(cli.cli, "trtnorm"))


@pytest.mark.parametrize("name", ALL_COMMANDS)
def test_every_help_text_begins_with_a_verb_and_is_a_sentence(name):
    command = ALL_COMMANDS[name]
    texts = {name: command.help or ""}
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    texts |= {f"{name} {option.opts[0]}": option.help or "" for option in options}
    wrong = [f"{where}: {text}" for where, text in texts.items() if not text or text.split()[0].rstrip(",") not in VERBS]
    assert not wrong, "\n".join(wrong)
    unfinished = [where for where, text in texts.items() if where != name and not text.split("  [")[0].endswith(".")]
    assert not unfinished


@pytest.mark.parametrize("line", cli.COMMANDS.values(), ids=cli.COMMANDS)
def test_the_list_of_commands_begins_with_verbs(line):
    assert line.split()[0] in VERBS
