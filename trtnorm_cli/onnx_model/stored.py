"""Tensors whose bytes stand in files: what they need, where they are, how they are read and copied.

A tensor of a model that was read without its weights refers to the model's own file, like external data to other files.
"""

from __future__ import annotations

import errno
import math
import os
import secrets
from collections.abc import Iterable, Iterator
from io import FileIO
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx

from trtnorm_cli.errors import ModelError
from trtnorm_cli.onnx_model.walk import all_tensors
from trtnorm_cli.onnx_model.wire import FilePart, Piece

_BITS_BELOW_A_BYTE = {"UINT4": 4, "INT4": 4, "FLOAT4E2M1": 4, "UINT2": 2, "INT2": 2}
_NUMPY_HAS_OTHERS = frozenset((*_BITS_BELOW_A_BYTE, "FLOAT6E2M3", "FLOAT6E3M2"))
# ONNX's name for the folder of a location. It is believed only with a word that no file can hold: a file's own could lead
# anywhere.
_FOLDER_KEY = "basepath"
_OUR_WORD = f"{secrets.token_hex(16)}:"
_MOST_AT_ONCE = 1 << 30
_CHUNK = 1 << 20
# File systems that cannot copy in the kernel, or not between each other.
_NOT_IN_THE_KERNEL = frozenset((errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF))


def external_entries(tensor: onnx.TensorProto) -> dict[str, str]:
    """The key-value pairs that say where an external tensor's bytes are."""
    return {entry.key: entry.value for entry in tensor.external_data}


def external_tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """The tensors whose bytes are in files."""
    return (t for t in all_tensors(proto) if is_external(t))


def is_external(tensor: onnx.TensorProto) -> bool:
    """True when the tensor's bytes are in a file."""
    return bool(tensor.data_location == onnx.TensorProto.EXTERNAL)


def is_within_the_model(tensor: onnx.TensorProto) -> bool:
    """True when the tensor's bytes are in the message, or in the file that the message was read from."""
    return not is_external(tensor) or _own_folder(external_entries(tensor)) is not None


def is_own_reference(tensor: onnx.TensorProto) -> bool:
    """True when the tensor's bytes are in a file because the model was read without them."""
    return is_external(tensor) and is_within_the_model(tensor)


def _own_folder(entries: dict[str, str]) -> str | None:
    folder = entries.get(_FOLDER_KEY, "")
    return folder.removeprefix(_OUR_WORD) if folder.startswith(_OUR_WORD) else None


