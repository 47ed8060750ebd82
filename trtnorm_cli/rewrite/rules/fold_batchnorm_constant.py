"""Evaluate a BatchNormalization of constants.

    y = (x − μ) · γ/√(σ²+ε) + β

with x a constant as well, such as the weight of a weight-standardised convolution, which PyTorch writes as a
BatchNormalization in training mode over the weight: then μ and σ² are the mean and variance of x itself. Computed in float64,
stored in the type of x.
Source: Ioffe & Szegedy 2015; weight standardisation is Qiao et al. 2019, "Micro-Batch Training with Batch-Channel
Normalization and Weight Standardization".
"""

from __future__ import annotations

import numpy as np

from trtnorm_cli.rewrite.parts import batchnorm, training
from trtnorm_cli.rewrite.pattern import Const, describe, op
from trtnorm_cli.rewrite.rule import Match, NewConstant, NewNode, NewOutputs, Rule

_LAST = "the last normalized constant"


def parameters_fit_the_data(m: Match) -> str | None:
    """the data has a channel axis, and scale, bias, mean and variance hold one value for each of its channels."""
    shape, count = m.value("x").shape, m.value("scale").shape[0]
    if len(shape) < 2 or shape[1] != count:
        return f"{describe(m.node(batchnorm.BATCHNORM))} has {count} values per parameter for data of shape {list(shape)}"
    return None


def variance_is_positive(m: Match) -> str | None:
    """variance + epsilon is above zero in every channel that is normalized with the stored variance."""
    return None if training.is_training(m) is None else batchnorm.variance_is_positive(m)


def result_is_finite(m: Match) -> str | None:
    """the result is finite and stays so in the type of the data."""
    for number, values in _evaluated(m).items():
        if not np.isfinite(values.astype(np.float64) if values.dtype.kind == "V" else values).all():
            what = f"output {number} of the normalized constant"
            return batchnorm.not_representable(_in_float64(m)[number], values.dtype, what)
    return None


def _evaluated(m: Match) -> dict[int, np.ndarray]:
    """The outputs that somebody uses, in their types. The rule asks for them twice in a row, and the last ones are kept."""
    root, found = m.cache.of_graph.get(_LAST, (None, {}))
    if root is not m.root:  # tensors of two branches may have one name
        with np.errstate(over="ignore", invalid="ignore"):
            found = {number: values.astype(_dtype(m, number)) for number, values in _in_float64(m).items()}
        m.cache.of_graph[_LAST] = m.root, found
    return found


def _dtype(m: Match, number: int) -> np.dtype:
    return m.kind(("x", "mean", "variance", "mean", "variance")[number]).dtype


def _in_float64(m: Match) -> dict[int, np.ndarray]:
    """The same in float64."""
    x = m.value("x").astype(np.float64)
    scale, shift, mean, variance = (m.value(name).astype(np.float64) for name in batchnorm.PARAMETER_NAMES)
    along = (-1, *[1] * (x.ndim - 2))
    further: dict[int, np.ndarray] = {}
    given = mean, variance
    if training.is_training(m) is None:
        axes, keep = training.batch_axes(x.ndim), training.momentum(m)
        mean = x.mean(axis=axes)
    x -= mean.reshape(along)
    if training.is_training(m) is None:
        variance = np.square(x).mean(axis=axes)
        further = {1: given[0] * keep + mean * (1 - keep), 2: given[1] * keep + variance * (1 - keep)}
        further |= {3: mean, 4: variance}
    x /= np.sqrt(variance + batchnorm.epsilon(m)).reshape(along)
    x *= scale.reshape(along)
    x += shift.reshape(along)
    return {0: x} | {number: value for number, value in further.items() if number in m.used_outputs}


def constants(m: Match) -> NewOutputs:
    """The outputs as weights, which are written and proved where they lie. Cleaning takes the Identities away."""
    return NewOutputs(
        {
            number: NewNode(
                "Identity",
                (NewConstant(f"output_{number}", values),),
                name=describe(m.root) if number == 0 else "",
                role=f"output_{number}",
            )
            for number, values in _evaluated(m).items()
        }
    )


RULE = Rule(
    name="fold-batchnorm-constant",
    pattern=op("BatchNormalization", Const("x"), *batchnorm.PARAMETERS, name=batchnorm.BATCHNORM),
    preconditions=(
        batchnorm.is_per_channel,
        batchnorm.parameters_agree,
        batchnorm.parameters_are_finite,
        parameters_fit_the_data,
        variance_is_positive,
    ),
    value_preconditions=(result_is_finite,),
    replacement=constants,
    because="its data and its parameters are constants, so the result is one",
    replaces_further_outputs=True,
)
