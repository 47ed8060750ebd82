"""Write a LogSoftmax with its largest value subtracted.

    y = z − log Σ exp(z)      z = x − max x, both over the axes of the operator

TensorRT takes the logarithm of a Softmax, which is −∞ where a value is 104 below the largest one, and 17 below it in float16.
Written so, it takes no more kernels, and one fewer behind a matrix product.
Source: LogSoftmax-1 and -13 in the ONNX operator specification; Blanchard, Higham & Higham 2021, "Accurately computing the
log-sum-exp and softmax functions".
"""

from __future__ import annotations

from trtnorm_cli.rewrite.parts.arithmetic import arithmetic_for, data_type
from trtnorm_cli.rewrite.parts.data_channels import type_and_rank_are_known
from trtnorm_cli.rewrite.pattern import Var, describe, op
from trtnorm_cli.rewrite.rule import Match, NewNode, Rule

_TAKES_ONE_AXIS = 13


def axis_has_values(m: Match) -> str | None:
    """its axis is one of the data, and is not known to be empty."""
    rank, axis = len(m.shape("x") or ()), _axis(m)
    if not -rank <= axis < rank:
        return f"{describe(m.root)} has axis {axis} of {rank}"
    shape = m.shape("x") or ()
    return f"{describe(m.root)} is over nothing" if any(shape[each] == 0 for each in _axes(m)) else None


def _axis(m: Match) -> int:
    return int(m.root.attrs.get("axis", -1 if m.opset >= _TAKES_ONE_AXIS else 1))


def _axes(m: Match) -> tuple[int, ...]:
    """One axis, or all from it on."""
    rank = len(m.shape("x") or ())
    first = _axis(m) % rank
    return (first,) if m.opset >= _TAKES_ONE_AXIS else tuple(range(first, rank))


def less_the_largest(m: Match) -> NewNode:
    a = arithmetic_for(m)
    data = a.operand(a.raised(m.given("x"), "to_float32"), "data")
    largest = a.reduced("ReduceMax", data, _axes(m), "largest")
    shifted = NewNode("Sub", (data, largest), role="shifted")
    total = a.reduced("ReduceSum", NewNode("Exp", (shifted,), role="exponentials"), _axes(m), "total")
    made = NewNode("Sub", (shifted, NewNode("Log", (total,), role="logarithm")), role="log_softmax")
    return a.lowered(made, data_type(m))


RULE = Rule(
    name="log-softmax",
    pattern=op("LogSoftmax", Var("x"), name="normalization"),
    preconditions=(type_and_rank_are_known, axis_has_values),
    replacement=less_the_largest,
    because="a LogSoftmax is the logarithm of a softmax for TensorRT, and -inf where that is too small a number",
    since_opset=1,
)
