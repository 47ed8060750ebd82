"""Quantize and dequantize layers."""

from __future__ import annotations

from trtnorm_cli.tensorrt.network.context import Attributes, LayerContext


def quantize(layer: LayerContext) -> str:
    """``IQuantizeLayer``: clamp(round(x / scale) + zero point), ties to even."""
    inputs, attributes = _scale_and_zero_point(layer, layer.wide(0), layer.output().onnx_type)
    if len(inputs) == 2:
        attributes["output_dtype"] = layer.output().onnx_type
    return layer.op("QuantizeLinear", *inputs, **attributes)


def dequantize(layer: LayerContext) -> str:
    """``IDequantizeLayer``: (x − zero point) · scale."""
    inputs, attributes = _scale_and_zero_point(layer, layer.value(0), layer.tensor(0).onnx_type)
    return layer.narrow(layer.op("DequantizeLinear", *inputs, **attributes))


def _scale_and_zero_point(layer: LayerContext, x: str, quantized_type: int) -> tuple[list[str], Attributes]:
    scale_shape = layer.shape(1)
    if layer.has(2) and layer.tensor(2).onnx_type != quantized_type:
        raise layer.layer.refused(f"a zero point of {layer.tensor(2).dtype} for data quantized to another type")
    inputs = [x, layer.wide(1), *([layer.value(2)] if layer.has(2) else [])]
    if all(length == 1 for length in scale_shape):
        return [x, *[layer.op("Reshape", v, layer.array([], "int64")) for v in inputs[1:]]], {}
    if len(scale_shape) == 1:
        return inputs, {"axis": int(layer.handle.axis)}
    return inputs, _blocks(layer, scale_shape)


def _blocks(layer: LayerContext, scale_shape: tuple[int, ...]) -> Attributes:
    """One scale for each block along the single axis in which scale and data differ."""
    shape = layer.shape(0)
    blocked = [axis for axis, (n, s) in enumerate(zip(shape, scale_shape, strict=False)) if n != s]
    if len(shape) != len(scale_shape) or len(blocked) != 1 or min(shape[blocked[0]], scale_shape[blocked[0]]) < 1:
        raise layer.layer.refused(f"scales of shape {list(scale_shape)} for data of shape {list(shape)}")
    axis = blocked[0]
    return {"axis": axis, "block_size": -(-shape[axis] // scale_shape[axis])}
