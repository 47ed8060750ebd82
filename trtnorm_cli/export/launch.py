"""Start the export process and decode how it ended.

The user's code and PyTorch's exporters run there: they may print, change global state, leak, or crash.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from trtnorm_cli import errors
from trtnorm_cli.child_process import PARENT_VARIABLE
from trtnorm_cli.errors import ModelError, TrtnormError
from trtnorm_cli.export.request import LOG_FILE, RESULT_FILE, ExportRequest, ExportResult, Failure

WORKER = (sys.executable, "-m", "trtnorm_cli.export.child.worker")
_LOG_TAIL = 8


def launch(request: ExportRequest, folder: Path, worker: tuple[str, ...] = WORKER) -> ExportResult:
    """Run the export process on ``request`` in ``folder`` and return its result.

    Raises the error that the process reports, and ``ModelError`` when it died without a result. An interrupt kills it and
    is raised again.
    """
    request.save(folder)
    (folder / RESULT_FILE).unlink(missing_ok=True)
    with (folder / LOG_FILE).open("wb") as log:
        child = subprocess.Popen(
            [*worker, str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=_environment(),
        )
    try:
        code = child.wait()
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    return _decode(code, folder)


def _environment() -> dict[str, str]:
    """The child must import the same trtnorm as the parent, and the user's modules as Python does."""
    package_root = str(Path(__file__).resolve().parents[2])
    paths = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), package_root]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), PARENT_VARIABLE: str(os.getpid())}


def _decode(code: int, folder: Path) -> ExportResult:
    result = _result(folder)
    if result is None:
        raise ModelError(_death(code), where=_evidence(folder), hint=_advice(code))
    if result.failure is not None:
        raise raised(result.failure)
    return result


def _result(folder: Path) -> ExportResult | None:
    try:
        return ExportResult.load(folder)
    except (ValueError, KeyError, TypeError):
        return None


def raised(failure: Failure) -> TrtnormError:
    """The exception that ``failure`` stands for."""
    kind = getattr(errors, failure.kind, ModelError)
    error = kind(failure.summary, failure.where, failure.hint)
    assert isinstance(error, TrtnormError)
    return error


def _death(code: int) -> str:
    if code >= 0:
        return f"the export process ended with exit code {code} and without a result"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"the export process was ended by {name}"


def _advice(code: int) -> str:
    if code == -signal.SIGKILL:
        return "it was killed from outside, most often by the kernel for want of memory: use smaller sizes, or free memory"
    return "run the model once in PyTorch on its own; where that works, try --exporter torchscript or --exporter dynamo"


def _evidence(folder: Path) -> str:
    lines = ["the last lines of its output:"]
    path = folder / LOG_FILE
    text = path.read_text(encoding="utf-8", errors="replace").strip() if path.exists() else ""
    return "\n".join([*lines, *(f"  {line[:300]}" for line in text.splitlines()[-_LOG_TAIL:] or ["(it printed nothing)"])])
