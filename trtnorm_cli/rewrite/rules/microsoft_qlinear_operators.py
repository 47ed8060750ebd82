"""Write ONNX Runtime's operators on integers as those on floats between DequantizeLinear and QuantizeLinear.

    y = QLinearAdd(q_a, q_b)    =    quantize(dequantize(q_a) + dequantize(q_b))

and the same of Gemm, Mul, Concat, Where, LeakyRelu, Sigmoid and average pooling. A result next to a tie may be a
step off. TensorRT does not know the operators.
Source: QLinearAdd and others in the contributed operators of ONNX Runtime, 2020; Jacob et al. 2018, §2.
"""

from __future__ import annotations

from trtnorm_cli.rewrite.parts import qlinear
from trtnorm_cli.rewrite.pattern import Var, op, optional
from trtnorm_cli.rewrite.rule import Match, NewNode, Rule

# QLinearConcat has three for each tensor.
_INPUTS = 302


def between_two_quantisations(m: Match) -> NewNode:
    return qlinear.with_floats(m)


RULE = Rule(
    name="microsoft-qlinear-operators",
    pattern=op(
        tuple(qlinear.OF_MICROSOFT),
        *(optional(Var(f"input_{n}")) for n in range(_INPUTS)),
        name="operator",
        domain="com.microsoft",
    ),
    preconditions=(qlinear.parameters_are_constants, qlinear.weights_are_as_they_should_be),
    replacement=between_two_quantisations,
    because="an operator on integers, which TensorRT does not know, is one on floats between two quantisations",
    float64_decides=True,
    since_opset=10,
)
