"""What README.md and the other pages say is so: links, commands and what they print, make targets, exit codes, profiles."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

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


def yaml_in(page: str) -> str:
    (text,) = re.findall(r"^```yaml\n(.*?)^```", page, re.S | re.M)
    return text


def test_the_build_profile_loads(tmp_path: Path):
    (tmp_path / "profile.yaml").write_text(yaml_in(README), encoding="utf-8")
    profile = load_profile(tmp_path / "profile.yaml")
    assert sorted(profile.dims) == ["H", "N", "W"]
    assert profile.builder.workspace == 2 << 30


def test_the_build_profile_with_all_keys_loads(tmp_path: Path):
    page = (REPOSITORY / "docs" / "profiles.md").read_text(encoding="utf-8").split("## Profiles that fit")[0]
    (tmp_path / "profile.yaml").write_text(yaml_in(page), encoding="utf-8")
    profile = load_profile(tmp_path / "profile.yaml")
    assert profile.profile_names() == ("photos", "tiles")
    assert profile.builder.workspace == 2 << 30
    assert profile.rules.skip == ("fold-batchnorm-gemm",)
    missing = set(type(profile).model_fields) - set(yaml.safe_load(yaml_in(page))) - {"dims"}  # stands in a profile there
    assert missing == set()


MODELS = REPOSITORY / "samples" / "broken_models"
SHOWN = re.findall(r"<!-- tested: [^\n]*broken_models -->\n```console\n\$ trtnorm ([^\n]*)\n(.*?)^```", README, re.S | re.M)
STEPS = re.findall(r"^trtnorm ([^\n]*)  # (\d)$", (MODELS / "README.md").read_text(encoding="utf-8"), re.M)


def trtnorm(arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trtnorm_cli", *arguments.split()],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(REPOSITORY), "COLUMNS": "128"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=200, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def broken_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("broken")
    subprocess.run([sys.executable, str(MODELS / "make.py"), str(folder)], check=True, capture_output=True, timeout=60)
    return folder


def without_measures(text: str) -> str:
    """``text`` on one line; measured numbers, which differ a little by machine, are ``#``."""
    return " ".join(re.sub(r"\d+(\.\d+(e[+-]\d+)?|e[+-]\d+x?|%)", "#", text).split())


@pytest.mark.slow
@pytest.mark.rtx
@pytest.mark.parametrize(("arguments", "shown"), SHOWN, ids=[arguments for arguments, _ in SHOWN])
def test_the_broken_models_print_what_is_shown(arguments: str, shown: str, broken_models: Path):
    printed = without_measures(trtnorm(arguments, broken_models).stdout)
    place = 0
    for part in shown.split("…"):
        place = printed.find(without_measures(part), place)
        assert place >= 0, f"{part}\nis not in\n{printed}"


def test_the_broken_models_are_shown():
    assert [arguments.split()[0] for arguments, _ in SHOWN] == ["inspect", "build", "compare", "build"]
    assert len(STEPS) == len(re.findall(r"^trtnorm ", (MODELS / "README.md").read_text(encoding="utf-8"), re.M)) > 4


@pytest.mark.slow
@pytest.mark.rtx
@pytest.mark.parametrize(("arguments", "code"), STEPS, ids=[arguments for arguments, _ in STEPS])
def test_the_commands_of_the_broken_models_end_as_they_say(arguments: str, code: str, broken_models: Path):
    done = trtnorm(arguments, broken_models)
    assert done.returncode == int(code), done.stdout


def test_the_picture_is_small_and_drawn_by_hand():
    picture = REPOSITORY / "docs" / "pipeline.svg"
    assert picture.stat().st_size < 5000
    assert "](docs/pipeline.svg)" in README
