"""Disks that are full or read-only, for as long as a try takes."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Callable

from benchmarks.torture_run import Arena


@functools.cache
def no_mounts() -> str | None:
    """The reason why nothing can be mounted here; None where it can."""
    if os.geteuid() != 0:
        return "mounting a disk takes root"
    tried = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, text=True)
    return None if tried.returncode == 0 else f"no disk can be mounted: {tried.stderr.strip()}"


def mounted(arena: Arena, *command: str) -> None:
    """Mount something until the try is over."""
    subprocess.run(["mount", *command], check=True)
    arena.stack.callback(lambda: subprocess.run(["umount", "-l", command[-1]], check=True))


def small_disk(name: str, free: int) -> Callable[[Arena], None]:
    """Give the folder ``name`` a disk of its own, with so many bytes free."""

    def prepare(arena: Arena) -> None:
        folder = arena.folder / name
        size = free + sum(path.stat().st_size + 4096 for path in folder.iterdir())
        held = {path.name: path.read_bytes() for path in folder.iterdir()}
        mounted(arena, "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))
        for file, content in held.items():
            (folder / file).write_bytes(content)

    return prepare


def read_only(arena: Arena) -> None:
    """Mount the folder of the output read-only."""
    mounted(arena, "--bind", str(arena.out), str(arena.out))
    subprocess.run(["mount", "-o", "remount,ro,bind", str(arena.out)], check=True)
