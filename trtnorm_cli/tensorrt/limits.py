"""What a build process may use, and watching that it does not use more."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

_KIB = 1024


@dataclass(frozen=True)
class Limits:
    """The longest time in seconds and the most memory in bytes; None is without limit.

    The memory counted is what the process has written to and holds (anonymous and shared resident pages), not what it has
    reserved: CUDA reserves address space many times the size of the machine's memory, so that a limit on address space
    (RLIMIT_AS) would end every build on a machine with a GPU. It is read 20 times a second, so a build can exceed the limit by
    what it allocates in between.
    """

    timeout_s: float | None = None
    memory_bytes: int | None = None


class LimitExceeded(Exception):
    """What a process exceeded; ``allow`` says which option allows more."""

    def __init__(self, summary: str, allow: str) -> None:
        super().__init__(summary)
        self.allow = allow


@dataclass
class Watch:
    """Follows one process from now on; ``who`` it is goes into the messages."""

    limits: Limits
    pid: int
    who: str = "the build"
    _start: float = field(default_factory=time.monotonic)

    @property
    def interval_s(self) -> float:
        return 0.1 if self.limits.memory_bytes is None else 0.05

    def exceeded(self) -> tuple[str, str] | None:
        """What was exceeded as a summary and the option that allows more; None while all is within the limits."""
        timeout_s, memory = self.limits.timeout_s, self.limits.memory_bytes
        if timeout_s is not None and time.monotonic() - self._start > timeout_s:
            return f"{self.who} took longer than {timeout_s:g} s and was stopped", "allow more time with --timeout"
        if memory is not None and (used := memory_of(self.pid)) > memory:
            summary = f"{self.who} used {used / 2**20:.0f} MiB of memory, more than {memory / 2**20:.0f} MiB, and was stopped"
            return summary, "allow more with --memory: a build needs about three times the size of the model"
        return None


def wait_within(child: subprocess.Popen[bytes], watch: Watch) -> int:
    """The exit code of ``child``. Raises ``LimitExceeded`` when it is above a limit; ending it is left to the caller."""
    while True:
        try:
            return child.wait(timeout=watch.interval_s)
        except subprocess.TimeoutExpired:
            if (exceeded := watch.exceeded()) is not None:
                raise LimitExceeded(*exceeded) from None


def memory_of(pid: int) -> int:
    """Resident memory of a process in bytes without the files that it maps; 0 when it is gone or cannot be read."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return sum(int(fields[key].split()[0]) * _KIB for key in ("RssAnon", "RssShmem") if key in fields)
