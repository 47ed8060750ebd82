"""The processor's cores that a program may use: those it may run on, within the time that its container gives it.

A container of two cores on a machine of 64 sees all of these. Threads for each would wait for each other, and use up the time
while they do.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path, PurePosixPath

_GROUPS, _LIMITS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


@cache
def usable_cores() -> int:
    """The number of the processor's cores that this process may use at one time."""
    to_run_on = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([to_run_on, *_cores_of_container()])


def _cores_of_container() -> Iterator[int]:
    """How many cores do what each limit on processor time allows, of the group of this process and of those that hold it.

    By version 2 of cgroups a file says the time and the period, and by version 1 there is a file for each.
    """
    for folder in _folders():
        with suppress(OSError, ValueError):  # there is none, or it is "max"
            quota, period = map(int, (folder / "cpu.max").read_text().split())
            yield max(math.ceil(quota / period), 1)
        with suppress(OSError, ValueError):
            quota, period = (int((folder / name).read_text()) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
            if quota > 0 < period:
                yield max(math.ceil(quota / period), 1)


def _folders() -> Iterator[Path]:
    """Where limits on processor time are. Within a container its own group mostly is the root."""
    with suppress(OSError, ValueError):
        for line in _GROUPS.read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if not controllers or "cpu" in controllers.split(","):
                inside = PurePosixPath(group.lstrip("/"))
                # The folder of several controllers may name them in another order; a link has the name of one.
                folders = {_LIMITS / controllers, _LIMITS / "cpu"} if controllers else {_LIMITS}
                yield from (folder / one for folder in folders for one in (inside, *inside.parents))
