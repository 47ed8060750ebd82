"""What README.md and the other pages say is so: links, commands, make targets, exit codes and build profiles."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from trtnorm_cli import cli, errors
from trtnorm_cli.profile.load import load_profile

REPOSITORY = Path(__file__).parents[1]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
PAGES = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("samples/*/*.md"), *REPOSITORY.glob("docs/**/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_to_files_lead_somewhere(page: Path):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_command_is_in_the_table_and_every_named_command_exists():
    assert set(re.findall(r"`trtnorm ([a-z]+)", README)) == set(cli.COMMANDS)


def test_every_named_make_target_exists():
    listed = subprocess.run(["make"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    targets = set(re.findall(r"^  make ([a-z-]+)", listed, re.M))
    pages = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    named = set(re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)`", pages, re.M))
    assert {first or second for first, second in named} <= targets
    assert {"demo", "test", "lint"} <= targets


def test_the_exit_codes_are_those_of_the_program():
    table = {int(code) for code in re.findall(r"^\| (\d+) \|", README, re.M)}
    raised = {kind.exit_code for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert table == raised | {0, 1, cli.EXIT_DEFECT, cli.EXIT_INTERRUPTED}


def test_the_build_profile_loads(tmp_path: Path):
    (text,) = re.findall(r"^```yaml\n(.*?)^```", README, re.S | re.M)
    (tmp_path / "profile.yaml").write_text(text, encoding="utf-8")
    profile = load_profile(tmp_path / "profile.yaml")
    assert profile.profile_names() == ("photos", "tiles")
    assert profile.builder.workspace == 2 << 30
    assert profile.rules.skip == ("fold-batchnorm-gemm",)
