"""Dequantise integers that no QuantizeLinear made, such as an image in bytes, by arithmetic where TensorRT does not do it.

    y = (x − z) · s      with x converted to float32 first, which holds all integers of 8 bits and their differences

TensorRT's DequantizeLinear takes no uint8, and no zero point other than 0; a Cast of uint8 inputs it takes.
Source: Jacob et al. 2018, "Quantization and Training of Neural Networks", §2.1; DequantizeLinear as in the ONNX operator
specification.
"""

from __future__ import annotations

import numpy as np
import onnx

from trtnorm_cli.rewrite.parts import quantised
from trtnorm_cli.rewrite.parts.arithmetic import Arithmetic
from trtnorm_cli.rewrite.pattern import Const, Var, op, optional, titled
from trtnorm_cli.rewrite.rule import Match, NewNode, Rule

DEQUANTIZE = op("DequantizeLinear", Var("x"), Const("scale"), optional(Const("zero")), name="dequantize")
_EIGHT_BITS = (onnx.TensorProto.UINT8, onnx.TensorProto.INT8)


def subject(m: Match) -> str | None:
    """Why TensorRT does not take it; None where it does, and where another rule sees to what makes the data."""
    data, kind = m.given("x"), m.type_of(m.given("x"))
    if m.surgery.is_constant(data) or kind is None or not kind.dtype or any(one.op == "QuantizeLinear" for one in data.inputs):
        return None
    return quantised.why_not_taken(titled(m.node("dequantize")), kind.dtype, quantised.zero_points(m), m.value("scale"))


def data_have_eight_bits(m: Match) -> str | None:
    """the data are integers of 8 bits."""
    kind = m.type_of(m.given("x"))
    if kind is not None and kind.dtype in _EIGHT_BITS:
        return None
    return f"the data of {titled(m.node('dequantize'))} are {quantised.type_name(kind.dtype if kind else 0)}"


def scales_are_finite(m: Match) -> str | None:
    """the scales are finite floating-point numbers."""
    return quantised.unusable_scales(m, m.node("dequantize"))


def scales_lie_along_an_axis(m: Match) -> str | None:
    """there is one scale, or one for each index along an axis of data of known rank."""
    return quantised.scales_without_axis(m, m.node("dequantize"))


def arithmetic(m: Match) -> NewNode:
    node, a = m.node("dequantize"), Arithmetic(m, onnx.TensorProto.FLOAT)
    number = int(node.attrs.get("output_dtype", 0)) or int(onnx.helper.np_dtype_to_tensor_dtype(m.value("scale").dtype))
    zeros = quantised.zero_points(m)
    steps = a.raised(m.given("x"), "to_float32")
    if np.any(zeros):
        steps = a.binary("Sub", steps, quantised.broadcast(m, node, zeros), "centred")
    return a.lowered(a.binary("Mul", steps, quantised.broadcast(m, node, m.value("scale")), "dequantized"), number)


RULE = Rule(
    name="dequantised-inputs",
    pattern=DEQUANTIZE,
    preconditions=(data_have_eight_bits, scales_are_finite, scales_lie_along_an_axis),
    subject=subject,
    replacement=arithmetic,
    because="signed integers with zero points of 0 are all that TensorRT dequantises",
    since_opset=10,
)
