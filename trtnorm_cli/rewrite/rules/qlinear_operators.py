"""Write a convolution or matrix product of integers as one of floats between DequantizeLinear and QuantizeLinear.

    y = QLinearConv(q_x, q_w, bias)    =    quantize(Conv(dequantize(q_x), dequantize(q_w), s_x · s_w · bias))

and QLinearMatMul alike. The sum is exact in integers and rounded in floats, so that a result next to a tie may be a step off.
TensorRT has neither operator, and kernels on integers for this form where all zero points are 0.
Source: QLinearConv-10 and QLinearMatMul-10 in the ONNX operator specification; Jacob et al. 2018, §2.
"""

from __future__ import annotations

from trtnorm_cli.rewrite.parts import qlinear
from trtnorm_cli.rewrite.pattern import Var, op, optional
from trtnorm_cli.rewrite.rule import Match, NewNode, Rule

_INPUTS = 9


def between_two_quantisations(m: Match) -> NewNode:
    return qlinear.with_floats(m)


RULE = Rule(
    name="qlinear-operators",
    pattern=op(tuple(qlinear.OF_ONNX), *(optional(Var(f"input_{n}")) for n in range(_INPUTS)), name="operator"),
    preconditions=(qlinear.parameters_are_constants, qlinear.weights_are_as_they_should_be),
    replacement=between_two_quantisations,
    because="an operator on integers, which TensorRT does not have, is one on floats between two quantisations",
    float64_decides=True,
    since_opset=10,
)
