"""Tensors in memory that a program shares with its child: written once, read where they lie.

Either direction has a file of its own that both processes map; it has no name in any folder, so nothing is left behind. One
process appends to it, the other reads. What travels through the pipe between them is a record: type, shape and place. A
large tensor that stands in a file is read there.
"""

from __future__ import annotations

import math
import mmap
import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from trtnorm_cli.onnx_model.wire import FilePart

# The start of a tensor: vector instructions read whole lines of the cache.
_ALIGNMENT = 64
# The file grows by steps, so that it is not mapped anew for every tensor.
_STEP_BYTES = 1 << 20
# So much memory is kept for what comes next. More is too where at least a quarter of it was used: fresh memory costs more than
# what is written to it.
_KEPT_BYTES, _USED_SHARE = 64 << 20, 0.25
# So many copies stay for what is read next, for tensors that are at most so many times as small.
_MOST_COPIES, _MOST_TIMES = 2, 8


class SharedTensors:
    """Tensors in a shared file. The writer appends with ``put``, and ``clear`` when the reader is done with all of them."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._end = 0
        self._map: mmap.mmap | None = None
        self._copies: list[np.ndarray] = []
        self._lent: list[np.ndarray] = []

    def put(self, array: np.ndarray) -> dict[str, Any]:
        """Append ``array`` and return the record that ``get`` needs; strings stand in the record itself."""
        array = np.asarray(array)
        if array.dtype.kind in "OUS":
            return {"dtype": "string", "shape": list(array.shape), "values": [_text(item) for item in array.ravel()]}
        record = {"dtype": array.dtype.name, "shape": list(array.shape), "offset": self._end}
        self._reserve(array.nbytes)
        target = self.get(record)
        target[...] = array
        return record

    def put_bytes(self, data: bytes) -> dict[str, Any]:
        return self.put(np.frombuffer(data, np.uint8))

    def get(self, record: dict[str, Any]) -> np.ndarray:
        """The tensor of a record, where it lies: it is valid until the writer clears, or the reader calls ``reuse_copies``."""
        shape = tuple(record["shape"])
        if record["dtype"] == "string":
            return np.array(record["values"], dtype=object).reshape(shape)
        dtype = np.dtype(getattr(ml_dtypes, record["dtype"], None) or record["dtype"])
        size = math.prod(shape) * dtype.itemsize
        if not size:
            return np.empty(shape, dtype)
        if "file" in record:
            found = _in_file(record["file"], record["offset"], size)
            return (self._copied(found) if record["offset"] % _ALIGNMENT else found).view(dtype).reshape(shape)
        return np.ndarray((size,), np.uint8, self._mapped(record["offset"] + size), record["offset"]).view(dtype).reshape(shape)

    def reuse_copies(self) -> None:
        """Have the memory of the copies that ``get`` made for those that it makes next."""
        self._copies = sorted([*self._copies, *self._lent], key=len)[-_MOST_COPIES:]
        self._lent = []

    def _copied(self, found: np.ndarray) -> np.ndarray:
        """A copy where vector instructions want it; fresh memory would cost more than the copying."""
        fitting = [place for place, memory in enumerate(self._copies) if found.size <= memory.size <= _MOST_TIMES * found.size]
        memory = self._copies.pop(fitting[0]) if fitting else np.empty(found.size, np.uint8)
        self._lent.append(memory)
        np.copyto(memory[: found.size], found)
        return memory[: found.size]

    def clear(self) -> None:
        """Forget every tensor; memory beyond what is usually needed is given back."""
        used, self._end = self._end, 0
        if os.fstat(self.descriptor).st_size > max(_KEPT_BYTES, used / _USED_SHARE):
            self._map = None
            os.ftruncate(self.descriptor, 0)

    def close(self) -> None:
        self._map = None
        os.close(self.descriptor)

    def _reserve(self, size: int) -> None:
        self._end += -(-size // _ALIGNMENT) * _ALIGNMENT
        if self._end > os.fstat(self.descriptor).st_size:
            os.ftruncate(self.descriptor, -(-self._end // _STEP_BYTES) * _STEP_BYTES)

    def _mapped(self, size: int) -> mmap.mmap:
        """The mapped file, at least ``size`` bytes of it."""
        if self._map is None or len(self._map) < size:
            self._map = mmap.mmap(self.descriptor, os.fstat(self.descriptor).st_size)
        return self._map


def read_there(array: np.ndarray, part: FilePart | None) -> dict[str, Any] | None:
    """The record of ``array`` that has the reader find it in a file; None where ``part`` does not hold what it holds."""
    if part is None or part.length != array.nbytes or array.dtype.kind in "OUS" or not array.dtype.isnative:
        return None
    return {"dtype": array.dtype.name, "shape": list(array.shape), "file": str(part.file.absolute()), "offset": part.offset}


def _in_file(file: str, offset: int, size: int) -> np.ndarray:
    """Bytes of ``file``, mapped."""
    begin = offset // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
    with Path(file).open("rb") as stream:
        mapped = mmap.mmap(stream.fileno(), offset + size - begin, mmap.MAP_SHARED, mmap.PROT_READ, offset=begin)
    return np.frombuffer(mapped, np.uint8, size, offset - begin)


def shared_file(folder: str) -> int:
    """The descriptor of a new file without a name: in memory where the system can, else in ``folder``."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("trtnorm-tensors")
    import tempfile

    with tempfile.TemporaryFile(dir=folder) as file:
        return os.dup(file.fileno())


def _text(item: object) -> str:
    return item.decode() if isinstance(item, bytes) else str(item)
