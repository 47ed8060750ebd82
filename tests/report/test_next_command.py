"""The command with which results end: true to what was done, as a shell takes it, and for people alone."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from tests.models import batchnorm, parse, random, saved
from tests.tensorrt.test_manifest import of_nothing
from trtnorm_cli.cli import FIRST_STEPS, run
from trtnorm_cli.compare.result import CandidateReport, Comparison
from trtnorm_cli.report import next_command
from trtnorm_cli.report.next_command import Given, after_build, after_comparison, after_diff, after_engine
from trtnorm_cli.target import parse_target

BODY = "{ [conv] c = Conv(x, w) [norm] y = BatchNormalization(c, gamma, beta, mu, var) }"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = {"w": random(4, 2, 3, 3), **batchnorm(4)}
    saved(parse(f"g (float[N, 2, 9, 9] x) => (float[N, 4, 7, 7] y) {BODY}", values), tmp_path / "my model.onnx")
    saved(parse(f"g (float[1, 2, 9, 9] x) => (float[1, 4, 7, 7] y) {BODY}", values), tmp_path / "fixed.onnx")
    return tmp_path


@pytest.fixture
def following(capsys):
    def following(*arguments: str) -> list[str]:
        """The words of the line with which the output ends; none where it ends otherwise."""
        assert run(list(arguments)) == 0
        last = capsys.readouterr().out.splitlines()[-1]
        return shlex.split(last.removeprefix("next: ")) if last.startswith("next: ") else []

    return following


def test_from_a_file_to_its_build(folder, following):
    """Each command leads to the next one, which runs."""
    assert following("inspect", "my model.onnx") == ["trtnorm", "init", "my model.onnx", "-o", "my model.yaml"]
    command = following("init", "--no-run", "my model.onnx", "-o", "my model.yaml")
    assert command == ["trtnorm", "build", "my model.onnx", "-p", "my model.yaml"]
    assert following("inspect", "my model.onnx")[-1] == "my model-2.yaml", "an existing file is not overwritten"
    rewritten = following("rewrite", "my model.onnx", "-p", "my model.yaml", "-o", "a;b.onnx")
    assert rewritten == ["trtnorm", "build", "a;b.onnx", "-p", "my model.yaml"]
    assert following("rewrite", "my model.onnx", "--dry-run")[1] == "init"
    assert following("inspect", "fixed.onnx") == ["trtnorm", "build", "fixed.onnx"]
    assert following("diff", "fixed.onnx", "a;b.onnx") == ["trtnorm", "compare", "fixed.onnx", "a;b.onnx"]


@pytest.mark.parametrize("arguments", [
    ["inspect", "fixed.onnx", "--json"], ["inspect", "fixed.onnx", "-q"], ["rewrite", "fixed.onnx", "--dry-run", "--json"],
    ["rewrite", "fixed.onnx", "-o", "out.onnx", "-q"], ["init", "--no-run", "fixed.onnx"],
    ["init", "--no-run", "fixed.onnx", "-o", "c.yaml", "-q"], ["diff", "fixed.onnx", "fixed.onnx", "--json"],
    ["diff", "fixed.onnx", "fixed.onnx"],
])  # fmt: skip
def test_programs_and_scripts_read_no_advice(folder, following, arguments):
    assert following(*arguments) == []


GIVEN = Given(Path("cfg.yaml"), "fp16", None, None, "tensorrt-rtx")


def test_a_build_that_compared_nothing_leads_to_a_comparison():
    manifest = of_nothing()
    command = after_build("model.py:net", Path("net.engine"), replace(manifest, comparison=None), GIVEN)
    assert command == ["compare", "model.py:net", "-p", "cfg.yaml", "--precision", "fp16", "--backend", "tensorrt-rtx"]


@pytest.mark.parametrize(("reference", "candidates", "state", "command"), [
    ("m.onnx", [], "passed", ["build", "m.onnx", "-p", "cfg.yaml"]),
    ("m.py:net", ["m.onnx"], "passed", ["build", "m.onnx", "-p", "cfg.yaml"]),
    ("m.onnx", ["network:m.onnx"], "passed", ["build", "m.onnx", "-p", "cfg.yaml"]),
    ("m.onnx", ["network:m.onnx"], "failed", ["build", "m.onnx", "-p", "cfg.yaml"]),
    ("m.onnx", ["n.onnx"], "failed", ["diff", "m.onnx", "n.onnx"]),
    ("m.onnx", [], "failed", ["rewrite", "m.onnx", "-p", "cfg.yaml", "--dry-run", "--explain"]),
    ("m.onnx", ["m.engine"], "no device", ["doctor"]),
    ("m.onnx", [], "refused", ["build", "m.onnx", "--isolate", "-p", "cfg.yaml"]),
    ("m.onnx", ["network:n.onnx"], "refused", ["build", "n.onnx", "--isolate", "-p", "cfg.yaml"]),
    ("m.onnx", ["n.onnx"], "all infinite", None),
])  # fmt: skip
def test_after_a_comparison(tmp_path, monkeypatch, reference, candidates, state, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text("def net(): pass\n")
    monkeypatch.setattr(Comparison, "passed", state == "passed")
    monkeypatch.setattr(Comparison, "is_out_of_tolerance", state == "failed")
    targets = [parse_target(candidate) for candidate in candidates]
    given = Given(Path("cfg.yaml"))
    reports = {
        "no device": [CandidateReport("m.engine", "engine", error="there is no GPU", unavailable=True)],
        "refused": [CandidateReport("network:rewriting", "network", error="TensorRT does not accept the model")],
        "all infinite": [CandidateReport("n.onnx", "onnx")],
    }
    comparison = Comparison("m.onnx", candidates=reports.get(state, []))
    assert after_comparison(parse_target(reference), targets, comparison, given) == command


def test_after_engines(monkeypatch):
    monkeypatch.setattr(next_command, "find_spec", lambda module: None)
    assert after_engine(Path("m.engine"), every=False) == ["inspect", "m.engine", "--all"]
    assert after_engine(Path("m.engine"), every=True) is None
    monkeypatch.setattr(next_command, "find_spec", lambda module: module)
    assert after_engine(Path("m.engine"), every=True) == ["report", "m.engine"]
    one, other = parse_target("a.engine"), parse_target("b.engine")
    assert after_diff(one, other, differ=True, exported=False) == ["inspect", "b.engine"]
    assert after_diff(one, other, differ=False, exported=False) is None


def test_the_program_alone_shows_the_way(capsys):
    assert run([]) == 0
    shown = capsys.readouterr().out
    assert shown == FIRST_STEPS + "\n"
    commands = [line.split()[1] for line in shown.splitlines() if line.startswith("  trtnorm ")]
    assert commands == ["export", "init", "build", "inspect", "compare"]
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert "trtnorm --help" in shown
