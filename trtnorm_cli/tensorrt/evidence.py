"""Evidence of a build that failed, enough for a report and never more than a few megabytes."""

from __future__ import annotations

import shutil
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from trtnorm_cli.errors import TrtnormError
from trtnorm_cli.onnx_model.walk import all_tensors
from trtnorm_cli.tensorrt.launch import repeat_command
from trtnorm_cli.tensorrt.origin import Subject
from trtnorm_cli.tensorrt.request import (
    LOG_FILE,
    NETWORK_FILE,
    NETWORK_RESULT_FILE,
    REQUEST_FILE,
    RESULT_FILE,
    STDERR_FILE,
    BuildRequest,
)

REPEAT = "trtnorm build {model}{profile}"
_MOST_MODEL_BYTES = 4 << 20
# Weights above the first of these sizes are left out, and above the next where the graph alone is still too large.
_SMALL_WEIGHTS = (64 << 10, 1 << 10, 0)
_MOST_LOG_BYTES = 4 << 20
_LEFT_OUT = "left-out"
_RECORDS = (REQUEST_FILE, RESULT_FILE, LOG_FILE, STDERR_FILE)


def keep_evidence(folder: Path, error: TrtnormError, subject: Subject) -> None:
    """Shrink the work folder of a build that ended with ``error``.

    Request, log and graph stay. A small model stays as it is, so that the command to repeat the build works. A large one loses
    its weights, and the command in the hint becomes the one for the user's own file.
    """
    model = folder / BuildRequest.load(folder).model if (folder / REQUEST_FILE).is_file() else None
    for name in (NETWORK_FILE, NETWORK_RESULT_FILE):
        (folder / name).unlink(missing_ok=True)
    is_small = _size_of_files(folder) <= _MOST_MODEL_BYTES
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif not is_small and path != model and path.name not in _RECORDS:
            path.unlink()
    for name in (LOG_FILE, STDERR_FILE):
        _shorten(folder / name)
    if model is None or is_small:
        return
    _leave_weights_out(model)
    repeat = subject.command(REPEAT)
    said = f"work folder {folder}"
    error.hint = (error.hint or "").replace(repeat_command(folder), repeat) or None
    left = f"{folder} holds the log, the request and the graph without its large weights; to repeat the build: {repeat}"
    error.where = "\n".join([*(line for line in (error.where or "").splitlines() if line != said), left])


def _size_of_files(folder: Path) -> int:
    """The bytes of the models and their weights."""
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file() and path.name not in _RECORDS)


def _leave_weights_out(path: Path) -> None:
    """Write the graph in ``path`` without the values of its large weights, or remove it where it is still too large."""
    try:
        model = onnx.load(str(path), load_external_data=False)
    except (DecodeError, OSError):
        path.unlink(missing_ok=True)
        return
    for most in _SMALL_WEIGHTS:
        for tensor in all_tensors(model):
            if tensor.ByteSize() > most or tensor.data_location == onnx.TensorProto.EXTERNAL:
                _leave_values_out(tensor)
        if model.ByteSize() <= _MOST_MODEL_BYTES:
            path.write_bytes(model.SerializeToString())
            return
    path.unlink()


def _leave_values_out(tensor: onnx.TensorProto) -> None:
    """``tensor`` with its type and dimensions, and a file that does not exist in the place of its values."""
    empty = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    empty.data_location = onnx.TensorProto.EXTERNAL
    empty.external_data.add(key="location", value=_LEFT_OUT)
    tensor.CopyFrom(empty)


def _shorten(log: Path) -> None:
    """Keep the beginning and the end of a long log, which tell how the build was started and what went wrong."""
    if not log.is_file() or log.stat().st_size <= _MOST_LOG_BYTES:
        return
    with log.open("rb") as stream:
        first = stream.read(_MOST_LOG_BYTES // 4)
        stream.seek(-3 * _MOST_LOG_BYTES // 4, 2)
        last = stream.read()
    log.write_bytes(first + b"\n[...] left out in the middle [...]\n" + last)
