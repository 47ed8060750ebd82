"""``trtnorm diff`` of PyTorch models: their normalization modules, and their graphs beside an ONNX file."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from trtnorm_cli.cli import run  # noqa: E402
from trtnorm_cli.differences.modules import modules_diff  # noqa: E402
from trtnorm_cli.differences.record import Diff, ModuleChange  # noqa: E402
from trtnorm_cli.records.export import NormModule  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("warm_exports")]

MODEL = """
import torch
torch.manual_seed(0)

def build(epsilon=1e-5):
    layers = [torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4, eps=epsilon), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers).eval(), torch.ones(2, 3, 8, 8)

def other():
    return build(1e-3)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("m.py").write_text(MODEL)
    return tmp_path


def compared(capsys: pytest.CaptureFixture[str], *arguments: str) -> Diff:
    capsys.readouterr()
    assert run(["diff", *arguments, "--json"]) == 0
    return Diff.load(json.loads(capsys.readouterr().out))


def test_the_modules_of_two_models_are_compared(here, capsys):
    diff = compared(capsys, "m.py:build", "m.py:other")
    assert diff.modules is not None
    assert diff.modules.matched == 1
    assert diff.modules.changed == (ModuleChange("norms", "1", "1", "epsilon", "1e-05", "0.001"),)
    assert run(["diff", "m.py:build", "m.py:other", "--fail-on", "norms"]) == 1
    assert "epsilon: 1e-05 → 0.001" in capsys.readouterr().out


@pytest.mark.slow
def test_a_model_is_exported_beside_a_file(here, capsys):
    assert run(["export", "m.py:build", "-o", "m.onnx", "--no-verify"]) == 0
    assert compared(capsys, "m.py:build", "m.onnx").kinds <= {"model", "metadata"}
    assert "norms" in compared(capsys, "m.onnx", "m.py:other").kinds
    assert compared(capsys, "m.py:build", "m.py:other", "--exported").graph is not None


def test_an_engine_of_a_file_has_no_modules(here, capsys):
    text = gzip.decompress((Path(__file__).parents[1] / "data" / "manifests" / "vit.json.gz").read_bytes())
    Path("vit.engine.json").write_text(json.dumps({**json.loads(text), "export": None}))
    assert run(["diff", "m.py:build", "vit.engine.json"]) == 2
    shown = capsys.readouterr().err
    assert "its manifest lists no modules of PyTorch" in shown
    assert "trtnorm export" in shown


def test_the_manifest_of_an_export_is_no_engine(here, capsys):
    text = gzip.decompress((Path(__file__).parents[1] / "data" / "manifests" / "vit.json.gz").read_bytes())
    Path("vit.onnx.json").write_text(json.dumps(json.loads(text)["export"]))
    assert run(["diff", "vit.onnx.json", "vit.onnx.json"]) == 2
    assert "this is the manifest of an export\n  fix: compare the model itself: vit.onnx" in capsys.readouterr().err


def module(path: str, **other: object) -> NormModule:
    known = {
        "type": "torch.nn.BatchNorm2d", "family": "batch", "recognised_by": "class", "shape": (8,), "groups": None,
        "epsilon": 1e-5, "affine": True, "momentum": 0.1, "dtypes": ("float32",), "statistics": "tracked",
        "mean": (0.0, 0.0), "variance": (1.0, 1.0), "training": False,
    }  # fmt: skip
    return NormModule(path=path, **{**known, **other})  # type: ignore[arg-type]


def test_modules_with_other_paths_are_matched_by_their_order():
    first = [module("stem.bn"), module("a.bn", shape=(4,)), module("b.bn", shape=(2,))]
    second = [module("stem.bn"), module("net.a.bn", shape=(4,)), module("net.new", shape=(3,)), module("net.b.bn", shape=(2,))]
    diff = modules_diff(first, second)
    assert [(one.first, one.second) for one in diff.renamed] == [("a.bn", "net.a.bn"), ("b.bn", "net.b.bn")]
    assert (diff.only_first, diff.only_second) == ((), ("net.new (torch.nn.BatchNorm2d)",))
    assert diff.changed == ()
    assert diff.kinds == {"norms", "names"}
