"""The common part of the BatchNormalization rules: the parameters of the pattern, when they can be trusted, and their algebra.

An inference BatchNormalization is y = (x − μ) · γ/√(σ²+ε) + β per channel (Ioffe & Szegedy 2015), that is y = s·x + t with
s = γ/√(σ²+ε) and t = β − μ·s.
"""

from __future__ import annotations

from collections.abc import Iterable

import ml_dtypes
import numpy as np
import onnx

from trtnorm_cli.rewrite.channels import DEFAULT_EPSILON, channels_where
from trtnorm_cli.rewrite.pattern import Const, Var, describe
from trtnorm_cli.rewrite.rule import Match, NewConstant, NewNode

PARAMETERS = (Const("scale"), Const("shift"), Const("mean"), Const("variance"))
# The same, in the file or computed at run time.
ANY_PARAMETERS = tuple(Var(parameter.name) for parameter in PARAMETERS)
PARAMETER_NAMES = tuple(parameter.name for parameter in PARAMETERS)
# In a pattern "bias" is that of the convolution; in messages the operator's own names are used.
_ROLES = dict(zip(PARAMETER_NAMES, ("scale", "bias", "mean", "variance"), strict=True))
BATCHNORM = "batchnorm"


def is_inference(m: Match) -> str | None:
    """the BatchNormalization uses its running statistics: it is not in training mode and has one output."""
    node = m.node(BATCHNORM)
    if m.opset >= 14:
        if node.attrs.get("training_mode", 0):
            return f"{describe(node)} has training_mode=1: it normalizes with the statistics of the batch"
        return None
    named = [tensor.name for tensor in node.outputs if tensor.name]
    if len(named) > 1:
        return f"{describe(node)} has {len(named)} outputs, which means training before opset 14"
    return None


def is_per_channel(m: Match) -> str | None:
    """the BatchNormalization has one value per channel, not per element (``spatial=0`` of opset 7 and 8)."""
    node = m.node(BATCHNORM)
    if m.opset < 9 and node.attrs.get("spatial", 1) == 0:
        return f"{describe(node)} has spatial=0: it normalizes each element on its own"
    return None


def parameters_agree(m: Match) -> str | None:
    """scale, bias, mean and variance are vectors of one length."""
    shapes = {name: m.value(name).shape for name in PARAMETER_NAMES}
    if any(len(shape) != 1 for shape in shapes.values()) or len(set(shapes.values())) != 1:
        listed = ", ".join(f"{_ROLES[name]} {list(shape)}" for name, shape in shapes.items())
        return f"the parameters of {describe(m.node(BATCHNORM))} are not vectors of one length: {listed}"
    return None


def parameters_are_finite(m: Match) -> str | None:
    """scale, bias, mean and variance hold no NaN and no infinity."""
    return next((reason for name in PARAMETER_NAMES if (reason := not_finite(m, name)) is not None), None)


def variance_is_positive(m: Match) -> str | None:
    """variance + epsilon is above zero in every channel."""
    shifted = m.value("variance").astype(np.float64) + epsilon(m)
    where = channels_where(shifted <= 0, shifted)
    return where and f"variance + epsilon of {describe(m.node(BATCHNORM))} is not positive in {where}"


PRECONDITIONS = (is_inference, is_per_channel, parameters_agree, parameters_are_finite, variance_is_positive)


def is_taken_by_tensorrt(m: Match) -> bool:
    """True for float32 data with float32 parameters: TensorRT makes one SCALE layer of it and computes it rightly.

    Other types it rounds to that of the data, or computes in a dozen layers.
    """
    return has_float32_data(m) and all(m.value(name).dtype == np.float32 for name in PARAMETER_NAMES)


def has_float32_data(m: Match) -> bool:
    """True unless the data is known to be of another type."""
    kind = m.type_of(m.node(BATCHNORM).inputs[0])
    return kind is None or kind.dtype in (0, onnx.TensorProto.FLOAT)


def with_parameters(m: Match, parameters: Iterable[NewConstant], role: str) -> NewNode:
    """The same node with other parameters. In training mode it keeps its outputs: before opset 14 they mean training."""
    inputs = (m.given("x"), *parameters)
    outputs = 1 if is_inference(m) is None else len(m.root.outputs)
    return NewNode("BatchNormalization", inputs, dict(m.root.attrs), name=m.root.name, role=role, outputs=outputs)


def epsilon(m: Match) -> float:
    """The epsilon attribute; ONNX stores it in float32."""
    return float(m.node(BATCHNORM).attrs.get("epsilon", DEFAULT_EPSILON))


def scale_and_shift(m: Match) -> tuple[np.ndarray, np.ndarray]:
    """s and t of y = s·x + t, float64 vectors with one value per channel."""
    scale, shift, mean, variance = (m.value(name).astype(np.float64) for name in PARAMETER_NAMES)
    factor = scale / np.sqrt(variance + epsilon(m))
    return factor, shift - mean * factor


def channel_mismatch(m: Match, channels: int, owner: str) -> str | None:
    """None when there is one parameter per channel; else the two counts and who they belong to."""
    count = m.value("scale").shape[0]
    if count == channels:
        return None
    return f"{describe(m.node(BATCHNORM))} has {count} values per parameter, but {owner} makes {channels} channels"


def not_representable(values: np.ndarray, dtype: np.dtype, what: str) -> str | None:
    """None when ``values`` stay finite in ``dtype``; else where they do not."""
    with np.errstate(over="ignore"):
        bad = np.flatnonzero(~np.isfinite(values.astype(dtype).astype(np.float64)))
    if bad.size == 0:
        return None
    worst = float(np.max(np.abs(values)))
    return f"{what} reaches {worst:.3g}, more than {dtype.name} holds ({float(ml_dtypes.finfo(dtype).max):.3g})"


def is_float(dtype: np.dtype) -> bool:
    """True for float16, bfloat16, float32 and float64."""
    return dtype in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32), np.dtype(np.float64))


def not_finite(m: Match, name: str) -> str | None:
    """None when the parameter ``name`` holds no NaN and no infinity; else the channels where it does, with their values."""
    values = m.value(name).reshape(-1)
    where = channels_where(~np.isfinite(values.astype(np.float64)), values)
    return where and f"{_tensor_name(m, name)} ({_ROLES[name]}) is not finite in {where}"


def _tensor_name(m: Match, name: str) -> str:
    tensor = m.tensor(name)
    return "" if tensor is None else str(tensor.name)
