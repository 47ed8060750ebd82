"""Pooling, windowed and global."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from trtnorm_cli.evaluate.float64.kernels.call import Call, Kernel, one
from trtnorm_cli.evaluate.float64.kernels.windows import Windows, windows_of


def max_pool(call: Call) -> tuple[Any, ...]:
    """The maximum of each window and, as second output, where it is: the first of equal ones, as a flat index."""
    x = call.x
    windows = windows_of(call, x.shape[2:], tuple(call["kernel_shape"]))
    lowest = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
    elements = windows.elements(windows.padded(x, lowest))
    if not call.wants(1):
        return (functools.reduce(np.maximum, (values for _, values in elements)),)
    result = np.full((*x.shape[:2], *windows.output), lowest, x.dtype)
    best = np.full(result.shape, -1, np.int64)
    positions = _positions(x.shape[2:], windows, bool(call["storage_order"]))
    for offset, values in elements:
        inside = positions[offset] >= 0
        better = inside & ((values > result) | (best < 0))
        result, best = np.where(better, values, result), np.where(better, positions[offset], best)
    plane = int(np.prod(x.shape[2:]))
    planes = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *(1,) * (x.ndim - 2)) * plane
    return result, best + planes


def _positions(sizes: tuple[int, ...], windows: Windows, column_major: bool) -> dict[tuple[int, ...], np.ndarray]:
    """For each offset in the window, the flat index in the plane of what all windows have there; -1 in the padding."""
    plane = np.arange(int(np.prod(sizes)), dtype=np.int64).reshape(sizes, order="F" if column_major else "C")
    return dict(windows.elements(windows.padded(plane[None, None], -1)))


def average_pool(call: Call) -> np.ndarray:
    """The mean of each window; of the padding only what ``pads`` declares is counted, and only if asked."""
    x = call.x
    windows = windows_of(call, x.shape[2:], tuple(call["kernel_shape"]))
    counted = np.ones((1, 1, *x.shape[2:]), x.dtype)
    if call["count_include_pad"]:
        margins = [(0, 0), (0, 0), *zip(windows.begin, windows.end, strict=True)]
        inside = Windows(windows.kernel, windows.strides, windows.dilations, (0,) * (x.ndim - 2), (), windows.output)
        counts = _window_sum(inside, np.pad(counted, margins, constant_values=1))
    else:
        counts = _window_sum(windows, counted)
    return _window_sum(windows, x) / counts


def _window_sum(windows: Windows, x: np.ndarray) -> np.ndarray:
    return functools.reduce(np.add, (values for _, values in windows.elements(windows.padded(x, 0))))


def lp_pool(call: Call) -> np.ndarray:
    windows = windows_of(call, call.x.shape[2:], tuple(call["kernel_shape"]))
    return _window_sum(windows, np.abs(call.x) ** call["p"]) ** (1.0 / call["p"])


def max_unpool(call: Call) -> np.ndarray:
    """Puts every value where its flat index says; the index counts in the size before ``output_shape`` enlarges it."""
    x, indices, wanted = call.x, call.inputs[1], call.input(2)
    kernel, spatial = call["kernel_shape"], call.x.ndim - 2
    strides, pads = call["strides"] or [1] * spatial, call["pads"] or [0] * 2 * spatial
    sizes = [
        (n - 1) * s - b - e + k
        for n, s, b, e, k in zip(x.shape[2:], strides, pads[:spatial], pads[spatial:], kernel, strict=True)
    ]
    natural = np.zeros((*x.shape[:2], *sizes), x.dtype)
    natural.reshape(-1)[indices.ravel()] = x.ravel()
    if wanted is None:
        return natural
    result = np.zeros(tuple(int(n) for n in wanted), x.dtype)
    result[tuple(slice(0, n) for n in natural.shape)] = natural
    return result


def _spatial(x: np.ndarray) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


KERNELS: dict[str, Kernel] = {
    "AveragePool": one(average_pool),
    "GlobalAveragePool": one(lambda call: call.x.mean(axis=_spatial(call.x), keepdims=True)),
    "GlobalLpPool": one(
        lambda call: (np.abs(call.x) ** call["p"]).sum(axis=_spatial(call.x), keepdims=True) ** (1.0 / call["p"])
    ),
    "GlobalMaxPool": one(lambda call: call.x.max(axis=_spatial(call.x), keepdims=True)),
    "LpPool": one(lp_pool),
    "MaxPool": max_pool,
    "MaxUnpool": one(max_unpool),
}
