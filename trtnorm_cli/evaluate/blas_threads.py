"""The number of threads that NumPy's matrix products use, where they use OpenBLAS, as the wheels of NumPy do."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np

# NumPy's wheels name the functions of their own copy otherwise than OpenBLAS does.
_NAMES = ("scipy_openblas_{}64_", "scipy_openblas_{}", "openblas_{}64_", "openblas_{}")


@contextmanager
def one_thread() -> Iterator[None]:
    """Small products in one thread: a second one waits longer than it works, and takes a core from who could use it.

    Where NumPy uses another library, its threads stay as they are.
    """
    found = _functions()
    if found is None:
        yield
        return
    get, put = found
    before = get()
    put(1)
    try:
        yield
    finally:
        put(before)


@cache
def _functions() -> tuple[Callable[[], int], Callable[[int], object]] | None:
    """The functions that get and set the number of threads."""
    for file in _libraries():
        try:
            library = ctypes.CDLL(str(file))  # it is loaded already: this is the same copy
        except OSError:
            continue
        for name in _NAMES:
            if hasattr(library, name.format("set_num_threads")) and hasattr(library, name.format("get_num_threads")):
                return getattr(library, name.format("get_num_threads")), getattr(library, name.format("set_num_threads"))
    return None


def _libraries() -> list[Path]:
    package = Path(np.__file__).parent
    return [file for folder in (package.parent / "numpy.libs", package / ".dylibs") for file in folder.glob("*openblas*")]
