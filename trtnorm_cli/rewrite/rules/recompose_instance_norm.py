"""Write an InstanceNorm that is spelled out in reductions as one InstanceNormalization, or along the rows of small planes.

    (x − mean_hw(x)) / √(var_hw(x) + ε) · γ + β = InstanceNormalization(x, γ, β)
                                                = R⁻¹((r − mean(r)) / √(var(r) + ε)) · γ + β      r = R(x): [N, C, H·W]

TensorRT compiles the node to fewer kernels than the reductions, and to fewer still what is along the last axis, as long as a
plane is small enough for one kernel. Statistics of half-precision data are then computed in float32.
Source: Ulyanov et al. 2016, "Instance Normalization: The Missing Ingredient for Fast Stylization".
"""

from __future__ import annotations

from trtnorm_cli.onnx_model.shapes import format_shape
from trtnorm_cli.rewrite.norms.blocks import Blocks, blocks_of, in_rows, native
from trtnorm_cli.rewrite.norms.conditions import (
    about,
    certain,
    formula_is_exact,
    parameters_are_constant,
    parameters_are_per_channel,
    type_is_taken,
)
from trtnorm_cli.rewrite.norms.kinds import INSTANCE
from trtnorm_cli.rewrite.norms.matching import LAST_NODE, extent_of, in_place_of, parameters_of_node
from trtnorm_cli.rewrite.norms.surroundings import is_next_to_a_convolution
from trtnorm_cli.rewrite.pattern import describe
from trtnorm_cli.rewrite.rule import Extent, Match, Replacement, Rule

subject = about(lambda composition: composition.kind == INSTANCE)
mine = certain(subject)
is_the_formula = formula_is_exact(mine)
type_is_known = type_is_taken(mine)
scale_and_shift_are_constants = parameters_are_constant(mine)
scale_and_shift_are_per_channel = parameters_are_per_channel(mine)


def channels_come_first(m: Match) -> str | None:
    """the channels are on axis 1, and their number is known."""
    composition = mine(m)
    if blocks_of(composition) is not None:
        return None
    return f"the channels of {composition.data.name} {format_shape(composition.shape or ())} are not on axis 1, or not known"


def planes_have_several_values(m: Match) -> str | None:
    """a plane has more than one value, as far as that is known."""
    composition = mine(m)
    blocks = blocks_of(composition)
    if blocks is None or blocks.row != 1:
        return None
    return f"a plane of {composition.data.name} is one value, which TensorRT does not normalize"


def inner_parameters_are_along_channels(m: Match) -> str | None:
    """a node that normalizes reshaped planes has parameters along the channels, or none that change anything."""
    composition = mine(m)
    if not composition.core.native or composition.core.nodes[0].op == "InstanceNormalization":
        return None
    return parameters_of_node(m, composition)


def a_convolution_is_near(m: Match) -> str | None:
    """it is next to a convolution, which leaves the channels last, unless a plugin is to take its place."""
    composition = mine(m)
    if composition.core.native or is_next_to_a_convolution(composition):
        return None
    if m.settings.instance_norm.of(describe(m.site)) == "plugin":
        return None
    return "no convolution is next to it, and TensorRT fuses it with other operators as it is"


def extent(m: Match) -> Extent | str | None:
    """an InstanceNorm is spelled out in operators, but not in the form that TensorRT compiles best."""
    composition = mine(m)
    blocks = blocks_of(composition)
    assert blocks is not None, "its channels come first"
    if m.settings.instance_norm.of(describe(m.site)) == "plugin":
        return "an InstanceNormalization does it already" if blocks.is_native else extent_of(m, composition, blocks)
    if blocks.is_in_rows and (blocks.row is None or blocks.fits_one_kernel):
        return "it is written along rows, which TensorRT compiles to the fewest kernels"
    if blocks.is_native and not _goes_in_rows(m, blocks):
        return "an InstanceNormalization does it, the form with the fewest kernels for planes of that size"
    return extent_of(m, composition, blocks)


def _goes_in_rows(m: Match, blocks: Blocks) -> bool:
    """True where rows are known to be the best form, or may be and builds decide."""
    return blocks.fits_one_kernel or (m.settings.allows_measured() and blocks.row is None)


def recomposed(m: Match) -> Replacement:
    assert m.extent is not None, "the rule has an extent"
    blocks: Blocks = m.extent.plan
    # A plugin takes the place of a node.
    wants_node = m.settings.instance_norm.of(describe(m.site)) == "plugin" or not _goes_in_rows(m, blocks)
    return in_place_of(m, blocks.composition, native(m, blocks) if wants_node else in_rows(m, blocks))


RULE = Rule(
    name="recompose-instance-norm",
    pattern=LAST_NODE,
    preconditions=(
        is_the_formula,
        type_is_known,
        channels_come_first,
        planes_have_several_values,
        inner_parameters_are_along_channels,
        scale_and_shift_are_constants,
        scale_and_shift_are_per_channel,
        a_convolution_is_near,
    ),
    replacement=recomposed,
    extent=extent,
    subject=subject,
    optional=lambda m: subject(m) is not None,
    because="in this form it takes TensorRT fewer kernels",
)
