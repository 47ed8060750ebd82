"""Write a GroupNormalization with one group as an instance normalization of a single channel.

    y = (x − μ)/√(σ²+ε) · γ + β      μ, σ² over all channels and positions of a sample
      = reshape(IN(reshape(x, [N, 1, −1]), 1, 0), shape of x) · γ + β

TensorRT (RTX 1.7) takes num_groups=1 for an instance normalization, without a word: each channel is normalized on its own.
Of what computes the same, this has the fewest kernels. Half-precision data are normalized in float32.
Source: Wu & He 2018, "Group Normalization", §3.1 (one group is layer normalization over channels and positions).
"""

from __future__ import annotations

import numpy as np
import onnx

from trtnorm_cli.rewrite.parts import group_parameters as group
from trtnorm_cli.rewrite.parts.arithmetic import arithmetic_for, data_type
from trtnorm_cli.rewrite.parts.data_channels import channel_count, type_and_rank_are_known
from trtnorm_cli.rewrite.parts.standardised import standardised
from trtnorm_cli.rewrite.pattern import describe
from trtnorm_cli.rewrite.rule import Match, NewConstant, NewNode, Rule


def there_is_one_group(m: Match) -> str | None:
    """num_groups is 1, and there are several channels, or it is not known how many."""
    if m.root.attrs.get("num_groups") != 1:
        return f"{describe(m.root)} has num_groups={m.root.attrs.get('num_groups')}"
    return f"{describe(m.root)} has one channel" if channel_count(m) == 1 else None


def as_one_channel(m: Match) -> NewNode:
    a = arithmetic_for(m)
    data = a.operand(a.raised(m.given("x"), "to_float32"), "data")
    if a.data_type == onnx.TensorProto.DOUBLE:  # ONNX Runtime has no instance normalization for it
        axes = tuple(range(1, len(m.shape("x") or ())))
        return a.lowered(group.affine(m, a, standardised(a, m.given("x"), axes, group.epsilon(m)).value), data_type(m))
    flat = NewNode("Reshape", (data, a.integers("one_channel", (0, 1, -1))), role="one_channel")
    one, zero = (NewConstant(name, np.full(1, value, a.dtype)) for name, value in (("one", 1), ("zero", 0)))
    normalized = NewNode(group.INSTANCE, (flat, one, zero), {"epsilon": group.epsilon(m)}, name=m.root.name, role="normalized")
    restored = NewNode("Reshape", (normalized, group.shape_of_data(m, a)), role="restored")
    return a.lowered(group.affine(m, a, restored), data_type(m))


RULE = Rule(
    name="groupnorm-one-group",
    pattern=group.normalization(group.GROUP),
    preconditions=(type_and_rank_are_known, there_is_one_group, group.parameters_are_vectors),
    replacement=as_one_channel,
    because="it has one group, and TensorRT would normalize each channel on its own",
    since_opset=18,
)
