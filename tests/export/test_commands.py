"""PyTorch models in ``build``, ``rewrite``, ``compare`` and ``inspect``."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from trtnorm_cli.cli import run
from trtnorm_cli.record import json_lines
from trtnorm_cli.tensorrt.manifest import Manifest

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("warm_exports")]

MODELS = Path(__file__).parent / "exported_models.py"
FLOW = "dims: {N: {min: 1, opt: 2, max: 3}, H: {min: 35, opt: 54, max: 100}, W: {min: 35, opt: 96, max: 120}}"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("cfg.yaml").write_text(FLOW)
    return tmp_path


@pytest.mark.rtx
def test_build_exports_on_the_way(here, capsys):
    assert run(["build", f"{MODELS}:flow_with_inputs", "-p", "cfg.yaml"]) == 0
    text = Path("flow_with_inputs.engine.json").read_text()
    assert text == json_lines(Manifest.load(Path("flow_with_inputs.engine.json")).to_json()) + "\n"
    manifest = json.loads(text)
    assert manifest["export"]["exporter"] == "dynamo"
    assert manifest["export"]["comparison"]["passed"]
    assert manifest["optimization_profiles"][0]["inputs"]["image"]["min"] == [1, 3, 40, 40]
    assert "fold-batchnorm-conv" in [change["rule"] for change in manifest["changes"]]
    assert Path("cfg.yaml").read_text() == FLOW
    assert {path.name for path in here.iterdir()} == {"cfg.yaml", "flow_with_inputs.engine", "flow_with_inputs.engine.json"}
    shown = capsys.readouterr().out
    assert "against PyTorch" in shown
    assert "WARNING: H was asked for from 35 to 100; the model takes 40 to 96, multiples of 8" in shown


@pytest.mark.rtx
@pytest.mark.slow
def test_compare_takes_the_module_for_the_reference(here, capsys):
    assert run(["export", f"{MODELS}:flow_with_inputs", "-p", "cfg.yaml", "-o", "m.onnx", "--update-profile"]) == 0
    assert run(["compare", f"{MODELS}:flow_with_inputs", "m.onnx", "network:m.onnx", "-p", "cfg.yaml", "--json"]) == 0
    shown = capsys.readouterr().out
    comparison = json.loads(shown[shown.index("\n{") :])
    assert comparison["passed"]
    assert [candidate["kind"] for candidate in comparison["candidates"]] == ["onnx", "network"]


@pytest.mark.rtx
def test_compare_converts_the_export(here, capsys):
    assert run(["compare", f"{MODELS}:flow_with_inputs", "--precision", "fp16", "--in-between", "0", "--json"]) == 0
    shown = capsys.readouterr().out
    record = json.loads(shown[shown.index("{") :])
    assert record["reference"] == f"export of {MODELS}:flow_with_inputs"
    assert record["precision"]["type"] == "fp16"
    assert 1e-5 < max(error["network"] for error in record["precision"]["errors"]) < 1e-2


def test_compare_finds_another_model(here, capsys):
    assert run(["export", f"{MODELS}:flow_with_inputs", "-o", "m.onnx"]) == 0
    model = onnx.load("m.onnx")
    (tensor,) = (t for t in model.graph.initializer if t.name == "down.2.bias")
    tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor) + 1, tensor.name))
    onnx.save(model, "m.onnx")
    assert run(["compare", f"{MODELS}:flow_with_inputs", "m.onnx"]) == 1
    assert run(["compare", "m.onnx", f"{MODELS}:flow_with_inputs"]) == 2
    assert "a PyTorch model can only be the reference" in capsys.readouterr().err


@pytest.mark.slow
def test_rewrite_exports_first(here):
    assert run(["rewrite", f"{MODELS}:flow_with_inputs", "-p", "cfg.yaml", "-o", "fixed.onnx"]) == 0
    operators = [node.op_type for node in onnx.load("fixed.onnx").graph.node]
    assert "Conv" in operators
    assert "BatchNormalization" not in operators


def test_inspect_lists_normalization_modules(here, capsys):
    assert run(["inspect", f"{MODELS}:flow", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(norm["path"], norm["family"]) for norm in found["normalizations"]] == [("norm", "instance"), ("down.1", "batch")]
    assert run(["inspect", f"{MODELS}:flow"]) == 0
    assert "BatchNorm2d (8), down.1" in capsys.readouterr().out


@pytest.mark.slow
def test_weights_are_loaded_and_misfits_named(here, capsys):
    import torch

    state = torch.nn.Linear(4, 4).state_dict()
    torch.save(state, "w.pt")
    Path("p.yaml").write_text("export: {inputs: {input: [2, 4]}}")
    assert run(["export", f"{MODELS}:instance", "-p", "p.yaml", "-o", "m.onnx", "--weights", "w.pt"]) == 0
    tensors = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load("m.onnx").graph.initializer}
    assert (tensors["weight"] == state["weight"].numpy()).all() or (tensors["weight"] == state["weight"].numpy().T).all()
    assert json.loads(Path("m.onnx.json").read_text())["weights"]["loaded"] == 2
    torch.save({"weigth": state["weight"], "bias": state["bias"]}, "w.pt")
    assert run(["export", f"{MODELS}:instance", "-p", "p.yaml", "-o", "n.onnx", "--weights", "w.pt"]) == 3
    assert "weigth" in capsys.readouterr().err


def test_an_accident_is_refused_and_can_be_accepted(here, capsys):
    Path("m.py").write_text(
        "import torch\ndef build():\n    norm = torch.nn.BatchNorm2d(3).eval()\n    norm.running_var[1] = float('nan')\n"
        "    return norm, torch.randn(2, 3, 4, 4)\n"
    )
    assert run(["export", "m.py:build", "-o", "m.onnx"]) == 4
    assert "--accept not-finite" in capsys.readouterr().err
    assert not Path("m.onnx").exists()


def test_modules_in_training_mode_are_put_right(here, capsys):
    Path("m.py").write_text(
        "import torch\ndef build():\n    torch.manual_seed(0)\n    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), "
        "torch.nn.BatchNorm2d(4), torch.nn.Dropout(0.5))\n    return net, torch.randn(2, 3, 8, 8)\n"
    )
    assert run(["export", "m.py:build", "-o", "m.onnx"]) == 0
    assert "put right:" in capsys.readouterr().out
    assert run(["export", "m.py:build", "-o", "m.onnx", "--exporter", "dynamo", "--keep-training"]) == 3
    assert "dynamo cannot be used" in capsys.readouterr().err
