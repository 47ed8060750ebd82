"""Write an ONNX model so that a reader either finds the whole of it or nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import onnx

from trtnorm_cli.files import cannot_write
from trtnorm_cli.onnx_model.light_file import whole_message
from trtnorm_cli.onnx_model.shelf import given_away
from trtnorm_cli.onnx_model.shelf_message import completed
from trtnorm_cli.onnx_model.stored import (
    bring_in,
    copy_part,
    external_tensors,
    file_part,
    is_external,
    raw_length,
    refer,
    reference,
    tensor_bytes,
    write_pieces,
)
from trtnorm_cli.onnx_model.walk import all_tensors
from trtnorm_cli.scratch import BESIDE, Scratch

# A single protobuf file must stay below 2 GiB; above this the weights go to a file beside the model.
SINGLE_FILE_LIMIT = 1 << 30
# TensorRT and ONNX Runtime map a file of weights, and copy those that are in the message twice. So weights of more than this go
# to a file of their own where processes of this program read them: TensorRT took 0.6 of the time for a model of 0.5 GB.
MAPPED_FROM = 1 << 24
_ALIGNMENT = 4096
_EXTERNALISED_FROM = 1024


def save_model(
    model: onnx.ModelProto,
    path: Path,
    source_folder: Path | None = None,
    external_from: int | None = None,
    is_result: bool = False,
) -> list[Path]:
    """Write ``model`` to ``path`` and return the files written: the model, and ``<name>.data`` when it is large.

    External tensors are read from ``source_folder``; weights of more than ``external_from`` bytes in all, by default 1 GiB, go
    to a file of their own. The files get their names only when they are complete. ``model`` is not changed. Where it
    ``is_result``, the file in which its new weights lie may become the one that is written. Raises ``UsageProblem`` or
    ``NoRoom`` when the folder cannot be written.
    """
    large = _payload_bytes(model) > (SINGLE_FILE_LIMIT if external_from is None else external_from)
    try:
        with Scratch(BESIDE, path.parent) as scratch:
            return _write(model, path, scratch, source_folder, large, is_result)
    except OSError as error:
        hint = "choose another folder with -o or TMPDIR"
        raise cannot_write("the model", path, error, hint) from error


def data_file_of(path: Path) -> Path:
    """The file beside the model ``path`` that holds the weights of a large one."""
    return path.with_name(path.name + ".data")


def _write(
    model: onnx.ModelProto, path: Path, scratch: Path, source_folder: Path | None, large: bool, is_result: bool
) -> list[Path]:
    names = [path.name]
    if large:
        names.insert(0, data_file_of(path).name)
        model = _with_weights_out(model, scratch / names[0], source_folder)
        (scratch / path.name).write_bytes(model.SerializeToString(deterministic=True))
    elif not (is_result and completed(model, scratch / path.name, source_folder)):
        with (scratch / path.name).open("wb") as stream:
            write_pieces(whole_message(model, source_folder), stream)
    written = [path.with_name(name) for name in names]
    for name, target in zip(names, written, strict=True):
        (scratch / name).replace(target)
    return written


def _payload_bytes(model: onnx.ModelProto) -> int:
    """The size of all tensors. protobuf cannot even measure a message of more than 2 GiB."""
    return sum(tensor_bytes(tensor) for tensor in all_tensors(model))


def _with_weights_out(model: onnx.ModelProto, data: Path, source_folder: Path | None) -> onnx.ModelProto:
    """A copy of ``model`` whose large tensors are in the file ``data``, which is written one tensor at a time.

    What this process has made on the same disk stays where it lies.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    begun = given_away((file_part(tensor, source_folder) for tensor in external_tensors(copy)), data)
    with data.open("wb" if begun is None else "r+b") as stream:
        stream.seek(0, os.SEEK_END)
        for tensor in all_tensors(copy):
            length = raw_length(tensor)
            if is_external(tensor) and (part := file_part(tensor, source_folder)).file == begun:
                refer(tensor, reference(data.name, part.offset, part.length))
            elif length >= _EXTERNALISED_FROM:
                _append(tensor, length, stream, data.name, source_folder)
            elif is_external(tensor):
                bring_in(tensor, source_folder)
    return copy


def _append(tensor: onnx.TensorProto, length: int, stream: BinaryIO, location: str, source_folder: Path | None) -> None:
    offset = -(-stream.tell() // _ALIGNMENT) * _ALIGNMENT
    stream.seek(offset)
    if is_external(tensor):
        stream.flush()
        copy_part(file_part(tensor, source_folder), stream.fileno())
        stream.seek(offset + length)
    else:
        stream.write(tensor.raw_data)
    refer(tensor, reference(location, offset, length))
