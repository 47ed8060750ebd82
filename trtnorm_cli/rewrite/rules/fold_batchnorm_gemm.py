"""Fold an inference BatchNormalization into the Gemm that feeds it.

Y = α·A·B + β·C with columns as channels, so with s = γ/√(σ²+ε) and t = bias − μ·s

    B' = B · s      C' = β·C · s + t      β' = 1

where s multiplies the columns of B (the rows, when transB is set); a missing C counts as zero, and C broadcasts to [M, N].
Computed in float64, stored in the type of B.
Source: Ioffe & Szegedy 2015; Gemm as in the ONNX operator specification.
"""

from __future__ import annotations

import numpy as np

from trtnorm_cli.rewrite.parts import batchnorm, output_weights
from trtnorm_cli.rewrite.pattern import Const, Var, describe, op, optional
from trtnorm_cli.rewrite.rule import Match, NewNode, Rule

GEMM = op("Gemm", Var("x"), Const("weight"), optional(Const("bias")), name="gemm")


def weight_is_a_matrix(m: Match) -> str | None:
    """the weight of the Gemm is a matrix of a floating type."""
    shape, dtype = m.kind("weight")
    if len(shape) != 2 or not batchnorm.is_float(dtype):
        return f"the weight of {describe(m.node('gemm'))} is {dtype.name} of shape {list(shape)}"
    return None


def parameters_match_columns(m: Match) -> str | None:
    """scale, bias, mean and variance each hold one value per column of the result."""
    columns = m.kind("weight").shape[0 if _is_transposed(m) else 1]
    return batchnorm.channel_mismatch(m, columns, describe(m.node("gemm")))


def folded_values_are_representable(m: Match) -> str | None:
    """the folded weight and bias stay finite in the type of the weight."""
    return output_weights.not_representable(m, fold, _beta(m))


def _is_transposed(m: Match) -> bool:
    return bool(m.node("gemm").attrs.get("transB", 0))


def _beta(m: Match) -> float:
    return float(m.node("gemm").attrs.get("beta", 1.0))


def fold(m: Match) -> tuple[np.ndarray, np.ndarray]:
    """The factors of B and the folded C ([N], or [M, N] when C had rows), float64."""
    scale, _ = batchnorm.scale_and_shift(m)
    return output_weights.with_bias(m, output_weights.gemm_factors(_is_transposed(m), scale), _beta(m))


def folded_gemm(m: Match) -> NewNode:
    return output_weights.with_weights(m, "gemm", *fold(m), beta=1.0)


RULE = Rule(
    name="fold-batchnorm-gemm",
    pattern=op("BatchNormalization", GEMM, *batchnorm.PARAMETERS, name=batchnorm.BATCHNORM),
    preconditions=(
        *batchnorm.PRECONDITIONS,
        weight_is_a_matrix,
        parameters_match_columns,
    ),
    value_preconditions=(folded_values_are_representable,),
    replacement=folded_gemm,
    optional=batchnorm.is_taken_by_tensorrt,
    because="the BatchNormalization scales and shifts each column of the matrix product by constants",
)
