"""A timing cache on disk that several builds share. It is read under a lock, and replaced whole.

TensorRT measures kernels while it builds. A later build that finds the measurements need not repeat them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trtnorm_cli.scratch import BESIDE, Scratch, remove_dead


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock that belongs to ``path``, after waiting while another build holds it.

    The kernel frees it when a holder dies.
    """
    import fcntl  # not on Windows

    with path.with_name(path.name + ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read(path: Path) -> bytes:
    """The content of ``path``, empty where there is no such file yet."""
    with locked(path):
        return path.read_bytes() if path.exists() else b""


def update(path: Path, merged: Callable[[bytes], bytes]) -> None:
    """Replace the content of ``path`` by ``merged`` of what stands there now, in one step.

    Another build may have written since this one read. Its additions stay.
    """
    with locked(path):
        content = merged(path.read_bytes() if path.exists() else b"")
        remove_dead(path.parent, BESIDE)
        with Scratch(BESIDE, path.parent) as folder, (folder / path.name).open("wb") as temporary:
            temporary.write(content)
            temporary.flush()
            os.fsync(temporary.fileno())
            (folder / path.name).replace(path)


def attach(config: Any, path: Path) -> None:
    """Give ``config`` the timing cache of ``path``. Raises ``OSError``, and ``ValueError`` where TensorRT refuses it."""
    cache = config.create_timing_cache(read(path))
    if cache is None or not config.set_timing_cache(cache, ignore_mismatch=False):
        raise ValueError(f"the timing cache {path} was made by another TensorRT or for another GPU: remove it, or name another")


def store(config: Any, path: Path) -> None:
    """Add what ``config`` measured to the timing cache of ``path``."""
    cache = config.get_timing_cache()

    def merged(current: bytes) -> bytes:
        if current:
            cache.combine(config.create_timing_cache(current), ignore_mismatch=False)
        return bytes(memoryview(cache.serialize()))

    update(path, merged)
