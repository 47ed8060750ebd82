"""The common part of the rules for InstanceNormalization and GroupNormalization: their inputs, groups and parameters.

Both standardize each group of channels of each sample over all positions, y = (x − μ)/√(σ²+ε) · γ + β; an instance
normalization has as many groups as channels (Ulyanov et al. 2016; Wu & He 2018).
"""

from __future__ import annotations

import math

import numpy as np

from trtnorm_cli.rewrite.channels import DEFAULT_EPSILON
from trtnorm_cli.rewrite.parts.arithmetic import Arithmetic, Operand
from trtnorm_cli.rewrite.parts.data_channels import along_channels, channel_count
from trtnorm_cli.rewrite.pattern import Op, Var, describe, op
from trtnorm_cli.rewrite.rule import Match, NewConstant, NewNode

INSTANCE, GROUP = "InstanceNormalization", "GroupNormalization"
# Up to this opset GroupNormalization had one scale and bias per group, afterwards one per channel.
PER_GROUP_UNTIL = 20


def normalization(*types: str) -> Op:
    """The pattern of a normalization with scale and bias."""
    return op(types, Var("x"), Var("scale"), Var("shift"), name="normalization")


def epsilon(m: Match) -> float:
    """The epsilon attribute of the match's root; ONNX stores it in float32."""
    return float(m.root.attrs.get("epsilon", DEFAULT_EPSILON))


def groups(m: Match) -> int | None:
    """How many groups the channels are in; None when that is not known."""
    return channel_count(m) if m.root.op == INSTANCE else int(m.root.attrs.get("num_groups", 0)) or None


def per_group(m: Match) -> bool:
    """True when the node has one scale and bias per group instead of per channel."""
    return m.root.op == GROUP and m.opset <= PER_GROUP_UNTIL


def parameters_are_vectors(m: Match) -> str | None:
    """scale and bias are vectors of the length that the operator wants, as far as the lengths are known."""
    wanted = groups(m) if per_group(m) else channel_count(m)
    for name in ("scale", "shift"):
        shape = m.shape(name)
        if shape is None or len(shape) != 1:
            return f"{m.given(name).name} is not known to be a vector"
        if isinstance(shape[0], int) and wanted is not None and shape[0] != wanted:
            return f"{m.given(name).name} has {shape[0]} values, {describe(m.root)} wants {wanted}"
    return None


def groups_divide_channels(m: Match) -> str | None:
    """the number of groups divides the number of channels, as far as that is known."""
    count, channels = groups(m), channel_count(m)
    if count and (channels is None or channels % count == 0):
        return None
    return f"{describe(m.root)} has {count} groups for {channels} channels"


def positions(m: Match) -> int | None:
    """The number of positions of a channel; None when it is not known."""
    sizes = [size for size in (m.shape("x") or ())[2:] if isinstance(size, int)]
    return math.prod(sizes) if len(sizes) == len(m.shape("x") or ()) - 2 else None


def affine(m: Match, a: Arithmetic, x: Operand) -> Operand:
    """x · γ + β for data of the match's shape, with parameters that broadcast along its channels as they are."""
    scale, shift = (a.reshape(a.raised(m.given(name), f"raise_{name}"), along_channels(m), name) for name in ("scale", "shift"))
    return a.binary("Add", a.binary("Mul", x, scale, "scaled"), shift, "shifted")


def repeated(m: Match, a: Arithmetic, name: str, channels: int) -> Operand:
    """A parameter with one value per channel, also where the node has one per group."""
    value = a.raised(m.given(name), f"raise_{name}")
    count = groups(m)
    if not per_group(m) or count == channels:
        return value
    assert count is not None, "groups_divide_channels holds"
    if isinstance(value, np.ndarray):
        return np.repeat(value, channels // count)
    column = a.reshape(value, (count, 1), f"{name}_column")
    shape = a.integers(f"{name}_per_channel", (count, channels // count))
    return a.reshape(NewNode("Expand", (column, shape), role=f"{name}_repeated"), (channels,), f"{name}_per_channel")


def shape_of_data(m: Match, a: Arithmetic) -> NewNode | NewConstant:
    """The shape that lets a Reshape give its input, whose batch is the data's, the shape of the data."""
    sizes = [size if isinstance(size, int) else -1 for size in (m.shape("x") or ())[1:]]
    if sizes.count(-1) <= 1:
        return a.integers("shape_of_data", (0, *sizes))
    return NewNode("Shape", (m.given("x"),), role="shape_of_data")
