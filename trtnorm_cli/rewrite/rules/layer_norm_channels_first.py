"""Normalize over the channels of data with the channels first by transposing them to the end.

    (x − mean_c(x)) / √(var_c(x) + ε) · γ + β = Tᵀ(LN(T(x)))      T moves the channels from axis 1 to the last axis

TensorRT compiles a normalization over the last axis to one kernel, and one over axis 1 of data that are stored with the
channels first to several. Most convolutional networks have the channels last in its engines, and are left as they are. From
opset 17 on a LayerNormalization stands between the transpositions, before its elementary operators. The type in which the
statistics are computed stays.
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
from trtnorm_cli.rewrite.norms.surroundings import is_convolved, is_transposed_behind, lies_with_channels_first
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
    """a transposition reads the result, or a convolution reads that of data which surely lie with the channels first.

    TensorRT's convolutions have the channels last, and so have the poolings and elementwise operators around them. There a
    transposition takes longer, and so does one before an activation (docs/normalization_kernels.md has the measurements).
    """
    composition = mine(m)
    if is_transposed_behind(composition):
        return None
    if not is_convolved(composition):
        return (
            "neither a transposition nor a convolution reads the result, and TensorRT fuses it with what is around it as it is"
        )
    if not lies_with_channels_first(composition):
        return "no transposition makes the data, of which TensorRT may have the channels last already"
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
