"""Normalization, scale and local response normalization layers."""

from __future__ import annotations

import numpy as np

from trtnorm_cli.tensorrt.network.context import LayerContext, axes_of
from trtnorm_cli.tensorrt.network.weights import TensorValues
from trtnorm_cli.tensorrt.network.windows import with_one_batch_axis


def normalization(layer: LayerContext) -> str:
    """``INormalizationLayer``: y = (x − mean(x)) / √(var(x) + ε) · scale + bias, evaluated in float32.

    Mean and variance are taken over the axes of the mask. With more than one group the channels, axis 1, are split into groups
    and each group is normalized with its own share of the channels. The mask then holds all axes after the channel. With one
    group the mask alone decides, so axes 2, 3, … make it an instance normalization, whatever the parser meant.
    """
    handle = layer.handle
    if int(handle.num_groups) > 1:
        return layer.narrow(_group_normalization(layer, int(handle.num_groups)))
    x = layer.wide(0)
    normalized = _normalized(layer, x, axes_of(handle.axes))
    return layer.narrow(_affine(layer, normalized, layer.wide(1), layer.wide(2)))


def _normalized(layer: LayerContext, x: str, axes: list[int]) -> str:
    at = layer.ints(*axes)
    centred = layer.op("Sub", x, layer.op("ReduceMean", x, at, keepdims=1))
    variance = layer.op("ReduceMean", layer.op("Mul", centred, centred), at, keepdims=1)
    epsilon = layer.array(layer.handle.epsilon, np.float32)
    return layer.op("Div", centred, layer.op("Sqrt", layer.op("Add", variance, epsilon)))


def _affine(layer: LayerContext, x: str, scale: str, bias: str) -> str:
    return layer.op("Add", layer.op("Mul", x, scale), bias)


def _group_normalization(layer: LayerContext, groups: int) -> str:
    rank = layer.rank(0)
    if axes_of(layer.handle.axes) != list(range(2, rank)):
        raise layer.layer.refused(f"{groups} groups, but the axes mask {layer.handle.axes:#b} is not every axis after 1")
    x = layer.wide(0)
    grouped = layer.op("Reshape", x, layer.ints(0, groups, -1))
    normalized = _normalized(layer, grouped, [2])
    scale, bias = layer.wide(1), layer.wide(2)
    if _one_per_group(layer, groups):
        # Version 1 of the layer has one scale per group.
        scale, bias = (layer.op("Reshape", v, layer.ints(1, groups, 1)) for v in (scale, bias))
        return layer.op("Reshape", _affine(layer, normalized, scale, bias), layer.dims(x))
    return _affine(layer, layer.op("Reshape", normalized, layer.dims(x)), scale, bias)


def _one_per_group(layer: LayerContext, groups: int) -> bool:
    if getattr(layer.handle, "is_v2", False):
        return False
    scale = layer.shape(1)
    channels = scale[1] if len(scale) > 1 else -1
    if channels < 0:
        raise layer.layer.refused("the number of scales is known at run time only")
    return channels == groups


def scale(layer: LayerContext) -> str:
    """``IScaleLayer``: y = (x · scale + shift) ^ power, evaluated in float32.

    The coefficients are one value, one per channel along ``channel_axis``, or one per element from that axis on.
    """
    handle = layer.handle
    y = layer.wide(0)
    for op, values in (("Mul", handle.scale), ("Add", handle.shift), ("Pow", handle.power)):
        coefficients = layer.weights(values)
        if coefficients is not None and not _neutral(op, coefficients):
            y = layer.op(op, y, _coefficients(layer, coefficients, op))
    return layer.narrow(y)


def _neutral(op: str, values: TensorValues) -> bool:
    return op == "Pow" and bool(np.all(values.array().astype(np.float32) == 1))


def _coefficients(layer: LayerContext, values: TensorValues, op: str) -> str:
    shape = layer.shape(0)
    axis = layer.handle.channel_axis
    mode = layer.handle.mode.name
    if mode == "UNIFORM":
        dims: list[int] = []
    elif mode == "CHANNEL":
        dims = [values.count] + [1] * (len(shape) - axis - 1)
    elif min(shape[axis:], default=0) > 0:
        dims = list(shape[axis:])
    else:
        raise layer.layer.refused("elementwise coefficients for dimensions known at run time only")
    if int(np.prod(dims)) != values.count:
        raise layer.layer.refused(f"{values.count} coefficients in mode {mode} for a tensor of shape {list(shape)}")
    role = {"Mul": "scale", "Add": "shift", "Pow": "power"}[op]
    return layer.widened(layer.initializer(values, dims, role), values.onnx_type)


def local_response_normalization(layer: LayerContext) -> str:
    """``ILRNLayer``: y = x / (k + alpha / window · Σ x²)^beta over a window of channels, three axes from the end."""
    handle = layer.handle
    attributes = {"alpha": handle.alpha, "beta": handle.beta, "bias": handle.k, "size": handle.window_size}
    return layer.narrow(with_one_batch_axis(layer, 2, lambda x: layer.op("LRN", x, **attributes)))
