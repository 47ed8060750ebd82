"""The conditions that a normalization in pieces meets before anything is put in its place."""

from __future__ import annotations

from collections.abc import Callable

import onnx

from trtnorm_cli.rewrite.norms.composition import Composition
from trtnorm_cli.rewrite.norms.matching import (
    TAKEN_TYPES,
    along_axis,
    composition_at,
    dtype_of,
    runtime_parameters,
    scale_and_shift,
)
from trtnorm_cli.rewrite.rule import Match, Precondition

Subject = Callable[[Match], "Composition | None"]
Mine = Callable[[Match], Composition]


def about(is_mine: Callable[[Composition], bool]) -> Subject:
    """The composition at a match, if it is one that a rule is about."""

    def found(m: Match) -> Composition | None:
        composition = composition_at(m)
        return composition if composition is not None and is_mine(composition) else None

    return found


def certain(subject: Subject) -> Mine:
    """The composition that a rule is about, for its conditions: they are asked only where there is one."""

    def found(m: Match) -> Composition:
        composition = subject(m)
        assert composition is not None, "no condition is asked without a subject"
        return composition

    return found


def formula_is_exact(mine: Mine) -> Precondition:
    """The condition that a formula is no look-alike."""

    def is_the_formula(m: Match) -> str | None:
        """the variance is divided by n, and only epsilon is added to it, under the root."""
        return mine(m).misgiving or None

    return is_the_formula


def type_is_taken(mine: Mine) -> Precondition:
    """The condition that types are known and such that normalizations are built for."""

    def type_is_known(m: Match) -> str | None:
        """data and result are of a known type: float32, float16 or bfloat16."""
        composition = mine(m)
        for tensor in (composition.data, composition.output):
            kind = dtype_of(m, tensor)
            if kind not in TAKEN_TYPES:
                return f"{tensor.name} is of type {onnx.TensorProto.DataType.Name(kind).lower()}"
        return None

    return type_is_known


def parameters_are_constant(mine: Mine) -> Precondition:
    """The condition that what is multiplied and added stands in the file."""

    def scale_and_shift_are_constants(m: Match) -> str | None:
        """scale and shift, as far as they are part of the normalization, are constants."""
        names = runtime_parameters(m, mine(m))
        return f"{names[0]}, with which the result is scaled or shifted, is computed at run time" if names else None

    return scale_and_shift_are_constants


def parameters_are_per_channel(mine: Mine) -> Precondition:
    """The condition that scale and shift can be parameters of a node with one value per channel."""

    def scale_and_shift_are_per_channel(m: Match) -> str | None:
        """scale and shift are one value, or one for each channel."""
        composition = mine(m)
        if runtime_parameters(m, composition):
            return None
        rank = len(composition.shape or ())
        both = scale_and_shift(m, composition)
        if both is None:
            return f"scale and shift are made for {composition.core.data.name}, a reshaping, and cannot be moved out of it"
        for name, values in zip(("scale", "shift"), both, strict=True):
            if along_axis(values, 1, rank) is None:
                return f"the {name} has shape {list(values.shape)}: it does not vary along the channels only"
        return None

    return scale_and_shift_are_per_channel
