"""BatchNormalization written out in elementary operators, to compare replacements with what a node means.

    y = (x − μ) / √(σ²+ε) · γ + β

Ioffe & Szegedy 2015, algorithm 1 (training: μ and σ² of the batch) and 2 (inference: the stored ones).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trtnorm_cli.rewrite.parts import batchnorm, training
from trtnorm_cli.rewrite.parts.arithmetic import Operand, arithmetic_for, data_type
from trtnorm_cli.rewrite.parts.data_channels import along_channels
from trtnorm_cli.rewrite.rule import Match, NewNode


def definition(m: Match, parameters: Mapping[str, Operand], data: Operand | None = None, running: bool = False) -> NewNode:
    """The definition of the node of ``m`` with ``parameters``: vectors, by their names in the pattern.

    ``data`` stands for the data of the match; its channels are on axis 1. With ``running``, the stored statistics are used
    whatever the mode.
    """
    a = arithmetic_for(m)
    x = a.raised(m.given("x")) if data is None else data
    scale, shift, mean, variance = (a.reshape(parameters[name], along_channels(m)) for name in batchnorm.PARAMETER_NAMES)
    if not running and training.is_training(m) is None:
        axes = training.batch_axes(len(m.shape("x") or ()))
        mean = a.mean(x, axes)
        centred = a.binary("Sub", x, mean)
        variance = a.mean(a.binary("Mul", centred, centred), axes)
    deviation = a.sqrt(a.binary("Add", variance, np.full(1, batchnorm.epsilon(m))))
    normalized = a.binary("Div", a.binary("Sub", x, mean), deviation)
    return a.lowered(a.binary("Add", a.binary("Mul", normalized, scale), shift), data_type(m))


def given_parameters(m: Match) -> dict[str, Operand]:
    """The parameters as the file has them, by their names in the pattern."""
    a = arithmetic_for(m)
    return {name: a.raised(m.given(name)) for name in batchnorm.PARAMETER_NAMES}
