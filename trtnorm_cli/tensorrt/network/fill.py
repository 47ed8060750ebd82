"""Layers that make values out of nothing, and the assertion layer that makes none."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from trtnorm_cli.tensorrt.network.context import LayerContext


def fill(layer: LayerContext) -> str:
    """``IFillLayer``: out[i, j, …] = alpha + beta[0] · i + beta[1] · j + …, while random fills are refused."""
    operation = layer.handle.operation.name
    if operation != "LINSPACE":
        raise layer.layer.refused(f"{operation} draws its values from the engine's own generator")
    onnx_type = layer.output().onnx_type
    rank = len(layer.shape_of(layer.output()))
    if layer.has(1) and layer.has(2):
        alpha = _scalar(layer, layer.value(1), layer.tensor(1).onnx_type, onnx_type)
        beta = layer.op("Reshape", layer.cast(layer.value(2), layer.tensor(2).onnx_type, onnx_type), layer.ints(-1))
    else:
        if rank != 1:
            raise layer.layer.refused(f"one step for {rank} dimensions")
        alpha, step = layer.scalar(layer.handle.alpha, onnx_type), layer.scalar(layer.handle.beta, onnx_type)
        beta = layer.op("Reshape", step, layer.ints(1))
    return _ramp(layer, rank, alpha, beta, onnx_type)


def _ramp(layer: LayerContext, rank: int, alpha: str, beta: str, onnx_type: int) -> str:
    size = layer.int64(0) if layer.has(0) else layer.ints(*layer.handle.shape)
    total = alpha
    for axis in range(rank):
        index = layer.array(axis, np.int64)
        count = layer.op("Gather", size, index, axis=0)
        steps = layer.op("Range", layer.array(0, np.int64), count, layer.array(1, np.int64))
        scaled = layer.op("Mul", layer.cast(steps, TensorProto.INT64, onnx_type), layer.op("Gather", beta, index, axis=0))
        total = layer.op("Add", total, layer.op("Reshape", scaled, layer.ints(-1, *[1] * (rank - axis - 1))))
    return total if rank else layer.op("Identity", alpha)


def _scalar(layer: LayerContext, name: str, have: int, want: int) -> str:
    return layer.op("Reshape", layer.cast(name, have, want), layer.array([], np.int64))


def assertion(layer: LayerContext) -> list[str]:
    """``IAssertionLayer``: an index out of bounds wherever the condition fails, so that the run fails as TensorRT's does."""
    failed = layer.cast(layer.op("Not", layer.value(0)), TensorProto.BOOL, TensorProto.INT64)
    layer.op("Gather", layer.array([True], np.bool_), failed)
    return []
