"""Architectures of timm, torchvision and transformers: exported, built, and equal to PyTorch."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from trtnorm_cli.cli import run

pytest.importorskip("torch")
from tests.export.library_models import ARCHITECTURES

pytestmark = [pytest.mark.torch, pytest.mark.rtx, pytest.mark.slow]

MODELS = Path(__file__).with_name("library_models.py")


def require(library: str) -> None:
    """Skip where the library is not installed, or was built for another PyTorch."""
    try:
        importlib.import_module(library)
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"{library} cannot be imported: {str(error).splitlines()[0]}")


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_library_model_exports_builds_and_computes_what_pytorch_computes(name, tmp_path, monkeypatch):
    require(name.partition("_")[0])
    monkeypatch.chdir(tmp_path)
    Path("cfg.yaml").write_text(ARCHITECTURES[name][1])
    assert run(["build", f"{MODELS}:{name}", "-p", "cfg.yaml", "-o", "m.engine", "--no-compare"]) == 0
    manifest = json.loads(Path("m.engine.json").read_text())
    export = manifest["export"]
    assert export["comparison"]["passed"]
    assert len(export["comparison"]["at"]) >= 2
    assert export["exporter"] == "dynamo"
    shapes = {held["name"]: held["shape"] for held in export["inputs"]}
    asked = [dim for dim in ("N", "H", "W", "T") if f"{dim}: {{" in ARCHITECTURES[name][1]]
    assert set(asked) <= {dim for shape in shapes.values() for dim in shape}, "every size that was asked for is dynamic"
