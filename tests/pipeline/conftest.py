"""A folder to build in, and one engine that many tests read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.models import saved
from tests.pipeline.runs import PROFILE, environment, model


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a model that TensorRT takes, one that it refuses, and a profile."""
    folder = tmp_path / "work"
    folder.mkdir()
    (tmp_path / "temp").mkdir()
    saved(model(), folder / "good.onnx")
    saved(model("Odd(r, v)"), folder / "odd.onnx")
    (folder / "cfg.yaml").write_text(PROFILE)
    monkeypatch.chdir(folder)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temp"))
    return folder


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """An engine with its manifest, as the command line leaves it."""
    pytest.importorskip("tensorrt_rtx")
    folder = tmp_path_factory.mktemp("engine")
    saved(model(), folder / "good.onnx")
    (folder / "cfg.yaml").write_text(PROFILE)
    done = subprocess.run(
        [sys.executable, "-m", "trtnorm_cli", "build", "good.onnx", "--profile", "cfg.yaml", "--json"],
        cwd=folder, capture_output=True, text=True, check=False, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "good.engine", done
