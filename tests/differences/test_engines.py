"""``trtnorm diff`` of engines of the real builder."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from tests.models import batchnorm, parse, random
from trtnorm_cli.cli import run
from trtnorm_cli.commands.diff import KINDS
from trtnorm_cli.differences import record
from trtnorm_cli.differences.comparing import compare_targets

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
    assert "the two differ in time" in shown.err
    assert "estimated time" in shown.out
    assert run(["diff", never, auto, "--fail-on", "types", "--fail-on", "sizes"]) == 0
    assert run(["diff", never, never, "--fail-on", "anything"]) == 0
    assert "the two do not differ" in capsys.readouterr().out


def test_what_is_no_engine_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.onnx").write_bytes(b"x")
    assert run(["diff", str(tmp_path / "m.onnx"), str(tmp_path / "m.onnx")]) == 3
    assert "error" in capsys.readouterr().err


def test_the_kinds_of_the_command_are_those_that_are_found() -> None:
    assert KINDS == record.KINDS


@pytest.mark.rtx
def test_an_engine_without_an_estimate_is_told(engines: Path) -> None:
    manifest = json.loads((engines / "auto.engine.json").read_text())
    old = engines / "old.engine.json"
    old.write_text(json.dumps({**manifest, "cost": None}))
    diff = compare_targets(str(old), str(engines / "auto.engine"))
    assert diff.parts == ()
    assert diff.notes == ("the first engine has no estimate: build it again",)


@pytest.mark.rtx
def test_an_engine_knows_the_file_that_it_was_built_from(engines: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, engine = str(engines / "m.onnx"), str(engines / "auto.engine")
    assert run(["diff", model, engine, "--fail-on", "anything"]) == 0
    assert "the engine was built from m.onnx" in capsys.readouterr().out
    other = onnx.load(model)
    other.graph.input[0].type.tensor_type.shape.dim[2].dim_value = 32
    other.graph.node.remove(next(node for node in other.graph.node if node.name == "bn"))
    next(node for node in other.graph.node if node.name == "out").input[0] = "d"
    onnx.save(other, engines / "other.onnx")
    diff = compare_targets(engine, str(engines / "other.onnx"))
    found = {one.what: (one.first, one.second) for one in diff.differences}
    assert diff.notes == ("the engine was built from another file, by its digest",)
    assert found.keys() == {"model", "normalizations", "sizes of x"}
    assert found["sizes of x"] == ("[1, 16, 24, 24] in the profile default", "[N, 16, 32, 24]")
    assert found["normalizations"] == ("1 BatchNormalization, 1 InstanceNormalization", "1 InstanceNormalization")


@pytest.mark.rtx
def test_a_network_is_compared_with_a_model_and_with_an_engine(engines: Path) -> None:
    model = str(engines / "m.onnx")
    beside_model = compare_targets(model, f"network:{model}", None)
    assert beside_model.graph is not None
    assert {node.operator for region in beside_model.graph.regions for node in region.first} == {
        "InstanceNormalization",
        "BatchNormalization",
    }
    assert [one.kind for one in (beside_model.first, beside_model.second)] == ["ONNX model", "network of TensorRT"]
    beside_engine = compare_targets(f"network:{model}", str(engines / "never.engine"))
    assert "types" not in beside_engine.kinds
    assert {one.what for one in beside_engine.differences} <= {"network layers"}
