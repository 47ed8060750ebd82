"""What a build writes: an engine, and a manifest that says how it came about."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

import pytest

from tests.models import saved
from tests.pipeline.runs import PROFILE, build, left_in_temp, manifest_of, model, sha256
from trtnorm_cli.cli import run
from trtnorm_cli.record import json_lines
from trtnorm_cli.rewrite.rules import RULES
from trtnorm_cli.tensorrt.engine_file import Inspection
from trtnorm_cli.tensorrt.manifest import Manifest

pytestmark = [pytest.mark.rtx, pytest.mark.usefixtures("unshared_child")]


def test_the_engine_takes_the_models_stem(engine):
    path, _ = engine
    assert sorted(p.name for p in path.parent.iterdir()) == ["cfg.yaml", "good.engine", "good.engine.json", "good.onnx"]


def test_the_manifest_is_what_json_prints(engine):
    path, done = engine
    assert json.loads(done.stdout) == manifest_of(path)
    assert "engine size" in done.stderr


def test_the_manifest_says_what_is_in_the_engine(engine):
    path, _ = engine
    manifest = manifest_of(path)
    assert manifest["format"] == 1
    assert set(manifest["versions"]) == {"trtnorm", "python", "onnx", "onnxruntime", "backend", "tensorrt"}
    assert manifest["versions"]["backend"] == "tensorrt-rtx"
    assert manifest["source"] == {"file": "good.onnx", "sha256": sha256(path.parent / "good.onnx")}
    about = {"file": "good.engine", "sha256": sha256(path), "bytes": path.stat().st_size}
    assert {key: manifest["engine"][key] for key in about} == about
    assert (manifest["engine"]["targets"], manifest["engine"]["newer_too"]) == (["sm_80"], True)
    assert [(b["name"], b["dtype"]) for b in manifest["engine"]["bindings"]] == [("x", "FLOAT"), ("y", "FLOAT")]
    assert manifest["optimization_profiles"] == [
        {"name": "default", "inputs": {"x": {"min": [1, 2, 9, 9], "opt": [2, 2, 9, 9], "max": [4, 2, 9, 9]}}}
    ]
    assert manifest["profile"]["optimization_profiles"]
    network = manifest["network"]
    assert network["layers_by_type"] == {"CONVOLUTION": 2, "ACTIVATION": 1}
    assert [layer["name"] for layer in network["layers"]] == ["conv1", "relu1", "conv2"]
    assert sum(network["kernels_by_type"].values()) <= len(network["kernels"])
    assert network["inputs"][0] == {"name": "x", "dtype": "FLOAT", "shape": [-1, 2, 9, 9]}
    assert {"rewrite", "parse", "build"} <= manifest["seconds"].keys()


# What other programs read. Keys are added, and none is renamed or moved without a new format.
KEYS = {
    "": "format versions source export weights plugins rewritten engine profile optimization_profiles cleaning normalizations "
    "changes rules undone refused effects network cost rewrite_warnings warnings types optimize precision float32 comparison "
    "made_from reproducible proof seconds",
    "versions": "trtnorm python onnx onnxruntime backend tensorrt",
    "source": "file sha256",
    "rewritten": "sha256",
    "engine": "file sha256 bytes targets newer_too bindings",
    "engine.bindings": "name mode dtype shape location profiles",
    "optimization_profiles": "name inputs",
    "optimization_profiles.inputs.x": "min opt max",
    "normalizations": "nodes pieces composite outcomes",
    "changes": "rule node removed added because check warning changes_meaning compared_with_reference tensor optional refused "
    "region",
    "changes.check": "max_abs max_rel tolerance float64_rel float64_tolerance seed shapes evaluated_with passed reason",
    "network": "inputs outputs layers layers_by_type kernels kernels_by_type dimensions",
    "network.inputs": "name dtype shape",
    "network.layers": "name type outputs weights",
    "network.kernels": "name type tactic inputs outputs onnx_nodes",
    "optimize": "policy chosen before more",
    "cost": "device total kernels",
    "cost.total": "launches compiled_on_device bytes us unasked_us",
    "cost.kernels": "name read written operations us bound unasked",
    "comparison": "passed state not_compared seed reference at inputs skipped candidates float64_evaluated_with notes seconds",
    "comparison.candidates": "passed state label kind depth outputs notes",
    "made_from": "file model weights plugins profile trtnorm packages backend data",
    "made_from.backend": "name version devices",
    "proof": "notes memory sizes",
    "seconds": "rewrite parse build compare",
}


@pytest.mark.parametrize("place", KEYS)
def test_the_keys_of_the_manifest(engine, place):
    found = manifest_of(engine[0])
    for step in filter(None, place.split(".")):
        found = found[step]
        found = found[0] if isinstance(found, list) else found
    assert list(found) == KEYS[place].split()


def test_a_manifest_is_read_as_it_was_written(engine):
    path = engine[0].with_name("good.engine.json")
    assert path.read_text() == json_lines(Manifest.load(path).to_json()) + "\n"


def test_each_change_is_in_the_manifest_with_its_check(engine):
    (change,) = manifest_of(engine[0])["changes"]
    assert (change["rule"], change["node"]) == ("fold-batchnorm-conv", "bn1")
    assert change["removed"] == ["conv1", "bn1"]
    assert change["added"] == ["conv1"]
    check = change["check"]
    assert check["passed"] is True
    assert check["shapes"] == {"x": [1, 2, 9, 9]}
    assert 0 <= check["max_rel"] <= check["tolerance"]
    assert 0 <= check["float64_rel"] <= check["float64_tolerance"]


def test_the_manifest_has_no_absolute_paths(engine):
    path, _ = engine
    text = path.with_name("good.engine.json").read_text()
    assert str(path.parent) not in text
    assert tempfile.gettempdir() not in text
    assert str(Path.home()) not in text


def test_a_build_can_be_repeated_to_the_byte(engine, work):
    """All but the timings."""
    assert build("good.onnx", "-o", "good.engine") == 0
    first, second = manifest_of(engine[0]), manifest_of(work / "good.engine")
    for manifest in (first, second):
        assert manifest.pop("seconds")
        assert manifest["comparison"].pop("seconds")
    assert json.dumps(first) == json.dumps(second)
    assert engine[0].read_bytes() == (work / "good.engine").read_bytes()
    assert left_in_temp(work) == []


def test_without_the_rule_there_is_a_scale_layer(work):
    (work / "cfg.yaml").write_text(PROFILE + f"rules: {{skip: [{', '.join(rule.name for rule in RULES)}]}}\n")
    assert build("good.onnx") == 0
    manifest = manifest_of(work / "good.engine")
    assert manifest["changes"] == []
    assert manifest["network"]["layers_by_type"]["SCALE"] == 1


def test_a_static_model_needs_no_profile(work, capsys):
    static = model()
    for value in (*static.graph.input, *static.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 3
    saved(static, work / "static.onnx")
    assert run(["build", "static.onnx"]) == 0
    manifest = manifest_of(work / "static.engine")
    assert manifest["profile"] is None
    assert manifest["network"]["inputs"][0]["shape"] == [3, 2, 9, 9]
    shown = capsys.readouterr()
    for row in (
        r"rewritten +1 fold-batchnorm-conv", r"check error +at most \d\.\de-\d\d of the largest value \(bn1\)",
        r"network layers +2 CONVOLUTION, 1 ACTIVATION", r"kernels +\d+: \d", r"profile default +x 3x2x9x9 / 3x2x9x9 / 3x2x9x9",
        r"engine size +\d+\.\d KiB", r"backend +tensorrt-rtx \d", r"time +rewrite \d", r"engine +static\.engine",
        r"manifest +static\.engine\.json",
    ):  # fmt: skip
        assert re.search(f"^{row}", shown.out, re.MULTILINE), row


def test_inspecting_an_engine(engine, capsys):
    path, _ = engine
    assert run(["inspect", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "built from good.onnx" in shown
    assert "1 fold-batchnorm-conv" in shown
    assert "warning" not in shown
    assert run(["inspect", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["manifest"] == manifest_of(path)
    assert found["engine_matches_manifest"] is True
    no_gpu = "an engine can only be loaded on a machine with an NVIDIA GPU" in (found["inspector"].get("reason") or "")
    assert found["inspector"]["available"] != no_gpu


def test_an_engine_that_is_not_the_manifests(engine, work, capsys):
    for name in ("good.engine", "good.engine.json"):
        (work / name).write_bytes((engine[0].parent / name).read_bytes())
    with (work / "good.engine").open("ab") as stream:
        stream.write(b"x")
    assert run(["inspect", "good.engine"]) == 0
    assert "warning: the engine's bytes are not those that the manifest describes" in capsys.readouterr().out


def test_a_manifest_that_lacks_something_is_no_defect(engine, work, capsys, monkeypatch):
    """It was written by another version: shown as far as it goes, or refused."""
    monkeypatch.setattr("trtnorm_cli.tensorrt.engine_file._inspector", lambda *_: Inspection(False, reason="not asked"))
    (work / "old.engine").write_bytes(engine[0].read_bytes())
    whole = manifest_of(engine[0])
    codes = {}
    for key in whole:
        (work / "old.engine.json").write_text(json.dumps({k: v for k, v in whole.items() if k != key}))
        codes[key] = run(["inspect", "old.engine"])
    assert set(codes.values()) == {0, 3}, codes
    assert {key for key, code in codes.items() if code == 3} == {
        "format", "versions", "source", "engine", "optimization_profiles", "cleaning", "normalizations", "changes", "network",
        "warnings", "optimize", "seconds",
    }  # fmt: skip
