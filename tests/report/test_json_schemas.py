"""The JSON of every command has a schema, which is made from its record, committed, and strict."""

from __future__ import annotations

import copy
import gzip
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from tests.conftest import validator
from tests.models import batchnorm, parse, random, saved
from trtnorm_cli import api, cli
from trtnorm_cli.cli import run
from trtnorm_cli.commands.schema import NAMES
from trtnorm_cli.report.json_output import DESCRIPTIONS, FORMATS
from trtnorm_cli.report.json_schemas import OUTPUTS, schema_of

jsonschema = pytest.importorskip("jsonschema")

REPOSITORY = Path(__file__).parents[2]
SCHEMAS = REPOSITORY / "docs" / "schemas"
MANIFESTS = sorted((REPOSITORY / "tests" / "data" / "manifests").glob("*.json.gz"))
# The command that prints each output. `inspect` prints four, and every command an error.
PRINTED_BY = {
    "manifest": "build", "export": "export", "rewrite": "rewrite", "diff": "diff", "compare": "compare", "batch": "batch",
    "init": "init", "doctor": "doctor", "rules": "rules", "rule": "rules show", "error": "",
    "inspect-model": "inspect", "inspect-network": "inspect", "inspect-engine": "inspect", "inspect-module": "inspect",
}  # fmt: skip


def with_json(command: click.Command, name: str = "") -> Iterator[str]:
    """The commands that have --json."""
    if any("--json" in parameter.opts for parameter in command.params):
        yield name
    if isinstance(command, click.Group):
        context = click.Context(command)
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            yield from with_json(found, f"{name} {inner}".strip())


def objects(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The schema and its definitions that are records, with their names."""
    yield "", schema
    yield from schema["$defs"].items()


def test_every_command_with_json_has_a_schema() -> None:
    assert PRINTED_BY.keys() == OUTPUTS.keys()
    assert set(with_json(cli.cli)) == set(filter(None, PRINTED_BY.values()))
    assert set(NAMES) == {"profile", "plan", *OUTPUTS}
    # `api.Description` is there for type checkers alone.
    described = re.search(r"Description: TypeAlias = (.*)", Path(api.__file__).read_text())
    assert described is not None
    assert set(re.findall(r"\w+", described[1])) == DESCRIPTIONS.keys()
    assert set(DESCRIPTIONS.values()) <= OUTPUTS.keys()
    assert FORMATS.keys() == OUTPUTS.keys() - {"manifest", "export", "batch"}


@pytest.mark.parametrize("name", OUTPUTS)
def test_the_committed_schema_is_that_of_the_records(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Run with UPDATE_SNAPSHOTS=1 to write the files anew, and read the difference: docs/json.md says what may change."""
    assert run(["schema", name]) == 0
    text = capsys.readouterr().out
    file = SCHEMAS / f"{name}.schema.json"
    if os.environ.get("UPDATE_SNAPSHOTS") == "1":
        file.write_text(text)
    assert json.loads(text) == json.loads(file.read_text())


def test_there_is_no_schema_of_an_output_that_is_gone() -> None:
    assert {file.name for file in SCHEMAS.iterdir()} == {f"{name}.schema.json" for name in OUTPUTS}


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_schema_is_strict_and_says_its_version(name: str) -> None:
    schema = schema_of(name)
    validator(name)
    assert "format" in schema["required"]
    assert schema["properties"]["format"]["const"] >= 1
    for title, one in objects(schema):
        assert one["type"] == "object", title
        assert one["additionalProperties"] is False, title
        assert set(one["required"]) <= one["properties"].keys(), title
        assert one["description"], title


def test_a_schema_finds_what_is_not_as_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "--json"]) == 0
    sound = json.loads(capsys.readouterr().out)
    check = validator("rules")
    assert check.is_valid(sound)
    for change in (
        lambda found: found.update(format=2),
        lambda found: found.update(more=1),
        lambda found: found.pop("format"),
        lambda found: found["rules"][0].update(tolerance="small"),
        lambda found: found["rules"][0].pop("name"),
        lambda found: found["rules"][0].update(colour="red"),
    ):
        broken = copy.deepcopy(sound)
        change(broken)
        assert not check.is_valid(broken)


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.name)
def test_manifests_of_earlier_builds_are_as_the_schema_says(file: Path) -> None:
    manifest = json.loads(gzip.decompress(file.read_bytes()))
    validator("manifest").validate(manifest)
    if manifest["export"] is not None:
        validator("export").validate(manifest["export"])


def test_what_cannot_be_compared_is_valid_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """NaN and infinity are words."""
    words = parse("g (float[2, 4] x) => (float[2, 4] y) { y = Log(x) }")
    other = parse("g (float[2, 4] x) => (float[2, 4] y) { n = Neg(x) y = Log(n) }")
    names = [str(saved(model, tmp_path / f"{name}.onnx")) for name, model in (("a", words), ("b", other))]
    run(["compare", *names, "--json", "--no-blame"])
    found = json.loads(capsys.readouterr().out)
    assert found["format"] == 1
    validator("compare").validate(found)


@pytest.mark.rtx
def test_what_each_command_prints_is_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    graph = (
        "g (float[N, 16, 8, 8] x) => (float[N, 16, 8, 8] y) { c = Conv(x, w) b = BatchNormalization(c, gamma, beta, mu, var)"
        " y = Relu(b) }"
    )
    saved(parse(graph, {"w": random(16, 16, 1, 1), **batchnorm(16)}), Path("m.onnx"))
    Path("cfg.yaml").write_text("dims: {N: {min: 1, opt: 2, max: 4}}\nprecision: {type: fp16}\n")
    for name, arguments, code in (
        ("manifest", ["build", "m.onnx", "-p", "cfg.yaml"], 0),
        ("rewrite", ["rewrite", "m.onnx", "-p", "cfg.yaml", "-o", "f.onnx"], 0),
        ("inspect-model", ["inspect", "m.onnx"], 0),
        ("inspect-network", ["inspect", "network:m.onnx"], 0),
        ("inspect-engine", ["inspect", "m.engine"], 0),
        ("diff", ["diff", "m.onnx", "f.onnx"], 0),
        ("diff", ["diff", "m.engine", "m.engine.json"], 0),
        ("init", ["init", "m.onnx", "--no-run"], 0),
        ("doctor", ["doctor"], 0),
        ("rule", ["rules", "show", "fold-batchnorm-conv"], 0),
        ("error", ["inspect", "nowhere.onnx"], 3),
    ):
        capsys.readouterr()
        assert run([*arguments, "--json"]) == code
        found = json.loads(capsys.readouterr().out)
        validator(name).validate(found)
        assert found["format"] == schema_of(name)["properties"]["format"]["const"]
    validator("manifest").validate(json.loads(Path("m.engine.json").read_text()))
