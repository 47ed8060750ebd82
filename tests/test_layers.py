"""Imports run down and never in a circle: the contract stands in pyproject.toml, under ``[tool.importlinter]``.

It also counts imports inside functions and under TYPE_CHECKING. Each test lints a copy in a process of its own, because the
linter imports the package that it looks at.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# It needs Python 3.11, and finds the same in every Python.
pytest.importorskip("importlinter", reason="import-linter needs Python 3.11")

REPOSITORY = Path(__file__).parents[1]
LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True, no_logo=True))"


def linted(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LINT],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)}, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package, to plant imports in."""
    shutil.copytree(REPOSITORY / "trtnorm_cli", tmp_path / "trtnorm_cli", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    return tmp_path


def test_imports_run_down_and_in_no_circle():
    done = linted(REPOSITORY)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("file", "lines"),
    [
        ("shapes/solve.py", "from trtnorm_cli.profile.model import BuildProfile"),
        ("rewrite/driver.py", "def late():\n    from trtnorm_cli.compare.session import run_session"),
        ("errors.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from trtnorm_cli.files import sha256_of"),
        ("rewrite/parts/arithmetic.py", "from trtnorm_cli.rewrite.rules import RULES"),
        ("profile/dims.py", "from trtnorm_cli.profile.model import BuildProfile"),
    ],
    ids=["up", "inside a function", "for types alone", "in a circle inside a folder", "in a circle of files"],
)
def test_an_import_that_does_not_is_noticed(copy, file, lines):
    path = copy / "trtnorm_cli" / file
    path.write_text(f"{path.read_text()}\n\n{lines}\n")
    assert linted(copy).returncode == 1


def test_a_module_without_a_place_is_noticed(copy):
    (copy / "trtnorm_cli" / "helpers.py").write_text('"""Anything."""\n')
    assert linted(copy).returncode == 1
