"""Freed memory, kept for the next array of this process and of its children.

The C library gives each large array back to the system, which clears every page before it hands it out again. That can take
longer than what is computed in the array. Arrays of up to 32 MiB come from a heap instead, of which up to 128 MiB that are free
stay. In this process all arrays do, and up to 1 GiB stays: a tensor of a network in space has 64 MiB, and a comparison keeps
and drops hundreds of MiB of tensors in turn.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping

_MEBIBYTE = 1 << 20
# Imports and most models are fewer objects than the first.
_OBJECTS_BEFORE_COLLECTIONS, _OBJECTS_BETWEEN_COLLECTIONS = 200_000, 20_000
# By the variable that the GNU C library reads when a process starts, with the number that its mallopt knows.
_SETTINGS = {
    "MALLOC_TRIM_THRESHOLD_": (-1, 128 * _MEBIBYTE),
    "MALLOC_TOP_PAD_": (-2, 16 * _MEBIBYTE),
    "MALLOC_MMAP_THRESHOLD_": (-3, 32 * _MEBIBYTE),
}
_OWN_SETTINGS = {**_SETTINGS, "MALLOC_TRIM_THRESHOLD_": (-1, 1024 * _MEBIBYTE), "MALLOC_MMAP_MAX_": (-4, 0)}


def heap_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables with which a child keeps freed memory, but for those that ``environment`` has."""
    return {name: str(value) for name, (_, value) in _SETTINGS.items() if name not in environment}


def keep_freed_memory(environment: Mapping[str, str]) -> bool:
    """Keep freed memory in this process, but for what ``environment`` says; False where its C library cannot."""
    mallopt = _of_c_library("mallopt")
    if mallopt is None:
        return False
    done = [mallopt(number, value) for name, (number, value) in _OWN_SETTINGS.items() if name not in environment]
    return all(done)


def give_back_freed_memory() -> None:
    """Give what is free back to the system now, where its C library can: what comes next is much, and of other sizes."""
    trim = _of_c_library("malloc_trim")
    if trim is not None:
        trim(0)


def put_off_collections() -> None:
    """Have Python look for garbage late, and after the first time not among what is there by then.

    Imports and models are hundreds of thousands of objects that stay. To look at them after every 700 new ones, as Python does
    by itself, is a tenth of the time of a small rewriting.
    """

    def leave_what_is_there(phase: str, info: dict[str, int]) -> None:
        if phase == "stop":
            gc.callbacks.remove(leave_what_is_there)
            gc.freeze()
            gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)

    gc.callbacks.append(leave_what_is_there)
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTIONS)


def _of_c_library(function: str) -> Callable[..., int] | None:
    """A function of this process's C library; None where it has none of that name: musl lacks these."""
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    return getattr(ctypes.CDLL(None), function, None)
