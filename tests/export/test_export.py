"""``trtnorm export`` on models in a user's file: names, sizes, types, exporters, and every error's message."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from trtnorm_cli.cli import run

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("warm_exports")]

MODELS = Path(__file__).parent / "exported_models.py"
IMAGE = "dims: {N: {min: 1, opt: 2, max: 3}, H: {min: %s}, W: {min: %s}}"


@pytest.fixture
def export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[onnx.ModelProto, dict[str, Any]]]:
    """Export a model of ``exported_models.py``; returns the ONNX model and the manifest."""
    monkeypatch.chdir(tmp_path)

    def call(name: str, profile: str | None = None, *options: str) -> tuple[onnx.ModelProto, dict[str, Any]]:
        arguments = ["export", name if ":" in name or name.endswith(".pt2") else f"{MODELS}:{name}", "-o", "m.onnx", *options]
        if profile is not None:
            Path("cfg.yaml").write_text(profile)
            arguments += ["-p", "cfg.yaml"]
        assert run(arguments) == 0
        return onnx.load("m.onnx"), json.loads(Path("m.onnx.json").read_text())

    return call


def refused(capsys: pytest.CaptureFixture[str], name: str, code: int, profile: str | None = None, *options: str) -> str:
    """The message of an export that fails with ``code`` and writes nothing."""
    arguments = ["export", name if ":" in name else f"{MODELS}:{name}", "-o", "m.onnx", *options]
    if profile is not None:
        Path("cfg.yaml").write_text(profile)
        arguments += ["-p", "cfg.yaml"]
    assert run(arguments) == code
    assert not Path("m.onnx").exists()
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err
    return shown.err


def interface(model: onnx.ModelProto) -> dict[str, list[Any]]:
    values = [*model.graph.input, *model.graph.output]
    return {v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}


def worst(manifest: dict[str, Any]) -> float:
    """The largest distance from PyTorch; the comparison has passed."""
    assert manifest["comparison"]["passed"]
    (candidate,) = manifest["comparison"]["candidates"]
    return max(output["native_distance"] for output in candidate["outputs"])


FLOW = "dims: {N: {min: 1, opt: 2, max: 3}, H: {min: 35, opt: 54, max: 100}, W: {min: 35, opt: 96, max: 120}}"


def test_sizes_that_the_model_does_not_take_are_worked_out(export, capsys):
    model, manifest = export("flow_with_inputs", FLOW)
    assert interface(model)["image"] == ["N", 3, "H", "W"]
    sizes = {d["name"]: (d["taken"], d["multiple_of"]) for d in manifest["dimensions"]}
    assert sizes == {"N": ([1, 2, 3], 1), "H": ([40, 56, 96], 8), "W": ([40, 96, 120], 8)}
    reason = next(d["reasons"][0] for d in manifest["dimensions"] if d["name"] == "H")
    assert "Eq(" in reason
    assert f"{MODELS}:" in reason
    assert 'self.up(low) + x, "low": low' in reason
    assert worst(manifest) < 6e-5
    assert manifest["comparison"]["at"] == ["min", "opt", "max"]
    shown = capsys.readouterr().out
    assert "WARNING: H was asked for from 35 to 100; the model takes 40 to 96, multiples of 8" in shown
    assert "dims.H.multiple_of: 8" in shown


@pytest.mark.slow
def test_what_was_learnt_is_written_into_the_profile(export):
    export("flow_with_inputs", "# mine\n" + FLOW.replace(", W", ",\n  W"), "--update-profile")
    assert Path("cfg.yaml").read_text() == (
        "# mine\ndims: {N: {min: 1, opt: 2, max: 3}, H: {min: 40, opt: 56, max: 96, multiple_of: 8},\n"
        "  W: {min: 40, opt: 96, max: 120, multiple_of: 8}}"
    )


@pytest.mark.slow
def test_a_multiple_that_is_too_small_is_raised(export):
    """torch.export takes a model for 4·h that needs 8·h, and says nothing."""
    profile = "dims: {H: {min: 36, opt: 64, max: 100, multiple_of: 4}, W: 64}"
    _, manifest = export("flow_with_inputs", profile)
    (height,) = manifest["dimensions"]
    assert (height["taken"], height["multiple_of"]) == ([40, 64, 96], 8)


@pytest.mark.slow
def test_without_example_inputs_the_profile_gives_them(export):
    profile = "export: {inputs: {image: [N, 3, H, 64]}}\n" + FLOW.replace(", W: {min: 35, opt: 96, max: 120}", "")
    model, manifest = export("flow", profile)
    assert interface(model)["image"] == ["N", 3, "H", 64]
    assert worst(manifest) < 6e-5


@pytest.mark.slow
def test_shapes_by_input_make_the_axes_dynamic_that_differ(export):
    shapes = "{min: [1, 3, 64, 40], opt: [1, 3, 64, 64], max: [1, 3, 64, 96]}"
    model, _ = export("flow", f"optimization_profiles: [{{inputs: {{image: {shapes}}}}}]")
    assert interface(model)["image"] == [1, 3, 64, "image_3"]


def test_nodes_have_the_module_path_in_both_exporters(export):
    for exporter in ("dynamo", "torchscript"):
        model, manifest = export("flow_with_inputs", None, "--exporter", exporter)
        assert manifest["exporter"] == exporter
        names = {node.name for node in model.graph.node}
        assert {"/stem/Conv", "/norm/InstanceNormalization", "/down/0/Conv", "/down/1/BatchNormalization"} <= names
        assert list(interface(model)) == ["image", "flow", "low"]
        assert "down.1.weight" in {tensor.name for tensor in model.graph.initializer}


@pytest.mark.slow
def test_the_file_names_no_path_and_is_the_same_every_time(export):
    export("small", "dims: {N: {min: 1, opt: 2, max: 3}}")
    first = Path("m.onnx").read_bytes()
    export("small", "dims: {N: {min: 1, opt: 2, max: 3}}")
    assert Path("m.onnx").read_bytes() == first
    assert str(MODELS.parent).encode() not in first
    assert b"site-packages" not in first


@pytest.mark.parametrize(("name", "kind", "bound"), [
    ("small", onnx.TensorProto.FLOAT, 6e-5), ("half", onnx.TensorProto.FLOAT16, 4e-2),
    ("bfloat16", onnx.TensorProto.BFLOAT16, 0.13), ("double", onnx.TensorProto.DOUBLE, 2e-7),
])  # fmt: skip
def test_a_model_is_exported_in_its_own_type(export, name, kind, bound):
    model, manifest = export(name)
    kinds = {v.type.tensor_type.elem_type for v in (*model.graph.input, *model.graph.output)}
    assert kinds == {kind}
    assert {t.data_type for t in model.graph.initializer if t.data_type in (1, 10, 11, 16)} == {kind}
    assert worst(manifest) < bound


@pytest.mark.slow
def test_keywords_integers_and_constants(export, capsys):
    profile = "dims: {B: {min: 1, opt: 2, max: 4}, T: {min: 2, opt: 5, max: 9}}"
    model, manifest = export("tokens", profile)
    assert interface(model) == {"ids": ["B", "T"], "mask": ["B", "T"], "output_0": ["B", "T", 8], "output_1": ["B", 8]}
    assert [held["dtype"] for held in manifest["inputs"]] == ["int64", "float32"]
    assert any("scale=0.5" in note for note in manifest["notes"])
    assert worst(manifest) < 6e-5


@pytest.mark.slow
def test_integers_from_the_profile_alone(export):
    profile = (
        "export: {inputs: {ids: {shape: [B, T], dtype: int64}}}\ndata: {ids: {distribution: integers, below: 11}}\n"
        "dims: {B: {min: 1, opt: 2, max: 4}, T: {min: 2, opt: 5, max: 9}}"
    )
    model, manifest = export("tokens_without_inputs", profile)
    assert list(interface(model)) == ["ids", "output_0", "output_1"]
    assert worst(manifest) < 6e-5


def test_nested_inputs_and_a_dataclass(export):
    profile = "export: {inputs: {image: [N, 2, 8, 8], weight: [N, 1, 1, 1], features_0: [N, 4, 8, 8], features_1: [N, 3]}}\n"
    model, manifest = export("nested", profile + "dims: {N: {min: 1, opt: 3, max: 4}}")
    assert list(interface(model)) == ["image", "weight", "features_0", "features_1", "boxes", "scores_0", "scores_1"]
    assert interface(model)["boxes"] == ["N", 4, 8, 8]
    assert worst(manifest) < 6e-5


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_a_result_of_a_library_that_is_called_as_an_input(export, exporter):
    model, _ = export("denoiser", None, "--exporter", exporter)
    assert [value.name for value in model.graph.input] == ["sample"]
    assert [value.name for value in model.graph.output] == ["output_sample", "rest"]


@pytest.mark.slow
def test_unnamed_sizes_that_must_be_equal_become_one(export):
    shapes = "{min: [1, 4], opt: [2, 4], max: [8, 4]}"
    model, manifest = export("two_inputs", f"optimization_profiles: [{{inputs: {{left: {shapes}, right: {shapes}}}}}]")
    assert interface(model)["left"] == interface(model)["right"]
    assert any("are one dimension" in note for note in manifest["notes"])


def test_torchscript_where_dynamo_cannot(export):
    _, manifest = export("only_torchscript", "dims: {N: {min: 1, opt: 2, max: 4}}")
    assert manifest["exporter"] == "torchscript"
    assert manifest["because"].startswith("dynamo cannot: ")
    assert worst(manifest) < 6e-5


@pytest.mark.slow
@pytest.mark.parametrize("opset", [17, 18, 20, 23])
def test_opsets(export, opset):
    model, manifest = export("small", None, "--opset", str(opset))
    assert model.opset_import[0].version == manifest["opset"] >= opset
    assert worst(manifest) < 6e-5


@pytest.mark.slow
def test_an_instance_a_class_and_a_module_name(export, capsys):
    profile = "export: {inputs: {input: [2, 4]}}"
    for name in (f"{MODELS}:instance", "torch.nn:Identity"):
        _, manifest = export(name, profile)
        assert manifest["comparison"]["passed"]


@pytest.mark.slow
def test_a_saved_program(export, tmp_path, capsys):
    import torch

    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4)).eval()
    half_height = torch.export.Dim("half", min=2, max=32)
    program = torch.export.export(
        module, (torch.randn(2, 3, 8, 8),), dynamic_shapes=({0: torch.export.Dim("n", min=1, max=8), 2: 2 * half_height},)
    )
    torch.export.save(program, "p.pt2")
    model, manifest = export("p.pt2", "dims: {N: {min: 1, opt: 2, max: 8}, H: {min: 3, opt: 8, max: 64}}")
    assert interface(model) == {"input": ["N", 3, "H", 8], "output": ["N", 4, "H", 8]}
    height = next(d for d in manifest["dimensions"] if d["name"] == "H")
    assert (height["taken"], height["multiple_of"]) == ([4, 8, 64], 2)
    assert worst(manifest) < 6e-5
    assert run(["export", "p.pt2", "-o", "q.onnx", "-p", "cfg.yaml"]) == 0
    Path("cfg.yaml").write_text("dims: {N: {min: 1, opt: 2, max: 8}, H: 8, W: {min: 4, opt: 8, max: 16}}")
    capsys.readouterr()
    assert run(["export", "p.pt2", "-o", "r.onnx", "-p", "cfg.yaml"]) == 3
    assert "is fixed to 8 in the exported program" in capsys.readouterr().err


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_fixed_size_is_an_error_that_names_module_and_line(here, capsys):
    message = refused(capsys, "vit", 3, "dims: {H: {min: 8, opt: 16, max: 32}, W: {min: 8, opt: 16, max: 32}}")
    assert re.search(r"[HW] \(input\[[23]\]\) was asked for from 8 to 32, and the model's code takes 16 to 19", message)
    assert "guard: Eq((" in message
    assert f"0 ({MODELS}:" in message
    assert "return self.embed(image) + self.positions" in message
    assert "two ways out" in message


def test_a_branch_on_several_sizes_is_found_by_a_counterexample(here, capsys):
    message = refused(capsys, "branch", 1, "dims: {H: {min: 8, opt: 16, max: 64}, W: {min: 8, opt: 16, max: 64}}")
    assert "the exported model does not compute what the module computes, so nothing was written" in message
    assert "if image.shape[2] * image.shape[3] > 600:" in message
    assert "does not at" in message


def test_a_branch_on_the_data_is_refused_unless_a_trace_is_asked_for(here, capsys):
    """Whether the comparison would see it depends on the data that are drawn."""
    message = refused(capsys, "signed", 3)
    assert "branches on its data, and a trace would keep one branch for all data" in message
    assert "return image if image.sum() > 0 else -image" in message
    assert run(["export", f"{MODELS}:signed", "-o", "m.onnx", "--exporter", "torchscript"]) == 0
    assert "Converting a tensor to a Python boolean" in capsys.readouterr().out


@pytest.mark.slow
def test_named_sizes_that_must_be_equal(here, capsys):
    message = refused(capsys, "square", 3, "dims: {H: {min: 8, opt: 16, max: 64}, W: {min: 8, opt: 16, max: 64}}")
    assert re.search(r"the model needs [HW] \(image\[[23]\]\), [HW] \(image\[[23]\]\) to be equal", message)
    assert "export.inputs" in message


@pytest.mark.parametrize(("name", "code", "words"), [
    ("raises", 3, ["raises() raised KeyError: 'no such backbone'", f"{MODELS}:", 'raise KeyError("no such backbone")']),
    ("rasies", 3, ["has no rasies; did you mean 'raises'?"]),
    ("not_a_module", 3, ["not_a_module gives a int, not a module", "(module, example_inputs)"]),
    ("needs_arguments", 3, ["needs_arguments needs arguments: width"]),
    ("broken", 3, ["the model itself does not run on x [2, 4]", "return x.reshape(7, 13)"]),
    ("no_tensor", 3, ["the model returns no tensor but int"]),
    ("flow", 2, ["comes without example inputs", "export:\n", "image: [N, 3, H, W]"]),
    ("crashes", 3, ["the export process was ended by SIGSEGV"]),
    ("no_package_like_this.models:build", 3, ["there is no Python module named no_package_like_this"]),
])  # fmt: skip
def test_errors(here, capsys, name, code, words):
    message = refused(capsys, name, code)
    for word in words:
        assert word in message


@pytest.mark.parametrize(("profile", "words"), [
    ("dims: {K: {min: 1, opt: 2, max: 3}}", "it is not clear which axis of which input the dimension K is"),
    ("export: {inputs: {imgae: [1, 3, 64, 64]}}", "the model has no input 'imgae'; did you mean 'image'?"),
    ("export: {inputs: {image: [N, 3, 64, 64]}}", "the dimension N has no sizes"),
    ("export: {inputs: {image: [N, 64]}}", "[N, 64] has 2 dimensions"),
    ("export: {inputs: {image: {shape: [1], dtype: float31}}}", "is no element type; did you mean 'float32'?"),
    ("export: {inputs: {image: {shape: [1, 'a b']}}}", "expected a size or the name of a dimension"),
])  # fmt: skip
def test_profiles_that_do_not_fit(here, capsys, profile, words):
    message = refused(capsys, "flow_with_inputs", 2, profile)
    assert words in message
    assert "cfg.yaml" in message


def test_without_pytorch(here, capsys, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "torch" else found(name, *rest))
    assert run(["export", f"{MODELS}:small"]) == 2
    assert "pip install 'trtnorm[torch]'" in capsys.readouterr().err


def test_update_profile_needs_a_profile(here, capsys):
    assert run(["export", f"{MODELS}:small", "--update-profile"]) == 2
    assert "--profile CFG.yaml" in capsys.readouterr().err


def test_the_model_may_not_be_overwritten(here, capsys):
    Path("m.py").write_text(MODELS.read_text())
    assert run(["export", "m.py:small", "-o", "m.py"]) == 2
    assert Path("m.py").read_text() == MODELS.read_text()


def test_what_the_users_code_prints_does_not_disturb_json(here, capsys):
    Path("m.py").write_text("print('hello')\nimport torch\ndef build():\n    return torch.nn.Linear(2, 2), torch.ones(1, 2)\n")
    assert run(["export", "m.py:build", "--json"]) == 0
    manifest = json.loads(capsys.readouterr().out)
    assert manifest["outputs"] == ["output"]
    assert np.isfinite(worst(manifest))
