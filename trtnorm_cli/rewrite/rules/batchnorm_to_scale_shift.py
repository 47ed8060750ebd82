"""Turn an inference BatchNormalization that nothing absorbs into one multiplication and one addition per channel.

    y = s·x + t      s = γ/√(σ²+ε)      t = β − μ·s

s and t are computed in float64 and shaped [C, 1, …, 1] to broadcast along the channel axis. For float16 and bfloat16 data the
two operations run in float32 between two casts: x·s and t can each be much larger than their sum, and TensorRT would round
the parameters to the type of the data.

TensorRT for RTX makes the same kernels of float32 data either way, and takes 7 ms less for each BatchNormalization that stays
(62 of DenseNet-121). So images and volumes of float32 keep theirs, but under ``optimize: always`` or ``kernels`` and before
another precision. Of data with fewer axes TensorRT's parser makes further layers for the shape.
Source: Ioffe & Szegedy 2015.
"""

from __future__ import annotations

import numpy as np
import onnx

from trtnorm_cli.rewrite.parts import batchnorm
from trtnorm_cli.rewrite.pattern import Var, describe, op
from trtnorm_cli.rewrite.rule import Match, NewConstant, NewNode, Rule

# The axes of images and volumes, of which TensorRT's parser makes one SCALE layer.
_SCALED_AS_THEY_ARE = (4, 5)
_HALF_TYPES = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)


def data_has_channels(m: Match) -> str | None:
    """the data has a known type and at least two axes, batch and channel."""
    kind = m.type_of(m.tensor("x"))
    if kind is None or not kind.dtype:
        return f"the type of the data of {describe(m.node(batchnorm.BATCHNORM))} is not known"
    if kind.shape is None or len(kind.shape) < 2:
        return f"the data of {describe(m.node(batchnorm.BATCHNORM))} has no channel axis"
    return None


def gains_something(m: Match) -> str | None:
    """the data is no image or volume of float32, or the build profile asks for more than ``optimize: auto``."""
    if m.settings.last_resorts or not batchnorm.is_taken_by_tensorrt(m) or m.rank("x") not in _SCALED_AS_THEY_ARE:
        return None
    return "TensorRT takes it as it is, and nothing absorbs it"


def parameters_match_channels(m: Match) -> str | None:
    """scale, bias, mean and variance each hold one value per channel of the data, as far as the count is known."""
    kind = m.type_of(m.tensor("x"))
    channels = kind.shape[1] if kind is not None and kind.shape is not None else None
    if not isinstance(channels, int):
        return None
    tensor = m.tensor("x")
    producer = describe(tensor.inputs[0]) if tensor is not None and tensor.inputs else "the input"
    return batchnorm.channel_mismatch(m, channels, producer)


def scale_and_shift_are_representable(m: Match) -> str | None:
    """scale and shift stay finite in the type in which they are applied."""
    dtype = _compute_dtype(m)
    scale, shift = batchnorm.scale_and_shift(m)
    return batchnorm.not_representable(scale, dtype, "the scale") or batchnorm.not_representable(shift, dtype, "the shift")


def _data_type(m: Match) -> int:
    kind = m.type_of(m.tensor("x"))
    assert kind is not None, "data_has_channels holds"
    return kind.dtype


def _compute_dtype(m: Match) -> np.dtype:
    data_type = _data_type(m)
    return np.dtype(np.float32) if data_type in _HALF_TYPES else onnx.helper.tensor_dtype_to_np_dtype(data_type)


def scale_and_shift_nodes(m: Match) -> NewNode:
    rank = m.rank("x")
    assert rank is not None, "the driver has asked for the rank"
    dtype, data_type = _compute_dtype(m), _data_type(m)
    scale, shift = (v.astype(dtype).reshape(-1, *[1] * (rank - 2)) for v in batchnorm.scale_and_shift(m))
    data = m.tensor("x")
    if data_type in _HALF_TYPES:
        data = NewNode("Cast", (data,), {"to": onnx.TensorProto.FLOAT}, role="to_float32")
    scaled = NewNode("Mul", (data, NewConstant("scale", scale)), role="mul")
    shifted = NewNode("Add", (scaled, NewConstant("shift", shift)), role="add")
    return NewNode("Cast", (shifted,), {"to": data_type}, role="cast_back") if data_type in _HALF_TYPES else shifted


RULE = Rule(
    name="batchnorm-to-scale-shift",
    pattern=op("BatchNormalization", Var("x"), *batchnorm.PARAMETERS, name=batchnorm.BATCHNORM),
    preconditions=(
        *batchnorm.PRECONDITIONS,
        data_has_channels,
        gains_something,
        parameters_match_channels,
        scale_and_shift_are_representable,
    ),
    replacement=scale_and_shift_nodes,
    optional=batchnorm.is_taken_by_tensorrt,
    because="the statistics are constants, so each channel is scaled and shifted by constants",
    needs_rank_of=("x",),
    last_resort=True,
)
