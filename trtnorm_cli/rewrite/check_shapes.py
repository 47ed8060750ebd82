"""The input shapes at which changes are proved."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from trtnorm_cli.onnx_model.shapes import TensorType, default_pins, model_inputs, pinned_types

# Sizes tried for unknown spatial dimensions when no profile says which sizes the model takes.
_SPATIAL_PINS = (32, 64, 128, 224, 256, 512)


def check_types(model: onnx.ModelProto, pins: Mapping[str, tuple[int, ...]] | None) -> dict[str, TensorType]:
    """Types of all tensors at the shapes at which changes are proved."""
    if pins is not None:
        return pinned_types(model, pins)
    if all(kind.is_static for kind in model_inputs(model).values()):
        return pinned_types(model, default_pins(model))
    for size in _SPATIAL_PINS:
        types = pinned_types(model, default_pins(model, size))
        if not any(_vanishes(kind) for kind in types.values()):
            break
    return types


def _vanishes(kind: TensorType) -> bool:
    """True for a tensor without elements: the input was too small for the model."""
    return any(isinstance(size, int) and size <= 0 for size in kind.shape or ())
