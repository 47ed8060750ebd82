"""``trtnorm init``, ``trtnorm schema`` and ``trtnorm doctor``."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
import yaml
from onnx import parser

from tests.models import parse
from trtnorm_cli.cli import run
from trtnorm_cli.onnx_model.load import load_model
from trtnorm_cli.profile.fit import fit
from trtnorm_cli.profile.load import load_profile
from trtnorm_cli.profile.model_input import inputs_of
from trtnorm_cli.rewrite.rules import RULES
from trtnorm_cli.tensorrt import doctor

MODEL = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[N, 3, H, W] image, int64[N, S] tokens, float[2, 2] fixed) => (float[N, 3, H, W] y) { y = Relu(image) }
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(parser.parse_model(MODEL), "m.onnx")
    return Path("m.onnx")


def test_init_writes_a_profile_that_fits_as_it_is(model: Path) -> None:
    assert run(["init", "m.onnx", "-o", "cfg.yaml"]) == 0
    fitted = fit(load_profile(Path("cfg.yaml")), inputs_of(load_model(model).proto))
    assert fitted.dynamic_inputs == ("image", "tokens")
    assert fitted.profiles[0].shapes["image"].min[0] == fitted.profiles[0].shapes["tokens"].min[0]


@pytest.mark.parametrize("inputs", ["float[1, 3, 8, 8] x", "float x", ""])
def test_init_of_a_static_model_says_that_no_optimization_profile_is_needed(
    inputs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    body = "y = Relu(x)" if inputs else "y = Constant<value_float = 1.0>()"
    onnx.save(parse(f"g ({inputs}) => (float[] y) {{ {body} }}"), "m.onnx")
    assert run(["init", "m.onnx", "-o", "cfg.yaml"]) == 0
    assert "no optimization profile is needed" in Path("cfg.yaml").read_text()
    assert run(["rewrite", "m.onnx", "--dry-run", "--profile", "cfg.yaml"]) == 0


def test_init_does_not_overwrite(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("cfg.yaml").write_text("mine")
    assert run(["init", "m.onnx", "-o", "cfg.yaml"]) == 2
    assert "not overwritten" in capsys.readouterr().err
    assert Path("cfg.yaml").read_text() == "mine"


def test_init_as_json_and_quiet(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init", "m.onnx", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["written"] is None
    assert printed["profile"] == yaml.safe_load(printed["text"])
    assert run(["init", "m.onnx", "-o", "cfg.yaml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {**printed, "written": "cfg.yaml"}
    assert Path("cfg.yaml").read_text() == printed["text"]
    assert run(["init", "m.onnx", "-q", "-o", "other.yaml"]) == 0
    assert capsys.readouterr() == ("other.yaml\n", "")


def test_rules_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [rule["name"] for rule in listed["rules"]] == [rule.name for rule in RULES]
    assert run(["rules", "show", RULES[0].name, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["document"] == RULES[0].doc.strip()
    assert len(shown["applied_only_when"]) >= len(RULES[0].preconditions)
    assert run(["rules", "--json", "show", RULES[0].name]) == 2


def test_quiet_leaves_the_files_that_were_written(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rewrite", "m.onnx", "-o", "fixed.onnx", "-q"]) == 0
    assert capsys.readouterr() == ("fixed.onnx\n", "")
    assert run(["rewrite", "m.onnx", "--dry-run", "-q", "--json"]) == 0
    assert capsys.readouterr().err == ""


def test_the_committed_schema_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema"]) == 0
    committed = Path(__file__).parents[1] / "configs" / "profile.schema.json"
    assert json.loads(capsys.readouterr().out) == json.loads(committed.read_text()), "run: trtnorm schema > " + committed.name


def test_the_committed_schema_of_plans_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "--batch"]) == 0
    committed = Path(__file__).parents[1] / "configs" / "plan.schema.json"
    printed = json.loads(capsys.readouterr().out, object_hook=_without_defaults)
    assert printed == json.loads(committed.read_text(), object_hook=_without_defaults), "run: trtnorm schema --batch > …"


def _without_defaults(schema: dict[str, object]) -> dict[str, object]:
    """The schema without what pydantic writes since 2.11, though it goes without saying."""
    return {key: value for key, value in schema.items() if (key, value) != ("additionalProperties", True)}


@pytest.mark.rtx
def test_doctor_finds_the_backend_that_builds(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rtx = next(backend for backend in found["backends"] if backend["name"] == "tensorrt-rtx")
    assert rtx["can_build"]
    assert rtx["strongly_typed_only"]
    assert "sm_86" in rtx["targets"]
    assert rtx["lacks"] == ["hardware_compatibility", "timing_cache"]
    assert rtx["wheels"]["tensorrt-rtx"] == rtx["version"]
    assert found["packages"]["onnx"] == onnx.__version__


def test_doctor_says_what_to_install_when_nothing_builds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "_backend", lambda spec: {"name": spec.name, "install": spec.install, "needs": spec.needs,
                                                          "installed": False, "can_build": False})  # fmt: skip
    assert run(["doctor"]) == 2
    assert "pip install 'trtnorm[rtx]'" in capsys.readouterr().out
