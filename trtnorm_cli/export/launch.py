"""Start the export process and decode how it ended.

The user's code and PyTorch's exporters run there, where they may print, change global state, leak, or crash.
"""

from __future__ import annotations

import signal
from pathlib import Path

from trtnorm_cli import errors
from trtnorm_cli.child_process import Ended, module_command, run_child
from trtnorm_cli.errors import ModelError, TrtnormError
from trtnorm_cli.export.request import LOG_FILE, ExportResult, Failure, Request, save_request
from trtnorm_cli.progress import OpenStages

WORKER = module_command("trtnorm_cli.export.child.worker")
_SHOWN, _LONGEST = 8, 300


def launch(request: Request, folder: Path, worker: tuple[str, ...] = WORKER) -> ExportResult:
    """Run the export process on ``request`` in ``folder`` and return its result.

    Raises the error that the process reports, and ``ModelError`` when it died without a result. An interrupt kills it and
    is raised again.
    """
    save_request(request, folder)
    with OpenStages() as stages:
        ended = run_child([*worker, str(folder)], folder, log=LOG_FILE, listen=stages.relay)
    result = _result(ended)
    if result is None:
        unfinished = " and without a result" if ended.code >= 0 else ""
        raise ModelError(f"the export process {ended.how}{unfinished}", _evidence(ended), _advice(ended.code))
    if result.failure is not None:
        raise raised(result.failure)
    return result


def _result(ended: Ended) -> ExportResult | None:
    """The result that the child wrote, or None when that is nothing, or no result."""
    try:
        return None if ended.result is None else ExportResult.load(ended.result)
    except ValueError:
        return None


def raised(failure: Failure) -> TrtnormError:
    """The exception that ``failure`` stands for."""
    kind = getattr(errors, failure.kind, ModelError)
    error = kind(failure.summary, failure.where, failure.hint)
    assert isinstance(error, TrtnormError)
    return error


def _advice(code: int) -> str:
    if code == -signal.SIGKILL:
        return "it was killed from outside, most often by the kernel for want of memory: use smaller sizes, or free memory"
    return "run the model once in PyTorch on its own; where that works, try --exporter torchscript or --exporter dynamo"


def _evidence(ended: Ended) -> str:
    lines = [f"  {line[:_LONGEST]}" for line in ended.last_lines[-_SHOWN:]]
    return "\n".join(["the last lines of its output:", *(lines or ["  (it printed nothing)"])])
