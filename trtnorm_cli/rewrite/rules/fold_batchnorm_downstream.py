"""Fold an inference BatchNormalization into the operators that read it, as in pre-activation networks.

With y = s·x + t, s = γ/√(σ²+ε), t = β − μ·s, every operator that reads y takes them into its weights,

    W·(s·x + t) + b = (W·s)·x + (b + W·t)

directly or behind operators that pass a scale and shift on (those of ``fold-batchnorm-upstream``). A convolution that pads
with zeros takes a scale only: its zeros are not shifted, so that the border would need another bias than the plane.
Source: Ioffe & Szegedy 2015; He et al. 2016, "Identity Mappings in Deep Residual Networks"; Jacob et al. 2018, §3.2.
"""

from __future__ import annotations

from trtnorm_cli.rewrite.parts import batchnorm
from trtnorm_cli.rewrite.pattern import Var, op
from trtnorm_cli.rewrite.rule import Extent, Match, NewTensors, Rule
from trtnorm_cli.rewrite.rules.fold_batchnorm_upstream import data_has_channels
from trtnorm_cli.rewrite.scale_shift.affine import CannotMove, per_channel
from trtnorm_cli.rewrite.scale_shift.downstream import search_downstream


def extent(m: Match) -> Extent | str:
    """all operators that read the BatchNormalization can take its scale and shift."""
    given = per_channel(*batchnorm.scale_and_shift(m), m.rank("x") or 0)
    try:
        found = search_downstream(m, m.given("x"), given)
    except CannotMove as reason:
        return str(reason)
    return found.extent() if found.more <= 1 else f"{found.more} operators would have to be added"


def folded(m: Match) -> NewTensors:
    assert m.extent is not None, "the rule has an extent"
    return m.extent.plan.replacement()


RULE = Rule(
    name="fold-batchnorm-downstream",
    pattern=op("BatchNormalization", Var("x"), *batchnorm.PARAMETERS, name=batchnorm.BATCHNORM),
    preconditions=(*batchnorm.PRECONDITIONS, data_has_channels),
    extent=extent,
    replacement=folded,
    optional=batchnorm.is_taken_by_tensorrt,
    because="the operators that read the BatchNormalization can scale and shift with their weights",
    needs_rank_of=("x",),
)
