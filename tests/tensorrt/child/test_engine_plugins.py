"""Plugin libraries of an engine: found by its manifest, and loaded only when they are the same."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

from trtnorm_cli.files import sha256_of
from trtnorm_cli.tensorrt.child.engine_plugins import register_plugins

pytestmark = pytest.mark.rtx
LIBRARY = Path(importlib.util.find_spec("_ctypes").origin)


@pytest.fixture
def trt():
    return pytest.importorskip("tensorrt_rtx")


def engine_with(folder: Path, said: str, sha256: str) -> Path:
    manifest = {"plugins": [{"file": Path(said).name, "sha256": sha256}], "profile": {"plugins": [said]}}
    (folder / "m.engine.json").write_text(json.dumps(manifest))
    return folder / "m.engine"


@pytest.mark.parametrize("place", ["lib/mine.so", "mine.so"])
def test_a_library_is_found_where_the_profile_said_or_beside_the_engine(trt, tmp_path, place):
    (tmp_path / "lib").mkdir()
    shutil.copy(LIBRARY, tmp_path / place)
    assert register_plugins(trt, engine_with(tmp_path, "lib/mine.so", sha256_of([LIBRARY]))) == []


def test_another_library_is_not_loaded(trt, tmp_path):
    (tmp_path / "mine.so").write_text("another one")
    assert register_plugins(trt, engine_with(tmp_path, "mine.so", sha256_of([LIBRARY]))) == [
        "the plugin library mine.so that the engine was built with is not there: put it beside the engine"
    ]


def test_a_library_that_cannot_be_loaded(trt, tmp_path):
    (tmp_path / "mine.so").write_text("no library")
    (reason,) = register_plugins(trt, engine_with(tmp_path, "mine.so", sha256_of([tmp_path / "mine.so"])))
    assert reason.startswith(f"the plugin library {tmp_path}/mine.so cannot be loaded: ")


@pytest.mark.parametrize("manifest", [None, "{", "[]", "{}", '{"plugins": [], "profile": null}'])
def test_engines_without_libraries(trt, tmp_path, manifest):
    if manifest is not None:
        (tmp_path / "m.engine.json").write_text(manifest)
    assert register_plugins(trt, tmp_path / "m.engine") == []
