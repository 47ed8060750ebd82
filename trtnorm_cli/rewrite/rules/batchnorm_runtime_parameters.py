"""Reduce an inference BatchNormalization with parameters of run time to one multiplication and one addition of the data.

    y = s·x + t      s = γ/√(σ²+ε)      t = β − μ·s

s and t have one value per channel, so that all but the last two operations are small; TensorRT's own import of such a node
makes six or more of full size. What is known of γ, β, μ and σ² is computed in float64. Half-precision data are scaled in
float32.
Source: Ioffe & Szegedy 2015.
"""

from __future__ import annotations

import numpy as np

from trtnorm_cli.rewrite.parts import batchnorm
from trtnorm_cli.rewrite.parts.arithmetic import arithmetic_for, data_type
from trtnorm_cli.rewrite.parts.data_channels import along_channels, misfit, type_and_rank_are_known
from trtnorm_cli.rewrite.pattern import Var, describe, op
from trtnorm_cli.rewrite.rule import Match, NewNode, Rule


def a_parameter_is_computed(m: Match) -> str | None:
    """scale, bias, mean or variance is computed by the graph, or is an input of it."""
    if any(not m.surgery.is_constant(m.given(name)) for name in batchnorm.PARAMETER_NAMES):
        return None
    return f"all parameters of {describe(m.root)} are constants"


def parameters_fit(m: Match) -> str | None:
    """each parameter is known to be a vector, with one value per channel as far as the counts are known."""
    return misfit(m, batchnorm.PARAMETER_NAMES)


def known_parameters_are_finite(m: Match) -> str | None:
    """those parameters that are constants hold no NaN and no infinity, and a constant variance + epsilon is positive."""
    known = [name for name in batchnorm.PARAMETER_NAMES if m.surgery.is_constant(m.given(name))]
    reason = next((reason for name in known if (reason := batchnorm.not_finite(m, name)) is not None), None)
    return reason or (batchnorm.variance_is_positive(m) if "variance" in known else None)


def scale_and_shift_nodes(m: Match) -> NewNode:
    a, along = arithmetic_for(m), along_channels(m)
    scale, shift, mean, variance = (a.raised(m.given(name), f"raise_{name}") for name in batchnorm.PARAMETER_NAMES)
    deviation = a.sqrt(a.binary("Add", variance, np.full(1, batchnorm.epsilon(m)), "epsilon"))
    factor = a.binary("Div", scale, deviation, "factor")
    offset = a.binary("Sub", shift, a.binary("Mul", mean, factor, "mean_scaled"), "offset")
    data = a.raised(m.given("x"), "to_float32")
    scaled = a.binary("Mul", data, a.reshape(factor, along, "factor_per_channel"), "mul")
    return a.lowered(a.binary("Add", scaled, a.reshape(offset, along, "offset_per_channel"), "add"), data_type(m))


RULE = Rule(
    name="batchnorm-runtime-parameters",
    pattern=op("BatchNormalization", Var("x"), *batchnorm.ANY_PARAMETERS, name=batchnorm.BATCHNORM),
    preconditions=(
        a_parameter_is_computed,
        batchnorm.is_inference,
        batchnorm.is_per_channel,
        type_and_rank_are_known,
        parameters_fit,
        known_parameters_are_finite,
    ),
    replacement=scale_and_shift_nodes,
    optional=batchnorm.has_float32_data,
    because="scale and shift of each channel can be computed before they meet the data",
    positive=("variance",),
)
