"""Start the build process, follow it, and decode how it ended."""

from __future__ import annotations

import shlex
import signal
from pathlib import Path

from trtnorm_cli.child_process import Ended, Limits, module_command, run_child
from trtnorm_cli.errors import BuilderDied
from trtnorm_cli.progress import Event, Listener
from trtnorm_cli.tensorrt.build_stages import BuildStages
from trtnorm_cli.tensorrt.request import CANNOT_WRITE, LOG_FILE, STDERR_FILE, BuildRequest, BuildResult

WORKER_MODULE = "trtnorm_cli.tensorrt.child.worker"
WORKER = module_command(WORKER_MODULE)
UNLIMITED = Limits()
EventHandler = Listener
# What a process that exceeded a limit needs.
ALLOW_MORE = {
    "time": "allow more time with --timeout",
    "memory": "allow more with --memory: a build needs about three times the size of the model",
}


def launch(
    request: BuildRequest,
    folder: Path,
    on_event: EventHandler | None = None,
    limits: Limits = UNLIMITED,
    worker: tuple[str, ...] = WORKER,
    is_repeatable: bool = False,
) -> BuildResult:
    """Run the build process on ``request`` in ``folder`` and return its result, good or bad.

    ``on_event`` is told of the events of the process, which are stages of this one too.

    ``is_repeatable`` fixes the addresses of its memory and Python's hashes: TensorRT for RTX orders and numbers some of what it
    writes by them. It makes a fault in TensorRT's parser easier to exploit, so that not every build does it.

    Raises ``BuilderDied`` when the process crashed, was killed, exceeded one of ``limits``,
    could not write its files, or ended without a result. An interrupt kills the child at once
    and is raised again. ``folder`` is kept in every case: it belongs to the caller.
    """
    try:
        request.save(folder)
    except OSError as error:
        raise BuilderDied(f"the work folder cannot be written: {error.strerror}", str(folder), _ROOM) from error
    environment = {"PYTHONHASHSEED": "0"} if is_repeatable else {}
    with BuildStages() as stages:

        def listen(event: Event) -> None:
            stages.hear(event)
            if on_event is not None:
                on_event(event)

        ended = run_child(
            [*worker, str(folder)], folder, limits=limits, listen=listen, log=STDERR_FILE, environment=environment,
            fixed_addresses=is_repeatable,
        )  # fmt: skip
    return _decode(ended, folder)


def repeat_command(folder: Path) -> str:
    """The shell command that runs the same build again."""
    return shlex.join([*WORKER, str(folder)])


def _decode(ended: Ended, folder: Path) -> BuildResult:
    """The result, where it and the exit code say the same."""
    result = _result(ended)
    if result is not None and ended.excess is None and (ended.code == 0 if result.ok else ended.code > 0):
        return result
    raise BuilderDied(_death(ended), _evidence(ended, folder), _advice(ended, folder))


def _result(ended: Ended) -> BuildResult | None:
    """The result that the child wrote, or None when that is nothing, or no result."""
    try:
        return None if ended.result is None else BuildResult.load(ended.result)
    except ValueError:
        return None


def _death(ended: Ended) -> str:
    if ended.excess is not None:
        return f"the build {ended.how}"
    if ended.code == CANNOT_WRITE:
        return "the build process could not write its files"
    return f"the build process {ended.how}{' and without a result' if ended.code >= 0 else ''}"


_SHOWN = 5
_ROOM = "make room on the disk of the work folder, or move it with the environment variable TMPDIR"
_REASONS = {
    CANNOT_WRITE: _ROOM,
    -signal.SIGKILL: "it was killed from outside, most often by the kernel for want of memory: free memory, or give "
    "the machine more; a build needs about three times the size of the model",
    -signal.SIGSEGV: "TensorRT itself crashed; a graph thousands of nodes deep or a function that calls itself does it",
    -signal.SIGABRT: "TensorRT itself gave up; a plugin written in Python, or a failed allocation, does it",
}


def _advice(ended: Ended, folder: Path) -> str:
    if ended.excess is not None:
        return f"{ALLOW_MORE[ended.excess.limit]}, or repeat the build by hand:\n{repeat_command(folder)}"
    reason = _REASONS.get(ended.code, "the log says how far it came")
    return f"{reason}\nrepeat the build by hand: {repeat_command(folder)}"


def _evidence(ended: Ended, folder: Path) -> str:
    """The work folder, with the last lines of the child's own error output."""
    return "\n".join([f"work folder {folder} (log: {LOG_FILE})", *(f"  {line}" for line in ended.last_lines[-_SHOWN:])])
