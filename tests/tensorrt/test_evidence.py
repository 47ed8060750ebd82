"""What stays of a build that failed."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import parse, random, saved
from trtnorm_cli.errors import BuilderDied, TensorRTRefusal
from trtnorm_cli.tensorrt.evidence import keep_evidence
from trtnorm_cli.tensorrt.launch import repeat_command
from trtnorm_cli.tensorrt.origin import Subject
from trtnorm_cli.tensorrt.request import BuildRequest
from trtnorm_cli.tensorrt.work_folder import work_folder


@pytest.fixture
def folder(tmp_path):
    work = tmp_path / "trtnorm-build-1"
    (work / "variant-1").mkdir(parents=True)
    (work / "variant-1" / "variant.onnx").write_bytes(bytes(1000))
    BuildRequest("fixed.onnx", "m.engine").save(work)
    (work / "build.log").write_text("what TensorRT said\n")
    (work / "as-meant.onnx").write_bytes(bytes(1000))
    return work


def model(width: int) -> onnx.ModelProto:
    return parse(f"g (float[2, {width}] x) => (float[2, {width}] y) {{ a = MatMul(x, w) y = Odd(a, b) }}",
                 {"w": random(width, width), "b": random(width)})  # fmt: skip


def size(folder) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_a_small_model_stays_as_it_is(folder, tmp_path):
    path = saved(model(8), folder / "fixed.onnx")
    before = path.read_bytes()
    error = BuilderDied("died", f"work folder {folder}", f"repeat the build by hand: {repeat_command(folder)}")
    keep_evidence(folder, error, Subject(tmp_path / "m.onnx"))
    assert path.read_bytes() == before
    assert repeat_command(folder) in error.hint
    assert error.where == f"work folder {folder}"


@pytest.mark.parametrize("external", [False, True])
def test_of_a_large_model_the_graph_stays(folder, tmp_path, external):
    path = folder / "fixed.onnx"
    onnx.save(model(2048), path, save_as_external_data=external, location="fixed.onnx.data")
    error = BuilderDied("died", f"work folder {folder}", f"it died\nrepeat the build by hand: {repeat_command(folder)}")
    keep_evidence(folder, error, Subject(tmp_path / "m.onnx", tmp_path / "cfg.yaml"))
    assert size(folder) < 100_000
    assert {path.name for path in folder.iterdir()} == {"fixed.onnx", "request.json", "build.log"}
    kept = onnx.load(path, load_external_data=False)
    assert [node.op_type for node in kept.graph.node] == ["MatMul", "Odd"]
    assert list(kept.graph.initializer[0].dims) == [2048, 2048]
    repeat = f"trtnorm build {tmp_path}/m.onnx -p {tmp_path}/cfg.yaml"
    assert error.hint == f"it died\nrepeat the build by hand: {repeat}"
    assert error.where.endswith(f"{folder} holds the log, the request and the graph without its large weights; "
                                f"to repeat the build: {repeat}")  # fmt: skip


def test_a_graph_of_many_small_weights_is_bounded_too(folder, tmp_path):
    weights = {f"w{i}": np.ones(5000, np.float32) for i in range(400)}
    body = " ".join(f"t{i + 1} = Add(t{i}, w{i})" for i in range(400))
    saved(parse(f"g (float[5000] t0) => (float[5000] t400) {{ {body} }}", weights), folder / "fixed.onnx")
    keep_evidence(folder, TensorRTRefusal("no"), Subject(tmp_path / "m.onnx"))
    assert size(folder) < 200_000


def test_a_long_log_keeps_its_beginning_and_its_end(folder, tmp_path):
    saved(model(8), folder / "fixed.onnx")
    (folder / "build.log").write_text("first\n" + "so it goes\n" * 1_000_000 + "last\n")
    keep_evidence(folder, TensorRTRefusal("no"), Subject(tmp_path / "m.onnx"))
    log = (folder / "build.log").read_text()
    assert len(log) < 5 << 20
    assert log.startswith("first\n")
    assert log.endswith("last\n")


def test_what_is_no_model_does_not_matter(folder, tmp_path):
    (folder / "fixed.onnx").write_bytes(b"\xff" * (5 << 20))
    keep_evidence(folder, TensorRTRefusal("no"), Subject(tmp_path / "m.onnx"))
    assert not (folder / "fixed.onnx").exists()


@pytest.mark.parametrize("written", [False, True])
def test_a_folder_in_which_there_is_nothing_does_not_stay(tmp_path, monkeypatch, written):
    """A model that is refused before TensorRT is asked, say: nobody is told of its folder."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def refused() -> None:
        with work_folder(Subject(tmp_path / "m.onnx")) as folder:
            if written:
                (folder / "build.log").write_text("what TensorRT said\n")
            raise TensorRTRefusal("refused", "there", "so")

    with pytest.raises(TensorRTRefusal):
        refused()
    assert [path.is_dir() for path in tmp_path.iterdir()] == [True] * written
