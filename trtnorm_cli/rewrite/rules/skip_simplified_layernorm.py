"""Write ONNX Runtime's fused sum and root-mean-square normalization as the two that it was made from.

    s = x + skip (+ bias)      y = s / √(mean(s²)+ε) · γ

over the last axis. TensorRT takes the operator in some forms, but nobody can tell the shapes behind it: ONNX does not know it.
Source: Zhang & Sennrich 2019; SkipSimplifiedLayerNormalization in the contributed operators of ONNX Runtime, 2024.
"""

from __future__ import annotations

from trtnorm_cli.rewrite.parts import skip_sum
from trtnorm_cli.rewrite.parts.arithmetic import arithmetic_for, data_type
from trtnorm_cli.rewrite.parts.data_channels import type_and_rank_are_known
from trtnorm_cli.rewrite.parts.standardised import standardised
from trtnorm_cli.rewrite.pattern import Var, op, optional
from trtnorm_cli.rewrite.rule import Match, NewOutputs, Rule


def sum_and_root_mean_square(m: Match) -> NewOutputs:
    a, total = arithmetic_for(m), skip_sum.total(m)
    normalized = standardised(a, total, (-1,), skip_sum.epsilon(m), centred=False).value
    y = a.binary("Mul", normalized, a.raised(m.given("scale"), "raise_scale"), "scaled")
    return skip_sum.outputs(m, y, total, data_type(m))


RULE = Rule(
    name="skip-simplified-layernorm",
    pattern=op(
        "SkipSimplifiedLayerNormalization",
        Var("x"),
        Var("skip"),
        Var("scale"),
        optional(Var("bias")),
        name="normalization",
        domain="com.microsoft",
    ),
    preconditions=(type_and_rank_are_known, skip_sum.statistics_are_not_used),
    replacement=sum_and_root_mean_square,
    because="the operator, which ONNX does not know, is a sum and a normalization by the root mean square",
    replaces_further_outputs=True,
)
