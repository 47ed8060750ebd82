"""Layers that reduce, accumulate, or search: reduce, cumulative, top-k, non-zero."""

from __future__ import annotations

from onnx import TensorProto

from trtnorm_cli.tensorrt.network.context import LayerContext, axes_of

_REDUCE = {"SUM": "ReduceSum", "PROD": "ReduceProd", "MAX": "ReduceMax", "MIN": "ReduceMin", "AVG": "ReduceMean"}


def reduce(layer: LayerContext) -> str:
    """``IReduceLayer`` over the axes of its mask. An integer average truncates towards zero."""
    operation = layer.handle.op.name
    if operation not in _REDUCE:
        raise layer.layer.refused(f"no translation of the reduction {operation}")
    axes = layer.ints(*axes_of(layer.handle.axes))
    keep = int(layer.handle.keep_dims)
    x = layer.wide(0)
    if operation == "AVG" and layer.wide_type() != TensorProto.FLOAT:
        return _integer_average(layer, x, axes, keep)
    return layer.narrow(layer.op(_REDUCE[operation], x, axes, keepdims=keep, noop_with_empty_axes=1))


def _integer_average(layer: LayerContext, x: str, axes: str, keep: int) -> str:
    total = layer.op("ReduceSum", x, axes, keepdims=keep, noop_with_empty_axes=1)
    count = layer.op("Div", layer.op("Size", x), layer.op("Size", total))
    return layer.op("Div", total, layer.cast(count, TensorProto.INT64, layer.wide_type()))


def cumulative(layer: LayerContext) -> str:
    """``ICumulativeLayer``: the running sum along the axis that input 1 names."""
    if layer.handle.op.name != "SUM":
        raise layer.layer.refused(f"no translation of the cumulative operation {layer.handle.op.name}")
    flags = {"exclusive": int(layer.handle.exclusive), "reverse": int(layer.handle.reverse)}
    return layer.narrow(layer.op("CumSum", layer.wide(0), layer.int64(1), **flags))


def top_k(layer: LayerContext) -> list[str]:
    """``ITopKLayer``: sorted values and their positions, where TensorRT does not specify the order of equal values."""
    axes = axes_of(layer.handle.axes)
    if len(axes) != 1:
        raise layer.layer.refused(f"top-k over {len(axes)} axes")
    k = layer.op("Reshape", layer.int64(1), layer.ints(1)) if layer.has(1) else layer.ints(layer.handle.k)
    largest = int(layer.handle.op.name == "MAX")
    values, indices = layer.ops("TopK", layer.wide(0), k, outputs=2, axis=axes[0], largest=largest, sorted=1)
    return [layer.narrow(values), layer.cast(indices, TensorProto.INT64, layer.output(1).onnx_type)]


def non_zero(layer: LayerContext) -> str:
    """``INonZeroLayer``: one column of indices for each element that is not zero, in row-major order."""
    return layer.cast(layer.op("NonZero", layer.wide(0)), TensorProto.INT64, layer.output().onnx_type)
