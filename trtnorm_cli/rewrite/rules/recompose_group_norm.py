"""Write a GroupNorm in the pieces that TensorRT compiles best.

    (x − mean_g(x)) / √(var_g(x) + ε) · γ + β = R⁻¹((r − mean(r)) / √(var(r) + ε)) · γ + β      r = R(x): [N, G, C/G·H·W]

Groups that are small enough for one kernel are normalized along the rows of r by reductions; for large ones an
InstanceNormalization of r stands in the middle. Reductions next to no convolution stay as they are. Statistics of
half-precision data along rows are computed in float32.
Source: Wu & He 2018, "Group Normalization"; GroupNormalization-21 in the ONNX operator specification.
"""

from __future__ import annotations

from trtnorm_cli.rewrite.norms.blocks import Blocks, blocks_of, in_rows, native
from trtnorm_cli.rewrite.norms.conditions import about, certain, formula_is_exact, parameters_are_constant, type_is_taken
from trtnorm_cli.rewrite.norms.kinds import GROUP
from trtnorm_cli.rewrite.norms.matching import (
    LAST_NODE,
    extent_of,
    in_place_of,
    inner_parameters,
    parameters_of_node,
    runtime_parameters,
)
from trtnorm_cli.rewrite.norms.surroundings import is_next_to_a_convolution
from trtnorm_cli.rewrite.rule import Extent, Match, Replacement, Rule

subject = about(lambda composition: composition.kind == GROUP)
mine = certain(subject)
is_the_formula = formula_is_exact(mine)
type_is_known = type_is_taken(mine)
scale_and_shift_are_constants = parameters_are_constant(mine)


def groups_are_whole(m: Match) -> str | None:
    """the groups divide the channels, whose number is known."""
    composition = mine(m)
    blocks = blocks_of(composition)
    channels = (composition.shape or (None, None))[1]
    if blocks is not None and isinstance(channels, int) and channels % blocks.groups == 0:
        return None
    return f"{channels} channels of {composition.data.name} are not known to divide into {composition.groups or 1} groups"


def groups_have_no_parameters(m: Match) -> str | None:
    """nothing is scaled or shifted while the data are in groups: what is would not be along the channels."""
    composition = mine(m)
    if composition.view is None:
        return None
    if composition.core.native:
        empty = any(values.size == 0 for values in inner_parameters(m, composition))
        return "a parameter has no values" if empty else parameters_of_node(m, composition)
    if runtime_parameters(m, composition):
        return None
    for name, values in zip(("scale", "shift"), inner_parameters(m, composition), strict=True):
        if values.size != 1:
            return f"the {name} of the groups has shape {list(values.shape)}: it is not along the channels"
    return None


def a_convolution_is_near(m: Match) -> str | None:
    """what is spelled out in reductions is next to a convolution, which leaves the channels last."""
    composition = mine(m)
    if composition.core.native or is_next_to_a_convolution(composition):
        return None
    return "no convolution is next to it, and TensorRT fuses it with other operators as it is"


def extent(m: Match) -> Extent | str | None:
    """a GroupNorm is spelled out in operators, but not in the form that TensorRT compiles best."""
    composition = mine(m)
    blocks = blocks_of(composition)
    assert blocks is not None, "its groups are whole"
    if blocks.is_in_rows and blocks.suits_reductions:
        return "it is written along rows, which TensorRT compiles to the fewest kernels"
    if blocks.is_native and not _goes_in_rows(m, blocks):
        return "an InstanceNormalization is in its middle, the form with the fewest kernels for groups of that size"
    return extent_of(m, composition, blocks)


def _goes_in_rows(m: Match, blocks: Blocks) -> bool:
    """True where rows are known to be the best form, or may be and builds decide. Reductions stay reductions if they may."""
    if blocks.fits_one_kernel or (m.settings.allows_measured() and blocks.row is None):
        return True
    return blocks.suits_reductions and not blocks.is_native


def recomposed(m: Match) -> Replacement:
    assert m.extent is not None, "the rule has an extent"
    blocks: Blocks = m.extent.plan
    return in_place_of(m, blocks.composition, in_rows(m, blocks) if _goes_in_rows(m, blocks) else native(m, blocks))


RULE = Rule(
    name="recompose-group-norm",
    pattern=LAST_NODE,
    preconditions=(
        is_the_formula,
        type_is_known,
        groups_are_whole,
        groups_have_no_parameters,
        scale_and_shift_are_constants,
        a_convolution_is_near,
    ),
    replacement=recomposed,
    extent=extent,
    subject=subject,
    optional=lambda m: subject(m) is not None,
    because="in this form it takes TensorRT fewer kernels",
)
