"""The common part of ONNX Runtime's normalizations of a sum: x + skip + bias, and which outputs they have."""

from __future__ import annotations

import numpy as np

from trtnorm_cli.rewrite.parts.arithmetic import Operand, arithmetic_for
from trtnorm_cli.rewrite.pattern import describe
from trtnorm_cli.rewrite.rule import Match, NewNode, NewOutputs

_SUM = 3
_DEFAULT_EPSILON = float(np.float32(1e-12))


def statistics_are_not_used(m: Match) -> str | None:
    """mean and deviation, the second and third output, are not used: ONNX Runtime does not compute them."""
    used = next((number for number in m.used_outputs if number in (1, 2)), None)
    return None if used is None else f"{m.root.outputs[used].name}, a statistic of {describe(m.root)}, is used"


def epsilon(m: Match) -> float:
    """The epsilon attribute; ONNX Runtime has a default of its own for these operators."""
    return float(m.root.attrs.get("epsilon", _DEFAULT_EPSILON))


def total(m: Match) -> NewNode:
    """The sum that is normalized."""
    a = arithmetic_for(m)
    made = a.binary("Add", a.raised(m.given("x"), "to_float32"), a.raised(m.given("skip"), "raise_skip"), "sum")
    if m.has("bias"):
        made = a.binary("Add", made, a.raised(m.given("bias"), "raise_bias"), "sum_with_bias")
    assert isinstance(made, NewNode), "the data are of run time"
    return made


def outputs(m: Match, y: Operand, sum_of_all: NewNode, kind: int) -> NewOutputs:
    """The normalized sum, and the sum where somebody uses it."""
    a = arithmetic_for(m)
    nodes = {0: a.lowered(y, kind)}
    if _SUM in m.used_outputs:
        nodes[_SUM] = a.lowered(sum_of_all, kind)
    return NewOutputs(nodes)
