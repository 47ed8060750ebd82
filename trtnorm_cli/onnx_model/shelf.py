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
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx_graphsurgeon.ir.tensor import LazyValues

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.stored import refer, reference, tensor_array, values_are_packed
from trtnorm_cli.onnx_model.wire import FilePart

_FROM_BYTES = 1 << 16
# Less is written before a thread has begun.
_BESIDE_FROM_BYTES = 1 << 20
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
        tensor = _described(value, name)
        if tensor is None:
            return None
        try:
            part = self._reserve(value.nbytes)
        except OSError:
            return None
        try:
            _write(value, part)
        except OSError:
            self._take_back(part)
            return None
        return _referring(tensor, part)

    def begin(self, value: np.ndarray, name: str) -> Shelving | None:
        """Begin to put a large ``value`` on the shelf, in a thread of its own; None for one that does not take long."""
        tensor = _described(value, name) if value.nbytes >= _BESIDE_FROM_BYTES else None
        if tensor is None:
            return None
        try:
            part = self._reserve(value.nbytes)
        except OSError:
            return None
        return Shelving(self, _referring(tensor, part), part, _writer().submit(_write, value, part))

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

    def _reserve(self, length: int) -> FilePart:
        if self._file is None:
            self._file, self._end = _nameless_file(), 0
            weakref.finalize(self, os.close, self._file)
        part = FilePart(_OPEN_FILES / str(self._file), self._end, length)
        self._end = _behind(part)
        return part

    def _take_back(self, part: FilePart) -> None:
        if self._file is not None and part.file.name == str(self._file) and _behind(part) == self._end:
            os.ftruncate(self._file, part.offset)
            self._end = part.offset


@dataclass(frozen=True)
class Shelving:
    """A value on its way to the shelf, which lives at least until it is there."""

    shelf: Shelf
    values: ShelvedValues
    part: FilePart
    writing: Future[None]

    def result(self) -> ShelvedValues | None:
        """The value once it is on the shelf; None where there was no room."""
        try:
            self.writing.result()
        except OSError:
            self.shelf._take_back(self.part)
            return None
        return self.values

    def take_back(self) -> None:
        """Nobody needs the value. Its place is free again if nothing was put behind it."""
        with suppress(OSError):
            self.writing.result()
        self.shelf._take_back(self.part)


def others_see(part: FilePart) -> FilePart:
    """``part`` as other processes of this user find it: what is on a shelf has no name of its own."""
    if part.file.parent != _OPEN_FILES:
        return part
    return replace(part, file=Path("/proc", str(os.getpid()), "fd", part.file.name))


def _described(value: np.ndarray, name: str) -> onnx.TensorProto | None:
    """A tensor that says all of ``value`` but its bytes; None for one that is not put on shelves."""
    if value.nbytes < _FROM_BYTES or not _OPEN_FILES.is_dir():
        return None
    kind = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
    tensor = onnx.TensorProto(name=name, data_type=kind, dims=value.shape)
    return None if values_are_packed(tensor) else tensor


def _referring(tensor: onnx.TensorProto, part: FilePart) -> ShelvedValues:
    refer(tensor, reference(part.file.name, part.offset, part.length, str(_OPEN_FILES)))
    return ShelvedValues(tensor)


@cache
def _writer() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="trtnorm-shelf")


def _write(value: np.ndarray, part: FilePart) -> None:
    content, done = np.ascontiguousarray(value).reshape(-1).view(np.uint8), 0
    while done < content.nbytes:
        done += os.pwrite(int(part.file.name), content[done:].data, part.offset + done)


def _behind(part: FilePart) -> int:
    """Where the next value may begin."""
    return -(-(part.offset + part.length) // _ALIGNMENT) * _ALIGNMENT


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
