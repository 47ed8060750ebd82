"""Large values that are made while a model is changed, kept in a file that has no name instead of in memory.

A rewriting may make as many weights as the model has. They are needed again only where the result is written. Where that
is a file of weights on the same disk, the shelf's file becomes it: to copy gigabytes takes longer than to prove them.
"""

from __future__ import annotations

import errno
import os
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

import numpy as np
import onnx
from onnx_graphsurgeon.ir.tensor import LazyValues

from trtnorm_cli.onnx_model.stored import refer, reference, tensor_array, values_are_packed
from trtnorm_cli.onnx_model.wire import FilePart

_FROM_BYTES = 1 << 16
# Whole pages: the file may become one of weights.
_ALIGNMENT = 4096
# A file that becomes one of weights has at most this share of values that nobody needs any more.
_MOST_WASTE = 1 / 16
# Where Linux shows the open files of this process, those without a name too.
_OPEN_FILES = Path("/proc/self/fd")
_FOLDER: ContextVar[Path | None] = ContextVar("shelves", default=None)


@contextmanager
def shelves_in(folder: Path) -> Iterator[None]:
    """A block in which shelves are in ``folder``, on whose disk the result will be, and not among temporary files."""
    token = _FOLDER.set(folder)
    try:
        yield
    finally:
        _FOLDER.reset(token)


class ShelvedValues(LazyValues):
    """The values of a graphsurgeon constant that are on a shelf."""

    def load(self) -> np.ndarray:
        return tensor_array(self.tensor)


class Shelf:
    """A place for arrays that can be read as long as the shelf lives, and by this process alone."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._end = 0
        _SHELVES.add(self)

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

    def give_away(self, parts: Iterable[FilePart], target: Path) -> Path | None:
        """Give the file of this shelf the name ``target``, if nearly all of it is of ``parts``.

        Returns where those parts are that ``target`` has at the same places; None where it was not made. The values can be
        read as before, and new ones go to another file.
        """
        if self._file is None:
            return None
        own, size = _OPEN_FILES / str(self._file), os.fstat(self._file).st_size
        held = {part for part in parts if part.file == own}
        if sum(map(len, held)) < (1 - _MOST_WASTE) * size:
            return None
        try:
            # With a folder's descriptor Python asks for the call that follows the link to the open file.
            os.link(own, target, src_dir_fd=self._file)
        except OSError as error:
            if error.errno in _NOT_NAMED:
                return None
            raise
        self._file, self._end = None, 0
        return own

    def _append(self, content: np.ndarray) -> int:
        if self._file is None:
            self._file, self._end = _nameless_file(), 0
            weakref.finalize(self, os.close, self._file)
        begin, done = self._end, 0
        while done < content.nbytes:
            done += os.pwrite(self._file, content[done:].data, begin + done)
        self._end = -(-(begin + done) // _ALIGNMENT) * _ALIGNMENT
        return begin


_SHELVES: weakref.WeakSet[Shelf] = weakref.WeakSet()
# Another disk; a file that has lost its name; a system or a folder that does not allow it.
_NOT_NAMED = frozenset((errno.EXDEV, errno.ENOENT, errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.EMLINK, errno.EINVAL))


def given_away(parts: Iterable[FilePart], target: Path) -> Path | None:
    """Let the file of a shelf that holds many of ``parts``, and little else, become ``target``; see ``Shelf.give_away``."""
    parts = [part for part in parts if part.file.parent == _OPEN_FILES]
    found = (shelf.give_away(parts, target) for shelf in list(_SHELVES) if parts)
    return next((file for file in found if file is not None), None)


def _nameless_file() -> int:
    """The descriptor of a new file without a name, which can get one where the file system allows that."""
    folder = _FOLDER.get() or Path(tempfile.gettempdir())
    with suppress(OSError):
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o666)
    file, name = tempfile.mkstemp(prefix="trtnorm-weights-")
    Path(name).unlink()
    return file
