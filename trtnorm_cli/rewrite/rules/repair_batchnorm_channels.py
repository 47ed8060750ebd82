"""Give a BatchNormalization whose parameters do not fit its channels the parameters that are meant.

    y_c = (x_c − μ_i) · γ_i/√(σ²_i+ε) + β_i      i = i(c) by the reading

Such a model is invalid: ONNX Runtime refuses it, and TensorRT says "shift weights has count 16 but 64 was expected". A reading
is taken when the file supports exactly one (i = c·n/C where the graph states n groups, i = c where the tail repeats the head,
the axis of x that is as long as the parameters), when a checkpoint has the right tensors, or when the build profile names it.
Source: Ioffe & Szegedy 2015; one value per group as in Wu & He 2018, "Group Normalization".
"""

from __future__ import annotations

import numpy as np

from trtnorm_cli.rewrite.audit.readings import axis_of
from trtnorm_cli.rewrite.parts import batchnorm, training
from trtnorm_cli.rewrite.parts import channel_readings as readings
from trtnorm_cli.rewrite.parts.arithmetic import arithmetic_for, data_type
from trtnorm_cli.rewrite.parts.data_channels import type_and_rank_are_known
from trtnorm_cli.rewrite.parts.definition import definition
from trtnorm_cli.rewrite.pattern import Var, describe, op
from trtnorm_cli.rewrite.rule import Match, NewConstant, NewNode, Rule


def values_are_finite(m: Match) -> str | None:
    """the parameters as they are read are finite, and their variance + epsilon, where it is used, is above zero."""
    reason = readings.not_finite(m)
    if reason is not None or training.is_training(m) is None:
        return reason
    if (readings.values(m)["variance"].astype(np.float64) + batchnorm.epsilon(m) <= 0).any():
        return f"variance + epsilon of {describe(m.root)} is not positive in every channel"
    return None


def as_it_is_meant(m: Match) -> NewNode:
    values, axis = readings.values(m), axis_of(readings.decided(m)[1])
    if axis is not None:
        return _along_axis(m, values, axis)
    return batchnorm.with_parameters(m, (NewConstant(name, value) for name, value in values.items()), "as_meant")


def _along_axis(m: Match, values: dict[str, np.ndarray], axis: int) -> NewNode:
    a, shape = arithmetic_for(m), m.shape("x")
    assert shape is not None, "type_and_rank_are_known holds"
    scale, shift, mean, variance = (value.astype(np.float64) for value in values.values())
    factor = scale / np.sqrt(variance + batchnorm.epsilon(m))
    along = (-1, *[1] * (len(shape) - 1 - axis))
    scaled = a.binary("Mul", a.raised(m.given("x"), "to_float32"), factor.reshape(along), "scale")
    return a.lowered(a.binary("Add", scaled, (shift - mean * factor).reshape(along), "shift"), data_type(m))


def as_the_reading_defines_it(m: Match) -> NewNode:
    """The reading in elementary operators: each channel picks its value, or the axis is brought to the channels' place."""
    picked = {name: readings.picked(m, name) for name in batchnorm.PARAMETER_NAMES}
    axis = axis_of(readings.decided(m)[1])
    if axis is None:
        return definition(m, picked)
    a, order = arithmetic_for(m), readings.order_with_channels_first(m, axis)
    data = NewNode("Transpose", (a.operand(a.raised(m.given("x")), "data"),), {"perm": order})
    return NewNode("Transpose", (definition(m, picked, data),), {"perm": order})


RULE = Rule(
    name="repair-batchnorm-channels",
    pattern=op("BatchNormalization", Var("x"), *batchnorm.PARAMETERS, name=batchnorm.BATCHNORM),
    preconditions=(
        batchnorm.is_per_channel,
        type_and_rank_are_known,
        readings.counts_do_not_fit,
        readings.one_reading_is_certain,
        values_are_finite,
    ),
    replacement=as_it_is_meant,
    because="its parameters do not fit its channels, and one reading of them is certain or was asked for",
    warning=readings.warning,
    reference=as_the_reading_defines_it,
    changes_meaning=readings.asked_for,
)
