"""Start the build process, follow it, and decode how it ended."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trtnorm_cli.child_process import child_environment
from trtnorm_cli.errors import BuilderDied
from trtnorm_cli.tensorrt.limits import LimitExceeded, Limits, Watch, wait_within
from trtnorm_cli.tensorrt.request import CANNOT_WRITE, LOG_FILE, RESULT_FILE, STDERR_FILE, BuildRequest, BuildResult

WORKER_MODULE = "trtnorm_cli.tensorrt.child.worker"
WORKER = (sys.executable, "-m", WORKER_MODULE)
EventHandler = Callable[[dict[str, Any]], None]


def launch(
    request: BuildRequest,
    folder: Path,
    on_event: EventHandler,
    timeout_s: float | None = None,
    worker: tuple[str, ...] = WORKER,
    memory_bytes: int | None = None,
) -> BuildResult:
    """Run the build process on ``request`` in ``folder`` and return its result, good or bad.

    Raises ``BuilderDied`` when the process crashed, was killed, ran longer than ``timeout_s`` seconds, used more than
    ``memory_bytes`` of memory, could not write its files, or ended without a result. An interrupt kills the child at once
    and is raised again. ``folder`` is kept in every case: it belongs to the caller.
    """
    try:
        request.save(folder)
        (folder / RESULT_FILE).unlink(missing_ok=True)
    except OSError as error:
        raise BuilderDied(f"the work folder cannot be written: {error.strerror}", str(folder), _ROOM) from error
    reader, writer = os.pipe()
    command = [*worker, str(folder), str(writer)]
    with (folder / STDERR_FILE).open("wb") as stderr:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stderr,
            stderr=stderr,
            pass_fds=(writer,),
            start_new_session=True,
            env=child_environment(),
        )
    os.close(writer)
    follower = threading.Thread(target=_follow, args=(reader, on_event), daemon=True)
    follower.start()
    with _killed_on_exit(child):
        code = _wait(child, Watch(Limits(timeout_s, memory_bytes), child.pid), folder)
    follower.join(timeout=5)
    return _decode(code, folder)


def repeat_command(folder: Path) -> str:
    """The shell command that runs the same build again."""
    return shlex.join([*WORKER, str(folder)])


@contextmanager
def _killed_on_exit(child: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def _wait(child: subprocess.Popen[bytes], watch: Watch, folder: Path) -> int:
    try:
        return wait_within(child, watch)
    except LimitExceeded as exceeded:
        hint = f"{exceeded.allow}, or repeat the build by hand:\n{repeat_command(folder)}"
        raise BuilderDied(str(exceeded), _evidence(folder), hint) from None


def _follow(reader: int, on_event: EventHandler) -> None:
    """Hand each event line to ``on_event``; a line cut short by the child's death is left out."""
    with os.fdopen(reader, "r", encoding="utf-8", errors="replace") as stream:
        for line in stream:
            try:
                event = json.loads(line)
            except json.JSONDecodeError:
                continue
            if isinstance(event, dict):
                on_event(event)


def _decode(code: int, folder: Path) -> BuildResult:
    result = _result(folder)
    if code == 0 and result is not None and result.ok:
        return result
    if code > 0 and result is not None and not result.ok:
        return result
    raise BuilderDied(_death(code), where=_evidence(folder), hint=_advice(code, folder))


def _result(folder: Path) -> BuildResult | None:
    """What the child wrote; None when that is nothing, or not a result."""
    try:
        return BuildResult.load(folder)
    except (ValueError, KeyError, TypeError):
        return None


def _death(code: int) -> str:
    if code == CANNOT_WRITE:
        return "the build process could not write its files"
    if code >= 0:
        return f"the build process ended with exit code {code} and without a result"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"the build process was ended by {name}"


_ROOM = "make room on the disk of the work folder, or move it with the environment variable TMPDIR"


def _advice(code: int, folder: Path) -> str:
    reasons = {
        CANNOT_WRITE: _ROOM,
        -signal.SIGKILL: "it was killed from outside, most often by the kernel for want of memory: free memory, or give "
        "the machine more; a build needs about three times the size of the model",
        -signal.SIGSEGV: "TensorRT itself crashed; a graph thousands of nodes deep or a function that calls itself does it",
        -signal.SIGABRT: "TensorRT itself gave up; a plugin written in Python, or a failed allocation, does it",
    }
    reason = reasons.get(code, "the log says how far it came")
    return f"{reason}\nrepeat the build by hand: {repeat_command(folder)}"


def _evidence(folder: Path) -> str:
    """The work folder, with the last lines of the child's own error output."""
    lines = [f"work folder {folder} (log: {LOG_FILE})"]
    path = folder / STDERR_FILE
    if path.exists():
        tail = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-5:]
        lines += [f"  {line}" for line in tail]
    return "\n".join(lines)


def discard(folder: Path) -> None:
    """Remove a work folder whose result has been read."""
    shutil.rmtree(folder, ignore_errors=True)
