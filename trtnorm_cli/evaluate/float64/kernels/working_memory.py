"""Memory that a thread's next piece of work has again.

Were each piece in a new array, results, which stay, would come to lie in what was freed, and the next piece have pages that the
system has to clear first. That can take longer than the work.
"""

from __future__ import annotations

import math
import threading

import numpy as np

MOST_ELEMENTS = 1 << 21
"""What is larger has memory of its own (16 MiB in float64)."""
_LEAST_ELEMENTS = 1 << 16
_MEMORY = threading.local()


def working_memory(name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array of whatever is left there, which the next one of this name and thread overwrites."""
    size = math.prod(shape)
    if size > MOST_ELEMENTS:
        return np.empty(shape, dtype)
    kept = getattr(_MEMORY, name, None)
    if kept is None or kept.dtype != dtype or kept.size < size:
        kept = np.empty(max(_LEAST_ELEMENTS, 1 << max(size - 1, 0).bit_length()), dtype)
        setattr(_MEMORY, name, kept)
    return kept[:size].reshape(shape)


def copied(values: np.ndarray, name: str, dtype: np.dtype) -> np.ndarray:
    """``values`` in ``dtype`` with their elements in order, in working memory."""
    copy = working_memory(name, values.shape, dtype)
    np.copyto(copy, values)
    return copy
