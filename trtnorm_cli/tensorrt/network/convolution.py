"""Convolution and deconvolution layers of any spatial rank."""

from __future__ import annotations

import math
from typing import Any

from trtnorm_cli.tensorrt.network.context import Attributes, LayerContext
from trtnorm_cli.tensorrt.network.windows import split_padding, window_of, with_one_batch_axis


def convolution(layer: LayerContext) -> str:
    """``IConvolutionLayer``: kernel [maps, channels / groups, spatial …], as weights or as a tensor."""
    handle = layer.handle
    window = window_of(layer, tuple(handle.kernel_size_nd))
    maps, kernel_volume = int(handle.num_output_maps), math.prod(window.kernel)
    kernel = _kernel(layer, lambda count: [maps, count // (maps * kernel_volume), *window.kernel])
    attributes: Attributes = {"strides": window.stride, "dilations": window.dilation}
    pads = window.pads
    if pads is None:
        attributes["auto_pad"] = window.auto_pad
    else:
        ends = [p + o for p, o in zip(pads[len(window.kernel) :], window.overhang, strict=True)]
        attributes["pads"] = [*pads[: len(window.kernel)], *ends]
    return _convolve(layer, "Conv", kernel, window.kernel, attributes)


def deconvolution(layer: LayerContext) -> str:
    """``IDeconvolutionLayer``: kernel [channels, maps / groups, spatial …], where padding trims the output.

    Both rounding modes give O = (I − 1) · S + DK − (B + A). SAME trims P = max(DK − S, 0).
    """
    handle = layer.handle
    window = window_of(layer, tuple(handle.kernel_size_nd))
    per_group, kernel_volume = int(handle.num_output_maps) // int(handle.num_groups), math.prod(window.kernel)
    kernel = _kernel(layer, lambda count: [count // (per_group * kernel_volume), per_group, *window.kernel])
    before, after = tuple(handle.pre_padding), tuple(handle.post_padding)
    if window.mode.startswith("SAME"):
        lengths = zip(window.kernel, window.stride, window.dilation, strict=True)
        before, after = split_padding([max(d * (k - 1) + 1 - s, 0) for k, s, d in lengths], window.mode)
    if min(*before, *after) < 0:
        raise layer.layer.refused(f"negative padding {list(before)}, {list(after)}")
    attributes = {"strides": window.stride, "dilations": window.dilation, "pads": [*before, *after]}
    return _convolve(layer, "ConvTranspose", kernel, window.kernel, attributes)


def _kernel(layer: LayerContext, dims_of: Any) -> str:
    if layer.has(1):
        return layer.wide(1)
    values = layer.weights(layer.handle.kernel)
    if values is None:
        raise layer.layer.refused("it has no kernel")
    return layer.widened(layer.initializer(values, dims_of(values.count), "kernel"), values.onnx_type)


def _convolve(layer: LayerContext, op: str, kernel: str, kernel_shape: tuple[int, ...], attributes: Attributes) -> str:
    weights = [kernel]
    bias = None if layer.has(2) else layer.weights(layer.handle.bias)
    if layer.has(2):
        weights.append(layer.wide(2))
    elif bias is not None:
        weights.append(layer.widened(layer.initializer(bias, [bias.count], "bias"), bias.onnx_type))
    attributes.update(kernel_shape=kernel_shape, group=int(layer.handle.num_groups))
    return layer.narrow(with_one_batch_axis(layer, len(kernel_shape), lambda x: layer.op(op, x, *weights, **attributes)))
