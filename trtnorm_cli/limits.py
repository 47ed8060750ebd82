"""Limits of a command: memory, and the nodes of a model. Each can be raised (``docs/limits.md``)."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from trtnorm_cli.errors import LimitReached, UsageProblem

# The largest models that exporters write have some 100,000 nodes.
MOST_NODES = 250_000
NODES_VARIABLE = "TRTNORM_MOST_NODES"
# What a command takes by default of the memory that is free when it starts. Beyond it the kernel would end processes.
_SHARE = 0.9
# Imports and threads alone take some hundred MiB: less than this is for child processes only.
_LEAST_BYTES = 1 << 30
_KIB = 1024
_CGROUP = Path("/sys/fs/cgroup")


def most_nodes() -> int:
    """The most nodes that a model may have, its functions written out."""
    given = os.environ.get(NODES_VARIABLE, "")
    if not given:
        return MOST_NODES
    if not given.isdecimal():
        raise UsageProblem(f"{NODES_VARIABLE} is no number: {given!r}", hint=f"{NODES_VARIABLE}={4 * MOST_NODES}")
    return int(given)


def available_memory() -> int:
    """Bytes that new processes can have: what Linux counts as available, with swap, within the limits of the container.

    Elsewhere, all of the machine's memory.
    """
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        fields = {line.split(":")[0]: int(line.split()[1]) * _KIB for line in lines}
        free = fields["MemAvailable"] + fields.get("SwapFree", 0)
    except (OSError, KeyError, ValueError, IndexError):
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([free, *_left_in_container()])


def _left_in_container() -> Iterator[int]:
    """Bytes that the memory limit of the container leaves, by version 2 of cgroups and by version 1. Cached files can go."""
    for folder, limit, usage, prefix in (
        (_CGROUP, "memory.max", "memory.current", ""),
        (_CGROUP / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    ):
        with suppress(OSError, ValueError, KeyError):  # there is none, or it is "max"
            held = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            files = int(held[f"{prefix}inactive_file"]) + int(held[f"{prefix}active_file"])
            most, used = int((folder / limit).read_text()), int((folder / usage).read_text())
            yield max(most - max(used - files, 0), 0)


_limit: int | None = None


def limit_memory(most: int | None = None) -> None:
    """Let this process have at most ``most`` bytes, or most of what is free. An allocation beyond it raises ``MemoryError``.

    For a program of its own: it holds for all of the process. Where it was set before, only a ``most`` that is given counts.
    """
    global _limit
    if not hasattr(resource, "prlimit") or (most is None and _limit is not None):  # only Linux counts what is written to
        return
    _limit = max(most if most is not None else int(_SHARE * available_memory()), _LEAST_BYTES)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        _limit = min(_limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (_limit, hard))


def change_limit(most: int) -> None:
    """``limit_memory`` where this process has a limit; a library leaves the process of its user alone."""
    if _limit is not None:
        limit_memory(most)


def memory_limit() -> int | None:
    """The most bytes that this process may have."""
    return _limit


def out_of_memory(what: str, error: MemoryError) -> LimitReached:
    """The error for ``what`` reached the limit on the memory of this process."""
    asked = str(error).strip()
    limit = "what there is" if _limit is None else f"{_limit / 2**30:.1f} GiB"
    return LimitReached(
        f"{what} needs more memory than {limit}",
        asked if asked and asked != "std::bad_alloc" else None,
        "allow more with --memory SIZE, or use smaller sizes; docs/limits.md says what takes memory",
    )


def lift_limit(pid: int) -> None:
    """Take the limit off a child, which inherits it: CUDA reserves more memory than there is."""
    if _limit is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        with suppress(ProcessLookupError, PermissionError):
            resource.prlimit(pid, resource.RLIMIT_DATA, (hard, hard))
