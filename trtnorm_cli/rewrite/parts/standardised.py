"""Means, deviations and root mean squares over some axes, as nodes."""

from __future__ import annotations

import numpy as np

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.rewrite.parts.arithmetic import Arithmetic, Operand
from trtnorm_cli.rewrite.rule import NewNode


@dataclass(frozen=True)
class Standardised:
    """``value`` is (x − ``mean``) · ``inverse``, with ``inverse`` = 1/√(σ²+ε); the statistics keep their axes.

    Of a root mean square, ``mean`` is None: x · 1/√(mean(x²)+ε).
    """

    value: NewNode
    inverse: NewNode
    mean: NewNode | None = None


def standardised(a: Arithmetic, x: Operand, axes: tuple[int, ...], epsilon: float, centred: bool = True) -> Standardised:
    """``x`` less its mean over ``axes`` (unless not ``centred``), divided by its deviation, in two passes."""
    mean = a.mean(x, axes, role="mean") if centred else None
    data = x if mean is None else a.binary("Sub", x, mean, "centred")
    square = a.mean(a.binary("Mul", data, data, "squared"), axes, role="variance" if centred else "mean_square")
    deviation = a.sqrt(a.binary("Add", square, np.full(1, epsilon), "epsilon"))
    inverse = NewNode("Reciprocal", (a.operand(deviation, "deviation"),), role="inverse_deviation")
    value = a.binary("Mul", data, inverse, "normalized")
    assert isinstance(value, NewNode), "its statistics are nodes"
    return Standardised(value, inverse, mean)
