"""A build that TensorRT refuses, or whose process or disk fails: what was there is kept, and so is the evidence."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from tests.pipeline.runs import build, build_process, environment, hidden, left_in_temp

rtx = pytest.mark.rtx


@rtx
def test_a_refusal_keeps_an_earlier_engine_and_the_evidence(work, capsys):
    (work / "out.engine").write_text("earlier")
    (work / "out.engine.json").write_text("earlier too")
    assert build("odd.onnx", "-o", "out.engine") == 5
    shown = capsys.readouterr().err
    assert "node conv2 (Odd)" in shown
    assert "Plugin not found" in shown
    assert "decompose it into standard ONNX operators" in shown
    assert (work / "out.engine").read_text() == "earlier"
    assert (work / "out.engine.json").read_text() == "earlier too"
    assert hidden(work) == []
    (kept,) = left_in_temp(work)
    assert str(work.parent / "temp" / kept / "build.log") in shown
    files = {path.name for path in (work.parent / "temp" / kept).iterdir()}
    assert {"request.json", "fixed.onnx", "build.log", "result.json"} <= files


@pytest.mark.parametrize(("body", "arguments", "words"), [
    ("os.kill(os.getpid(), signal.SIGKILL); time.sleep(60)", (), "the build process was ended by SIGKILL"),
    ("os.abort()", (), "the build process was ended by SIGABRT"),
    ("time.sleep(60)", ("--timeout", "0.5"), "the build took longer than 0.5 s and was stopped"),
    ("held = b'x' * (300 << 20); time.sleep(60)", ("--memory", "200MiB"), "more than 200 MiB, and was stopped"),
    ("sys.exit(0)", (), "without a result"),
])  # fmt: skip
def test_a_builder_that_dies_keeps_an_earlier_engine_and_the_evidence(work, capsys, monkeypatch, body, arguments, words):
    build_process(monkeypatch, body)
    (work / "out.engine").write_text("earlier")
    assert build("good.onnx", "-o", "out.engine", *arguments) == 6
    shown = capsys.readouterr().err
    assert words in shown
    assert (work / "out.engine").read_text() == "earlier"
    assert not (work / "out.engine.json").exists()
    assert hidden(work) == []
    (kept,) = left_in_temp(work)
    assert f"work folder {work.parent / 'temp' / kept}" in shown


FULL_DISK = (
    "import resource; from trtnorm_cli.tensorrt.child import worker; "
    "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000,) * 2); "
    "worker.main()"
)


@rtx
def test_a_full_disk_keeps_an_earlier_engine(work, capsys, monkeypatch):
    build_process(monkeypatch, FULL_DISK)
    (work / "out.engine").write_text("earlier")
    assert build("good.onnx", "-o", "out.engine") == 6
    assert "the engine cannot be written: File too large" in capsys.readouterr().err
    assert (work / "out.engine").read_text() == "earlier"
    assert not (work / "out.engine.json").exists()
    assert hidden(work) == []


@rtx
def test_a_disk_that_is_full_at_the_very_end(work, capsys, monkeypatch):
    (work / "out.engine").write_text("earlier")
    real = Path.write_text

    def full(self, *arguments, **more):
        if self.name == "manifest":
            raise OSError(28, "No space left on device")
        return real(self, *arguments, **more)

    monkeypatch.setattr(Path, "write_text", full)
    assert build("good.onnx", "-o", "out.engine", "--no-compare") == 6
    assert "cannot be written: No space left on device" in capsys.readouterr().err
    assert (work / "out.engine").read_text() == "earlier"
    assert not (work / "out.engine.json").exists()


def test_no_folder_to_work_in(work, capsys, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(work / "gone"))
    monkeypatch.setattr("trtnorm_cli.tensorrt.backend.require_backend", lambda name: None)
    assert build("good.onnx") == 2
    assert "a folder to work in cannot be written" in capsys.readouterr().err


@rtx
def test_the_command_that_repeats_a_build_works(work, capsys, monkeypatch):
    """Although the place where the engine was to be written is gone by then."""
    build_process(monkeypatch, "os.abort()")
    assert build("good.onnx") == 6
    command = next(line for line in capsys.readouterr().err.splitlines() if "child.worker" in line).partition("hand: ")[2]
    done = subprocess.run(shlex.split(command), capture_output=True, text=True, check=False, cwd="/", env=environment())
    assert done.returncode == 0, done.stderr
    (kept,) = left_in_temp(work)
    assert (work.parent / "temp" / kept / "good.engine").stat().st_size > 1000


def test_a_half_written_engine_never_carries_the_final_name(work, monkeypatch):
    build_process(monkeypatch, "import json; e = Path(json.loads((folder / 'request.json').read_text())['engine']); "
         "e.write_bytes(b'half'); assert e.parent.parent == Path.cwd(); os.abort()")  # fmt: skip
    assert build("good.onnx") == 6
    assert not list(work.glob("*.engine*"))
    assert hidden(work) == []


def test_no_backend_is_one_clear_error(work, capsys, monkeypatch):
    monkeypatch.setattr("trtnorm_cli.tensorrt.backend.installed", lambda: ())
    assert build("good.onnx") == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: no TensorRT is installed\n")
    assert "pip install 'trtnorm[tensorrt]'" in shown
    assert "pip install 'trtnorm[rtx]'" in shown
    assert not list(work.glob("*.engine*"))
