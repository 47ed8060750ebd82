"""Normalize over the channels of data with the channels first by transposing them to the end.

    (x − mean_c(x)) / √(var_c(x) + ε) · γ + β = Tᵀ(LN(T(x)))      T moves the channels from axis 1 to the last axis

TensorRT compiles a normalization over the last axis to one kernel, and one over axis 1 of data that are stored with the
channels first to several. From opset 17 on a LayerNormalization stands between the transpositions, before its elementary
operators. The type in which the statistics are computed stays.
Source: Ba et al. 2016, "Layer Normalization"; Liu et al. 2022, "A ConvNet for the 2020s".
"""

from __future__ import annotations

from trtnorm_cli.rewrite.norms.composition import Composition
from trtnorm_cli.rewrite.norms.conditions import (
    about,
    certain,
    formula_is_exact,
    parameters_are_constant,
    parameters_are_per_channel,
    type_is_taken,
)
from trtnorm_cli.rewrite.norms.emission import Emission
from trtnorm_cli.rewrite.norms.kinds import LAYER
from trtnorm_cli.rewrite.norms.matching import LAST_NODE, composition_at, extent_of, in_place_of
from trtnorm_cli.rewrite.norms.surroundings import (
    CONVOLUTIONS,
    is_made_by_a_convolution,
    is_made_of_inputs,
    is_transposed_behind,
    readers_of,
)
from trtnorm_cli.rewrite.rule import Extent, Match, Replacement, Rule


def _is_channels_first(composition: Composition) -> bool:
    rank = len(composition.shape or ())
    return composition.kind == LAYER and composition.view is None and composition.axes == (1,) and rank > 2


subject = about(_is_channels_first)
mine = certain(subject)
is_the_formula = formula_is_exact(mine)
type_is_known = type_is_taken(mine)
scale_and_shift_are_constants = parameters_are_constant(mine)
scale_and_shift_are_per_channel = parameters_are_per_channel(mine)


def another_layout_is_wanted(m: Match) -> str | None:
    """a transposition reads the result, or a convolution does and none makes the data alone.

    TensorRT's convolutions leave the channels last as it is, and elementwise operators are fused with it as it is.
    """
    composition = mine(m)
    if is_transposed_behind(composition):
        return None
    if is_made_by_a_convolution(composition):
        return "a convolution makes the data, and TensorRT's leave the channels last as it is"
    if not CONVOLUTIONS & readers_of(composition.output) or is_made_of_inputs(composition):
        return "only elementwise operators are around it, with which TensorRT fuses it as it is"
    return None


def extent(m: Match) -> Extent | str | None:
    """a normalization over axis 1 of data of rank 3 or more is written in elementary operators."""
    composition = mine(m)
    return extent_of(m, composition, composition)


def transposed(m: Match) -> Replacement:
    composition = composition_at(m)
    assert composition is not None, "extent found it"
    emission = Emission.of(m, composition)
    rank = emission.rank
    there, back = (0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))
    scale, shift = emission.per_channel((composition.shape or ())[1])
    normalized = emission.over_last_axis(emission.transposed(emission.data(), there, "channels_last"), scale, shift)
    result = emission.cast(emission.transposed(normalized, back, "channels_first"), emission.result_type)
    return in_place_of(m, composition, result)


RULE = Rule(
    name="layer-norm-channels-first",
    pattern=LAST_NODE,
    preconditions=(
        is_the_formula,
        type_is_known,
        scale_and_shift_are_constants,
        scale_and_shift_are_per_channel,
        another_layout_is_wanted,
    ),
    replacement=transposed,
    extent=extent,
    subject=subject,
    optional=lambda m: subject(m) is not None,
    because="a normalization over the last axis takes TensorRT fewer kernels",
)
