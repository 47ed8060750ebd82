"""Time, memory and disk that run out, with the real builder."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.models import parse, random
from trtnorm_cli.child_process import Limits, exceeded, memory_of
from trtnorm_cli.errors import BuilderDied
from trtnorm_cli.tensorrt.explain import refusal
from trtnorm_cli.tensorrt.launch import launch
from trtnorm_cli.tensorrt.request import BuildRequest

CONV = parse("g (float[2, 2, 7, 7] x) => (float[] y) { y = Conv(x, w) }", {"w": random(4, 2, 3, 3)})
HOG = "import sys, time; held = bytearray(300 << 20); held[::4096] = b'x' * len(held[::4096]); time.sleep(60)"
WITH_FILE_LIMIT = (
    "import resource, sys; from trtnorm_cli.tensorrt.child import worker; "
    "resource.setrlimit(resource.RLIMIT_FSIZE, ({0}, {0})); worker.main()"
)


def start(folder: Path, **limits) -> BuildRequest:
    (folder / "fixed.onnx").write_bytes(CONV.SerializeToString())
    return BuildRequest("fixed.onnx", str(folder / "out.engine"), "tensorrt-rtx")


def test_memory_that_is_held_is_counted_and_what_is_reserved_is_not():
    import mmap

    before = memory_of(os.getpid())
    assert before > 1 << 20
    with mmap.mmap(-1, 1 << 30) as reserved:
        assert memory_of(os.getpid()) - before < 100 << 20
        reserved[: 200 << 20] = bytes(200 << 20)
        assert memory_of(os.getpid()) - before > 190 << 20
    assert memory_of(2**22 + 1) == 0


def test_without_limits_nothing_is_exceeded():
    assert exceeded(Limits(), os.getpid(), 1e9) is None


def test_a_build_that_uses_too_much_memory_is_stopped(tmp_path):
    request = start(tmp_path)
    with pytest.raises(BuilderDied) as caught:
        launch(request, tmp_path, lambda event: None, Limits(60, 200 << 20), (sys.executable, "-c", HOG))
    assert caught.value.exit_code == 6
    assert "more than 200 MiB, and was stopped" in caught.value.summary
    assert caught.value.hint.startswith("allow more with --memory")


@pytest.mark.rtx
def test_the_real_builder_within_and_above_its_memory(tmp_path):
    weights = {f"w{i}": np.ones((1024, 1024), np.float32) * i for i in range(24)}  # 96 MiB
    body = " ".join(f"t{i + 1} = MatMul(t{i}, w{i})" for i in range(24))
    model = parse(f"g (float[2, 1024] t0) => (float[2, 1024] t24) {{ {body} }}", weights)
    (tmp_path / "fixed.onnx").write_bytes(model.SerializeToString())
    request = BuildRequest("fixed.onnx", str(tmp_path / "out.engine"), "tensorrt-rtx")
    with pytest.raises(BuilderDied, match="and was stopped"):
        launch(request, tmp_path, lambda event: None, Limits(100, 150 << 20))
    assert not (tmp_path / "out.engine").exists()
    assert launch(request, tmp_path, lambda event: None, Limits(100, 2 << 30)).ok


def children() -> list[int]:
    """The processes that this one has started."""
    return [int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]


@pytest.mark.rtx
def test_the_real_builder_is_killed(tmp_path):
    """As the kernel does it for want of memory, while TensorRT is at work."""
    nodes = " ".join(f"t{i + 1} = {('Relu', 'Tanh')[i % 2]}(t{i})" for i in range(1500))
    (tmp_path / "fixed.onnx").write_bytes(parse(f"g (float[2, 4] t0) => (float[2, 4] t1500) {{ {nodes} }}").SerializeToString())
    killed: list[int] = []
    others = set(children())  # those of fixtures that live longer than a test

    def kill(event: dict) -> None:
        if event.get("stage") == "build":
            killed.extend(pid for pid in children() if pid not in others)
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    with pytest.raises(BuilderDied) as caught:
        launch(BuildRequest("fixed.onnx", str(tmp_path / "out.engine"), "tensorrt-rtx"), tmp_path, kill, Limits(60))
    assert len(killed) == 1
    assert caught.value.exit_code == 6
    assert caught.value.summary == "the build process was ended by SIGKILL"
    assert "it was killed from outside" in caught.value.hint
    assert not (tmp_path / "out.engine").exists()


@pytest.mark.rtx
def test_a_disk_that_is_full_when_the_engine_is_written(tmp_path):
    worker = (sys.executable, "-c", WITH_FILE_LIMIT.format(100_000))
    result = launch(start(tmp_path), tmp_path, lambda event: None, Limits(100), worker)
    assert (result.ok, result.stage) == (False, "write")
    error = refusal(result, CONV, tmp_path)
    assert (error.exit_code, error.summary) == (6, "the engine cannot be written: File too large")
    assert not (tmp_path / "out.engine").exists()


@pytest.mark.rtx
def test_a_disk_that_is_full_before(tmp_path):
    """Not even the result can be written."""
    worker = (sys.executable, "-c", WITH_FILE_LIMIT.format(100))
    with pytest.raises(BuilderDied) as caught:
        launch(start(tmp_path), tmp_path, lambda event: None, Limits(100), worker)
    assert caught.value.summary == "the build process could not write its files"
    assert caught.value.hint.startswith("make room on the disk")
    assert not (tmp_path / "out.engine").exists()


def test_a_work_folder_that_is_gone(tmp_path):
    with pytest.raises(BuilderDied, match="the work folder cannot be written: No such file"):
        launch(BuildRequest("fixed.onnx", "out.engine"), tmp_path / "gone", lambda event: None)
