"""docs/batch.md: every snippet that it marks is parsed as what it is."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import click
import pytest

from trtnorm_cli.batch.matrix import jobs_of
from trtnorm_cli.batch.plan import parse_plan
from trtnorm_cli.cli import cli

PAGE = (Path(__file__).parents[2] / "docs" / "batch.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"<!-- parsed: (\w+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)


def test_every_long_snippet_is_marked():
    assert [kind for kind, _ in SNIPPETS] == ["plan", "shell", "python", "python"]
    assert PAGE.count("```python") + PAGE.count("```yaml") == 3


def test_the_plan_has_the_jobs_that_it_is_meant_to_have(tmp_path):
    (text,) = (snippet for kind, snippet in SNIPPETS if kind == "plan")
    (tmp_path / "zoo").mkdir()
    for name in ("one", "two"):
        (tmp_path / "zoo" / f"{name}.onnx").touch()
    jobs = {job.name: job for job in jobs_of(parse_plan(text, str(tmp_path / "plan.yaml")))}
    assert len(jobs) == 3 + (2 * 2 - 1) * 3 + 2 * 3 + 1
    assert "flow.edge.bf16.rtx" in jobs
    assert Path(jobs["two.fp16.l4"].profile_path or "") == tmp_path / "zoo" / "two.yaml"
    assert jobs["detector.edge.fp16.a10"].resources == {"GPU_sm_86": 1.0}
    assert jobs["detector.edge.fp16.a10"].settings["precision"] == {"type": "fp16", "max_error": 0.02}


@pytest.mark.parametrize("snippet", [snippet for kind, snippet in SNIPPETS if kind == "python"])
def test_python_is_python(snippet):
    ast.parse(snippet)


def test_commands_have_options_that_exist():
    (text,) = (snippet for kind, snippet in SNIPPETS if kind == "shell")
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0
    command = cli.get_command(click.Context(cli), "batch")
    assert command is not None
    known = {name for parameter in command.params for name in parameter.opts}
    lines = [line for line in PAGE.splitlines() if line.startswith("trtnorm batch")]
    used = {word for line in lines for word in line.split("#")[0].split() if word.startswith("-")}
    assert len(used) >= 8
    assert used <= known
