"""Write ONNX Runtime's fused sum and layer normalization as the two that it was made from.

    s = x + skip (+ bias)      y = LN(s) · γ + β

over the last axis. TensorRT does not know the operator.
Source: Ba, Kiros & Hinton 2016; SkipLayerNormalization in the contributed operators of ONNX Runtime, 2024.
"""

from __future__ import annotations

from trtnorm_cli.rewrite.parts import skip_sum
from trtnorm_cli.rewrite.parts.arithmetic import Operand, arithmetic_for, data_type
from trtnorm_cli.rewrite.parts.data_channels import type_and_rank_are_known
from trtnorm_cli.rewrite.parts.standardised import standardised
from trtnorm_cli.rewrite.pattern import Var, op, optional
from trtnorm_cli.rewrite.rule import Match, NewNode, NewOutputs, Rule

_LAYER_SINCE = 17


def sum_and_layer_normalization(m: Match) -> NewOutputs:
    total = skip_sum.total(m)
    return skip_sum.outputs(m, _layer_normalization(m, total), total, data_type(m))


def _layer_normalization(m: Match, total: NewNode) -> Operand:
    a, epsilon = arithmetic_for(m), skip_sum.epsilon(m)
    parameters = [a.raised(m.given(name), f"raise_{name}") for name in ("scale", "shift") if m.has(name)]
    if m.opset >= _LAYER_SINCE:
        inputs = (total, *(a.operand(value, role) for value, role in zip(parameters, ("scale", "shift"), strict=False)))
        attributes = {"axis": -1, "epsilon": epsilon}
        return NewNode("LayerNormalization", inputs, attributes, name=m.root.name, role="normalized")
    y = a.binary("Mul", standardised(a, total, (-1,), epsilon).value, parameters[0], "scaled")
    return a.binary("Add", y, parameters[1], "shifted") if len(parameters) > 1 else y


RULE = Rule(
    name="skip-layernorm",
    pattern=op(
        "SkipLayerNormalization",
        Var("x"),
        Var("skip"),
        Var("scale"),
        optional(Var("shift")),
        optional(Var("bias")),
        name="normalization",
        domain="com.microsoft",
    ),
    preconditions=(type_and_rank_are_known, skip_sum.statistics_are_not_used),
    replacement=sum_and_layer_normalization,
    because="the operator, which TensorRT does not know, is a sum and a layer normalization",
    replaces_further_outputs=True,
)
