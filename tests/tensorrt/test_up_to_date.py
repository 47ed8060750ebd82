"""An engine is built again exactly when something that it was made from is different."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.models import batchnorm, parse, random, saved
from trtnorm_cli import build_job, pipeline
from trtnorm_cli.cli import run
from trtnorm_cli.tensorrt import reproducible, up_to_date
from trtnorm_cli.tensorrt.facts import BackendFacts
from trtnorm_cli.tensorrt.manifest import Manifest

pytestmark = pytest.mark.rtx
GRAPH = "g (float[N, 2, 9, 9] x) => (float[N, 4, 7, 7] y) { c = Conv(x, w) y = BatchNormalization(c, gamma, beta, mu, var) }"
PROFILE = "dims: {N: {min: 1, opt: 2, max: 4}}\n"


def model(seed: int = 0) -> onnx.ModelProto:
    return parse(GRAPH, {"w": random(4, 2, 3, 3, seed=seed), **batchnorm(4)})


def build(*more: str) -> int:
    return run(["build", "m.onnx", "-p", "c.yaml", "-o", "m.engine", *more])


@pytest.fixture(scope="module")
def first(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("first")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        onnx.save(model(), "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
        Path("c.yaml").write_text(PROFILE)
        assert build() == 0
    return folder


@pytest.fixture
def work(first, tmp_path, monkeypatch) -> Path:
    """A folder with a model, its profile, and its engine that was built and compared."""
    for path in first.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def built_again(first, monkeypatch) -> list[int]:
    """One entry for each build that would run; here it only ends with the first manifest."""
    builds: list[int] = []
    manifest = Manifest.load(first / "m.engine.json")
    monkeypatch.setattr(pipeline, "build", lambda *a, **k: builds.append(1) or manifest)
    return builds


def test_nothing_changed(work, built_again, capsys):
    before = (work / "m.engine").stat().st_mtime_ns
    assert build() == 0
    assert "m.engine is up to date" in capsys.readouterr().out
    assert build("--no-compare", "--timeout", "100", "--memory", "8GiB") == 0
    assert (work / "m.engine").stat().st_mtime_ns == before
    assert built_again == []


def test_json_is_the_manifest(work, built_again, capsys):
    assert build("--json") == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out) == json.loads((work / "m.engine.json").read_text())
    assert "up to date" in shown.err


def test_a_comment_in_the_profile_changes_nothing(work, built_again):
    (work / "c.yaml").write_text(f"# a comment\n{PROFILE}")
    assert build() == 0
    assert built_again == []


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


CHANGES = {
    "a byte of the engine": lambda work: flip(work / "m.engine", 5000),
    "the engine is cut off": lambda work: (work / "m.engine").write_bytes((work / "m.engine").read_bytes()[:-1]),
    "the engine is gone": lambda work: (work / "m.engine").unlink(),
    "the manifest is gone": lambda work: (work / "m.engine.json").unlink(),
    "the manifest is cut off": lambda work: (work / "m.engine.json").write_text((work / "m.engine.json").read_text()[:500]),
    "the manifest is something else": lambda work: (work / "m.engine.json").write_text("[1]"),
    "the weights beside the model": lambda work: flip(work / "m.data", 1),
    "the model": lambda work: saved(model(seed=1), work / "m.onnx"),
    "the range": lambda work: (work / "c.yaml").write_text(PROFILE.replace("4}", "8}")),
    "a setting": lambda work: (work / "c.yaml").write_text(PROFILE + "builder: {targets: [sm_86]}\n"),
    "the tolerances": lambda work: (work / "c.yaml").write_text(PROFILE + "tolerances: {default: {rtol: 0.5}}\n"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_is_different_is_built(work, built_again, change):
    change(work)
    assert build() == 0
    assert built_again


def test_a_damaged_engine_is_replaced(work, capsys):
    right = (work / "m.engine").read_bytes()
    flip(work / "m.engine", 5000)
    assert build() == 0
    assert (work / "m.engine").read_bytes() == right
    capsys.readouterr()
    assert build() == 0
    assert "up to date" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [("--force",), ("--seed", "3"), ("--check-reproducible",)])
def test_what_is_asked_for_is_built(work, built_again, arguments):
    assert build(*arguments) == 0
    assert built_again


def test_an_engine_that_was_not_compared(work, built_again):
    manifest = json.loads((work / "m.engine.json").read_text())
    (work / "m.engine.json").write_text(json.dumps({**manifest, "comparison": None}))
    assert build("--no-compare") == 0
    assert not built_again
    assert build() == 0
    assert built_again


@pytest.mark.parametrize("facts", [
    BackendFacts("tensorrt-rtx", "9.9"), BackendFacts("tensorrt", "1.7.1.116"),
    BackendFacts("tensorrt-rtx", "1.7.1.116", devices=("NVIDIA RTX A2000 (sm_86)",)),
])  # fmt: skip
def test_another_backend(work, built_again, monkeypatch, facts):
    monkeypatch.setattr(up_to_date, "ask_facts", lambda name: facts)
    assert build() == 0
    assert built_again


def test_other_code(work, built_again, monkeypatch):
    monkeypatch.setattr(up_to_date, "own_code", lambda: "0.2.0 0123456789abcdef")
    assert build() == 0
    assert built_again


def test_a_build_is_reproducible(work, monkeypatch):
    real, launches = build_job.launch, []
    monkeypatch.setattr(build_job, "launch", lambda *a, **k: launches.append(1) or real(*a, **k))
    assert build("--check-reproducible", "--no-compare") == 0
    assert len(launches) == 2
    assert json.loads((work / "m.engine.json").read_text())["reproducible"] is True


def test_a_build_that_is_not(work, monkeypatch, capsys):
    real, calls = build_job.launch, []

    def launch(request, *rest, **more):
        result = real(request, *rest, **more)
        calls.append(request.engine)
        if len(calls) == 2:
            flip(Path(request.engine), 4000)
        return result

    monkeypatch.setattr(build_job, "launch", launch)
    before = (work / "m.engine").read_bytes()
    assert build("--check-reproducible", "--no-compare") == 1
    assert "building the same model twice gave two different engines" in capsys.readouterr().err
    assert (work / "m.engine").read_bytes() == before
    assert [path.name for path in work.iterdir() if path.name.startswith(".")] == []


def test_a_rewriting_that_is_not(work, monkeypatch, capsys):
    real, weights = reproducible.sha256_of, iter(range(100))
    monkeypatch.setattr(reproducible, "sha256_of", lambda files: real(files) + str(next(weights)))
    assert build("--check-reproducible", "--no-compare") == 1
    assert "rewriting the model twice gave two different files" in capsys.readouterr().err


def test_weights_given_beside_the_model_count(work, built_again):
    from safetensors.numpy import save_file

    save_file({"other": np.ones(4, np.float32)}, work / "w.safetensors")
    assert build("--weights", "w.safetensors") == 0
    assert built_again
