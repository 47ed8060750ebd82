"""A build that is ended in the middle leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import pytest

from tests.models import parse, saved
from tests.pipeline.runs import environment, left_in_temp
from tests.work import when_busy

rtx = pytest.mark.rtx


INTERRUPTED = """
import signal, sys, threading, time, os
from trtnorm_cli import build_job
from trtnorm_cli.cli import main
where, arguments = sys.argv[1], sys.argv[2:]
if where == "rewrite":
    import trtnorm_cli.rewrite.prepare as module, trtnorm_cli.rewrite.rewriting as rewriting
    real = rewriting.driver.apply
    def apply(*a, **k):
        os.kill(os.getpid(), signal.SIGINT); time.sleep(5)
    rewriting.driver.apply = apply
else:
    from functools import partial
    from pathlib import Path
    from trtnorm_cli.tensorrt.launch import launch
    code = "import sys, time; from pathlib import Path; Path(sys.argv[1], 'ready').touch(); time.sleep(60)"
    def stop(request, folder, on_event, limits):
        def watch():
            while not Path(folder, "ready").exists():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=watch, daemon=True).start()
        return launch(request, folder, on_event, limits, (sys.executable, "-c", code))
    build_job.launch = stop
import trtnorm_cli.tensorrt.backend as backend
backend.require_backend = lambda name: None
main(arguments)
"""


@pytest.mark.parametrize("where", ["rewrite", "build"])
def test_an_interrupt_leaves_nothing_behind(work, where):
    (work / "out.engine").write_text("earlier")
    before = sorted(p.name for p in work.iterdir())
    command = [sys.executable, "-c", INTERRUPTED, where, "build", "good.onnx", "--profile", "cfg.yaml", "-o", "out.engine"]
    env = environment(TMPDIR=str(work.parent / "temp"))
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=env)
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.strip().endswith("interrupted")
    assert sorted(p.name for p in work.iterdir()) == before
    assert (work / "out.engine").read_text() == "earlier"
    assert left_in_temp(work) == []


def deep(work: Path) -> None:
    """``deep.onnx``, which takes TensorRT seconds."""
    operators = [("Relu", "Sigmoid", "Tanh", "Abs")[n % 4] for n in range(600)]
    body = " ".join(f"t{n + 1} = {operator}(t{n})" for n, operator in enumerate(operators))
    saved(parse(f"g (float[2, 4] t0) => (float[2, 4] t600) {{ {body} }}"), work / "deep.onnx")


def wide(work: Path) -> None:
    """``deep.onnx``, which takes TensorRT a moment, and the comparison seconds."""
    body = " ".join(f"t{n + 1} = {('Tanh', 'Sigmoid')[n % 2]}(t{n})" for n in range(40))
    saved(parse(f"g (float[1024, 1024] t0) => (float[1024, 1024] t40) {{ {body} }}"), work / "deep.onnx")


def begun_build(work) -> tuple[subprocess.Popen[str], IO[str]]:
    """A build of ``deep.onnx`` in a session of its own, and what it says."""
    process = subprocess.Popen(
        [sys.executable, "-m", "trtnorm_cli", "build", "deep.onnx", "--progress", "json"],
        env=environment(TMPDIR=str(work.parent / "temp")),
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    return process, process.stderr


@rtx
@pytest.mark.parametrize("stage", ["rewrite", "build", "compare"])
def test_an_interrupt_ends_it_within_a_second(work, stage):
    """Also while TensorRT, which does not look for signals, is at work."""
    (wide if stage == "compare" else deep)(work)
    before = sorted(p.name for p in work.iterdir())
    process, said = begun_build(work)
    assert any(f'"stage": "{stage}"' in line for line in said)
    time.sleep(0.2)
    start = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    shown = said.read()
    assert process.wait(timeout=30) == 130, shown
    assert time.monotonic() - start < when_busy(1)
    assert shown.endswith("interrupted\n")
    assert sorted(p.name for p in work.iterdir()) == before
    assert left_in_temp(work) == []


@rtx
@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 0.2, 0.4, 0.6, 0.9, 1.2])
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_ending_it_at_any_time_leaves_nothing_behind(work, delay, end):
    """``delay`` after it has begun to say what it does; it has much more to do than that takes."""
    deep(work)
    before = sorted(p.name for p in work.iterdir())
    process, said = begun_build(work)
    assert any('"event": "begin"' in line for line in said)
    time.sleep(delay)
    start = time.monotonic()
    # A terminal sends Ctrl-C to the whole group; a service manager asks the process alone.
    (os.killpg if end == signal.SIGINT else os.kill)(process.pid, end)
    _, shown = process.communicate(timeout=30)
    assert time.monotonic() - start < when_busy(3)
    assert process.returncode == 130, shown
    assert "Traceback" not in shown
    assert sorted(p.name for p in work.iterdir()) == before
    assert left_in_temp(work) == []
