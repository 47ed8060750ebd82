"""Operators that move, select, repeat or make elements and compute nothing with them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx.helper import tensor_dtype_to_np_dtype

from trtnorm_cli.evaluate.float64.kernels.call import Call, Kernel, one


def reshape(call: Call) -> np.ndarray:
    """Zero copies the input's size unless ``allowzero``; one -1 takes what is left."""
    x, shape = call.x, call.integers("shape", 1) or []
    if not call["allowzero"]:
        shape = [x.shape[i] if size == 0 else size for i, size in enumerate(shape)]
    if -1 in shape and x.size == 0:
        rest = math.prod(size for size in shape if size != -1)
        shape = [0 if size == -1 and rest else max(size, 0) for size in shape]
    return x.reshape(shape)


def flatten(call: Call) -> np.ndarray:
    axis = call["axis"] + (call.x.ndim if call["axis"] < 0 else 0)
    return call.x.reshape(math.prod(call.x.shape[:axis]), math.prod(call.x.shape[axis:]))


def squeeze(call: Call) -> np.ndarray:
    axes = call.integers("axes", 1)
    return np.squeeze(call.x, axis=tuple(axes) if axes is not None else None)


def unsqueeze(call: Call) -> np.ndarray:
    return np.expand_dims(call.x, tuple(call.integers("axes", 1) or ()))


def expand(call: Call) -> np.ndarray:
    shape = tuple(int(size) for size in call.inputs[1])
    return np.broadcast_to(call.x, np.broadcast_shapes(call.x.shape, shape))


def concat(call: Call) -> np.ndarray:
    if call["axis"] is None:
        raise ValueError("a Concat without an axis")
    return np.concatenate(call.inputs, axis=call["axis"])


