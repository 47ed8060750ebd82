"""Write ONNX Runtime's SimplifiedLayerNormalization in operators that ONNX has.

    d = 1/√(mean(x²)+ε)      y = x · d · γ

over the axes from ``axis`` on. ONNX has it since opset 23 as RMSNormalization, without the further output d; TensorRT takes the
older one as well, without that output, but nobody can tell the shapes behind an operator that ONNX does not know.
Source: Zhang & Sennrich 2019, "Root Mean Square Layer Normalization"; RMSNormalization-23 in the ONNX operator specification.
"""

from __future__ import annotations

from trtnorm_cli.rewrite.parts import group_parameters as group
from trtnorm_cli.rewrite.parts.arithmetic import arithmetic_for, data_type
from trtnorm_cli.rewrite.parts.data_channels import type_and_rank_are_known
from trtnorm_cli.rewrite.parts.standardised import standardised
from trtnorm_cli.rewrite.pattern import Var, op
from trtnorm_cli.rewrite.rule import Match, NewNode, NewOutputs, Rule

_STANDARD_SINCE = 23


def in_standard_operators(m: Match) -> NewOutputs:
    axis, rank, scale = int(m.root.attrs.get("axis", -1)), len(m.shape("x") or ()), m.given("scale")
    if m.opset >= _STANDARD_SINCE and m.used_outputs == (0,):
        attributes = {"axis": axis, "epsilon": group.epsilon(m)}
        return NewOutputs(
            {0: NewNode("RMSNormalization", (m.given("x"), scale), attributes, name=m.root.name, role="standard")}
        )
    a = arithmetic_for(m)
    axes = tuple(range(axis % rank, rank))
    made = standardised(a, a.raised(m.given("x"), "to_float32"), axes, group.epsilon(m), centred=False)
    y = a.binary("Mul", made.value, a.raised(scale, "raise_scale"), "scaled")
    # The result is of the type of the scale, as in ONNX; the statistic stays in the type in which it is computed.
    nodes = {0: a.lowered(y, data_type(m, "scale")), 1: made.inverse}
    return NewOutputs({number: nodes[number] for number in m.used_outputs})


RULE = Rule(
    name="simplified-layernorm",
    pattern=op("SimplifiedLayerNormalization", Var("x"), Var("scale"), name="normalization"),
    preconditions=(type_and_rank_are_known,),
    replacement=in_standard_operators,
    because="the operator, which ONNX does not know, is a normalization by the root mean square",
    replaces_further_outputs=True,
)
