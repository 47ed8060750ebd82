"""Bad input: one message, the right exit code, no traceback, and no file written or overwritten."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.models import batchnorm, parse, random, saved
from trtnorm_cli.cli import run

GRAPH = """g (float[N, 2, 7, 7] image) => (float[N, 4, 5, 5] y) {
    c = Conv(image, w) y = BatchNormalization(c, gamma, beta, mu, var)
}"""
PROFILE = "optimization_profiles:\n  - inputs:\n      image: {min: [1, 2, 7, 7], opt: [2, 2, 7, 7], max: [4, 2, 7, 7]}\n"


def model() -> onnx.ModelProto:
    return parse(GRAPH, {"w": random(4, 2, 3, 3), **batchnorm(4)})


def contents(folder: Path) -> dict[str, str]:
    """Every file, link and folder below ``folder``, with a digest of what is in it."""
    found = {}
    for path in sorted(folder.rglob("*")):
        is_file = path.is_file() and not path.is_symlink()
        found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest() if is_file else ""
    return found


@pytest.fixture
def work(tmp_path, monkeypatch, unshared_child) -> Path:
    """A folder with a good model, a good profile and earlier results, which is the working directory."""
    folder = tmp_path / "work"
    folder.mkdir()
    (tmp_path / "temp").mkdir()
    saved(model(), folder / "m.onnx")
    (folder / "cfg.yaml").write_text(PROFILE)
    for earlier in ("m.engine", "m.engine.json", "fixed.onnx", "fixed.onnx.data"):
        (folder / earlier).write_text(f"earlier {earlier}")
    monkeypatch.chdir(folder)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temp"))
    return folder


@pytest.fixture
def refused(work, capsys):
    """Run a command that has to be refused; returns what it printed to stderr."""

    def check(arguments: list[str], code: int) -> str:
        before = contents(work.parent)
        capsys.readouterr()
        assert run(arguments) == code
        shown = capsys.readouterr()
        if "--json" in arguments:
            assert json.loads(shown.out)["error"]["exit_code"] == code
        else:
            assert shown.out == ""
        assert "Traceback" not in shown.err
        assert len([line for line in shown.err.splitlines() if line.lower().startswith("error:")]) == 1, shown.err
        assert contents(work.parent) == before
        return shown.err

    return check


def write(name: str, content: bytes) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return prepare


def truncate(folder: Path) -> None:
    (folder / "bad.onnx").write_bytes(model().SerializeToString()[:-200])


def external(folder: Path) -> None:
    onnx.save(model(), str(folder / "bad.onnx"), save_as_external_data=True, location="bad.bin", size_threshold=0)
    (folder / "bad.bin").unlink()


def nothing(folder: Path) -> None:
    pass


BAD_MODELS = {
    "missing": (nothing, "there is no such file"),
    "folder": (lambda folder: (folder / "bad.onnx").mkdir(), "this is a folder"),
    "empty": (write("bad.onnx", b""), "the file is empty"),
    "random bytes": (
        write("bad.onnx", bytes(np.random.default_rng(1).integers(0, 256, 999, dtype=np.uint8))),
        "not an ONNX model",
    ),
    "truncated": (truncate, "not an ONNX model, or it is truncated"),
    "text": (write("bad.onnx", b"print('hello')\n"), "not an ONNX model"),
    "missing external data": (external, "the external data file bad.bin is missing"),
    "a pipe": (lambda folder: os.mkfifo(folder / "bad.onnx"), "there is no such file"),
    "a broken link": (lambda folder: (folder / "bad.onnx").symlink_to("nowhere"), "there is no such file"),
    "a link to itself": (lambda folder: (folder / "bad.onnx").symlink_to("bad.onnx"), "there is no such file"),
}
ON_A_MODEL = {
    "build": ["build", "bad.onnx", "--profile", "cfg.yaml", "-o", "m.engine"],
    "rewrite": ["rewrite", "bad.onnx", "-o", "fixed.onnx"],
    "inspect": ["inspect", "bad.onnx"],
    "compare": ["compare", "bad.onnx", "--profile", "cfg.yaml"],
}


@pytest.mark.parametrize("arguments", ON_A_MODEL.values(), ids=ON_A_MODEL)
@pytest.mark.parametrize(("prepare", "words"), BAD_MODELS.values(), ids=BAD_MODELS)
def test_a_bad_model(work, refused, prepare, words, arguments):
    prepare(work)
    shown = refused(arguments, 3)
    assert words in shown
    assert "bad.onnx" in shown


BAD_PROFILES = {
    "missing": (nothing, "bad.yaml: the build profile does not exist"),
    "folder": (lambda folder: (folder / "bad.yaml").mkdir(), "bad.yaml: the build profile is a folder"),
    "empty": (write("bad.yaml", b""), "bad.yaml"),
    "binary": (write("bad.yaml", bytes(range(256))), "bad.yaml: the file is binary, not YAML"),
    "invalid YAML": (write("bad.yaml", b"optimization_profiles:\n  - inputs: {image: [1,\n"), "bad.yaml:"),
    "an unknown key": (
        write("bad.yaml", b"optimization_profile:\n  - inputs: {}\n"),
        "bad.yaml:1: unknown key 'optimization_profile'; did you mean",
    ),
    "min above opt": (
        write("bad.yaml", PROFILE.replace("min: [1", "min: [3").encode()),
        "bad.yaml:3: optimization_profiles[0].inputs.image.opt[0]: 2 is below min 3",
    ),
    "opt above max": (
        write("bad.yaml", PROFILE.replace("opt: [2", "opt: [9").encode()),
        "bad.yaml:3: optimization_profiles[0].inputs.image.opt[0]: 9 is above max 4",
    ),
    "a wrong rank": (
        write("bad.yaml", PROFILE.replace(", 7]", "]").encode()), "bad.yaml:3: optimization_profiles[0].inputs.image"
    ),
    "an input that does not exist": (
        write("bad.yaml", PROFILE.replace("image", "imgae").encode()),
        "bad.yaml:3: optimization_profiles[0].inputs.imgae: the model has no input 'imgae'; did you mean 'image'?",
    ),
    "a rule that does not exist": (
        write("bad.yaml", (PROFILE + "rules: {skip: [fold-batchnorm-con]}\n").encode()), "fold-batchnorm-con"
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "command", [["build", "m.onnx", "-o", "m.engine"], ["rewrite", "m.onnx", "-o", "fixed.onnx"], ["compare", "m.onnx"]]
)
@pytest.mark.parametrize(("prepare", "words"), BAD_PROFILES.values(), ids=BAD_PROFILES)
def test_a_bad_profile(work, refused, prepare, words, command):
    prepare(work)
    assert words in refused([*command, "--profile", "bad.yaml"], 2)


@pytest.mark.parametrize("command", [["build", "m.onnx"], ["compare", "m.onnx"]])
def test_no_profile_for_a_dynamic_input(refused, command):
    """The block to paste is printed, and fits."""
    shown = refused(command, 2)
    assert "image: float32 [N, 2, 7, 7]" in shown
    assert re.search(r"^ +dims:$", shown, re.MULTILINE)


def make_folder(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).mkdir()


BAD_OUTPUTS = {
    "the model itself": (nothing, "m.onnx", "the output would overwrite what it is made from"),
    "the model by another name": (lambda folder: (folder / "link").symlink_to("m.onnx"), "link", "would overwrite"),
    "a hard link to the model": (lambda folder: os.link("m.onnx", "hard"), "hard", "would overwrite"),
    "the profile": (nothing, "cfg.yaml", "would overwrite"),
    "a folder": (make_folder("out"), "out", "the output is a folder"),
    "a pipe": (lambda folder: os.mkfifo(folder / "out"), "out", "the output is a device or a pipe, not a file"),
    "in a folder that does not exist": (nothing, "nowhere/out", "the folder cannot be written: No such file or directory"),
    "in a folder that is a file": (nothing, "cfg.yaml/out", "the folder cannot be written: Not a directory"),
    "in a folder of the kernel": (nothing, "/proc/out", "the folder cannot be written"),
}


@pytest.mark.parametrize("command", ["build", "rewrite"])
@pytest.mark.parametrize(("prepare", "output", "words"), BAD_OUTPUTS.values(), ids=BAD_OUTPUTS)
def test_a_bad_output(work, refused, command, prepare, output, words):
    prepare(work)
    assert words in refused([command, "m.onnx", "--profile", "cfg.yaml", "-o", output], 2)


def test_a_second_file_would_overwrite_something(work, refused):
    """The manifest and the data file get names that the user did not write."""
    (work / "cfg.json").write_text(PROFILE)
    assert "cfg.json: the output would overwrite" in refused(["build", "m.onnx", "--profile", "cfg.json", "-o", "cfg"], 2)
    (work / "other.json").mkdir()
    assert "other.json: the output is a folder" in refused(["build", "m.onnx", "--profile", "cfg.yaml", "-o", "other"], 2)
    onnx.save(model(), "e.onnx", save_as_external_data=True, location="new.onnx.data", size_threshold=0)
    assert "new.onnx.data: the output would overwrite" in refused(["rewrite", "e.onnx", "-o", "new.onnx"], 2)
    for target in ("new.onnx.data",):
        assert "would overwrite" in refused(["build", "e.onnx", "--profile", "cfg.yaml", "-o", target], 2)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("command", ["build", "rewrite"])
def test_an_unwritable_folder(work, refused, command):
    (work / "closed").mkdir(mode=0o500)
    shown = refused([command, "m.onnx", "--profile", "cfg.yaml", "-o", "closed/out"], 2)
    assert "the folder cannot be written: Permission denied" in shown


def test_an_unwritable_folder_whoever_runs_this(work, refused, monkeypatch):
    real = tempfile.mkdtemp

    def closed(*args, **kwargs):
        if kwargs.get("dir") is not None:
            raise PermissionError(13, "Permission denied")
        return real(*args, **kwargs)

    monkeypatch.setattr("tempfile.mkdtemp", closed)
    for command in ("build", "rewrite"):
        shown = refused([command, "m.onnx", "--profile", "cfg.yaml", "-o", "out"], 2)
        assert "the folder cannot be written: Permission denied" in shown


BAD_ENGINES = {
    "missing": (nothing, "e.engine: there is no such engine"),
    "folder": (make_folder("e.engine"), "e.engine: there is no such engine"),
    "without manifest": (write("e.engine", b"vtrt"), "e.engine: the engine has no manifest"),
    "manifest is no JSON": (
        lambda folder: [write("e.engine", b"vtrt")(folder), write("e.engine.json", b"{")(folder)],
        "e.engine.json: the manifest is not JSON",
    ),
    "manifest is binary": (
        lambda folder: [write("e.engine", b"vtrt")(folder), write("e.engine.json", bytes(range(256)))(folder)],
        "e.engine.json: the manifest is not JSON",
    ),
    "manifest is a list": (
        lambda folder: [write("e.engine", b"vtrt")(folder), write("e.engine.json", b"[]")(folder)],
        "e.engine.json: this is no manifest of format 1",
    ),
    "manifest of a later format": (
        lambda folder: [write("e.engine", b"vtrt")(folder), write("e.engine.json", b'{"format": 2}')(folder)],
        "e.engine.json: this is no manifest of format 1",
    ),
    "manifest without content": (
        lambda folder: [write("e.engine", b"vtrt")(folder), write("e.engine.json", b'{"format": 1}')(folder)],
        "e.engine.json: the manifest lacks",
    ),
}


@pytest.mark.parametrize("rest", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize(("prepare", "words"), BAD_ENGINES.values(), ids=BAD_ENGINES)
def test_a_bad_engine(work, refused, prepare, words, rest):
    prepare(work)
    assert words in refused(["inspect", "e.engine", *rest], 3)
