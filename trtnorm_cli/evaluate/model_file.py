"""A model as a file that the child can load, with inner tensors as outputs, and with external data above 2 GiB."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import onnx

from trtnorm_cli.onnx_model.light_file import read_light
from trtnorm_cli.onnx_model.stored import (
    bring_in,
    copy_part,
    external_tensors,
    file_part,
    is_external,
    is_own_reference,
    refer,
    reference,
)
from trtnorm_cli.onnx_model.wire import FilePart

EXTERNAL_DATA_FROM_BYTES = 1 << 30
"""Initializers larger than this in sum leave the file: protobuf writes no message above 2 GiB."""
EXTERNAL_TENSOR_BYTES = 1024
_MOST_MESSAGE_BYTES = 1 << 27


def model_file(model: Path | onnx.ModelProto, outputs: Sequence[str] | None, folder: Path) -> tuple[Path, str | None]:
    """A file that ONNX Runtime can load and that has ``outputs``, and the folder of its external data if another.

    ``model`` is not changed. New files go to ``folder``.
    """
    if isinstance(model, onnx.ModelProto):
        return _write(model, outputs, folder), None
    path = Path(model).absolute()
    if outputs is None:
        return path, None
    graph_model = read_light(path) or onnx.load(str(path), load_external_data=False)
    inner = _inner(graph_model, outputs)
    if not inner:
        return path, None
    return _with_outputs(path, inner, folder / "model.onnx"), str(path.parent)


def resized(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]], path: Path) -> tuple[bytes, Path] | None:
    """``model``, read from ``path``, with inputs of other ``shapes``: a message that refers to weights, and their folder.

    Links are followed, as ONNX Runtime takes none to other folders. None where it holds many weights itself, or they lie
    neither below the folder of the file that ``path`` leads to nor in one folder.
    """
    own = path.absolute().parent
    parts = [file_part(tensor, own) for tensor in model.graph.initializer if is_external(tensor)]
    files = {file: file.resolve() for file in {part.file for part in parts}}
    folder, folders = path.resolve().parent, {file.parent for file in files.values()}
    if not all(file.is_relative_to(folder) for file in files.values()):
        if len(folders) > 1:
            return None
        (folder,) = folders
    slim = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
    slim.graph.name = model.graph.name
    slim.graph.node.extend(model.graph.node)
    slim.graph.initializer.extend(model.graph.initializer)
    slim.graph.sparse_initializer.extend(model.graph.sparse_initializer)
    slim.graph.input.extend(model.graph.input)
    slim.graph.output.extend(model.graph.output)
    for value in slim.graph.input:
        for dim, size in zip(value.type.tensor_type.shape.dim, shapes.get(value.name, ()), strict=False):
            dim.dim_value = size
    for value in slim.graph.output:
        value.type.tensor_type.ClearField("shape")
    for tensor, part in zip(filter(is_external, slim.graph.initializer), parts, strict=True):
        refer(tensor, reference(files[part.file].relative_to(folder).as_posix(), part.offset, part.length))
    for tensor in filter(is_own_reference, list(external_tensors(slim))):
        bring_in(tensor, own)  # ONNX Runtime reads nothing but initializers from files
    return (slim.SerializeToString(), folder) if slim.ByteSize() <= _MOST_MESSAGE_BYTES else None


def _inner(model: onnx.ModelProto, outputs: Sequence[str] | None) -> list[str]:
    """Those of ``outputs`` that are no graph output. ONNX Runtime infers their types."""
    known = {output.name for output in model.graph.output}
    return list(dict.fromkeys(name for name in outputs or () if name not in known))


def _with_outputs(path: Path, names: Sequence[str], file: Path) -> Path:
    """``file``, written as a copy of ``path`` with further outputs."""
    with file.open("wb") as stream:
        copy_part(FilePart(path, 0, path.stat().st_size), stream.fileno())
        stream.seek(0, os.SEEK_END)
        stream.write(_outputs(names))
    return file


def _outputs(names: Sequence[str]) -> bytes:
    """The bytes to append to a message of a model, so that it has these outputs too: protobuf merges concatenated messages."""
    return onnx.ModelProto(graph=onnx.GraphProto(output=[onnx.ValueInfoProto(name=n) for n in names])).SerializeToString()


def _write(model: onnx.ModelProto, outputs: Sequence[str] | None, folder: Path) -> Path:
    file = folder / "model.onnx"
    if sum(_raw_size(tensor) for tensor in model.graph.initializer) > EXTERNAL_DATA_FROM_BYTES:
        model = _with_external_data(model, folder / "model.data")
    with file.open("wb") as stream:
        stream.write(model.SerializeToString())
        stream.write(_outputs(_inner(model, outputs)))
    return file


def _raw_size(tensor: onnx.TensorProto) -> int:
    return len(tensor.raw_data) if tensor.HasField("raw_data") else 0


def _with_external_data(model: onnx.ModelProto, data_file: Path) -> onnx.ModelProto:
    """A copy of ``model`` whose large initializers' data are in ``data_file``. ``model`` is not changed."""
    slim = onnx.ModelProto()
    for field, value in model.ListFields():
        if field.name != "graph":
            _assign(slim, field.name, value)
    for field, value in model.graph.ListFields():
        if field.name != "initializer":
            _assign(slim.graph, field.name, value)
    with data_file.open("wb") as stream:
        for tensor in model.graph.initializer:
            slim.graph.initializer.append(_externalised(tensor, stream, data_file.name))
    return slim


def _assign(message: Any, name: str, value: Any) -> None:
    if isinstance(value, (str, bytes, int, float)):
        setattr(message, name, value)
    elif hasattr(value, "ListFields"):
        getattr(message, name).CopyFrom(value)
    else:
        getattr(message, name).extend(value)


def _externalised(tensor: onnx.TensorProto, stream: BinaryIO, location: str) -> onnx.TensorProto:
    if _raw_size(tensor) < EXTERNAL_TENSOR_BYTES:
        return tensor
    offset = -(-stream.tell() // 4096) * 4096
    stream.seek(offset)
    stream.write(tensor.raw_data)
    moved = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    moved.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, "offset": offset, "length": len(tensor.raw_data)}.items():
        moved.external_data.add(key=key, value=str(value))
    return moved
