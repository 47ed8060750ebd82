"""What every child process of trtnorm that runs native code does first."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

# In the child's environment: the process that started it.
PARENT_VARIABLE = "TRTNORM_PARENT_PID"
_PR_SET_PDEATHSIG = 1
_STACK_BYTES = 256 << 20


def child_environment() -> dict[str, str]:
    """The environment for a child: it imports the same trtnorm as its parent, wherever that was started."""
    package_root = str(Path(__file__).resolve().parents[1])
    paths = [package_root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), PARENT_VARIABLE: str(os.getpid())}


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies. Does nothing outside Linux."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have died before; then another process has taken its place.
    parent = os.environ.get(PARENT_VARIABLE)
    if parent is not None and os.getppid() != int(parent):
        os._exit(1)


def run_with_large_stack(work: Callable[[], int]) -> int:
    """Run ``work`` in a thread with 256 MiB of stack and return its exit code.

    TensorRT walks graphs recursively: 4000 nodes in a row overflow the usual 8 MiB.
    """
    codes: list[int] = []
    threading.stack_size(_STACK_BYTES)
    thread = threading.Thread(target=lambda: codes.append(work()))
    thread.start()
    thread.join()
    return codes[0] if codes else 1
