"""Normalization operators, every opset; variances are of the population and taken in two passes."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from trtnorm_cli.evaluate.float64.kernels.call import Call, Kernel, NotImplementedHere, one

TRAINING_MODE_SINCE = 14
"""BatchNormalization has the attribute ``training_mode`` from here on; before, more than one output meant training."""
GROUP_SCALE_PER_CHANNEL_SINCE = 21
"""GroupNormalization's scale and bias have one value per group before, one per channel from here on."""


_DEFAULT_AXES = (0, 2, 3)
# Elements at a time, or one row or channel: what is computed in several steps stays in the processor's caches.
_BLOCK = 1 << 15


def standardized(x: np.ndarray, axes: tuple[int, ...], epsilon: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(x - μ)/√(σ² + ε), μ and 1/√(σ² + ε) over ``axes``, which are kept with length one."""
    first = x.ndim - len(axes)
    if not x.size or not axes or axes != tuple(range(first, x.ndim)):
        mean = x.mean(axis=axes, keepdims=True)
        y = x - mean
        inverse = 1.0 / np.sqrt(np.square(y).mean(axis=axes, keepdims=True) + epsilon)
        y *= inverse
        return y, mean, inverse
    rows = x.reshape(math.prod(x.shape[:first]), -1)
    result, means, inverses = np.empty(rows.shape, x.dtype), *(np.empty((len(rows), 1), x.dtype) for _ in range(2))
    step = max(1, _BLOCK // rows.shape[1])
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        y, mean, inverse = result[part], means[part], inverses[part]
        np.mean(rows[part], axis=1, keepdims=True, out=mean)
        np.subtract(rows[part], mean, out=y)
        np.divide(1.0, np.sqrt(np.square(y).mean(axis=1, keepdims=True) + epsilon), out=inverse)
        y *= inverse
    kept = (*x.shape[:first], *(1,) * (x.ndim - first))
    return result.reshape(x.shape), means.reshape(kept), inverses.reshape(kept)


def per_channel(values: np.ndarray, rank: int) -> np.ndarray:
    """``values`` [C] so that they broadcast over an input [N, C, ...] of ``rank`` axes."""
    return values.reshape((-1,) + (1,) * (rank - 2)) if rank > 1 else values


def batch_normalization(call: Call) -> tuple[Any, ...]:
    """Inference uses the given mean and variance, training those of the batch.

    Ioffe & Szegedy 2015. Outputs in training: Y, running mean, running variance; opset 7 and 9 add the batch's own.
    Opset 7 with ``spatial=0`` has parameters of shape [C, D1, ...]: one for each activation.
    """
    x, scale, bias, mean, variance = call.inputs
    newer = call.opset >= TRAINING_MODE_SINCE
    training = bool(call["training_mode"]) if newer else any(map(call.wants, range(1, 5)))
    if not training:
        y = _affine(x, scale, bias, mean, np.sqrt(variance + call["epsilon"]))
        return (y,)
    axes = (0,) if scale.ndim > 1 else (0, *range(2, x.ndim))
    batch_mean, batch_variance = x.mean(axis=axes), x.var(axis=axes)
    y = _affine(x, scale, bias, batch_mean, np.sqrt(batch_variance + call["epsilon"]))
    keep = call["momentum"]
    running = (mean * keep + batch_mean * (1 - keep), variance * keep + batch_variance * (1 - keep))
    return (y, *running) if newer else (y, *running, batch_mean, batch_variance)


def _affine(x: np.ndarray, scale: np.ndarray, bias: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    factor = scale / deviation
    if any(values.shape != x.shape[1:2] for values in (mean, factor, bias)):
        mean, factor, bias = (values if values.ndim > 1 else per_channel(values, x.ndim) for values in (mean, factor, bias))
        y = x - mean
        y *= factor
        y += bias
        return y
    y = np.empty(x.shape, np.result_type(x, mean))
    mean, factor, bias = (values.reshape(-1, *(1,) * (x.ndim - 2)) for values in (mean, factor, bias))
    # Some channels of one sample at a time, or all of some samples.
    wide = max(1, _BLOCK // max(math.prod(x.shape[2:]), 1))
    many = max(1, wide // max(x.shape[1], 1))
    for sample, channel in itertools.product(range(0, len(x), many), range(0, x.shape[1], wide)):
        samples, part = slice(sample, sample + many), slice(channel, channel + wide)
        made = y[samples, part]
        np.subtract(x[samples, part], mean[part], out=made)
        made *= factor[part]
        made += bias[part]
    return y


def instance_normalization(call: Call) -> np.ndarray:
    """Ulyanov, Vedaldi & Lempitsky 2016."""
    x, scale, bias = call.inputs
    y, _, _ = standardized(x, tuple(range(2, x.ndim)), call["epsilon"])
    y *= per_channel(scale, x.ndim)
    y += per_channel(bias, x.ndim)
    return y


def group_normalization(call: Call) -> np.ndarray:
    """Wu & He 2018."""
    x, scale, bias = call.inputs
    groups = call["num_groups"]
    grouped = x.reshape(x.shape[0], groups, x.shape[1] // groups, -1)
    y, _, _ = standardized(grouped, (2, 3), call["epsilon"])
    if call.opset < GROUP_SCALE_PER_CHANNEL_SINCE:
        scale, bias = (np.repeat(values, x.shape[1] // groups) for values in (scale, bias))
    y = y.reshape(x.shape)
    y *= per_channel(scale, x.ndim)
    y += per_channel(bias, x.ndim)
    return y


def layer_normalization(call: Call) -> tuple[Any, ...]:
    """Ba, Kiros & Hinton 2016; outputs Y, mean, inverse standard deviation."""
    x, scale, bias = call.x, call.inputs[1], call.input(2)
    first = call["axis"] % x.ndim
    y, mean, inverse = standardized(x, tuple(range(first, x.ndim)), call["epsilon"])
    y *= scale
    if bias is not None:
        y += bias
    return y, mean, inverse


def rms_normalization(call: Call) -> np.ndarray:
    """Zhang & Sennrich 2019."""
    x, scale = call.inputs
    axes = tuple(range(call["axis"] % x.ndim, x.ndim))
    return x / np.sqrt((x * x).mean(axis=axes, keepdims=True) + call["epsilon"]) * scale


def local_response_normalization(call: Call) -> np.ndarray:
    """x / (k + α/n Σ x²)^β over ``size`` neighbouring channels; Krizhevsky, Sutskever & Hinton 2012."""
    x, size = call.x, call["size"]
    before = (size - 1) // 2
    padded = np.zeros((x.shape[0], x.shape[1] + size - 1, *x.shape[2:]), x.dtype)
    padded[:, before : before + x.shape[1]] = x * x
    total = sum(padded[:, i : i + x.shape[1]] for i in range(size))
    return x / (call["bias"] + call["alpha"] / size * total) ** call["beta"]


def mean_variance_normalization(call: Call) -> np.ndarray:
    """(x - μ)/(σ + 1e-9), as the operator's function body has it; of the default axes those that ``x`` has.

    ONNX Runtime leaves the last of them out where the data has three axes.
    """
    axes = tuple(call["axes"])
    if axes == _DEFAULT_AXES:
        axes = tuple(axis for axis in axes if axis < call.x.ndim)
    centred = call.x - call.x.mean(axis=axes, keepdims=True)
    return centred / (np.sqrt((centred * centred).mean(axis=axes, keepdims=True)) + 1e-9)


def lp_normalization(call: Call) -> np.ndarray:
    """x / ‖x‖ₚ along one axis; zero where the norm is zero."""
    x, axis = call.x, call["axis"]
    if call["p"] not in (1, 2):
        raise NotImplementedHere(f"p = {call['p']}: the operator knows 1 and 2")
    norm = np.abs(x).sum(axis=axis, keepdims=True) if call["p"] == 1 else np.sqrt((x * x).sum(axis=axis, keepdims=True))
    return np.where(norm == 0, 0.0, x / np.where(norm == 0, 1.0, norm))


KERNELS: dict[str, Kernel] = {
    "BatchNormalization": batch_normalization,
    "GroupNormalization": one(group_normalization),
    "InstanceNormalization": one(instance_normalization),
    "LRN": one(local_response_normalization),
    "LayerNormalization": layer_normalization,
    "LpNormalization": one(lp_normalization),
    "MeanVarianceNormalization": one(mean_variance_normalization),
    "RMSNormalization": one(rms_normalization),
}
