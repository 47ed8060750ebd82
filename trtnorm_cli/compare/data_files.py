"""Inputs that a user brings: an .npz file, a folder of .npy files, or polygraphy's JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.onnx_model.shapes import TensorType

Feeds = dict[str, np.ndarray]


def read_data(path: Path, inputs: Mapping[str, TensorType]) -> list[Feeds]:
    """The sets of inputs in ``path``, each checked against the model's inputs.

    An .npz file and a folder hold one set, with the inputs' names as keys or file names; polygraphy's JSON holds a list.
    Raises ``UsageProblem`` for a file that cannot be read, missing or unknown inputs, other types, shapes that do not fit,
    and values that are NaN.
    """
    sets = _read(path)
    if not sets:
        raise UsageProblem("there are no inputs in this file", str(path))
    return [_checked(feeds, inputs, f"{path}, set {index}") for index, feeds in enumerate(sets)]


def _read(path: Path) -> list[Feeds]:
    try:
        if path.is_dir():
            return [{file.stem: np.load(file, allow_pickle=False) for file in sorted(path.glob("*.npy"))}]
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                return [{name: archive[name] for name in archive.files}]
        if path.suffix == ".json":
            return _read_polygraphy(path)
    except (OSError, ValueError, json.JSONDecodeError) as error:
        raise UsageProblem(f"the data cannot be read: {error}", str(path)) from error
    raise UsageProblem("unknown kind of data", str(path), "give an .npz file, a folder of .npy files, or polygraphy's .json")


def _read_polygraphy(path: Path) -> list[Feeds]:
    from polygraphy.exception import PolygraphyException
    from polygraphy.json import load_json

    try:
        loaded = load_json(str(path))
    except PolygraphyException as error:
        raise ValueError(str(error)) from error
    return [{name: np.asarray(value) for name, value in feeds.items()} for feeds in loaded]


def _checked(feeds: Feeds, inputs: Mapping[str, TensorType], where: str) -> Feeds:
    missing, unknown = sorted(inputs.keys() - feeds.keys()), sorted(feeds.keys() - inputs.keys())
    if missing or unknown:
        parts = [f"missing: {', '.join(missing)}"] * bool(missing) + [f"unknown: {', '.join(unknown)}"] * bool(unknown)
        raise UsageProblem("; ".join(parts), where, f"the model's inputs are {', '.join(inputs)}")
    return {name: _fitting(feeds[name], name, kind, where) for name, kind in inputs.items()}


def _fitting(array: np.ndarray, name: str, kind: TensorType, where: str) -> np.ndarray:
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.dtype)
    if array.dtype != dtype:
        raise UsageProblem(f"input {name} is {array.dtype.name}, the model takes {dtype.name}", where)
    if kind.shape is not None and not _fits(array.shape, kind.shape):
        raise UsageProblem(f"input {name} has shape {list(array.shape)}, the model takes {list(kind.shape)}", where)
    if array.dtype.kind == "f" and np.isnan(array).any():
        first = tuple(int(i) for i in np.argwhere(np.isnan(array))[0])
        raise UsageProblem(f"input {name} is NaN at {list(first)}", where, "NaN inputs compare nothing: replace them")
    return array


def _fits(shape: tuple[int, ...], wanted: tuple[int | str | None, ...]) -> bool:
    return len(shape) == len(wanted) and all(not isinstance(w, int) or w == s for s, w in zip(shape, wanted, strict=True))
