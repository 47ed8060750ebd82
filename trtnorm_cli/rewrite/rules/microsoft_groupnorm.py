"""Write ONNX Runtime's fused group normalization and SiLU in operators that TensorRT knows.

    y = (x − μ)/√(σ²+ε) · γ + β      and then y · sigmoid(y) where activation=1

μ and σ² over the positions and the channels of a group, channels last unless the node says otherwise. Groups become channels of
an instance normalization.
Source: Wu & He 2018; Ramachandran, Zoph & Le 2017 (SiLU); GroupNorm in the contributed operators of ONNX Runtime, 2024.
"""

from __future__ import annotations

import numpy as np

from trtnorm_cli.rewrite.parts import group_parameters as group
from trtnorm_cli.rewrite.parts.arithmetic import Arithmetic, Operand, arithmetic_for, data_type
from trtnorm_cli.rewrite.parts.data_channels import type_and_rank_are_known
from trtnorm_cli.rewrite.pattern import Var, describe, op
from trtnorm_cli.rewrite.rule import Match, NewConstant, NewNode, Rule


def data_has_four_axes(m: Match) -> str | None:
    """the data has four axes, as the operator wants it."""
    return None if m.rank("x") == 4 else f"the data of {describe(m.root)} has shape {list(m.shape('x') or ())}"


def groups_are_stated(m: Match) -> str | None:
    """groups is above zero and divides the number of channels, as far as that is known."""
    count, shape = m.root.attrs.get("groups", 0), m.shape("x") or ()
    channels = shape[-1 if _channels_last(m) else 1]
    if count > 0 and not (isinstance(channels, int) and channels % count):
        return None
    return f"{describe(m.root)} has {count} groups for {channels} channels"


def _channels_last(m: Match) -> bool:
    return bool(m.root.attrs.get("channels_last", 1))


def groups_as_channels(m: Match) -> NewNode:
    a, count = arithmetic_for(m), int(m.root.attrs["groups"])
    x = a.raised(m.given("x"), "to_float32")
    if _channels_last(m):
        x = NewNode("Transpose", (a.operand(x, "data"),), {"perm": [0, 3, 1, 2]}, role="channels_first")
    grouped = NewNode("Reshape", (a.operand(x, "data"), a.integers("groups", (0, count, -1))), role="groups")
    ones, zeros = (NewConstant(name, np.full(count, value, a.dtype)) for name, value in (("ones", 1), ("zeros", 0)))
    attributes = {"epsilon": group.epsilon(m)}
    normalized = NewNode(group.INSTANCE, (grouped, ones, zeros), attributes, name=m.root.name, role="normalized")
    shape = NewNode("Shape", (a.operand(x, "data"),), role="shape")
    y = _affine(m, a, NewNode("Reshape", (normalized, shape), role="restored"))
    if m.root.attrs.get("activation", 0):
        y = a.binary("Mul", y, NewNode("Sigmoid", (a.operand(y, "y"),), role="sigmoid"), "silu")
    if _channels_last(m):
        y = NewNode("Transpose", (a.operand(y, "y"),), {"perm": [0, 2, 3, 1]}, role="channels_last")
    return a.lowered(y, data_type(m))


def _affine(m: Match, a: Arithmetic, x: Operand) -> Operand:
    scale, shift = (a.reshape(a.raised(m.given(name), f"raise_{name}"), (-1, 1, 1), name) for name in ("scale", "shift"))
    return a.binary("Add", a.binary("Mul", x, scale, "scaled"), shift, "shifted")


RULE = Rule(
    name="microsoft-groupnorm",
    pattern=op("GroupNorm", Var("x"), Var("scale"), Var("shift"), name="normalization", domain="com.microsoft"),
    preconditions=(type_and_rank_are_known, data_has_four_axes, groups_are_stated),
    replacement=groups_as_channels,
    because="the operator, which TensorRT does not know, is an instance normalization of groups",
)
