"""The files of a job, found where the plan is and laid out where the job is done; and the addresses that follow from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from tests.models import parse, random, saved
from trtnorm_cli.batch.address import addresses_of
from trtnorm_cli.batch.inputs import InputReader, imported_files, laid_out, send
from trtnorm_cli.batch.job import Job, JobSettings
from trtnorm_cli.batch.machine import BackendAt, Machine
from trtnorm_cli.batch.matrix import jobs_of
from trtnorm_cli.batch.plan import parse_plan
from trtnorm_cli.batch.store import Store
from trtnorm_cli.errors import ModelError, ProfileError, UsageProblem

pytest.importorskip("fsspec")
MACHINE = Machine(
    "0.1.0 code", {"onnx": "1"}, {"": BackendAt("tensorrt-rtx", "1.7"), "tensorrt": BackendAt("tensorrt", "10")}, {}
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model with external data, a build profile with calibration inputs, and a PyTorch model that imports its neighbours."""
    model = parse("g (float[N, 4] x) => (float[N, 4] y) { y = MatMul(x, w) }", {"w": random(4, 4)})
    (tmp_path / "models").mkdir()
    onnx.save_model(model, tmp_path / "models" / "net.onnx", save_as_external_data=True, location="net.data", size_threshold=0)
    (tmp_path / "cfg").mkdir()
    (tmp_path / "cfg" / "cfg.yaml").write_text(
        "dims: {N: {min: 1, opt: 2, max: 4}}\nprecision: {type: fp16, data: ../in.npz}\n"
    )
    (tmp_path / "in.npz").write_bytes(b"inputs")
    (tmp_path / "model.py").write_text("import torch, blocks\nfrom pack import part\ndef net(): ...\n")
    (tmp_path / "blocks.py").write_text("def f():\n    from . import deeper\n")
    (tmp_path / "deeper.py").write_text("")
    (tmp_path / "unused.py").write_text("")
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("")
    (tmp_path / "pack" / "part.py").write_text("")
    return tmp_path


def job_of(folder: Path, text: str = "models: {net: {model: models/net.onnx, profile: cfg/cfg.yaml}}") -> Job:
    return jobs_of(parse_plan(text, str(folder / "plan.yaml")))[0]


def test_a_job_is_laid_out_elsewhere_as_it_was(folder, tmp_path):
    inputs = InputReader().inputs(job_of(folder))
    assert [file.place for file in inputs.model] == ["net.onnx", "net.data"]
    assert sorted(file.place for file in inputs.profile) == ["cfg/cfg.yaml", "in.npz"]
    store = Store(str(tmp_path / "store"))
    store.open()
    send(inputs, store)
    for file in (folder / "models").iterdir():
        file.unlink()
    laid = laid_out(inputs, store, tmp_path / "elsewhere", here=False)
    assert Path(laid.spec) == tmp_path / "elsewhere" / "model" / "net.onnx"
    assert onnx.load(laid.spec).graph.initializer[0].raw_data
    assert laid.profile is not None
    assert laid.profile.calibration_data is not None
    assert laid.profile.calibration_data.read_bytes() == b"inputs"


def test_a_file_that_changed_after_the_plan_was_read_is_noticed(folder, tmp_path):
    inputs = InputReader().inputs(job_of(folder))
    (folder / "models" / "net.data").write_bytes(b"other")
    with pytest.raises(ModelError, match="changed after the plan was read"):
        laid_out(inputs, Store(str(tmp_path / "store")), tmp_path, here=True)


def test_a_file_that_was_removed_after_the_plan_was_read_is_no_defect(folder, tmp_path):
    inputs = InputReader().inputs(job_of(folder))
    (folder / "models" / "net.data").unlink()
    with pytest.raises(ModelError, match="was removed after the plan was read"):
        laid_out(inputs, Store(str(tmp_path / "store")), tmp_path, here=True)


def test_a_path_that_only_this_machine_has_is_not_sent(folder, tmp_path):
    (folder / "cfg" / "cfg.yaml").write_text(f"precision: {{type: fp16, data: {folder / 'in.npz'}}}\n")
    store = Store(str(tmp_path / "store"))
    store.open()
    with pytest.raises(UsageProblem, match="absolute path"):
        send(InputReader().inputs(job_of(folder)), store)


