"""Large values that are made while a model is changed, kept in a file that has no name instead of in memory.

A rewriting may make as many weights as the model has, and folding computes others. They are needed again where a rule asks for
them and where the result is written. Where that is on the same disk, the shelf's file becomes it: a file of weights, or one of
a whole model (``shelf_message.py``). To copy gigabytes takes longer than to prove them. So the disk may begin with them while
they are proved.
"""

from __future__ import annotations

import ctypes
import errno
import os
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

import numpy as np
import onnx
from onnx_graphsurgeon.ir.tensor import LazyValues

from trtnorm_cli.contiguous import contiguous
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.stored import refer, reference, tensor_array, values_are_packed
from trtnorm_cli.onnx_model.wire import FilePart

SHELVED_FROM_BYTES = 1 << 16
# Less is written before a thread has begun.
_BESIDE_FROM_BYTES = 1 << 20
# Whole pages: the file may become one of weights. There is room for what else is in the file of a model: at the beginning its
# first fields, and before each value the other fields of the tensor.
_ALIGNMENT = 4096
_ROOM_FOR_MODEL, _ROOM_FOR_LENGTHS = 1024, 32
# A file that becomes one of weights has at most this share of values that nobody needs any more.
_MOST_WASTE = 1 / 16
_SYNC_FILE_RANGE_WRITE = 2
# Where Linux shows the open files of this process, those without a name too.
_OPEN_FILES = Path("/proc/self/fd")


class _Place(NamedTuple):
    """The folder in which shelves are, and whether what is put on them is likely to be the result."""

    folder: Path
    is_of_result: bool


_PLACE: ContextVar[_Place | None] = ContextVar("shelves", default=None)


@contextmanager
def shelves_in(folder: Path, of_result: bool = False) -> Iterator[None]:
    """A block in which shelves are in ``folder``, on whose disk the result will be, and not among temporary files.

    The disk begins at once with what is ``of_result``.
    """
    token = _PLACE.set(_Place(folder, of_result))
    try:
        yield
    finally:
        _PLACE.reset(token)


class ShelvedValues(LazyValues):
    """The values of a graphsurgeon constant that are on a shelf."""

    def load(self) -> np.ndarray:
        return tensor_array(self.tensor)


