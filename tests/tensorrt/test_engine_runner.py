"""Running an engine in a process of its own that answers, has no GPU, fails, dies, or hangs."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from trtnorm_cli.evaluate.ort_runner import RunFailed
from trtnorm_cli.tensorrt import engine_runner
from trtnorm_cli.tensorrt.engine_runner import EngineUnavailable, run_engine

PRELUDE = """
import json, os, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
request = json.loads((folder / "request.json").read_text())
def answer(**record): (folder / "result.json").write_text(json.dumps(record))
"""
FEEDS = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}


@pytest.fixture
def engine(tmp_path) -> Path:
    path = tmp_path / "a.engine"
    path.write_bytes(b"vtrt")  # as an engine of tensorrt-rtx begins
    return path


def run(monkeypatch, engine: Path, body: str, timeout_s: float = 60) -> dict[str, np.ndarray]:
    monkeypatch.setattr(engine_runner, "WORKER", (sys.executable, "-c", PRELUDE + body))
    return run_engine(engine, FEEDS, timeout_s)


def test_tensors_go_and_come_back(monkeypatch, engine):
    outputs = run(monkeypatch, engine, "answer(outputs={'y': request['feeds']['x']})")
    assert list(outputs) == ["y"]
    np.testing.assert_array_equal(outputs["y"], FEEDS["x"])


def test_polygraphy_is_told_the_backend(monkeypatch, engine):
    with pytest.raises(RunFailed, match=r"^1 tensorrt-rtx$"):
        run(monkeypatch, engine, "answer(error=os.environ['POLYGRAPHY_USE_TENSORRT_RTX'] + ' ' + request['backend'])")


def test_an_engine_that_cannot_run_here(monkeypatch, engine):
    with pytest.raises(EngineUnavailable, match="no GPU"):
        run(monkeypatch, engine, "answer(unavailable='no GPU')")


@pytest.mark.parametrize(("body", "words", "number"), [
    ("os.write(2, b'out of memory\\n'); os.abort()", "was ended by SIGABRT: out of memory", signal.SIGABRT),
    ("sys.exit('no words')", "ended with exit code 1: no words", None),
    ("pass", "ended with exit code 0: ", None),
])  # fmt: skip
def test_a_process_that_dies(monkeypatch, engine, body, words, number):
    with pytest.raises(RunFailed) as caught:
        run(monkeypatch, engine, body)
    assert caught.value.reason == f"the process that runs the engine {words}"
    assert (caught.value.signal, caught.value.timed_out) == (number, False)


def test_an_engine_that_does_not_finish(monkeypatch, engine):
    with pytest.raises(RunFailed, match=r"the engine did not finish within 0\.5 s") as caught:
        run(monkeypatch, engine, "time.sleep(60)", timeout_s=0.5)
    assert caught.value.timed_out


@pytest.mark.rtx
def test_what_is_no_engine(engine):
    with pytest.raises(EngineUnavailable):
        run_engine(engine, FEEDS, 60)
