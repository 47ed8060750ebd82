"""Large values that are made while a model is changed, kept in a file that has no name instead of in memory.

A rewriting may make as many weights as the model has. They are needed again only where the result is written.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from pathlib import Path

import numpy as np
import onnx
from onnx_graphsurgeon.ir.tensor import LazyValues

from trtnorm_cli.onnx_model.stored import refer, reference, tensor_array, values_are_packed

_FROM_BYTES = 1 << 16
_ALIGNMENT = 64
# Where Linux shows the open files of this process, those without a name too.
_OPEN_FILES = Path("/proc/self/fd")


class ShelvedValues(LazyValues):
    """The values of a graphsurgeon constant that are on a shelf."""

    def load(self) -> np.ndarray:
        return tensor_array(self.tensor)


class Shelf:
    """A place for arrays that can be read as long as the shelf lives, and by this process alone."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._end = 0

    def put(self, value: np.ndarray, name: str) -> ShelvedValues | None:
        """``value`` on the shelf; None where it is better kept in memory: it is small, or there is no room."""
        if value.nbytes < _FROM_BYTES or not _OPEN_FILES.is_dir():
            return None
        tensor = onnx.TensorProto(
            name=name, data_type=onnx.helper.np_dtype_to_tensor_dtype(value.dtype), dims=value.shape
        )  # fmt: skip
        if values_are_packed(tensor):
            return None
        try:
            offset = self._append(np.ascontiguousarray(value).reshape(-1).view(np.uint8))
        except OSError:
            return None
        refer(tensor, reference(str(self._file), offset, value.nbytes, str(_OPEN_FILES)))
        return ShelvedValues(tensor)

    def _append(self, content: np.ndarray) -> int:
        if self._file is None:
            self._file = _nameless_file()
            weakref.finalize(self, os.close, self._file)
        begin, done = self._end, 0
        while done < content.nbytes:
            done += os.pwrite(self._file, content[done:].data, begin + done)
        self._end = -(-(begin + done) // _ALIGNMENT) * _ALIGNMENT
        return begin


def _nameless_file() -> int:
    file, name = tempfile.mkstemp(prefix="trtnorm-weights-")
    Path(name).unlink()
    return file
