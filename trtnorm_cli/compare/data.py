"""Seeded random inputs by type and range."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np
import onnx

from trtnorm_cli.compare.shape_points import ShapePoint
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.profile.model import Constant, InputData, Integers, Normal, Ones, Uniform

_INTEGERS_BELOW = 4


def feeds_at(
    point: ShapePoint, inputs: Mapping[str, TensorType], data: Mapping[str, InputData], seed: int
) -> dict[str, np.ndarray]:
    """One array for each input. The same seed, input name and shape give the same values, whatever else is fed."""
    feeds = {name: draw(inputs[name], shape, data.get(name), _generator(seed, name)) for name, shape in point.shapes.items()}
    for name, values in point.values.items():
        feeds[name] = np.array(values, dtype=feeds[name].dtype).reshape(feeds[name].shape)
    return feeds


def _generator(seed: int, name: str) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def draw(kind: TensorType, shape: tuple[int, ...], data: InputData | None, rng: np.random.Generator) -> np.ndarray:
    """Values of ``kind``'s element type: by default standard normal, small integers, or coin tosses."""
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.dtype)
    if data is not None:
        return np.asarray(_values(data, shape, rng)).astype(dtype)
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(dtype)
    if np.issubdtype(dtype, np.integer):
        return rng.integers(0, _INTEGERS_BELOW, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def _values(data: InputData, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    if isinstance(data, Normal):
        return rng.normal(data.mean, data.std, shape)
    if isinstance(data, Uniform):
        return rng.uniform(data.low, data.high, shape)
    if isinstance(data, Integers):
        if data.below > 2**63:  # only unsigned types reach so far
            return rng.integers(max(data.low, 0), data.below, shape, dtype=np.uint64)
        return rng.integers(data.low, data.below, shape, dtype=np.int64)
    if isinstance(data, Ones):
        return np.ones(shape)
    assert isinstance(data, Constant)
    return np.full(shape, data.value)
