"""A command in processes of its own: its time, the processor's time, and the memory of the whole family.

``largest_mb`` is the resident set of the largest process (``ru_maxrss`` of ``wait4``). ``family_mb`` is the largest sum seen of
the proportional set sizes of the process and all that it started, sampled ten times a second: a page that several of them share
counts once. Both count pages of mapped files, which the kernel may drop; ``private_mb`` is the part of ``family_mb`` that it
may not.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SAMPLES_EVERY_S = 0.1


@dataclass(frozen=True)
class Measured:
    """``said`` is the end of what a command that failed wrote; ``code`` is None where it was stopped for its time."""

    code: int | None
    wall_s: float
    cpu_s: float
    largest_mb: float
    family_mb: float
    private_mb: float
    output: str
    said: str

    def record(self) -> dict[str, Any]:
        kept = {key: round(value, 3) if isinstance(value, float) else value for key, value in asdict(self).items()}
        del kept["output"]
        return kept if self.code != 0 else {key: value for key, value in kept.items() if key != "said"}


def measured(command: Sequence[str], environment: Mapping[str, str], folder: Path, timeout_s: float) -> Measured:
    """Run ``command`` to its end, in ``folder``: a program finds what stands there before what PYTHONPATH names."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, env=environment, cwd=folder, start_new_session=True
        )
        sampler = _Sampler(process.pid)
        sampler.start()
        clock = threading.Timer(timeout_s, lambda: os.killpg(process.pid, signal.SIGKILL))
        clock.start()
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        in_time = clock.is_alive()
        clock.cancel()
        sampler.ended.set()
        sampler.join()
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        written = out.read().decode(errors="replace")
        said = "" if process.returncode == 0 else (written[-500:] + err.read().decode(errors="replace")[-1500:])
    return Measured(
        process.returncode if in_time else None, wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1000,
        sampler.family_kb / 1000, sampler.private_kb / 1000, written, said,
    )  # fmt: skip


class _Sampler(threading.Thread):
    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.ended = pid, threading.Event()
        self.family_kb = self.private_kb = 0

    def run(self) -> None:
        while not self.ended.wait(SAMPLES_EVERY_S):
            sizes = [_sizes(pid) for pid in family(self.pid)]
            self.family_kb = max(self.family_kb, sum(family for family, _ in sizes))
            self.private_kb = max(self.private_kb, sum(private for _, private in sizes))


def family(pid: int) -> Iterator[int]:
    """A process and all that it started."""
    yield pid
    try:
        children = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return
    for child in " ".join(children).split():
        yield from family(int(child))


def _sizes(pid: int) -> tuple[int, int]:
    """Kilobytes of a process: its share of all its pages, and of those that no file stands behind."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0, 0
    found = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.endswith(" kB")}
    return found.get("Pss", 0), found.get("Pss_Anon", 0)