def tensor_bytes(tensor: onnx.TensorProto) -> int:
    """The size of a tensor's data in bytes, from its dimensions and type; types below eight bits are packed."""
    count = math.prod(tensor.dims)
    name = onnx.TensorProto.DataType.Name(tensor.data_type)
    if (bits := _BITS_BELOW_A_BYTE.get(name)) is not None:
        return -(-count * bits // 8)
    try:
        return count * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    except (KeyError, TypeError):
        return raw_length(tensor)


def raw_length(tensor: onnx.TensorProto) -> int:
    """How many raw bytes the tensor holds, in the message or in the file that it was read from."""
    return int(external_entries(tensor).get("length", 0)) if is_external(tensor) else len(tensor.raw_data)


def values_are_packed(tensor: onnx.TensorProto) -> bool:
    """True for types of which several values stand in one byte."""
    return onnx.TensorProto.DataType.Name(tensor.data_type) in _BITS_BELOW_A_BYTE


def reference(location: str, offset: int, length: int, folder: str | None = None) -> dict[str, str]:
    """The entries of a tensor whose bytes are in the file ``location``, which is in ``folder`` where that is given."""
    entries = {"location": location, "offset": str(offset), "length": str(length)}
    return entries if folder is None else {**entries, _FOLDER_KEY: _OUR_WORD + folder}


def refer(tensor: onnx.TensorProto, entries: dict[str, str]) -> None:
    """Let ``tensor`` have its bytes where ``entries`` say."""
    tensor.ClearField("raw_data")
    del tensor.external_data[:]
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    tensor.data_location = onnx.TensorProto.EXTERNAL


def file_part(tensor: onnx.TensorProto, folder: Path | None) -> FilePart:
    """Where the bytes of an external tensor are; ``folder`` is what its location is relative to."""
    entries = external_entries(tensor)
    file = Path(_own_folder(entries) or folder or ".") / entries.get("location", "")
    return FilePart(file, int(entries.get("offset", 0)), int(entries.get("length", tensor_bytes(tensor))))


def tensor_array(tensor: onnx.TensorProto, folder: Path | None = None) -> np.ndarray:
    """The value of ``tensor``, read from its file where it is in one. ``tensor`` stays as it is."""
    if not is_external(tensor):
        return np.asarray(onnx.numpy_helper.to_array(tensor))
    content = read_part(file_part(tensor, folder), tensor.name)
    if onnx.TensorProto.DataType.Name(tensor.data_type) in _NUMPY_HAS_OTHERS:
        raw = onnx.TensorProto(data_type=tensor.data_type, dims=tensor.dims, raw_data=content.tobytes())
        return np.asarray(onnx.numpy_helper.to_array(raw))
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    stored = dtype.newbyteorder("<") if dtype.isbuiltin == 1 else dtype
    value = content.view(stored).astype(dtype, copy=False).reshape(tuple(tensor.dims))
    value.flags.writeable = False
    return value


def bring_in(tensor: onnx.TensorProto, folder: Path | None) -> None:
    """Let ``tensor`` hold its bytes itself."""
    tensor.raw_data = read_part(file_part(tensor, folder), tensor.name).tobytes()
    tensor.ClearField("data_location")
    del tensor.external_data[:]


def brought_in(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of ``model`` that holds the tensors which stayed in the model's file. External data stay where they are."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for tensor in filter(is_own_reference, list(external_tensors(copy))):
        bring_in(tensor, None)
    return copy


def read_part(part: FilePart, name: str) -> np.ndarray:
    """The bytes of ``part``. They are read and not mapped: a file that is cut short meanwhile must not end the process."""
    content = np.empty(part.length, np.uint8)
    done = 0
    with _opened(part) as stream:
        while done < part.length:
            more = os.preadv(stream.fileno(), [content[done : done + _MOST_AT_ONCE].data], part.offset + done)
            if not more:
                raise _cut_short(part, name)
            done += more
    return content


def mapped(part: FilePart) -> np.ndarray:
    """The bytes of ``part`` without reading them. Only for a file that nobody else writes to: one that is cut short ends us."""
    return np.memmap(part.file, np.uint8, "r", part.offset, (part.length,))


def ends_of(part: FilePart, length: int) -> tuple[bytes, bytes]:
    """The first and the last bytes of ``part``, so many of each where there are as many."""
    length = min(length, part.length)
    last = FilePart(part.file, part.offset + part.length - length, length)
    return read_part(FilePart(part.file, part.offset, length), "").tobytes(), read_part(last, "").tobytes()


def holds(part: FilePart, array: np.ndarray) -> bool:
    """True where ``part`` has the bytes of the contiguous ``array``; a piece at a time is in memory."""
    wanted = array.reshape(-1).view(np.uint8)
    if wanted.size != part.length:
        return False
    piece = np.empty(_CHUNK, np.uint8)
    with _opened(part) as stream:
        for start in range(0, part.length, _CHUNK):
            expected = wanted[start : start + _CHUNK]
            read = os.preadv(stream.fileno(), [piece.data], part.offset + start)
            if read < expected.size or not np.array_equal(piece[: expected.size], expected):
                return False
    return True


def _opened(part: FilePart) -> FileIO:
    try:
        return part.file.open("rb", buffering=0)
    except OSError as error:
        raise ModelError(f"the weights in {part.file.name} cannot be read: {error.strerror}", str(part.file)) from error


def _cut_short(part: FilePart, name: str = "") -> ModelError:
    return ModelError(
        f"the file {part.file.name} became shorter while it was read",
        f"{part.file}, tensor {name}" if name else str(part.file),
        "run the command again when nothing writes to the file",
    )


def copy_part(part: FilePart, target: int) -> None:
    """Append the bytes of ``part`` to the file descriptor ``target``, in the kernel where that is possible.

    File systems that can share the blocks of two files do so.
    """
    with _opened(part) as stream:
        done, copy = 0, _copy_in_the_kernel
        while done < part.length:
            wanted = min(part.length - done, _MOST_AT_ONCE)
            try:
                more = copy(stream.fileno(), target, wanted, part.offset + done)
            except OSError as error:
                if copy is _copy_by_hand or error.errno not in _NOT_IN_THE_KERNEL:
                    raise
                more = 0
            if not more and copy is _copy_by_hand:
                raise _cut_short(part)
            if not more:
                copy = _copy_by_hand
            done += more


def write_pieces(pieces: Iterable[Piece], stream: BinaryIO) -> None:
    """Write the ``pieces`` of a message behind each other where ``stream`` is."""
    for piece in pieces:
        if isinstance(piece, FilePart):
            stream.flush()
            copy_part(piece, stream.fileno())
            stream.seek(0, os.SEEK_CUR)
        else:
            stream.write(piece)


def _copy_in_the_kernel(source: int, target: int, length: int, offset: int) -> int:
    if not hasattr(os, "copy_file_range"):
        return 0
    return os.copy_file_range(source, target, length, offset)


def _copy_by_hand(source: int, target: int, length: int, offset: int) -> int:
    content = memoryview(os.pread(source, min(length, _CHUNK), offset))
    written = 0
    while written < len(content):
        written += os.write(target, content[written:])
    return written
