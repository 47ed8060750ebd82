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

from trtnorm_cli.rewrite.norms.blocks import Blocks, as_scale_and_shift
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


def large_instances(m: Match) -> Blocks | None:
    """The instances of float32 data, where builds decide and they are not known to be small.

    Data with three axes is mostly another tensor's groups in rows, which then have no layout of their own.
    """
    if not m.settings.measured or (m.rank("x") or 0) < 4 or no_plugin_is_wanted(m) or type_and_channels_are_known(m):
        return None
    blocks = None if parameters_are_per_channel(m) else blocks_of_node(m)
    if blocks is None or blocks.composition.dtype != onnx.TensorProto.FLOAT:
        return None
    return blocks if blocks.row is None or blocks.row > SMALL_INSTANCE else None


def scaled_and_shifted(m: Match) -> NewNode:
    return as_scale_and_shift(m, blocks_of_node(m))


RULE = Rule(
    name="normalization-to-scale-shift",
    pattern=op("InstanceNormalization", Var("x"), Const("scale"), Const("bias"), name=NORM),
    preconditions=(),
    subject=large_instances,
    replacement=scaled_and_shifted,
    optional=lambda m: True,
    because="statistics alone are computed along rows, and the data is read as it is",
)