@pytest.mark.torch
def test_modules_that_a_model_imports_from_its_folder_go_with_it(folder):
    assert [file.relative_to(folder).as_posix() for file in imported_files(folder / "model.py")] == [
        "blocks.py", "deeper.py", "pack/__init__.py", "pack/part.py",
    ]  # fmt: skip
    inputs = InputReader().inputs(job_of(folder, "models: {net: 'model.py:net'}"))
    assert inputs.model[0].place == "model.py"
    assert "torch" in inputs.packages


@pytest.mark.parametrize(("text", "error", "words"), [
    ("models: {net: none.onnx}", ModelError, "there is no such file"),
    ("models: {net: {model: models/net.onnx, profile: none.yaml}}", ProfileError, "none.yaml"),
    ("models: {net: {model: models/net.onnx, weights: none.pt}}", ModelError, "cannot be read"),
    ("models: {net: models/net.onnx}\noverrides: [{match: {model: net}, settings: {bilder: {}}}]", ProfileError, "you mean"),
])  # fmt: skip
def test_what_is_missing_is_named(folder, text, error, words):
    with pytest.raises(error) as raised:
        InputReader().inputs(job_of(folder, text))
    assert words in f"{raised.value.summary} {raised.value.where}"


def test_an_address_follows_from_all_that_an_engine_depends_on(folder):
    def addresses(machine: Machine = MACHINE, **changes):
        job = replace(job_of(folder), **changes)
        return addresses_of(job, InputReader().inputs(job), machine)

    first = addresses()
    assert addresses() == first
    assert addresses(name="another", model="name", target="of it") == first
    assert addresses(how=JobSettings(timeout=5, memory=1 << 30)) == first
    others = {
        "precision": addresses(precision="bf16"),
        "settings": addresses(settings={"builder": {"optimization_level": 1}}),
        "backend": addresses(backend="tensorrt"),
        "gpu": addresses(gpu="sm_86"),
        "seed": addresses(how=JobSettings(seed=1)),
        "programs": addresses(replace(MACHINE, trtnorm="0.1.0 other")),
        "version": addresses(replace(MACHINE, backends={"": BackendAt("tensorrt-rtx", "1.8")})),
    }
    (folder / "in.npz").write_bytes(b"others")
    others["calibration"] = addresses()
    (folder / "models" / "net.data").write_bytes((folder / "models" / "net.data").read_bytes()[::-1])
    others["data"] = addresses()
    assert len({first.build, *(one.build for one in others.values())}) == 1 + len(others)
    shared = {"precision", "settings", "gpu", "seed"}
    assert {name for name, one in others.items() if one.rewrite == first.rewrite} == shared


def test_an_export_is_shared_and_follows_from_its_sources(folder):
    text = "models: {net: 'model.py:net'}\nprecisions: [as-written, fp16]"

    def addresses(number: int):
        job = jobs_of(parse_plan(text, str(folder / "plan.yaml")))[number]
        return addresses_of(job, InputReader().inputs(job), MACHINE)

    first = addresses(0)
    assert first.export is not None
    assert addresses(1).export == first.export
    assert addresses(1).build != first.build
    (folder / "unused.py").write_text("x = 1")
    assert addresses(0) == first
    (folder / "deeper.py").write_text("x = 1")
    assert addresses(0).export != first.export


def test_a_model_file_is_read_for_all_of_its_jobs_once(folder, monkeypatch):
    reads = []
    monkeypatch.setattr("trtnorm_cli.batch.inputs.sha256_of", lambda files: reads.append(list(files)) or "0" * 64)
    reader, job = InputReader(), job_of(folder)
    assert reader.inputs(job) == reader.inputs(replace(job, precision="bf16")) or True
    assert len(reads) == 4


def test_a_small_model_that_is_none_is_left_to_its_job(tmp_path):
    saved(parse("g (float[1] x) => (float[1] y) { y = Identity(x) }"), tmp_path / "ok.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    inputs = InputReader().inputs(job_of(tmp_path, "models: {net: bad.onnx}"))
    assert [file.place for file in inputs.model] == ["bad.onnx"]
