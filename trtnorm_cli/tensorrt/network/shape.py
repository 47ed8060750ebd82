"""Layers that rearrange a tensor without looking at its values: shuffle, squeeze, unsqueeze, concatenation, shape, padding."""

from __future__ import annotations

from onnx import TensorProto

from trtnorm_cli.tensorrt.network.context import LayerContext
from trtnorm_cli.tensorrt.network.reading import dims_of


def shuffle(layer: LayerContext) -> str:
    """``IShuffleLayer``: transpose, reshape, transpose, each only where it is set.

    The reshape's dimensions come from the layer or from input 1. −1 is inferred, and 0 copies the dimension at the same place
    of the transposed input unless ``zero_is_placeholder`` is off.
    """
    handle = layer.handle
    x = _transposed(layer, layer.value(0), tuple(handle.first_transpose), layer.rank(0))
    x = _reshaped(layer, x)
    x = _transposed(layer, x, tuple(handle.second_transpose), len(layer.shape_of(layer.output())))
    return layer.op("Identity", x) if x == layer.value(0) else x


def _transposed(layer: LayerContext, x: str, permutation: tuple[int, ...], rank: int) -> str:
    order = list(permutation[:rank])
    if order == list(range(rank)):
        return x
    return layer.move("Transpose", [x], layer.tensor(0).onnx_type, perm=order)


def _reshaped(layer: LayerContext, x: str) -> str:
    if layer.has(1):
        target = layer.int64(1)
    elif (dims := dims_of(layer.handle.reshape_dims)) is not None:
        target = layer.ints(*dims)
    else:
        return x
    allow_zero = int(not layer.handle.zero_is_placeholder)
    return layer.move("Reshape", [x, target], layer.tensor(0).onnx_type, allowzero=allow_zero)


def squeeze(layer: LayerContext) -> str:
    """``ISqueezeLayer``: the axes of input 1, or every dimension that is statically 1."""
    if layer.has(1):
        axes = layer.op("Reshape", layer.int64(1), layer.ints(-1))
    else:
        axes = layer.ints(*[axis for axis, length in enumerate(layer.shape(0)) if length == 1])
    return layer.move("Squeeze", [layer.value(0), axes], layer.tensor(0).onnx_type)


def unsqueeze(layer: LayerContext) -> str:
    """``IUnsqueezeLayer``: dimensions of length 1 at the axes of input 1, counted in the output."""
    axes = layer.op("Reshape", layer.int64(1), layer.ints(-1))
    return layer.move("Unsqueeze", [layer.value(0), axes], layer.tensor(0).onnx_type)


def concatenation(layer: LayerContext) -> str:
    """``IConcatenationLayer`` along its axis."""
    count = len(layer.layer.inputs)
    inputs = [layer.value(i) for i in range(count)]
    return layer.move("Concat", inputs, layer.tensor(0).onnx_type, data=range(count), axis=layer.handle.axis)


def shape(layer: LayerContext) -> str:
    """``IShapeLayer``: the dimensions, int64 (int32 in older releases)."""
    return layer.cast(layer.dims(layer.value(0)), TensorProto.INT64, layer.output().onnx_type)


def padding(layer: LayerContext) -> str:
    """``IPaddingLayer``: zeros around the last two axes, where negative padding trims."""
    rank = layer.rank(0)
    before, after = ([0] * (rank - 2) + list(p) for p in (layer.handle.pre_padding_nd, layer.handle.post_padding_nd))
    return layer.move("Pad", [layer.value(0), layer.ints(*before, *after)], layer.tensor(0).onnx_type)
