"""Write a normalization over a single element as what it comes to, its bias.

    y = (x − μ)/√(σ²+ε) · γ + β = β      because μ = x where each group has one element

An instance normalization at 1×1 positions, as behind a global pooling, or as many groups as channels there. ONNX Runtime runs
it, TensorRT does not build it. 0 · x keeps the shape, and a NaN or an infinity of the data becomes a NaN as it did before.
ONNX Runtime multiplies the scale out, and is off by the rounding of x · γ/√ε.
Source: Ulyanov, Vedaldi & Lempitsky 2016; Wu & He 2018.
"""

from __future__ import annotations

import numpy as np

from trtnorm_cli.rewrite.parts import group_parameters as group
from trtnorm_cli.rewrite.parts.arithmetic import arithmetic_for, data_type
from trtnorm_cli.rewrite.parts.data_channels import along_channels, channel_count, type_and_rank_are_known
from trtnorm_cli.rewrite.parts.standardised import standardised
from trtnorm_cli.rewrite.pattern import describe
from trtnorm_cli.rewrite.rule import Match, NewNode, Rule


def groups_have_one_element(m: Match) -> str | None:
    """each channel has one position, and each group one channel."""
    rank, count, channels = len(m.shape("x") or ()), group.groups(m), channel_count(m)
    one_channel = rank > 2 if m.root.op == group.INSTANCE else count is not None and count == channels
    if group.positions(m) == 1 and one_channel:
        return None
    return f"{describe(m.root)} normalizes over more than one element"


def epsilon_is_positive(m: Match) -> str | None:
    """epsilon is above zero: with a deviation of zero the result is not a number."""
    return None if group.epsilon(m) > 0 else f"{describe(m.root)} has epsilon={group.epsilon(m):g}"


def as_its_bias(m: Match) -> NewNode:
    a = arithmetic_for(m)
    nothing = a.binary("Mul", a.raised(m.given("x"), "to_float32"), np.zeros(()), "nothing")
    bias = a.reshape(a.raised(m.given("shift"), "raise_shift"), along_channels(m), "bias")
    return a.lowered(a.binary("Add", nothing, bias, "bias_alone"), data_type(m))


def as_it_is_defined(m: Match) -> NewNode:
    """The data less their mean, divided by their deviation, in elementary operators."""
    a = arithmetic_for(m)
    axes = tuple(range(2, len(m.shape("x") or ())))
    x = a.raised(m.given("x"), "to_float32")
    normalized = standardised(a, x, axes, group.epsilon(m)).value if axes else a.binary("Sub", x, x)
    return a.lowered(group.affine(m, a, normalized), data_type(m))


RULE = Rule(
    name="normalization-of-one-element",
    pattern=group.normalization(group.INSTANCE, group.GROUP),
    preconditions=(type_and_rank_are_known, groups_have_one_element, epsilon_is_positive, group.parameters_are_vectors),
    replacement=as_its_bias,
    reference=as_it_is_defined,
    because="the result of a normalization over one element is its bias, and TensorRT does not build it",
)
