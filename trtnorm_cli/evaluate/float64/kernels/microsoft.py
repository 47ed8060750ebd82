"""Normalizations that ONNX Runtime contributes, in the domain com.microsoft, and one that it puts into the default domain.

They have no schema in ONNX, so that attributes which are left out have no value here; the defaults are ONNX Runtime's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trtnorm_cli.evaluate.float64.kernels.call import Call, Kernel, NotImplementedHere, one
from trtnorm_cli.evaluate.float64.kernels.normalization import per_channel, standardized

DOMAIN = "com.microsoft"
_EPSILON, _SKIP_EPSILON = float(np.float32(1e-5)), float(np.float32(1e-12))


def _attribute(call: Call, name: str, default: Any) -> Any:
    return default if call[name] is None else call[name]


def _rms(x: np.ndarray, scale: np.ndarray, axes: tuple[int, ...], epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """x · 1/√(mean(x²) + ε) · γ, and 1/√(mean(x²) + ε); Zhang & Sennrich 2019."""
    inverse = 1.0 / np.sqrt((x * x).mean(axis=axes, keepdims=True) + epsilon)
    return x * inverse * scale, inverse


def simplified_layer_normalization(call: Call) -> tuple[Any, ...]:
    """Outputs Y and 1/√(mean(x²) + ε)."""
    x, scale = call.inputs[:2]
    axes = tuple(range(_attribute(call, "axis", -1) % x.ndim, x.ndim))
    return _rms(x, scale, axes, _attribute(call, "epsilon", _EPSILON))


def skip_layer_normalization(call: Call) -> tuple[Any, ...]:
    """Of x + skip (+ bias); outputs Y, two that are not computed, and the sum."""
    x, skip, scale, shift, bias = (call.input(index) for index in range(5))
    total = x + skip if bias is None else x + skip + bias
    y = standardized(total, (-1,), _attribute(call, "epsilon", _SKIP_EPSILON))[0] * scale
    return (y if shift is None else y + shift), None, None, total


def skip_simplified_layer_normalization(call: Call) -> tuple[Any, ...]:
    """As :func:`skip_layer_normalization`, without the mean and without a shift."""
    x, skip, scale, bias = (call.input(index) for index in range(4))
    total = x + skip if bias is None else x + skip + bias
    return _rms(total, scale, (-1,), _attribute(call, "epsilon", _SKIP_EPSILON))[0], None, None, total


def group_norm(call: Call) -> np.ndarray:
    """Wu & He 2018, followed by SiLU where activation is 1; channels last unless the node says otherwise."""
    x, scale, bias = call.inputs
    if x.ndim != 4:
        raise NotImplementedHere(f"{x.ndim} axes: the operator knows 4")
    last = _attribute(call, "channels_last", 1)
    data = np.moveaxis(x, -1, 1) if last else x
    grouped = data.reshape(data.shape[0], call["groups"], -1)
    y = standardized(grouped, (2,), _attribute(call, "epsilon", _EPSILON))[0].reshape(data.shape)
    y = y * per_channel(scale, 4) + per_channel(bias, 4)
    y = y / (1.0 + np.exp(-y)) if call["activation"] else y
    return np.moveaxis(y, 1, -1) if last else y


KERNELS: dict[str, Kernel] = {"SimplifiedLayerNormalization": simplified_layer_normalization}
CONTRIBUTED: dict[str, Kernel] = {
    "GroupNorm": one(group_norm),
    "SkipLayerNormalization": skip_layer_normalization,
    "SkipSimplifiedLayerNormalization": skip_simplified_layer_normalization,
}
