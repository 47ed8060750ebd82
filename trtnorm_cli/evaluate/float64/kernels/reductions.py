"""Reductions, and what is decided along an axis: ArgMax, TopK, cumulative sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from trtnorm_cli.evaluate.float64.kernels.call import Call, Kernel, one

Reduction = Callable[[np.ndarray, "tuple[int, ...] | None", bool], Any]


def reduction(function: Reduction) -> Kernel:
    """``function(x, axes, keepdims)``; without axes all are reduced, or none with ``noop_with_empty_axes``."""

    def kernel(call: Call) -> tuple[np.ndarray]:
        axes = call.integers("axes", 1)
        if not axes and call["noop_with_empty_axes"]:
            return (np.asarray(function(call.x[None], (0,), False)).astype(call.x.dtype),)
        result = function(call.x, tuple(axes) if axes else None, bool(call["keepdims"]))
        return (np.asarray(result).astype(call.x.dtype),)

    return kernel


def _extreme(ufunc: Any, lowest: bool) -> Reduction:
    """The reduction of an empty set is the type's end: minus infinity for a maximum."""

    def reduce(x: np.ndarray, axes: tuple[int, ...] | None, keepdims: bool) -> Any:
        if x.dtype == bool:
            return (np.any if lowest else np.all)(x, axis=axes, keepdims=keepdims)
        end: float = -np.inf if lowest else np.inf
        if np.issubdtype(x.dtype, np.integer):
            end = np.iinfo(x.dtype).min if lowest else np.iinfo(x.dtype).max
        return ufunc.reduce(x, axis=axes, keepdims=keepdims, initial=end)

    return reduce


def _sum(x: np.ndarray, axes: tuple[int, ...] | None, keepdims: bool) -> Any:
    return np.sum(x, axis=axes, keepdims=keepdims, dtype=x.dtype)


def _mean(x: np.ndarray, axes: tuple[int, ...] | None, keepdims: bool) -> Any:
    if x.dtype.kind == "f":
        return np.mean(x, axis=axes, keepdims=keepdims)
    total = _sum(x, axes, keepdims)
    return np.trunc(total / (x.size / max(np.size(total), 1)))


def log_sum_exp(x: np.ndarray, axes: tuple[int, ...] | None, keepdims: bool) -> Any:
    """log Σ exp x with the maximum taken out, so that nothing overflows."""
    peak = np.max(x, axis=axes, keepdims=True, initial=-np.inf)
    peak = np.where(np.isfinite(peak), peak, 0.0)
    total = np.sum(np.exp(x - peak), axis=axes, keepdims=keepdims)
    return np.log(total) + np.reshape(peak, np.shape(total))


def arg_extreme(call: Call) -> np.ndarray:
    axis, x = call["axis"], call.x
    find = np.argmax if call.op_type == "ArgMax" else np.argmin
    index = x.shape[axis] - 1 - find(np.flip(x, axis), axis=axis) if call["select_last_index"] else find(x, axis=axis)
    return np.asarray(np.expand_dims(index, axis) if call["keepdims"] else index).astype(np.int64)


def top_k(call: Call) -> tuple[np.ndarray, np.ndarray]:
    """Equal values keep the order of their indices, as the specification asks."""
    x, axis = call.x, call["axis"]
    count = int(np.ravel(call.inputs[1])[0]) if call.input(1) is not None else call["k"]
    largest = call["largest"] is None or call["largest"]
    keys = _descending(x) if largest else x
    indices = np.take(np.argsort(keys, axis=axis, kind="stable"), np.arange(count), axis=axis)
    return np.take_along_axis(x, indices, axis), indices.astype(np.int64)


def _descending(x: np.ndarray) -> np.ndarray:
    """Keys whose ascending order is the descending order of ``x``; ~ never overflows, as - does for the smallest."""
    return np.invert(x) if x.dtype.kind in "iub" else -x


def cumulative(function: Callable[..., np.ndarray], start: int) -> Kernel:
    def kernel(call: Call) -> tuple[np.ndarray]:
        axis = int(np.ravel(call.inputs[1])[0])
        x = np.flip(call.x, axis) if call["reverse"] else call.x
        result = function(x, axis=axis, dtype=x.dtype)
        if call["exclusive"]:
            first = np.full_like(np.take(x, [0], axis=axis), start) if x.shape[axis] else x
            result = np.concatenate([first, np.take(result, np.arange(x.shape[axis] - 1), axis=axis)], axis=axis)
        return (np.flip(result, axis) if call["reverse"] else result,)

    return kernel


KERNELS: dict[str, Kernel] = {
    "ReduceL1": reduction(lambda x, axes, keep: _sum(np.abs(x), axes, keep)),
    "ReduceL2": reduction(lambda x, axes, keep: np.sqrt(_sum(x * x, axes, keep))),
    "ReduceLogSum": reduction(lambda x, axes, keep: np.log(_sum(x, axes, keep))),
    "ReduceLogSumExp": reduction(log_sum_exp),
    "ReduceMax": reduction(_extreme(np.maximum, lowest=True)),
    "ReduceMean": reduction(_mean),
    "ReduceMin": reduction(_extreme(np.minimum, lowest=False)),
    "ReduceProd": reduction(lambda x, axes, keep: np.prod(x, axis=axes, keepdims=keep, dtype=x.dtype)),
    "ReduceSum": reduction(_sum),
    "ReduceSumSquare": reduction(lambda x, axes, keep: _sum(x * x, axes, keep)),
    "ArgMax": one(arg_extreme),
    "ArgMin": one(arg_extreme),
    "CumProd": cumulative(np.cumprod, 1),
    "CumSum": cumulative(np.cumsum, 0),
    "TopK": top_k,
}
