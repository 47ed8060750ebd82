"""The slice layer in all its sampling modes: out[i] = in[start + i · stride], and what happens outside the input."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.tensorrt.network.context import LayerContext
from trtnorm_cli.tensorrt.network.lengths import Length, lengths_in
from trtnorm_cli.tensorrt.network.reading import dims_of

_BEYOND = np.iinfo(np.int64)
# The modes of ONNX's Pad, which repeats no reflection.
_PADDING = {"FILL": "constant", "CLAMP": "edge", "REFLECT": "reflect"}


@dataclass(frozen=True)
class _Extent:
    """Start, size or stride along the sliced axes, as numbers, or as the name of a one-dimensional int64 tensor."""

    numbers: tuple[int, ...] | None
    name: str


def slice_layer(layer: LayerContext) -> str:
    """``ISliceLayer``: strict bounds, or clamped, wrapped, reflected or filled outside the input."""
    if layer.rank(0) == 0:  # a scalar of ConstantOfShape
        return layer.op("Identity", layer.value(0))
    start, size, stride = (_extent(layer, i, attribute) for i, attribute in enumerate(("start", "shape", "stride"), 1))
    axes = _axes(layer)
    if axes is None:
        axes = list(range(layer.rank(0)))
        start, size, stride = _over_all_axes(layer, start, size, stride)
    mode = layer.handle.mode.name
    x = layer.value(0)
    if mode == "STRICT_BOUNDS" and stride.numbers is not None:
        return _strict(layer, x, axes, start, size, stride)
    if mode not in _INDEX and mode != "FILL":
        raise layer.layer.refused(f"no translation of the sampling mode {mode}")
    pads = _pads(layer, axes, start, size, stride)
    if pads is not None and _is_near(layer, axes, pads, mode):
        onnx_type = layer.tensor(0).onnx_type
        value = _fill_value(layer) if mode == "FILL" else ""
        return layer.move("Pad", [x, layer.ints(*pads), value, layer.ints(*axes)], onnx_type, data=(0, 2), mode=_PADDING[mode])
    for position, axis in enumerate(axes):
        x = _gathered(layer, x, axis, position, (start, size, stride), mode)
    return layer.op("Identity", x) if x == layer.value(0) else x


def _axes(layer: LayerContext) -> list[int] | None:
    """The sliced axes, None when they are known at run time only."""
    rank = layer.rank(0)
    if layer.has(5):
        known = layer.constant(5)
        return None if known is None else [int(axis) % rank for axis in known.reshape(-1)]
    return [axis % rank for axis in dims_of(layer.handle.axes) or range(rank)]


def _over_all_axes(layer: LayerContext, *extents: _Extent) -> tuple[_Extent, ...]:
    """Spread values for run-time axes over all axes. An axis that is not named starts at 0 and keeps its length."""
    rank, axes = layer.rank(0), layer.int64(5)
    counted = layer.op("Add", axes, layer.array(rank, np.int64))
    axes = layer.op("Unsqueeze", layer.op("Mod", counted, layer.array(rank, np.int64)), layer.ints(-1))
    whole = (layer.ints(*[0] * rank), layer.dims(layer.value(0)), layer.ints(*[1] * rank))
    spread = (layer.op("ScatterND", all_axes, axes, e.name) for all_axes, e in zip(whole, extents, strict=True))
    return tuple(_Extent(None, name) for name in spread)


def _extent(layer: LayerContext, index: int, attribute: str) -> _Extent:
    if not layer.has(index):
        numbers = tuple(int(v) for v in getattr(layer.handle, attribute))
        return _Extent(numbers, layer.ints(*numbers))
    known = layer.constant(index)
    if known is not None:
        numbers = tuple(int(v) for v in known.reshape(-1))
        return _Extent(numbers, layer.ints(*numbers))
    return _Extent(None, layer.int64(index))


def _strict(layer: LayerContext, x: str, axes: list[int], start: _Extent, size: _Extent, stride: _Extent) -> str:
    """A Slice. An axis of stride 0 repeats one element, which is what the parser makes of Expand."""
    onnx_type = layer.tensor(0).onnx_type
    strides = stride.numbers or ()
    if 0 not in strides:
        ends = _ends(layer, start, size, strides)
        return layer.move("Slice", [x, start.name, ends, layer.ints(*axes), layer.ints(*strides)], onnx_type)
    repeated = [step == 0 for step in strides]
    taken = _with_ones(layer, size, repeated)
    steps = [step or 1 for step in strides]
    ends = _ends(layer, start, taken, tuple(steps))
    one_each = layer.move("Slice", [x, start.name, ends, layer.ints(*axes), layer.ints(*steps)], onnx_type)
    return layer.move("Expand", [one_each, _full_size(layer, axes, size)], onnx_type)


def _with_ones(layer: LayerContext, size: _Extent, where: list[bool]) -> _Extent:
    if size.numbers is not None:
        numbers = tuple(1 if one else n for one, n in zip(where, size.numbers, strict=True))
        return _Extent(numbers, layer.ints(*numbers))
    return _Extent(None, layer.op("Where", layer.array(where, np.bool_), layer.ints(1), size.name))


def _full_size(layer: LayerContext, axes: list[int], size: _Extent) -> str:
    """Sizes for every axis of the input, 1 where Expand shall keep the length."""
    rank = layer.rank(0)
    if axes == list(range(rank)):
        return size.name
    indices = layer.array([[axis] for axis in axes], np.int64)
    return layer.op("ScatterND", layer.ints(*[1] * rank), indices, size.name)


def _ends(layer: LayerContext, start: _Extent, size: _Extent, stride: tuple[int, ...]) -> str:
    """The end of each axis. Going down, an end before the first element must not read as "from the back"."""
    if start.numbers is not None and size.numbers is not None:
        ends = [s + n * step for s, n, step in zip(start.numbers, size.numbers, stride, strict=True)]
        return layer.ints(*[_BEYOND.min if end < 0 else end for end in ends])
    end = layer.op("Add", start.name, layer.op("Mul", size.name, layer.ints(*stride)))
    if min(stride) > 0:
        return end
    return layer.op("Where", layer.op("Less", end, layer.ints(0)), layer.ints(_BEYOND.min), end)


def _pads(layer: LayerContext, axes: list[int], start: _Extent, size: _Extent, stride: _Extent) -> list[int] | None:
    """The lengths of what is put before and after the input along each axis; None where the layer does something else.

    What is taken away counts below 0.
    """
    if start.numbers is None or stride.numbers is None or set(stride.numbers) != {1}:
        return None
    if size.numbers is None:
        counts = lengths_in(layer, layer.tensor(2), layer.tensor(0))
    else:
        counts = [Length(number) for number in size.numbers]
    if counts is None:
        return None
    before, after = [-first for first in start.numbers], []
    for axis, first, count in zip(axes, start.numbers, counts, strict=True):
        known = layer.shape(0)[axis]
        if count.axis != axis and (count.axis is not None or known < 0):
            return None
        after.append(first + count.number - (known if count.axis is None else 0))
    return [*before, *after]


def _is_near(layer: LayerContext, axes: list[int], pads: list[int], mode: str) -> bool:
    """True where a Pad repeats what the layer does: no element comes from further away than an axis is long.

    ONNX allows none further away either, so that the parser makes no such layer for an axis of a run-time length. No more is
    taken away than is there.
    """
    lengths = [layer.shape(0)[axis] for axis in axes]
    if min(pads, default=0) < 0:
        taken = [min(before, 0) + min(after, 0) for before, after in zip(pads, pads[len(axes) :], strict=False)]
        return mode == "FILL" and all(length + less > 0 for length, less in zip(lengths, taken, strict=True) if less)
    if mode not in _PADDING or mode == "FILL":
        return mode == "FILL"
    if 0 in lengths:
        return False
    return mode == "CLAMP" or all(length < 0 or pad < length for length, pad in zip(lengths * 2, pads, strict=True))


def _gathered(
    layer: LayerContext, x: str, axis: int, position: int, extents: tuple[_Extent, _Extent, _Extent], mode: str
) -> str:
    """Take the elements along one axis by index, which is exact for every mode, start, size and stride."""
    length = layer.shape(0)[axis]
    first, count, step = (None if e.numbers is None else e.numbers[position] for e in extents)
    if (first, step) == (0, 1) and count == length >= 0:
        return x
    start, size, stride = (_one(layer, e, position) for e in extents)
    zero, one = (layer.scalar(v, TensorProto.INT64) for v in (0, 1))
    steps = layer.op("Range", zero, size, one)
    index = layer.op("Add", start, layer.op("Mul", steps, stride))
    limit = layer.op("Squeeze", layer.dim(0, axis), layer.ints(0))
    onnx_type = layer.tensor(0).onnx_type
    if mode != "FILL":
        return layer.move("Gather", [x, _INDEX[mode](layer, index, limit)], onnx_type, axis=axis)
    inside = layer.op("And", layer.op("GreaterOrEqual", index, zero), layer.op("Less", index, limit))
    found = layer.move("Gather", [x, _clamped(layer, index, limit)], onnx_type, axis=axis)
    after = layer.rank(0) - axis - 1
    if after:
        inside = layer.op("Reshape", inside, layer.ints(-1, *[1] * after))
    return layer.move("Where", [inside, found, _fill_value(layer)], onnx_type, data=(1, 2))


def _one(layer: LayerContext, extent: _Extent, position: int) -> str:
    if extent.numbers is not None:
        return layer.scalar(extent.numbers[position], TensorProto.INT64)
    return layer.op("Gather", extent.name, layer.scalar(position, TensorProto.INT64), axis=0)


def _fill_value(layer: LayerContext) -> str:
    want = layer.tensor(0).onnx_type
    if not layer.has(4):
        return layer.cast(layer.scalar(0.0), TensorProto.FLOAT, want)
    value = layer.cast(layer.value(4), layer.tensor(4).onnx_type, want)
    return layer.move("Reshape", [value, layer.array([], np.int64)], want)


def _strict_index(layer: LayerContext, index: str, limit: str) -> str:
    return index


def _clamped(layer: LayerContext, index: str, limit: str) -> str:
    last = layer.op("Sub", limit, layer.scalar(1, TensorProto.INT64))
    below = layer.smaller(index, last, TensorProto.INT64)
    return layer.larger(below, layer.scalar(0, TensorProto.INT64), TensorProto.INT64)


def _wrapped(layer: LayerContext, index: str, limit: str) -> str:
    return layer.op("Mod", index, limit)


def _reflected(layer: LayerContext, index: str, limit: str) -> str:
    """Repeated reflection about the middle of the outermost elements, with period 2 · (limit − 1)."""
    one, two = (layer.scalar(v, TensorProto.INT64) for v in (1, 2))
    period = layer.op("Mul", layer.op("Sub", limit, one), two)
    phase = layer.op("Mod", index, layer.larger(period, one, TensorProto.INT64))
    return layer.smaller(phase, layer.op("Sub", period, phase), TensorProto.INT64)


_INDEX = {"STRICT_BOUNDS": _strict_index, "CLAMP": _clamped, "WRAP": _wrapped, "REFLECT": _reflected}
