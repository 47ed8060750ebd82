"""Work in a copy of a child process, on what it has in memory at that moment."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path

from trtnorm_cli.child_process import die_with


class Copy:
    """Work in a copy of this process as it is now, beside what this one does next.

    The copy has this thread alone. Where there can be none, the work is done at once: the system may have no room for another
    process, and a library that holds a device may be in no state that can be copied.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._copy = None if _holds_device() else _begun(work)
        if self._copy is None:
            work()

    def wait(self) -> None:
        """Wait until the work is done, or the copy has died."""
        if self._copy is not None:
            os.waitpid(self._copy, 0)
            self._copy = None


def _begun(work: Callable[[], None]) -> int | None:
    """The number of the copy; None where there can be none."""
    this = os.getpid()
    try:
        with warnings.catch_warnings():  # of other threads, whose work no copy needs
            warnings.simplefilter("ignore", DeprecationWarning)
            copy = os.fork()
    except OSError:
        return None
    if copy > 0:
        return copy
    code = 1
    try:
        die_with(this)
        work()
        code = 0
    finally:
        os._exit(code)


def _holds_device() -> bool:
    """True where NVIDIA's driver is loaded, or the system does not say what is."""
    try:
        return "libcuda.so" in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
