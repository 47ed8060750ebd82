"""Write a GroupNormalization of data without positions as reductions over its groups.

    g = reshape(x, [N, G, C/G])      y = reshape((g − μ)/√(σ²+ε), [N, C]) · γ + β      μ, σ² over the last axis of g

TensorRT normalizes data of three axes at least; reductions over a last axis are one kernel there.
Source: Wu & He 2018, "Group Normalization", §3.1.
"""

from __future__ import annotations

from trtnorm_cli.rewrite.parts import group_parameters as group
from trtnorm_cli.rewrite.parts.arithmetic import arithmetic_for, data_type
from trtnorm_cli.rewrite.parts.data_channels import channel_count, type_and_rank_are_known
from trtnorm_cli.rewrite.parts.standardised import standardised
from trtnorm_cli.rewrite.pattern import describe
from trtnorm_cli.rewrite.rule import Match, NewNode, Rule


def there_are_no_positions(m: Match) -> str | None:
    """the data has two axes, batch and channels, whose number is known."""
    if m.rank("x") == 2 and channel_count(m) is not None:
        return None
    return f"the data of {describe(m.root)} has shape {list(m.shape('x') or ())}"


def as_reductions(m: Match) -> NewNode:
    a, count, channels = arithmetic_for(m), group.groups(m), channel_count(m)
    assert count is not None, "groups_divide_channels holds"
    assert channels is not None, "there_are_no_positions holds"
    data = a.operand(a.raised(m.given("x"), "to_float32"), "data")
    grouped = NewNode("Reshape", (data, a.integers("groups", (0, count, channels // count))), role="groups")
    normalized = standardised(a, grouped, (2,), group.epsilon(m)).value
    flat = NewNode("Reshape", (normalized, a.integers("channels", (0, channels))), role="channels")
    scale, shift = (group.repeated(m, a, name, channels) for name in ("scale", "shift"))
    return a.lowered(a.binary("Add", a.binary("Mul", flat, scale, "scaled"), shift, "shifted"), data_type(m))


RULE = Rule(
    name="groupnorm-of-vectors",
    pattern=group.normalization(group.GROUP),
    preconditions=(
        type_and_rank_are_known,
        there_are_no_positions,
        group.groups_divide_channels,
        group.parameters_are_vectors,
    ),
    replacement=as_reductions,
    because="its data have no positions, which TensorRT wants, and reductions over the groups do the same",
    since_opset=18,
)