def split(call: Call) -> tuple[Any, ...]:
    """Sizes are given, or equal; with ``num_outputs`` the last part may be smaller."""
    axis, length = call["axis"], call.x.shape[call["axis"]]
    sizes = call.integers("split", 1)
    if sizes is None:
        count = call["num_outputs"] or len(call.outputs)
        size = -(-length // count)
        sizes = [max(min(size, length - i * size), 0) for i in range(count)]
    return tuple(np.split(call.x, np.cumsum(sizes)[:-1], axis=axis))


def slice_(call: Call) -> np.ndarray:
    """Python's slices, except that a start or end below -length is clamped."""
    starts, ends = call.integers("starts", 1) or [], call.integers("ends", 2) or []
    axes = call.integers("axes", 3) or list(range(len(starts)))
    steps = call.integers("steps", 4) or [1] * len(starts)
    where = [slice(None)] * call.x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        where[axis] = _clamped(start, end, step, call.x.shape[axis])
    return call.x[tuple(where)]


def _clamped(start: int, end: int, step: int, length: int) -> slice:
    start, end = (value + length if value < 0 else value for value in (start, end))
    if step > 0:
        return slice(min(max(start, 0), length), min(max(end, 0), length), step)
    end = min(max(end, -1), length - 1)
    return slice(min(max(start, 0), length - 1), None if end < 0 else end, step)


def _positive(indices: np.ndarray, length: int) -> np.ndarray:
    """The indices counted from the front; a view where they are."""
    if not indices.size:
        return indices.astype(np.int64)
    least, most = indices.min(), indices.max()
    if least < -length or most >= length:
        raise IndexError(f"index {least} or {most} is outside of an axis of length {length}")
    counted = indices if least >= 0 else np.where(indices < 0, indices + length, indices)
    return counted.astype(np.int64, copy=False)


def gather(call: Call) -> np.ndarray:
    axis = call["axis"]
    return np.take(call.x, _positive(call.inputs[1], call.x.shape[axis]), axis=axis)


def gather_elements(call: Call) -> np.ndarray:
    axis, indices = call["axis"] % call.x.ndim, call.inputs[1]
    return call.x[_element_grid(indices, axis, call.x.shape[axis])]


def _element_grid(indices: np.ndarray, axis: int, length: int) -> tuple[np.ndarray, ...]:
    """An index per axis: ``indices`` along ``axis`` and the element's own place along the others."""
    grid: list[np.ndarray] = list(np.indices(indices.shape, sparse=True))
    grid[axis] = _positive(indices, length)
    return tuple(grid)


def gather_nd(call: Call) -> np.ndarray:
    indices, batch = call.inputs[1], call["batch_dims"] or 0
    return call.x[_nd_grid(call.x, indices, batch)]


def _nd_grid(x: np.ndarray, indices: np.ndarray, batch: int) -> tuple[np.ndarray, ...]:
    """The last axis of ``indices`` is a place in ``x`` behind its first ``batch`` axes."""
    depth = indices.shape[-1]
    columns = tuple(_positive(indices[..., i], x.shape[batch + i]) for i in range(depth))
    batches: tuple[np.ndarray, ...] = np.indices(indices.shape[:batch], sparse=True) if batch else ()
    extra = indices.ndim - 1 - batch
    return (*(b.reshape(b.shape + (1,) * extra) for b in batches), *columns)


_REDUCE: dict[str, Any] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _scatter(x: np.ndarray, where: tuple[np.ndarray, ...], updates: np.ndarray, reduction: str | None) -> np.ndarray:
    result = x.copy()
    if reduction in (None, "none"):
        result[where] = updates
    else:
        _REDUCE[reduction].at(result, where, updates)
    return result


def scatter_elements(call: Call) -> np.ndarray:
    x, indices, updates = call.inputs
    axis = call["axis"] % x.ndim
    return _scatter(x, _element_grid(indices, axis, x.shape[axis]), updates, call["reduction"])


def scatter_nd(call: Call) -> np.ndarray:
    x, indices, updates = call.inputs
    return _scatter(x, _nd_grid(x, indices, 0), updates, call["reduction"])


def pad(call: Call) -> np.ndarray:
    """Negative pads cut; ``axes`` (opset 18) names the padded axes."""
    x, mode = call.x, call["mode"]
    pads = call.integers("pads", 1) or []
    axes = call.integers("axes", 3)
    axes = list(range(x.ndim)) if axes is None else axes
    value = call.input(2) if call.input(2) is not None else (call["value"] or 0.0)
    margins = [(0, 0)] * x.ndim
    for i, axis in enumerate(axes):
        margins[axis] = (pads[i], pads[i + len(axes)])
    if mode == "constant":
        fill = np.ravel(value)[0] if np.size(value) else 0
        result = np.full(
            [n + b + e for n, (b, e) in zip(x.shape, margins, strict=True)], fill if x.dtype != object else "", x.dtype
        )
        # A negative pad may be longer than what there is.
        firsts = [min(max(-b, 0), n) for n, (b, _) in zip(x.shape, margins, strict=True)]
        stops = [max(n - max(-e, 0), first) for n, (_, e), first in zip(x.shape, margins, firsts, strict=True)]
        places = [slice(first + b, stop + b) for first, stop, (b, _) in zip(firsts, stops, margins, strict=True)]
        if all(first < stop for first, stop in zip(firsts, stops, strict=True)):
            result[tuple(places)] = x[tuple(map(slice, firsts, stops))]
        return result
    x = x[tuple(slice(max(-b, 0), n - max(-e, 0)) for n, (b, e) in zip(x.shape, margins, strict=True))]
    return np.pad(x, [(max(b, 0), max(e, 0)) for b, e in margins], mode=mode)


def depth_to_space(call: Call) -> np.ndarray:
    n, c, h, w = call.x.shape
    b = call["blocksize"]
    if call["mode"] == "CRD":
        y = call.x.reshape(n, c // (b * b), b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    else:
        y = call.x.reshape(n, b, b, c // (b * b), h, w).transpose(0, 3, 4, 1, 5, 2)
    return y.reshape(n, c // (b * b), h * b, w * b)


def space_to_depth(call: Call) -> np.ndarray:
    n, c, h, w = call.x.shape
    b = call["blocksize"]
    if call["mode"] == "CRD":
        y = call.x.reshape(n, c, h // b, b, w // b, b).transpose(0, 1, 3, 5, 2, 4)
    else:
        y = call.x.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4)
    return y.reshape(n, c * b * b, h // b, w // b)


def shape_of(call: Call) -> np.ndarray:
    return np.array(call.x.shape[call["start"] or 0 : call["end"]], np.int64)


def constant_of_shape(call: Call) -> np.ndarray:
    value = call["value"]
    return np.full(tuple(int(n) for n in call.x), 0.0 if value is None else np.ravel(value)[0])


def arange(call: Call) -> np.ndarray:
    start, limit, delta = (np.ravel(value)[0] for value in call.inputs)
    count = max(math.ceil((limit.item() - start.item()) / delta.item()), 0)
    return (start + np.arange(count, dtype=start.dtype) * delta).astype(start.dtype)


def trilu(call: Call) -> np.ndarray:
    k = int(np.ravel(call.input(1))[0]) if call.input(1) is not None else 0
    return np.triu(call.x, k) if call["upper"] else np.tril(call.x, k)


def one_hot(call: Call) -> np.ndarray:
    """Indices outside of [-depth, depth-1] give only off-values."""
    indices, depth, values = call.inputs
    size, axis = int(np.ravel(depth)[0]), call["axis"]
    axis += indices.ndim + 1 if axis < 0 else 0
    number = np.trunc(indices).astype(np.int64)
    number = np.where(number < 0, number + size, number)
    classes = np.arange(size).reshape((-1,) + (1,) * (indices.ndim - axis))
    return np.where(np.expand_dims(number, axis) == classes, values[1], values[0])


def eye_like(call: Call) -> np.ndarray:
    dtype = call.x.dtype if call["dtype"] is None else tensor_dtype_to_np_dtype(call["dtype"])
    rows, columns = call.x.shape
    return np.eye(rows, columns, k=call["k"], dtype=dtype)


def non_zero(call: Call) -> np.ndarray:
    return np.array(np.nonzero(np.atleast_1d(call.x))[: max(call.x.ndim, 0)], np.int64).reshape(call.x.ndim, -1)


def compress(call: Call) -> np.ndarray:
    return np.compress(call.inputs[1], call.x, axis=call["axis"])


def reverse_sequence(call: Call) -> np.ndarray:
    """The first ``lengths`` steps of each sample backward; time and batch are the first two axes."""
    x, lengths = call.inputs
    steps = np.arange(x.shape[call["time_axis"]])[:, None]
    order = np.where(steps < lengths, lengths - 1 - steps, steps)
    order = order if call["time_axis"] == 0 else order.T
    return np.take_along_axis(x, order.reshape(order.shape + (1,) * (x.ndim - 2)), axis=call["time_axis"])


def center_crop_pad(call: Call) -> np.ndarray:
    x, shape = call.inputs
    axes = call["axes"] if call["axes"] is not None else range(x.ndim)
    for axis, wanted in zip(axes, (int(n) for n in shape), strict=True):
        excess = x.shape[axis] - wanted
        if excess >= 0:
            x = np.take(x, np.arange(excess // 2, excess // 2 + wanted), axis=axis)
        else:
            margins = [(0, 0)] * x.ndim
            margins[axis] = (-excess // 2, -excess - (-excess // 2))
            x = np.pad(x, margins)
    return x


def tile(call: Call) -> np.ndarray:
    return np.tile(call.x, tuple(int(n) for n in call.inputs[1]))


def transpose(call: Call) -> np.ndarray:
    return np.transpose(call.x, call["perm"])


KERNELS: dict[str, Kernel] = {
    "CenterCropPad": one(center_crop_pad),
    "Compress": one(compress),
    "Concat": one(concat),
    "ConstantOfShape": one(constant_of_shape),
    "DepthToSpace": one(depth_to_space),
    "Expand": one(expand),
    "EyeLike": one(eye_like),
    "Flatten": one(flatten),
    "Gather": one(gather),
    "GatherElements": one(gather_elements),
    "GatherND": one(gather_nd),
    "NonZero": one(non_zero),
    "OneHot": one(one_hot),
    "Pad": one(pad),
    "Range": one(arange),
    "Reshape": one(reshape),
    "ReverseSequence": one(reverse_sequence),
    "Scatter": one(scatter_elements),
    "ScatterElements": one(scatter_elements),
    "ScatterND": one(scatter_nd),
    "Shape": one(shape_of),
    "Size": one(lambda call: np.array(call.x.size, np.int64)),
    "Slice": one(slice_),
    "SpaceToDepth": one(space_to_depth),
    "Split": split,
    "Squeeze": one(squeeze),
    "Tile": one(tile),
    "Transpose": one(transpose),
    "Trilu": one(trilu),
    "Unsqueeze": one(unsqueeze),
}
