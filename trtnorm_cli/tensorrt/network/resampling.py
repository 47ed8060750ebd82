"""Resize and grid sample layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from trtnorm_cli.tensorrt.network.context import Attributes, LayerContext

_MODE = {"NEAREST": "nearest", "LINEAR": "linear", "CUBIC": "cubic"}
_COORDINATES = {"ALIGN_CORNERS": "align_corners", "ASYMMETRIC": "asymmetric", "HALF_PIXEL": "half_pixel"}
_NEAREST = {"HALF_UP": "round_prefer_ceil", "HALF_DOWN": "round_prefer_floor", "FLOOR": "floor", "CEIL": "ceil"}
_PADDING = {"FILL": "zeros", "CLAMP": "border", "REFLECT": "reflection"}


def resize(layer: LayerContext) -> str:
    """``IResizeLayer``: output lengths from the layer, from input 1, or ⌊length · scale⌋.

    TensorRT documents its coordinates by lengths, x_in = x_out · L_in / L_out, also where scales are given. The lengths
    are therefore what is written, and where ⌊L · s⌋ / L differs from s, the result differs from ONNX's, which uses s. Where s
    is that ratio in float32, it is written: float32 does not tell one from the other.
    """
    handle = layer.handle
    mode, coordinates = handle.resize_mode.name, handle.coordinate_transformation.name
    attributes: Attributes = {"mode": _MODE[mode], "coordinate_transformation_mode": _COORDINATES[coordinates]}
    if coordinates == "HALF_PIXEL" and handle.selector_for_single_pixel.name == "UPPER":
        attributes["coordinate_transformation_mode"] = "pytorch_half_pixel"
    if mode == "NEAREST":
        attributes["nearest_mode"] = _NEAREST[handle.nearest_rounding.name]
    if mode == "CUBIC":
        attributes["cubic_coeff_a"] = handle.cubic_coeff
        attributes["exclude_outside"] = int(handle.exclude_outside)
    x, onnx_type = layer.wide(0), layer.wide_type()
    if onnx_type not in (TensorProto.FLOAT, TensorProto.INT8, TensorProto.UINT8, TensorProto.INT32):
        raise layer.layer.refused(f"resizing of {layer.tensor(0).dtype}")
    factors = _whole_factors(layer) or _rounded_factors(layer)
    asked = ("", "", _sizes(layer)) if factors is None else ("", layer.array(factors, np.float32))
    return layer.narrow(layer.op("Resize", x, *asked, **attributes))


def _rounded_factors(layer: LayerContext) -> list[float] | None:
    """The scales of the layer, where all are the ratios of lengths in float32; None otherwise."""
    lengths, made, scales = layer.shape(0), layer.shape_of(layer.output()), list(layer.handle.scales)
    if layer.has(1) or min((*lengths, *made), default=0) < 1 or len(scales) != len(lengths):
        return None
    ratios = [np.float32(m / n) for n, m in zip(lengths, made, strict=True)]
    return scales if ratios == [np.float32(scale) for scale in scales] else None


def _whole_factors(layer: LayerContext) -> list[int] | None:
    """The factor of each length, where all are whole; None otherwise. Lengths would mean the same there, and fit no others."""
    lengths, made = layer.shape(0), layer.shape_of(layer.output())
    if layer.has(1) or min((*lengths, *made), default=0) < 1 or any(n % m for n, m in zip(made, lengths, strict=True)):
        return None
    return [n // m for n, m in zip(made, lengths, strict=True)]


def _sizes(layer: LayerContext) -> str:
    if layer.has(1):
        return layer.int64(1)
    known = layer.shape_of(layer.output())
    _note_fractional_scales(layer, known)
    if min(known, default=0) >= 0:
        return layer.ints(*known)
    scales = layer.handle.scales
    if len(scales) == 0:
        return layer.ints(*layer.handle.shape)
    return _scaled_lengths(layer, scales)


def _scaled_lengths(layer: LayerContext, scales: Sequence[float]) -> str:
    lengths = layer.cast(layer.dims(layer.value(0)), TensorProto.INT64, TensorProto.FLOAT)
    scaled = layer.op("Floor", layer.op("Mul", lengths, layer.array(scales, np.float32)))
    return layer.cast(scaled, TensorProto.FLOAT, TensorProto.INT64)


def _note_fractional_scales(layer: LayerContext, lengths: Sequence[int]) -> None:
    exact = all(n >= 0 and n * s == m for n, s, m in zip(layer.shape(0), layer.handle.scales, lengths, strict=False))
    if not exact and any(scale != round(scale) for scale in layer.handle.scales):
        layer.note("scales are not whole; coordinates follow the ratio of lengths, as TensorRT documents, not the scale")


def grid_sample(layer: LayerContext) -> str:
    """``IGridSampleLayer``: the grid's last axis holds normalized coordinates, x first."""
    handle = layer.handle
    padding = handle.sample_mode.name
    if padding not in _PADDING:
        raise layer.layer.refused(f"no translation of the sample mode {padding}")
    attributes = {
        "mode": _MODE[handle.interpolation_mode.name],
        "padding_mode": _PADDING[padding],
        "align_corners": int(handle.align_corners),
    }
    return layer.narrow(layer.op("GridSample", layer.wide(0), layer.wide(1), **attributes))
