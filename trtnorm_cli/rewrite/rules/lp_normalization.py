"""Compute an LpNormalization of bfloat16 data in float32.

    y = cast(x / ‖x‖ₚ)      p = 1 or 2, and 0 where the norm is 0

TensorRT takes the operator in float32 and float16 alone.
Source: LpNormalization-1 and -22 in the ONNX operator specification, onnx/onnx 2024.
"""

from __future__ import annotations

import onnx

from trtnorm_cli.rewrite.parts.arithmetic import arithmetic_for, data_type
from trtnorm_cli.rewrite.pattern import Var, describe, op
from trtnorm_cli.rewrite.rule import Match, NewNode, Rule


def data_are_bfloat16(m: Match) -> str | None:
    """the data are of type bfloat16."""
    return None if data_type(m) == onnx.TensorProto.BFLOAT16 else f"{describe(m.root)} has data that are not bfloat16"


def order_is_one_or_two(m: Match) -> str | None:
    """p is 1 or 2, as the operator wants it."""
    order = m.root.attrs.get("p", 2)
    return None if order in (1, 2) else f"{describe(m.root)} has p={order}"


def in_float32(m: Match) -> NewNode:
    a = arithmetic_for(m)
    data = a.operand(a.raised(m.given("x"), "to_float32"), "data")
    return a.lowered(NewNode(m.root.op, (data,), dict(m.root.attrs), name=m.root.name, role="normalized"), data_type(m))


RULE = Rule(
    name="lp-normalization",
    pattern=op("LpNormalization", Var("x"), name="normalization"),
    preconditions=(data_are_bfloat16, order_is_one_or_two),
    replacement=in_float32,
    because="an LpNormalization has to be in float32 or float16 for TensorRT",
    since_opset=1,
)
