"""Operators that read the input between its elements: GridSample, RoiAlign, DeformConv."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from trtnorm_cli.evaluate.float64.kernels.call import Call, Kernel, NotImplementedHere, one
from trtnorm_cli.evaluate.float64.kernels.resize import cubic
from trtnorm_cli.evaluate.float64.kernels.windows import windows_of

CUBIC_A = -0.75
# Elements of the result at a time.
_BLOCK = 1 << 15


def grid_sample(call: Call) -> np.ndarray:
    """``x`` [N, C, D1, ..., Dr] at the places of ``grid`` [N, ..., r], whose last entry is the first one's mirror.

    Jaderberg et al. 2015, "Spatial transformer networks".
    """
    x, grid = call.inputs
    sizes = x.shape[2:]
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(call["mode"], call["mode"])
    aligned = bool(call["align_corners"])
    places = [_denormalized(grid[..., -1 - i], n, aligned) for i, n in enumerate(sizes)]
    if mode != "cubic":
        places = [_padded_place(p, n, call["padding_mode"], aligned) for p, n in zip(places, sizes, strict=True)]
    return _between(x, [_support(place, mode) for place in places], call["padding_mode"], aligned)


def _denormalized(place: np.ndarray, length: int, aligned: bool) -> np.ndarray:
    return (place + 1) / 2 * (length - 1) if aligned else ((place + 1) * length - 1) / 2


def _padded_place(place: np.ndarray, length: int, padding: str, aligned: bool) -> np.ndarray:
    if padding == "border":
        return np.clip(place, 0, length - 1)
    if padding == "reflection":
        return np.clip(_reflected(place, length, aligned), 0, length - 1)
    return place


def _reflected(place: np.ndarray, length: int, aligned: bool) -> np.ndarray:
    low, span = (0.0, length - 1.0) if aligned else (-0.5, float(length))
    if span == 0:
        return np.zeros_like(place)
    offset = np.mod(np.abs(place - low), 2 * span)
    return np.minimum(offset, 2 * span - offset) + low


def _support(place: np.ndarray, mode: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """The integer places that count, each with its weight."""
    if mode == "nearest":
        return [(np.rint(place).astype(np.int64), np.ones_like(place))]
    first = np.floor(place)
    if mode == "linear":
        return [(first.astype(np.int64), 1 - (place - first)), (first.astype(np.int64) + 1, place - first)]
    if mode == "cubic":
        return [(first.astype(np.int64) + i, cubic(place - first - i, CUBIC_A)) for i in (-1, 0, 1, 2)]
    raise NotImplementedHere(f"mode {mode}")


def _between(x: np.ndarray, axes: list[list[tuple[np.ndarray, np.ndarray]]], padding: str, aligned: bool) -> np.ndarray:
    """[N, C, ...]: the sum of the elements at integer places [N, ...] of each axis, by the products of their weights."""
    channels, sizes = x.shape[1], x.shape[2:]
    rows = np.ascontiguousarray(np.moveaxis(x, 1, -1)).reshape(x.shape[0] * math.prod(sizes), channels)
    found = [
        [(*_element(at, n, padding, aligned), weight) for at, weight in support] for support, n in zip(axes, sizes, strict=True)
    ]
    shape = axes[0][0][0].shape
    samples = np.repeat(np.arange(x.shape[0]), math.prod(shape[1:]))
    corners = list(itertools.product(*([tuple(each.reshape(-1) for each in support) for support in axis] for axis in found)))
    result = np.empty((*shape, channels), x.dtype)
    places, step = result.reshape(math.prod(shape), channels), max(_BLOCK // max(channels, 1), 1)
    for start in range(0, len(places), step):
        block = slice(start, start + step)
        there = [[[each[block] for each in axis] for axis in corner] for corner in corners]
        _sum_of_corners(rows, sizes, samples[block], there, places[block])
    return np.moveaxis(result, -1, 1)


def _sum_of_corners(
    rows: np.ndarray, sizes: Sequence[int], samples: np.ndarray, corners: list[list[list[np.ndarray]]], result: np.ndarray
) -> None:
    """Put the sums at some places into ``result``; what lies between stays in the processor's caches."""
    result[:] = 0.0
    for corner in corners:
        row, inside, weight = samples, np.ones(len(samples), bool), np.ones(len(samples))
        for (at, counts, of_axis), n in zip(corner, sizes, strict=True):
            row, inside, weight = row * n + at, inside & counts, weight * of_axis
        values = rows[row]
        if not inside.all():
            values[~inside] = 0.0
        values *= weight[:, None]
        result += values


def _element(place: np.ndarray, length: int, padding: str, aligned: bool) -> tuple[np.ndarray, np.ndarray]:
    """The element of an axis for each integer place, and whether it counts: outside are zeros, the border or a mirror."""
    counts = (place >= 0) & (place < length) if padding == "zeros" else np.ones(place.shape, bool)
    at = place if padding == "zeros" else np.rint(_padded_place(place, length, padding, aligned))
    return np.clip(at, 0, length - 1).astype(np.int64), counts


