"""Fold an inference BatchNormalization into the convolution that feeds it.

    W' = W · γ/√(σ²+ε)      b' = β + (b − μ) · γ/√(σ²+ε)

with one factor per output channel, the first axis of W; a missing b counts as zero. Grouped and depthwise convolutions keep
their output channels on that axis, so nothing changes for them. Computed in float64, stored in the type of W.
Source: Ioffe & Szegedy 2015, "Batch Normalization"; Jacob et al. 2018, §3.2.
"""

from __future__ import annotations

import numpy as np

from trtnorm_cli.rewrite.parts import batchnorm, output_weights
from trtnorm_cli.rewrite.pattern import Const, Var, describe, op, optional
from trtnorm_cli.rewrite.rule import Match, NewNode, Rule

CONV = op("Conv", Var("x"), Const("weight"), optional(Const("bias")), name="conv")


def weight_has_kernel_axes(m: Match) -> str | None:
    """the weight of the convolution has two axes of channels and at least one of the kernel."""
    return output_weights.lacks_kernel_axes(m, "conv")


def parameters_match_output_channels(m: Match) -> str | None:
    """scale, bias, mean and variance each hold one value per output channel of the convolution."""
    return batchnorm.channel_mismatch(m, m.kind("weight").shape[0], describe(m.node("conv")))


def bias_is_a_vector(m: Match) -> str | None:
    """the bias of the convolution, if there is one, is a vector with one value per output channel."""
    if not m.has("bias") or m.kind("bias").shape == (m.kind("weight").shape[0],):
        return None
    return f"the bias of {describe(m.node('conv'))} has shape {list(m.value('bias').shape)}, not one value per channel"


def folded_values_are_representable(m: Match) -> str | None:
    """the folded weight and bias stay finite in the type of the weight."""
    return output_weights.not_floating(m, "conv") or output_weights.not_representable(m, fold)


def fold(m: Match) -> tuple[np.ndarray, np.ndarray]:
    """The factors of W and the folded bias (C), float64."""
    scale, _ = batchnorm.scale_and_shift(m)
    return output_weights.with_bias(m, output_weights.convolution_factors(len(m.kind("weight").shape), scale))


def folded_convolution(m: Match) -> NewNode:
    return output_weights.with_weights(m, "conv", *fold(m))


RULE = Rule(
    name="fold-batchnorm-conv",
    pattern=op("BatchNormalization", CONV, *batchnorm.PARAMETERS, name=batchnorm.BATCHNORM),
    preconditions=(
        *batchnorm.PRECONDITIONS,
        weight_has_kernel_axes,
        parameters_match_output_channels,
        bias_is_a_vector,
    ),
    value_preconditions=(folded_values_are_representable,),
    replacement=folded_convolution,
    optional=batchnorm.is_taken_by_tensorrt,
    because="the BatchNormalization scales and shifts each output channel of the convolution by constants",
)
