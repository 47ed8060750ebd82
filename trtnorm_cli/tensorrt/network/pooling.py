"""Pooling layers."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from trtnorm_cli.tensorrt.network.context import Attributes, LayerContext
from trtnorm_cli.tensorrt.network.windows import Window, window_of, with_one_batch_axis


def pooling(layer: LayerContext) -> str:
    """``IPoolingLayer``: maximum, average, or (1 − blend) · maximum + blend · average."""
    kind = layer.handle.type.name
    if kind not in _POOL:
        raise layer.layer.refused(f"no translation of the pooling type {kind}")
    window = window_of(layer, tuple(layer.handle.window_size_nd))
    return layer.narrow(with_one_batch_axis(layer, len(window.kernel), lambda x: _POOL[kind](layer, x, window)))


def _blend(layer: LayerContext, x: str, window: Window) -> str:
    factor = layer.handle.blend_factor
    share = layer.op("Mul", _maximum(layer, x, window), layer.scalar(1 - factor))
    return layer.op("Add", share, layer.op("Mul", _average(layer, x, window), layer.scalar(factor)))


def _maximum(layer: LayerContext, x: str, window: Window) -> str:
    if _padding_is_native(window):
        return layer.op("MaxPool", x, **_attributes(window))
    if layer.wide_type() != TensorProto.FLOAT:
        raise layer.layer.refused(f"padding as wide as the window in a maximum of {layer.tensor(0).dtype}")
    padded = _pad(layer, x, window, layer.array(-np.inf, np.float32), overhang=True)
    return layer.op("MaxPool", padded, **_unpadded(window))


def _average(layer: LayerContext, x: str, window: Window) -> str:
    """The denominator counts the window's overlap with the input, or with the padded input, never the overhang."""
    excluded = bool(layer.handle.average_count_excludes_padding)
    if _padding_is_native(window):
        return layer.op("AveragePool", x, count_include_pad=int(not excluded), **_attributes(window))
    zero, one = layer.scalar(0.0), layer.scalar(1.0)
    spatial = layer.op("Shape", x, start=2)
    counted = layer.op("Expand", one, layer.op("Concat", layer.ints(1, 1), spatial, axis=0))
    if not excluded:
        counted = _pad(layer, counted, window, one, overhang=False)
        starts = [0] * len(window.kernel)
        counted = layer.op("Pad", counted, layer.ints(0, 0, *starts, 0, 0, *window.overhang), zero)
    else:
        counted = _pad(layer, counted, window, zero, overhang=True)
    total = layer.op("AveragePool", _pad(layer, x, window, zero, overhang=True), **_unpadded(window))
    return layer.op("Div", total, layer.op("AveragePool", counted, **_unpadded(window)))


def _padding_is_native(window: Window) -> bool:
    """ONNX Runtime wants padding shorter than the window, and a ceiling mode would leave the overhang to it."""
    if any(window.overhang):
        return False
    pads = window.pads
    return pads is None or all(p < k for p, k in zip(pads, window.kernel * 2, strict=True))


def _attributes(window: Window) -> Attributes:
    attributes = _unpadded(window)
    pads = window.pads
    return {**attributes, "auto_pad": window.auto_pad} if pads is None else {**attributes, "pads": pads}


def _unpadded(window: Window) -> Attributes:
    return {"kernel_shape": window.kernel, "strides": window.stride}


def _pad(layer: LayerContext, x: str, window: Window, value: str, overhang: bool) -> str:
    before, after = window.before or (), window.after or ()
    ends = [a + (o if overhang else 0) for a, o in zip(after, window.overhang, strict=True)]
    return layer.op("Pad", x, layer.ints(0, 0, *before, 0, 0, *ends), value)


_POOL = {"MAX": _maximum, "AVERAGE": _average, "MAX_AVERAGE_BLEND": _blend}