class Shelf:
    """A place for arrays that can be read as long as the shelf lives, and by this process alone."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._end = 0
        self.number = next(_NUMBERS)
        self._is_of_result = False
        # What is in the file, also what nobody needs any more where others lie behind it.
        self._parts: list[FilePart] = []
        _SHELVES.add(self)

    def put(self, value: np.ndarray, name: str) -> ShelvedValues | None:
        """``value`` on the shelf; None where it is better kept in memory: it is small, or there is no room."""
        tensor = _described(value, name)
        if tensor is None:
            return None
        try:
            part = self._reserve(value.nbytes, tensor)
        except OSError:
            return None
        try:
            self._write(value, part)
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
            part = self._reserve(value.nbytes, tensor)
        except OSError:
            return None
        return Shelving(self, _referring(tensor, part), part, _writer().submit(self._write, value, part))

    def give_away(self, parts: Iterable[FilePart], target: Path) -> Path | None:
        """Give the file of this shelf the name ``target``, if nearly all of it is of ``parts``.

        Returns where those parts are that ``target`` has at the same places; None where it was not made. The values can be
        read as before, and new ones go to another file.
        """
        if self._file is None:
            return None
        own, held = _OPEN_FILES / str(self._file), self.held(parts)
        if not held or sum(map(len, held)) < (1 - _MOST_WASTE) * sum(map(len, self._parts)):
            return None
        try:
            # With a folder's descriptor Python asks for the call that follows the link to the open file.
            os.link(own, target, src_dir_fd=self._file)
        except OSError as error:
            if error.errno in _NOT_NAMED:
                return None
            raise
        self._file, self._end, self._parts = None, 0, []
        return own

    def held(self, parts: Iterable[FilePart]) -> set[FilePart]:
        """Those of ``parts`` that are in the file of this shelf."""
        return set(self._parts).intersection(parts)

    def _reserve(self, length: int, tensor: onnx.TensorProto) -> FilePart:
        """A place for the ``length`` bytes of ``tensor``, behind room for the rest of it."""
        if self._file is None:
            (self._file, self._is_of_result), self._end = _nameless_file(), _ROOM_FOR_MODEL
            weakref.finalize(self, os.close, self._file)
        room = tensor.ByteSize() + _ROOM_FOR_LENGTHS
        part = FilePart(_OPEN_FILES / str(self._file), -(-(self._end + room) // _ALIGNMENT) * _ALIGNMENT, length)
        self._end = part.offset + length
        self._parts.append(part)
        return part

    def _take_back(self, part: FilePart) -> None:
        if self._file is not None and self._parts[-1:] == [part]:
            self._parts.pop()
            self._end = self._parts[-1].offset + len(self._parts[-1]) if self._parts else _ROOM_FOR_MODEL
            os.ftruncate(self._file, self._end)

    def _write(self, value: np.ndarray, part: FilePart) -> None:
        file = int(part.file.name)
        content, done = contiguous(value).reshape(-1).view(np.uint8), 0
        while done < content.nbytes:
            done += os.pwrite(file, content[done:].data, part.offset + done)
        if self._is_of_result and content.nbytes >= _BESIDE_FROM_BYTES:
            _to_store().put((self, part))


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
    if not is_on_a_shelf(part):
        return part
    return replace(part, file=Path("/proc", str(os.getpid()), "fd", part.file.name))


def _described(value: np.ndarray, name: str) -> onnx.TensorProto | None:
    """A tensor that says all of ``value`` but its bytes; None for one that is not put on shelves."""
    if value.nbytes < SHELVED_FROM_BYTES or not _OPEN_FILES.is_dir():
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


@cache
def _to_store() -> SimpleQueue[tuple[Shelf, FilePart]]:
    """Parts of shelves that the disk is to begin with. Whoever waits for the result waits for the disk, and that is less then.

    A thread asks for it, as that waits where the disk has more to do than it takes. Nobody waits for the thread.
    """
    waiting: SimpleQueue[tuple[Shelf, FilePart]] = SimpleQueue()

    def store() -> None:
        while True:
            shelf, part = waiting.get()  # the file is open as long as its shelf is there
            if (begin := _beginning_to_store()) is not None:
                begin(int(part.file.name), part.offset, part.length, _SYNC_FILE_RANGE_WRITE)
            del shelf

    threading.Thread(target=store, name="trtnorm-store", daemon=True).start()
    return waiting


@cache
def _beginning_to_store() -> Callable[[int, int, int, int], int] | None:
    """Linux's call for that, which Python does not have."""
    call = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if call is not None:
        call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return call


_SHELVES: weakref.WeakSet[Shelf] = weakref.WeakSet()
_NUMBERS = count()
# Another disk; a file that has lost its name; a system or a folder that does not allow it.
_NOT_NAMED = frozenset((
    errno.EXDEV, errno.ENOENT, errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.EMLINK, errno.EINVAL, errno.ENOSYS,
))  # fmt: skip


def is_on_a_shelf(part: FilePart) -> bool:
    """True where ``part`` is of the file of a shelf of this process."""
    return part.file.parent == _OPEN_FILES


def are_all_of_a_shelf(parts: Iterable[FilePart]) -> bool:
    """True where ``parts`` are all that is in the file of one shelf."""
    parts = set(parts)
    return any(shelf.held(parts) and parts.issuperset(shelf._parts) for shelf in list(_SHELVES))


def given_away(parts: Iterable[FilePart], target: Path) -> Path | None:
    """Let the file of a shelf that holds many of ``parts``, and little else, become ``target``; see ``Shelf.give_away``."""
    parts = list(filter(is_on_a_shelf, parts))
    by_size = sorted(_SHELVES, key=lambda shelf: (-sum(map(len, shelf.held(parts))), shelf.number)) if parts else []
    found = (shelf.give_away(parts, target) for shelf in by_size)
    return next((file for file in found if file is not None), None)


def _nameless_file() -> tuple[int, bool]:
    """The descriptor of a new file without a name, and whether it may get one: that of a file of the result."""
    place = _PLACE.get() or _Place(Path(tempfile.gettempdir()), False)
    with suppress(OSError):
        return os.open(place.folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o666), place.is_of_result
    file, name = tempfile.mkstemp(prefix="trtnorm-weights-")
    Path(name).unlink()
    return file, False
