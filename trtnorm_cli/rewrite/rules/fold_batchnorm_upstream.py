"""Fold an inference BatchNormalization into the operators that feed it, through what lies between.

With y = s·x + t, s = γ/√(σ²+ε), t = β − μ·s, an operator with x = op(u) and s·op(u) + t = op(s'·u + t') hands s' and t' on:
Identity, Dropout, Transpose, Reshape, Flatten, Squeeze, Unsqueeze, DepthToSpace, SpaceToDepth, Concat, Split, Slice, Gather,
sums, averages, interpolation, and under conditions maxima, padding and rectifiers. What has weights takes them:

    (s·W)·u + (s·b + t) = s·(W·u + b) + t

Conv, ConvTranspose, Gemm, MatMul with and without a following Add, Mul and Add with a constant, another BatchNormalization.
Weights behind a DequantizeLinear take s in its scales; where s < 0 the integers change their sign. No rounding changes by that.
One branch of a Concat may be left over; it gets a BatchNormalization of its own. A MatMul without a bias gets an Add.
Source: Ioffe & Szegedy 2015; Jacob et al. 2018, §3.2; the operators as in the ONNX operator specification.
"""

from __future__ import annotations

from trtnorm_cli.rewrite.parts import batchnorm
from trtnorm_cli.rewrite.pattern import Var, op
from trtnorm_cli.rewrite.rule import Extent, Match, NewTensors, Rule
from trtnorm_cli.rewrite.scale_shift.affine import CannotMove, per_channel
from trtnorm_cli.rewrite.scale_shift.upstream import UpstreamSearch


def data_has_channels(m: Match) -> str | None:
    """the data has one channel for each value of the parameters, as far as its shape is known."""
    shape = m.shape("x") or ()
    if len(shape) < 2:
        return f"the data of {m.given('x').name} has no channel axis"
    return batchnorm.channel_mismatch(m, shape[1], m.given("x").name) if isinstance(shape[1], int) else None


def extent(m: Match) -> Extent | str:
    """operators before the BatchNormalization can take all of its scale and shift."""
    given = per_channel(*batchnorm.scale_and_shift(m), m.rank("x") or 0)
    try:
        found = UpstreamSearch(m).find(m.given("x"), given)
    except CannotMove as reason:
        return str(reason)
    return found.extent() if found.more <= 1 else f"{found.more} operators would have to be added"


def folded(m: Match) -> NewTensors:
    assert m.extent is not None, "the rule has an extent"
    return m.extent.plan.replacement()


RULE = Rule(
    name="fold-batchnorm-upstream",
    pattern=op("BatchNormalization", Var("x"), *batchnorm.PARAMETERS, name=batchnorm.BATCHNORM),
    preconditions=(*batchnorm.PRECONDITIONS, data_has_channels),
    extent=extent,
    replacement=folded,
    optional=batchnorm.is_taken_by_tensorrt,
    because="the BatchNormalization scales and shifts each channel by constants, which the operators before it can do",
    needs_rank_of=("x",),
)
