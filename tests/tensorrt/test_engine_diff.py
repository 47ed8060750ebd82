"""``trtnorm diff`` of engines of the real builder."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from tests.models import batchnorm, parse, random
from trtnorm_cli.cli import run
from trtnorm_cli.commands.diff import KINDS
from trtnorm_cli.tensorrt import engine_diff
from trtnorm_cli.tensorrt.manifest import Manifest

TEXT = (
    "g (float[N, 16, 24, 24] x) => (float[N, 16, 24, 24] y) { [conv] c = Conv(x, w)"
    " [norm] n = InstanceNormalization(c, s, b) [relu] r = Relu(n) [conv2] d = Conv(r, w)"
    " [bn] e = BatchNormalization(d, gamma, beta, mu, var) [out] y = Sigmoid(e) }"
)


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("diff")
    weights = {"w": random(16, 16, 1, 1), "s": random(16), "b": random(16), **batchnorm(16)}
    onnx.save(parse(TEXT, weights), folder / "m.onnx")
    for policy in ("never", "auto"):
        profile = folder / f"{policy}.yaml"
        profile.write_text(f"dims: {{N: {{min: 1, opt: 2, max: 4}}}}\noptimize: {policy}\n")
        engine = str(folder / f"{policy}.engine")
        assert run(["build", str(folder / "m.onnx"), "-p", str(profile), "-o", engine, "--no-compare"]) == 0
    return folder


@pytest.mark.rtx
def test_parts_are_matched_by_their_nodes_and_the_changes_named(engines: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run(["diff", str(engines / "never.engine"), str(engines / "auto.engine.json"), "--json"]) == 0
    diff = json.loads(capsys.readouterr().out)
    assert {"rewriting", "time"} <= {one["kind"] for one in diff["differences"]}
    (part,) = [part for part in diff["parts"] if "norm" in part["nodes"]]
    assert any(name.startswith("norm/") for name in part["nodes"])
    assert part["changes"] == ["normalization-in-rows at norm in the second only"]
    assert part["first_us"] > part["second_us"] > 0
    assert "transposition" in [kernel["does"] for kernel in part["first"]]


@pytest.mark.rtx
def test_what_fails_is_said_and_the_rest_does_not_fail(engines: Path, capsys: pytest.CaptureFixture[str]) -> None:
    never, auto = str(engines / "never.engine"), str(engines / "auto.engine")
    assert run(["diff", never, auto, "--fail-on", "time"]) == 1
    shown = capsys.readouterr()
    assert "the engines differ in time" in shown.err
    assert "estimated time" in shown.out
    assert run(["diff", never, auto, "--fail-on", "types", "--fail-on", "sizes"]) == 0
    assert run(["diff", never, never, "--fail-on", "anything"]) == 0
    assert "the engines do not differ" in capsys.readouterr().out


def test_what_is_no_engine_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.onnx").write_bytes(b"x")
    assert run(["diff", str(tmp_path / "m.onnx"), str(tmp_path / "m.onnx")]) == 3
    assert "error" in capsys.readouterr().err


def test_the_kinds_of_the_command_are_those_that_are_found() -> None:
    assert KINDS == engine_diff.KINDS


@pytest.mark.rtx
def test_an_engine_without_an_estimate_is_told(engines: Path) -> None:
    manifest = Manifest.load(engines / "auto.engine.json")
    old = Manifest(**{**manifest.__dict__, "cost": None})
    diff = engine_diff.engine_diff(old, manifest)
    assert diff.parts == ()
    assert diff.notes == ("the first engine has no estimate: build it again",)
