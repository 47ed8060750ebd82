"""Write an ONNX model so that a reader either finds the whole of it or nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import BinaryIO

import onnx
from onnx.external_data_helper import load_external_data_for_tensor

from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.onnx_model.load import external_tensors, tensor_bytes
from trtnorm_cli.onnx_model.walk import all_tensors

# A single protobuf file must stay below 2 GiB; above this the weights go to a file beside the model.
SINGLE_FILE_LIMIT = 1 << 30
_ALIGNMENT = 4096
_EXTERNALISED_FROM = 1024


def save_model(
    model: onnx.ModelProto, path: Path, source_folder: Path | None = None, external_from: int | None = None
) -> list[Path]:
    """Write ``model`` to ``path`` and return the files written: the model, and ``<name>.data`` when it is large.

    External tensors are read from ``source_folder``; weights of more than ``external_from`` bytes in all, by default 1 GiB, go
    to a file of their own. The files get their names only when they are complete. ``model`` is not changed. Raises
    ``UsageProblem`` when the folder cannot be written.
    """
    large = _payload_bytes(model) > (SINGLE_FILE_LIMIT if external_from is None else external_from)
    try:
        with tempfile.TemporaryDirectory(prefix=".trtnorm-", dir=path.parent) as scratch:
            return _write(model, path, Path(scratch), source_folder, large)
    except OSError as error:
        hint = "make room there, or choose another folder with -o or TMPDIR"
        raise UsageProblem(f"the model cannot be written: {error.strerror or error}", str(path), hint) from error


def data_file_of(path: Path) -> Path:
    """The file beside the model ``path`` that holds the weights of a large one."""
    return path.with_name(path.name + ".data")


def _write(model: onnx.ModelProto, path: Path, scratch: Path, source_folder: Path | None, large: bool) -> list[Path]:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    names = [path.name]
    if large:
        names.insert(0, data_file_of(path).name)
        _move_weights_out(copy, scratch / names[0], source_folder)
    else:
        _move_weights_in(copy, source_folder)
    (scratch / path.name).write_bytes(copy.SerializeToString(deterministic=True))
    written = [path.with_name(name) for name in names]
    for name, target in zip(names, written, strict=True):
        (scratch / name).replace(target)
    return written


def _payload_bytes(model: onnx.ModelProto) -> int:
    """The size of all tensors. protobuf cannot even measure a message of more than 2 GiB."""
    return sum(tensor_bytes(tensor) for tensor in all_tensors(model))


def _move_weights_in(model: onnx.ModelProto, source_folder: Path | None) -> None:
    for tensor in external_tensors(model):
        load_external_data_for_tensor(tensor, str(source_folder or "."))
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def _move_weights_out(model: onnx.ModelProto, data: Path, source_folder: Path | None) -> None:
    """Write each large tensor to ``data``, one at a time, so that the weights are never in memory twice."""
    with data.open("wb") as stream:
        for tensor in all_tensors(model):
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                load_external_data_for_tensor(tensor, str(source_folder or "."))
                tensor.data_location = onnx.TensorProto.DEFAULT
            if len(tensor.raw_data) >= _EXTERNALISED_FROM:
                _append(tensor, stream, data.name)


def _append(tensor: onnx.TensorProto, stream: BinaryIO, location: str) -> None:
    offset = -(-stream.tell() // _ALIGNMENT) * _ALIGNMENT
    stream.seek(offset)
    length = stream.write(tensor.raw_data)
    del tensor.external_data[:]
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.ClearField("raw_data")
