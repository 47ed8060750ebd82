"""``instance_norm: plugin`` from the command line: what is written, what is refused, and how it is told."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import onnx
import pytest

from tests.models import operators, parse, random, saved
from trtnorm_cli.cli import run
from trtnorm_cli.files import sha256_of
from trtnorm_cli.onnx_model.plugin_nodes import DOMAIN
from trtnorm_cli.profile.load import load_profile
from trtnorm_cli.rewrite.prepare import OpenedModel, prepare

SHAPES = "optimization_profiles:\n  - inputs: {x: {min: [1, 3, 8, 8], opt: [2, 3, 8, 8], max: [4, 3, 16, 16]}}\n"
PLUGIN = SHAPES + "instance_norm: plugin\n"
rtx = pytest.mark.rtx


@pytest.fixture
def work(tmp_path, monkeypatch, unshared_child) -> Path:
    """The working directory, with a model and a profile that asks for plugins."""
    folder = tmp_path / "work"
    folder.mkdir()
    (tmp_path / "temp").mkdir()
    graph = (
        "g (float[N, 3, H, W] x) => (float[N, 3, H, W] y) { [in0] a = InstanceNormalization(x, s, b) [act] r = Relu(a)"
        " [in1] n = InstanceNormalization(r, s, b) y = Add(n, x) }"
    )
    saved(parse(graph, {"s": random(3), "b": random(3, seed=1)}), folder / "good.onnx")
    (folder / "cfg.yaml").write_text(PLUGIN)
    monkeypatch.chdir(folder)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temp"))
    return folder


def json_of(capsys, *arguments: str) -> dict:
    assert run([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_rewrite_writes_a_file_that_everybody_can_run(work, capsys):
    assert run(["rewrite", "good.onnx", "-o", "fixed.onnx", "--profile", "cfg.yaml", "--explain", "--progress", "none"]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert told.out.count("instance-norm-to-plugin") == 4
    words = " ".join(told.out.split())
    assert "each of 2 nodes (in0, in1) becomes the plugin InstanceNormalization_TRT: checks and comparisons run what" in words
    fixed = onnx.load("fixed.onnx")
    onnx.checker.check_model(fixed, full_check=True)
    assert [(node.op_type, node.domain) for node in fixed.graph.node[:2]] == [("InstanceNormalization_TRT", DOMAIN)] * 2
    assert run(["compare", "good.onnx", "fixed.onnx", "--profile", "cfg.yaml", "--in-between", "0"]) == 0


@rtx
def test_the_network_of_the_file_is_that_of_the_definition(work, capsys):
    """What the functions say can be checked without a GPU and without the plugin."""
    assert run(["rewrite", "good.onnx", "-o", "fixed.onnx", "--profile", "cfg.yaml"]) == 0
    capsys.readouterr()
    assert run(["compare", "good.onnx", "network:fixed.onnx", "--profile", "cfg.yaml", "--in-between", "0"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "its plugin nodes are taken for what they are defined to compute; what they do compute, an engine shows" in told


def test_inspect_shows_the_plugins(work, capsys):
    assert run(["rewrite", "good.onnx", "-o", "fixed.onnx", "--profile", "cfg.yaml"]) == 0
    capsys.readouterr()
    assert json_of(capsys, "inspect", "good.onnx")["plugins"] == []
    found = json_of(capsys, "inspect", "fixed.onnx")
    keys = ("node", "operator", "version", "namespace", "has_function")
    assert [[plugin[key] for key in keys] for plugin in found["plugins"]] == [
        ["in0", "InstanceNormalization_TRT", "3", "", True],
        ["in1", "InstanceNormalization_TRT", "3", "", True],
    ]
    assert [norm["name"] for norm in found["normalizations"]] == ["in0", "in1"]
    assert run(["inspect", "fixed.onnx"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "InstanceNormalization_TRT in0 3 epsilon, scales, bias, relu, alpha runs as the function in the file" in text


def test_a_rewritten_file_is_read_as_the_profile_says(work, capsys):
    """Without a word in the profile, the plugins of a file are native again."""
    assert run(["rewrite", "good.onnx", "-o", "fixed.onnx", "--profile", "cfg.yaml"]) == 0
    capsys.readouterr()
    assert run(["rewrite", "fixed.onnx", "-o", "native.onnx"]) == 0
    assert "2 plugin nodes read as operators" in capsys.readouterr().out
    assert operators(onnx.load("native.onnx")) == ["InstanceNormalization", "Relu", "InstanceNormalization", "Add"]


def test_a_name_that_the_model_does_not_have(work, capsys):
    Path("cfg.yaml").write_text(SHAPES + "instance_norm:\n  nodes:\n    in7: plugin\n")
    assert run(["rewrite", "good.onnx", "--dry-run", "--profile", "cfg.yaml"]) == 2
    text = capsys.readouterr().err
    assert "cfg.yaml:5: instance_norm.nodes.in7: the model has no InstanceNormalization 'in7'; did you mean" in text


def test_tensorrt_for_rtx_is_refused_at_once(work, capsys):
    assert run(["build", "good.onnx", "--profile", "cfg.yaml", "--backend", "tensorrt-rtx"]) == 2
    text = capsys.readouterr().err
    assert "cfg.yaml:3: instance_norm: TensorRT for RTX has no plugin layers" in text
    assert "use instance_norm: native" in text
    assert sorted(path.name for path in work.iterdir()) == ["cfg.yaml", "good.onnx"]
    assert list((work.parent / "temp").iterdir()) == []


@rtx
def test_a_library_without_the_plugin_is_found_out_before_the_parser(work, capsys):
    library = importlib.util.find_spec("_ctypes").origin
    Path("cfg.yaml").write_text(f"{PLUGIN}plugins: [{library}]\n")
    assert run(["build", "good.onnx", "--profile", "cfg.yaml", "--backend", "tensorrt-rtx"]) == 5
    words = " ".join(capsys.readouterr().err.split())
    assert "there is no plugin InstanceNormalization_TRT, version '3' in namespace '', in tensorrt-rtx" in words
    assert "wanted by in0, in1" in words
    assert "instance_norm: native builds TensorRT's own layer instead" in words
    assert sorted(path.name for path in work.iterdir()) == ["cfg.yaml", "good.onnx"]
    (folder,) = (work.parent / "temp").glob("trtnorm-build-*")
    onnx.checker.check_model(str(folder / "fixed.onnx"), full_check=True)
    stripped = onnx.load(str(folder / "for-tensorrt.onnx"))
    assert len(stripped.functions) == 0
    assert {node.domain for node in stripped.graph.node} == {""}


@rtx
def test_variants_are_built_without_definitions_as_well(work, capsys):
    """None of them can be built here; what counts is that no variant is native without being asked."""
    library = importlib.util.find_spec("_ctypes").origin
    Path("cfg.yaml").write_text(f"{PLUGIN}plugins: [{library}]\noptimize: kernels\n")
    assert run(["build", "good.onnx", "--profile", "cfg.yaml", "--backend", "tensorrt-rtx"]) == 5


@rtx
def test_native_builds(work):
    library = importlib.util.find_spec("_ctypes").origin
    Path("cfg.yaml").write_text(f"{SHAPES}instance_norm: {{default: native}}\noptimize: never\nplugins: [{library}]\n")
    assert run(["build", "good.onnx", "--profile", "cfg.yaml", "--backend", "tensorrt-rtx"]) == 0
    manifest = json.loads(Path("good.engine.json").read_text())
    assert manifest["profile"]["instance_norm"] == {"default": "native", "nodes": {}}
    assert manifest["plugins"] == [{"file": Path(library).name, "sha256": sha256_of([Path(library)])}]
    assert any("registered no plugin that was not there before" in warning for warning in manifest["warnings"])
    assert manifest["network"]["layers_by_type"]["NORMALIZATION"] == 2


def test_libraries_lie_beside_the_profile_wherever_the_command_runs(work, tmp_path, monkeypatch):
    """The profile carries its own path, so that no way into the program can lose it."""
    (work / "libplugin.so").write_bytes(b"")
    (work / "cfg.yaml").write_text(SHAPES + "plugins: [libplugin.so]\n")
    monkeypatch.chdir(tmp_path)
    opened = OpenedModel(work / "good.onnx", load_profile(work / "cfg.yaml"), work / "good.onnx", None)
    assert prepare(opened).plugin_libraries == (str(work / "libplugin.so"),)
    assert prepare(OpenedModel.of_file(work / "good.onnx", work / "cfg.yaml")).profile_path == work / "cfg.yaml"