def roi_align(call: Call) -> np.ndarray:
    """He et al. 2017, "Mask R-CNN": the mean (or maximum) of bilinear samples in each cell of each region."""
    x, rois, batch = call.inputs
    cells = (call["output_height"], call["output_width"])
    shift = 0.5 if call["coordinate_transformation_mode"] == "half_pixel" else 0.0
    result = np.zeros((len(rois), x.shape[1], *cells), x.dtype)
    for i, roi in enumerate(rois):
        left, top, right, bottom = roi * call["spatial_scale"] - shift
        size = (bottom - top, right - left)
        if not shift:
            size = (max(size[0], 1.0), max(size[1], 1.0))
        counts = [call["sampling_ratio"] or math.ceil(s / n) for s, n in zip(size, cells, strict=True)]
        axes = [
            start + (np.arange(n * count) + 0.5) * (length / (n * count))
            for start, length, n, count in zip((top, left), size, cells, counts, strict=True)
        ]
        (row_weights, column_weights) = (_linear_terms(a, n) for a, n in zip(axes, x.shape[2:], strict=True))
        grid = (x.shape[1], cells[0], counts[0], cells[1], counts[1])
        result[i] = _pooled_cells(_samples(x[int(batch[i])], row_weights, column_weights), grid, call["mode"])
    return result


def _linear_terms(place: np.ndarray, length: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Two places with their weights for each sample; more than one element outside, all weights are zero."""
    inside = (place >= -1.0) & (place <= length)
    place = np.maximum(place, 0.0)
    low = np.minimum(np.floor(place).astype(np.int64), length - 1)
    high = np.minimum(low + 1, length - 1)
    fraction = np.where(low >= length - 1, 0.0, place - low)
    return [(low, np.where(inside, 1 - fraction, 0.0)), (high, np.where(inside, fraction, 0.0))]


def _samples(
    x: np.ndarray, rows: list[tuple[np.ndarray, np.ndarray]], columns: list[tuple[np.ndarray, np.ndarray]]
) -> list[np.ndarray]:
    """The weighted elements around each sample, whose sum is its bilinear value."""
    return [x[:, r][:, :, c] * (rw[:, None] * cw) for (r, rw), (c, cw) in itertools.product(rows, columns)]


def _pooled_cells(terms: list[np.ndarray], grid: tuple[int, ...], mode: str) -> np.ndarray:
    """One value for each cell of ``grid``: channels, and for either axis the cells and the samples in each."""
    if mode == "max":
        return np.max(np.stack(terms), axis=0).reshape(grid).max(axis=(2, 4))
    return np.asarray(sum(terms)).reshape(grid).mean(axis=(2, 4))


def deform_conv(call: Call) -> np.ndarray:
    """Dai et al. 2017; with a mask Zhu et al. 2019. Two spatial axes.

    offset [N, offset_group·kh·kw·2, oh, ow] moves every tap (row first), mask [N, offset_group·kh·kw, oh, ow] weighs
    it.
    """
    x, weight, offset, bias, mask = (call.input(i) for i in range(5))
    if x.ndim != 4:
        raise NotImplementedHere("DeformConv with other than two spatial axes")
    windows = windows_of(call, x.shape[2:], weight.shape[2:])
    batch, channels = x.shape[:2]
    groups, taps, out = call["offset_group"], math.prod(windows.kernel), windows.output
    offset = offset.reshape(batch, groups, taps, 2, *out)
    base = [np.arange(o) * s - b for o, s, b in zip(out, windows.strides, windows.begin, strict=True)]
    columns = np.empty((batch, groups, channels // groups, taps, *out), x.dtype)
    for tap, (i, j) in enumerate(itertools.product(*map(range, windows.kernel))):
        for g in range(groups):
            rows = base[0][:, None] + i * windows.dilations[0] + offset[:, g, tap, 0]
            cols = base[1][None, :] + j * windows.dilations[1] + offset[:, g, tap, 1]
            part = x.reshape(batch, groups, -1, *x.shape[2:])[:, g]
            value = _bilinear_zero_outside(part, rows, cols)
            columns[:, g, :, tap] = value if mask is None else value * mask.reshape(batch, groups, taps, *out)[:, g, tap, None]
    group, maps = call["group"], weight.shape[0]
    product = np.matmul(weight.reshape(group, maps // group, -1), columns.reshape(batch, group, -1, math.prod(out)))
    y = product.reshape(batch, maps, *out)
    return y if bias is None else y + bias.reshape(-1, 1, 1)


def _bilinear_zero_outside(x: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    return _between(x, [_support(rows, "linear"), _support(columns, "linear")], "zeros", False)


KERNELS: dict[str, Kernel] = {"DeformConv": one(deform_conv), "GridSample": one(grid_sample), "RoiAlign": one(roi_align)}
