"""Quantize and dequantize layers."""

from __future__ import annotations

from trtnorm_cli.tensorrt.network.context import Attributes, LayerContext


def quantize(layer: LayerContext) -> str:
    """``IQuantizeLayer``: clamp(round(x / scale)), ties to even."""
    inputs, attributes = _with_scale(layer, layer.wide(0))
    return layer.op("QuantizeLinear", *inputs, output_dtype=layer.output().onnx_type, **attributes)


def dequantize(layer: LayerContext) -> str:
    """``IDequantizeLayer``: x · scale."""
    inputs, attributes = _with_scale(layer, layer.value(0))
    return layer.narrow(layer.op("DequantizeLinear", *inputs, **attributes))


def _with_scale(layer: LayerContext, x: str) -> tuple[list[str], Attributes]:
    """The data and the scale in ONNX's form: one scale, or one for each index along an axis, or for each block along it."""
    _require_no_zero_point(layer)
    scale, shape = layer.wide(1), layer.shape(1)
    if all(length == 1 for length in shape):
        return [x, layer.op("Reshape", scale, layer.array([], "int64"))], {}
    if len(shape) == 1:
        return [x, scale], {"axis": int(layer.handle.axis)}
    return [x, scale], _blocks(layer, shape)


def _require_no_zero_point(layer: LayerContext) -> None:
    """TensorRT's parser makes a constant of FLOAT of every integer zero point, and has checked that it is 0 throughout."""
    if not layer.has(2):
        return
    zero = layer.constant(2)
    if zero is None:
        raise layer.layer.refused("a zero point that is known at run time only")
    if zero.any():
        raise layer.layer.refused("a zero point that is not 0")


def _blocks(layer: LayerContext, scale_shape: tuple[int, ...]) -> Attributes:
    """One scale for each block along the single axis in which scale and data differ."""
    shape = layer.shape(0)
    blocked = [axis for axis, (n, s) in enumerate(zip(shape, scale_shape, strict=False)) if n != s]
    if len(shape) != len(scale_shape) or len(blocked) != 1 or min(shape[blocked[0]], scale_shape[blocked[0]]) < 1:
        raise layer.layer.refused(f"scales of shape {list(scale_shape)} for data of shape {list(shape)}")
    axis = blocked[0]
    return {"axis": axis, "block_size": -(-shape[axis] // scale_shape[axis])}
