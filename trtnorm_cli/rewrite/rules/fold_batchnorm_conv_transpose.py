"""Fold an inference BatchNormalization into the transposed convolution that feeds it.

    W' = W · γ/√(σ²+ε)      b' = β + (b − μ) · γ/√(σ²+ε)

The weight is [C_in, C_out/G, ...]: with G groups, row i holds the outputs of group i // (C_in/G), so the factor of
W[i, j] is that of output channel (i // (C_in/G)) · C_out/G + j. Computed in float64, stored in the type of W.
Source: Ioffe & Szegedy 2015; the weight layout is that of ConvTranspose in the ONNX operator specification.
"""

from __future__ import annotations

import numpy as np

from trtnorm_cli.rewrite.parts import batchnorm, output_weights
from trtnorm_cli.rewrite.pattern import Const, Var, describe, op, optional
from trtnorm_cli.rewrite.rule import Match, NewNode, Rule

CONV = op("ConvTranspose", Var("x"), Const("weight"), optional(Const("bias")), name="conv")


def weight_has_kernel_axes(m: Match) -> str | None:
    """the weight of the transposed convolution has two axes of channels and at least one of the kernel."""
    return output_weights.lacks_kernel_axes(m, "conv")


def groups_divide_input_channels(m: Match) -> str | None:
    """the number of groups divides the input channels of the weight."""
    channels, groups = m.kind("weight").shape[0], _groups(m)
    if groups < 1 or channels % groups:
        return f"{describe(m.node('conv'))} has {channels} input channels in {groups} groups"
    return None


def parameters_match_output_channels(m: Match) -> str | None:
    """scale, bias, mean and variance each hold one value per output channel of the transposed convolution."""
    return batchnorm.channel_mismatch(m, m.kind("weight").shape[1] * _groups(m), describe(m.node("conv")))


def bias_is_a_vector(m: Match) -> str | None:
    """the bias of the transposed convolution, if there is one, is a vector with one value per output channel."""
    channels = m.kind("weight").shape[1] * _groups(m)
    if not m.has("bias") or m.kind("bias").shape == (channels,):
        return None
    return f"the bias of {describe(m.node('conv'))} has shape {list(m.value('bias').shape)}, not [{channels}]"


def folded_values_are_representable(m: Match) -> str | None:
    """the folded weight and bias stay finite in the type of the weight."""
    return output_weights.not_floating(m, "conv") or output_weights.not_representable(m, fold)


def _groups(m: Match) -> int:
    return int(m.node("conv").attrs.get("group", 1))


def fold(m: Match) -> tuple[np.ndarray, np.ndarray]:
    """The factors of W and the folded bias (C_out), float64."""
    scale, _ = batchnorm.scale_and_shift(m)
    return output_weights.with_bias(m, output_weights.transposed_convolution_factors(m.kind("weight").shape, _groups(m), scale))


def folded_convolution(m: Match) -> NewNode:
    return output_weights.with_weights(m, "conv", *fold(m))


RULE = Rule(
    name="fold-batchnorm-conv-transpose",
    pattern=op("BatchNormalization", CONV, *batchnorm.PARAMETERS, name=batchnorm.BATCHNORM),
    preconditions=(
        *batchnorm.PRECONDITIONS,
        weight_has_kernel_axes,
        groups_divide_input_channels,
        parameters_match_output_channels,
        bias_is_a_vector,
    ),
    value_preconditions=(folded_values_are_representable,),
    replacement=folded_convolution,
    optional=batchnorm.is_taken_by_tensorrt,
    because="the BatchNormalization scales and shifts each output channel of the transposed convolution by constants",
)
