"""Turn the statistics of instances into a scale and a shift per channel, with which the data is read in its own layout.

    InstanceNormalization(x, γ, β) = x · a + o      a = γ / √(var(r) + ε),  o = β − mean(r) · a,  r = R(x): [N, C, H·W]

Centred data is then not written between the two, and what follows the statistics reads the data as the convolution left it. It
rounds like the original: both lose what the mean is larger than the deviation. Where instances are small, one kernel does all
of it, and normalization-in-rows is as good. Where data is float32 and instances are large, or of a size that is known at run
time only, builds decide.
Source: Ulyanov et al. 2016, "Instance Normalization"; as a scale and a shift: Ioffe & Szegedy 2015, "Batch Normalization",
algorithm 2.
"""

from __future__ import annotations

import onnx

from trtnorm_cli.rewrite.norms.blocks import as_scale_and_shift
from trtnorm_cli.rewrite.pattern import Const, Var, op
from trtnorm_cli.rewrite.rule import Match, NewNode, Rule
from trtnorm_cli.rewrite.rules.normalization_in_rows import (
    NORM,
    blocks_of_node,
    no_plugin_is_wanted,
    parameters_are_per_channel,
    type_and_channels_are_known,
)

# Instances of up to this many values TensorRT for RTX 1.7 normalizes in one kernel, also between transpositions and paddings.
SMALL_INSTANCE = 2048


def measured_planes(m: Match) -> tuple[int | str | None, ...] | None:
    """The shape of data with a plane or more behind the channels, where builds decide.

    Data with three axes is mostly another tensor's groups in rows, which then have no layout of their own.
    """
    shape = m.shape("x")
    return shape if m.settings.allows_measured() and shape is not None and len(shape) > 3 else None


def data_is_float32(m: Match) -> str | None:
    """the data is float32, so that statistics are computed in its own type."""
    if blocks_of_node(m).composition.dtype == onnx.TensorProto.FLOAT:
        return None
    return f"{m.given('x').name} is not float32, and would be cast twice"


def instances_are_not_known_to_be_small(m: Match) -> str | None:
    """an instance is too large for one kernel that also does what follows, as far as that is known."""
    row = blocks_of_node(m).row
    return None if row is None or row > SMALL_INSTANCE else f"an instance has {row} values only"


def scaled_and_shifted(m: Match) -> NewNode:
    return as_scale_and_shift(m, blocks_of_node(m))


RULE = Rule(
    name="normalization-to-scale-shift",
    pattern=op("InstanceNormalization", Var("x"), Const("scale"), Const("bias"), name=NORM),
    preconditions=(
        no_plugin_is_wanted,
        type_and_channels_are_known,
        parameters_are_per_channel,
        data_is_float32,
        instances_are_not_known_to_be_small,
    ),
    subject=measured_planes,
    replacement=scaled_and_shifted,
    optional=lambda m: True,
    because="statistics alone are computed along rows, and the data is read as it is",
)
