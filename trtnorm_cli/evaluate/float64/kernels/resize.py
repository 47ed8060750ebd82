"""Resize and Upsample: one interpolation matrix per axis, because every mode is separable.

Coordinates for ``nearest`` are computed in float32, in the order of the specification's formulas: which neighbour is
nearest jumps with the last bit, and the specification's scales are float32. Sizes of the output are float32 for the
same reason.
"""

from __future__ import annotations

import math

import numpy as np

from trtnorm_cli.evaluate.float64.kernels.call import Call, Kernel, NotImplementedHere, one
from trtnorm_cli.light_dataclass import dataclass

SIMPLE_UNTIL = 10
"""Upsample and Resize until opset 10 know only asymmetric coordinates; nearest rounds down, or up when shrinking."""

REACH = {"linear": 1.0, "cubic": 2.0}
"""How many elements to each side count."""


@dataclass(frozen=True)
class Axis:
    """One resized axis: its lengths, the scale, and the region of interest as fractions of the input."""

    axis: int
    length: int
    resized: int
    scale: float
    roi: tuple[float, float] = (0.0, 1.0)


def resize(call: Call) -> np.ndarray:
    x, axes = call.x, _resized_axes(call)
    mode, result, outside = call["mode"], x, np.zeros((1,) * x.ndim, bool)
    for axis in axes:
        coordinates = _original(axis, _coordinate_mode(call), np.float32 if mode == "nearest" else np.float64)
        if _coordinate_mode(call) == "tf_crop_and_resize":
            outside = outside | _along((coordinates < 0) | (coordinates > axis.length - 1), axis.axis, x.ndim)
        elif axis.length == axis.resized and axis.scale == 1.0:
            continue
        if mode == "nearest":
            result = np.take(result, _nearest(coordinates, axis, call), axis=axis.axis)
        else:
            matrix = _interpolation(coordinates, axis, call)
            result = np.moveaxis(np.tensordot(matrix, result, axes=(1, axis.axis)), 0, axis.axis)
    if outside.any():
        result = np.where(outside, np.asarray(call["extrapolation_value"], result.dtype), result)
    return result.astype(x.dtype)


def _along(values: np.ndarray, axis: int, rank: int) -> np.ndarray:
    return values.reshape((-1,) + (1,) * (rank - axis - 1))


def _coordinate_mode(call: Call) -> str:
    return "asymmetric" if call.opset <= SIMPLE_UNTIL else call["coordinate_transformation_mode"]


def _resized_axes(call: Call) -> list[Axis]:
    x = call.x
    which = [a % x.ndim for a in call["axes"]] if call["axes"] else list(range(x.ndim))
    roi, scales, sizes = (call.input(i) for i in (1, 2, 3))
    if call.opset <= SIMPLE_UNTIL:
        roi, scales = None, call.input(1) if call.input(1) is not None else np.array(call["scales"])
    lengths = [x.shape[a] for a in which]
    if sizes is not None and sizes.size:
        wanted = [int(n) for n in sizes]
        factors = [n / length for n, length in zip(wanted, lengths, strict=True)]
        wanted, factors = _kept_aspect(call["keep_aspect_ratio_policy"], wanted, factors, lengths)
    elif scales is not None and scales.size:
        factors = [float(s) for s in scales]
        wanted = [int(np.floor(np.float32(n) * np.float32(s))) for n, s in zip(lengths, factors, strict=True)]
    else:
        raise NotImplementedHere("neither scales nor sizes are given")
    count = len(which)
    regions = [(0.0, 1.0)] * count
    if roi is not None and roi.size:
        regions = [(float(roi[i]), float(roi[i + count])) for i in range(count)]
    return [Axis(*values) for values in zip(which, lengths, wanted, factors, regions, strict=True)]


def _kept_aspect(
    policy: str | None, wanted: list[int], factors: list[float], lengths: list[int]
) -> tuple[list[int], list[float]]:
    if policy in (None, "stretch"):
        return wanted, factors
    factor = min(factors) if policy == "not_larger" else max(factors)
    return [math.floor(factor * n + 0.5) for n in lengths], [factor] * len(lengths)


def _original(axis: Axis, mode: str, kind: type[np.floating]) -> np.ndarray:
    """For each output place the place in the input, a real number; the formulas are those of the specification."""
    x, scale, length, resized = np.arange(axis.resized).astype(kind), kind(axis.scale), axis.length, axis.resized
    half = kind(0.5)
    if mode == "asymmetric":
        return x / scale
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and resized > 1):
        return (x + half) / scale - half
    if mode == "pytorch_half_pixel":
        return np.zeros_like(x)
    if mode == "tf_half_pixel_for_nn":
        return (x + half) / scale
    if mode == "align_corners":
        return np.zeros_like(x) if resized == 1 else x * kind(length - 1) / kind(resized - 1)
    if mode == "half_pixel_symmetric":
        adjustment = kind(resized) / (scale * kind(length))
        return kind(length / 2) * (1 - adjustment) + (x + half) / scale - half
    if mode == "tf_crop_and_resize":
        start, end = map(kind, axis.roi)
        if resized == 1:
            return (half * (start + end) * kind(length - 1)).reshape(1)
        return start * kind(length - 1) + x * (end - start) * kind(length - 1) / kind(resized - 1)
    raise NotImplementedHere(f"coordinate_transformation_mode {mode}")


def _nearest(coordinates: np.ndarray, axis: Axis, call: Call) -> np.ndarray:
    mode = call["nearest_mode"]
    if call.opset <= SIMPLE_UNTIL:
        mode = "ceil" if axis.scale < 1 else "floor"
    if mode in ("round_prefer_floor", "round_prefer_ceil"):
        half = np.float32(0.5)
        rounded = np.ceil(coordinates - half) if mode == "round_prefer_floor" else np.floor(coordinates + half)
    else:
        rounded = np.ceil(coordinates) if mode == "ceil" else np.floor(coordinates)
    return np.clip(rounded, 0, axis.length - 1).astype(np.int64)


def _interpolation(coordinates: np.ndarray, axis: Axis, call: Call) -> np.ndarray:
    """The matrix [resized, length] of weights; places outside of the input count for the element at the edge."""
    stretch = min(axis.scale, 1.0) if call["antialias"] else 1.0
    if call["mode"] not in REACH:
        raise NotImplementedHere(f"mode {call['mode']}")
    if call["mode"] == "linear" and not call["antialias"]:
        coordinates = np.clip(coordinates, 0, axis.length - 1)
    reach = REACH[call["mode"]] / stretch
    first = np.floor(coordinates - reach).astype(np.int64)
    places = first[:, None] + np.arange(2 * math.ceil(reach) + 2)
    distances = (places - coordinates[:, None]) * stretch
    weights = cubic(distances, call["cubic_coeff_a"]) if call["mode"] == "cubic" else np.maximum(1 - np.abs(distances), 0.0)
    if call["exclude_outside"]:
        weights = np.where((places >= 0) & (places < axis.length), weights, 0.0)
    if call["exclude_outside"] or call["antialias"]:
        weights = weights / weights.sum(axis=1, keepdims=True)
    matrix = np.zeros((axis.resized, axis.length))
    rows = np.broadcast_to(np.arange(axis.resized)[:, None], places.shape)
    np.add.at(matrix, (rows, np.clip(places, 0, axis.length - 1)), weights)
    return matrix


def cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """Keys 1981, "Cubic convolution interpolation for digital image processing"."""
    t = np.abs(distance)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return np.where(t <= 1, near, np.where(t < 2, far, 0.0))


KERNELS: dict[str, Kernel] = {"Resize": one(resize), "Upsample": one(resize)}
