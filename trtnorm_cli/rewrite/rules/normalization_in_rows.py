"""Normalize groups or instances along the rows of the reshaped data, where that takes fewer kernels.

    GroupNormalization(x, γ, β) = R⁻¹((r − mean(r)) / √(var(r) + ε)) · γ + β      r = R(x): [N, G, C/G·H·W]

and the same for an InstanceNormalization with G = C. Groups whose rows are short enough for one kernel take fewer so.
Instances, and rows whose length is known at run time only, are tried under ``optimize: kernels``, which keeps what saves
launches. Statistics of half-precision data are computed in float32.
Source: Wu & He 2018, "Group Normalization"; Ulyanov et al. 2016, "Instance Normalization".
"""

from __future__ import annotations

from trtnorm_cli.rewrite.norms.blocks import Blocks, blocks_of, in_rows
from trtnorm_cli.rewrite.norms.kinds import GROUP, INSTANCE
from trtnorm_cli.rewrite.norms.matching import TAKEN_TYPES, composition_of_node, dtype_of
from trtnorm_cli.rewrite.pattern import Const, Var, describe, op
from trtnorm_cli.rewrite.rule import Match, NewNode, Rule

NORM = "norm"


def no_plugin_is_wanted(m: Match) -> str | None:
    """no plugin is to take its place."""
    wanted = m.settings.instance_norm if m.root.op == "InstanceNormalization" else m.settings.group_norm
    return "a plugin is to take its place" if wanted.of(describe(m.root)) == "plugin" else None


def type_and_channels_are_known(m: Match) -> str | None:
    """data and result are of a known type, and the number of channels is known."""
    for tensor in (m.given("x"), m.output):
        if dtype_of(m, tensor) not in TAKEN_TYPES:
            return f"the type of {tensor.name} is not one that normalizations are built for, or not known"
    shape = m.shape("x")
    if shape is None or len(shape) < 3 or not isinstance(shape[1], int):
        return f"the number of channels of {m.given('x').name} is not known"
    return None


def parameters_are_per_channel(m: Match) -> str | None:
    """scale and bias are vectors with one value per channel, and groups divide the channels."""
    channels = (m.shape("x") or (0, 0))[1]
    for name in ("scale", "bias"):
        if m.value(name).shape != (channels,):
            return f"{m.given(name).name} has shape {list(m.value(name).shape)} for {channels} channels"
    groups = _groups(m)
    whole = isinstance(channels, int) and groups > 0 and channels % groups == 0
    return None if whole else f"{groups} groups do not divide {channels} channels"


def rows_are_not_known_to_be_long(m: Match) -> str | None:
    """a row has more than one value, and is short enough for one kernel, as far as that is known."""
    row = blocks_of_node(m).row
    if row is None or blocks_of_node(m).fits_one_kernel:
        return None
    return f"a row would have {row} values"


def fewer_kernels_are_known_or_measured(m: Match) -> str | None:
    """it is a GroupNormalization with rows known to be short, or the build profile says optimize: kernels."""
    if m.settings.allows_measured() or (m.root.op == "GroupNormalization" and blocks_of_node(m).fits_one_kernel):
        return None
    return "it may take fewer kernels along rows; with optimize: kernels in the build profile, builds find out"


def _groups(m: Match) -> int:
    if m.root.op == "GroupNormalization":
        return int(m.root.attrs.get("num_groups", 0))
    channels = (m.shape("x") or (0, 0))[1]
    return channels if isinstance(channels, int) else 0


def blocks_of_node(m: Match) -> Blocks:
    """The blocks that the node normalizes, where their type and number are known."""
    kind = GROUP if m.root.op == "GroupNormalization" else INSTANCE
    blocks = blocks_of(composition_of_node(m, kind, _groups(m)))
    assert blocks is not None, "the conditions before hold"
    return blocks


def along_rows(m: Match) -> NewNode:
    return in_rows(m, blocks_of_node(m))


RULE = Rule(
    name="normalization-in-rows",
    pattern=op(("InstanceNormalization", "GroupNormalization"), Var("x"), Const("scale"), Const("bias"), name=NORM),
    preconditions=(
        no_plugin_is_wanted,
        type_and_channels_are_known,
        parameters_are_per_channel,
        rows_are_not_known_to_be_long,
        fewer_kernels_are_known_or_measured,
    ),
    replacement=along_rows,
    optional=lambda m: True,
    because="along rows it can take TensorRT fewer kernels",
)
