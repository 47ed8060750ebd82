"""Tensors as files, for the exchange between a program and the child that runs a model; no pickle is ever read.

A numeric tensor is one ``.npy`` file. The types that NumPy does not know (bfloat16, float8, int4) are stored as their
bytes with the type's name in the record, and strings as JSON.
"""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.record import Record


@dataclass(frozen=True)
class TensorFile(Record):
    """A file in a folder that is known, and what is in it."""

    file: str
    dtype: str
    shape: tuple[int, ...]


def write_tensor(path: Path, array: np.ndarray) -> TensorFile:
    """Write ``array`` and return what :func:`read_tensor` needs; ``path`` has no suffix."""
    array = np.asarray(array)
    if array.dtype.kind in "OUS":
        file = path.with_suffix(".json")
        file.write_text(json.dumps([_text(item) for item in array.ravel()]))
        return TensorFile(file.name, "string", array.shape)
    name = array.dtype.name
    if hasattr(ml_dtypes, name):
        array = array.view(f"u{array.itemsize}")
    elif not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    file = path.with_suffix(".npy")
    np.save(file, array, allow_pickle=False)
    return TensorFile(file.name, name, array.shape)


def read_tensor(folder: Path, record: TensorFile) -> np.ndarray:
    """Read what :func:`write_tensor` wrote and remove the file."""
    file = folder / record.file
    if record.dtype == "string":
        array = np.array(json.loads(file.read_text()), dtype=object).reshape(record.shape)
    else:
        array = np.load(file, allow_pickle=False)
        if hasattr(ml_dtypes, record.dtype):
            array = array.view(getattr(ml_dtypes, record.dtype))
    file.unlink()
    return array


def _text(item: object) -> str:
    return item.decode() if isinstance(item, bytes) else str(item)
