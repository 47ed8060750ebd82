"""Run an engine on a GPU through polygraphy, in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from trtnorm_cli.evaluate.ort_runner import RunFailed
from trtnorm_cli.evaluate.tensor_files import read_tensor, write_tensor
from trtnorm_cli.tensorrt.engine_file import backend_of


class EngineUnavailable(Exception):
    """The engine cannot run on this machine, whatever is in it: there is no GPU, or not a supported one."""


def run_engine(engine: Path, feeds: dict[str, np.ndarray], timeout_s: float) -> dict[str, np.ndarray]:
    """Outputs of the engine for one set of inputs.

    Raises ``EngineUnavailable`` without a usable GPU or backend, and ``RunFailed`` when the engine fails or dies.
    """
    with tempfile.TemporaryDirectory(prefix="trtnorm-engine-") as name:
        folder = Path(name)
        records = {key: write_tensor(folder / f"feed{i}", array) for i, (key, array) in enumerate(feeds.items())}
        request = {"engine": str(engine.absolute()), "feeds": records}
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
        reply = _run_child(folder, backend_of(engine), timeout_s)
        return {key: read_tensor(folder, record) for key, record in reply["outputs"].items()}


def _run_child(folder: Path, backend: str, timeout_s: float) -> dict:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(p or ".").absolute()) for p in sys.path)}
    if backend == "tensorrt-rtx":
        environment["POLYGRAPHY_USE_TENSORRT_RTX"] = "1"
    command = [sys.executable, "-m", "trtnorm_cli.tensorrt.child.engine_worker", str(folder), backend]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False, env=environment)
    except subprocess.TimeoutExpired:
        raise RunFailed(f"the engine did not finish within {timeout_s:g} s", timed_out=True) from None
    reply_file = folder / "reply.json"
    if not reply_file.exists():
        raise _death(done)
    reply = json.loads(reply_file.read_text(encoding="utf-8"))
    if "unavailable" in reply:
        raise EngineUnavailable(reply["unavailable"])
    if "error" in reply:
        raise RunFailed(reply["error"])
    return reply


def _death(done: subprocess.CompletedProcess[str]) -> RunFailed:
    last = " ".join(done.stderr.strip().splitlines()[-3:])
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        return RunFailed(f"the process that runs the engine was ended by {name}: {last}", signal=-done.returncode)
    return RunFailed(f"the process that runs the engine ended with exit code {done.returncode}: {last}")
