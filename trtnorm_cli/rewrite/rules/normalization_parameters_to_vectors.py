"""Give the parameters of an instance or group normalization the one axis that ONNX and TensorRT want.

    [1, C, 1, 1], [C, 1, 1], [1, C], … = [C]      [] = [1], one value for all C channels

Only where it can mean nothing else: all axes but one are of length 1, and the number of values is that of the channels (of the
groups in opset 18 to 20), or one. ONNX Runtime refuses such a model as it is.
Source: Ulyanov, Vedaldi & Lempitsky 2016; Wu & He 2018; broadcasting in the ONNX specification.
"""

from __future__ import annotations

import numpy as np

from trtnorm_cli.rewrite.parts import group_parameters as group
from trtnorm_cli.rewrite.parts.arithmetic import Arithmetic, arithmetic_for, data_type
from trtnorm_cli.rewrite.parts.data_channels import ROLES, along_channels, channel_count, type_and_rank_are_known
from trtnorm_cli.rewrite.parts.standardised import standardised
from trtnorm_cli.rewrite.pattern import Const, Var, describe, op
from trtnorm_cli.rewrite.rule import Match, NewConstant, NewNode, Rule

_PARAMETERS = ("scale", "shift")


def parameters_are_not_vectors(m: Match) -> str | None:
    """scale or bias has another number of axes than one."""
    if any(m.value(name).ndim != 1 for name in _PARAMETERS):
        return None
    return f"the parameters of {describe(m.root)} are vectors already"


def one_reading_is_possible(m: Match) -> str | None:
    """at most one axis of each parameter is longer than one, and it is as long as the node wants."""
    wanted = _wanted(m)
    for name in _PARAMETERS:
        value = m.value(name)
        if wanted is None or value.size not in (1, wanted) or max(value.shape, default=1) != value.size:
            return (
                f"{m.given(name).name} ({ROLES[name]}) has shape {list(value.shape)}, {describe(m.root)} wants {wanted} values"
            )
    return None


def _wanted(m: Match) -> int | None:
    return group.groups(m) if group.per_group(m) else channel_count(m)


def warning(m: Match) -> str | None:
    if _wanted(m) == 1 or all(m.value(name).size > 1 for name in _PARAMETERS):
        return None
    return f"has one value for {_wanted(m)} channels; it is used for every channel"


def with_vectors(m: Match) -> NewNode:
    wanted = _wanted(m)
    assert wanted is not None, "one_reading_is_possible holds"
    values = {name: np.array(np.broadcast_to(m.value(name).reshape(-1), (wanted,))) for name in _PARAMETERS}
    inputs = (m.given("x"), *(NewConstant(name, value) for name, value in values.items()))
    return NewNode(m.root.op, inputs, dict(m.root.attrs), name=m.root.name, role="vectors")


def as_broadcasting_reads_them(m: Match) -> NewNode:
    """The node in elementary operators, with its parameters spread along the channels."""
    a, count = arithmetic_for(m), group.groups(m)
    assert count is not None, "one_reading_is_possible holds"
    data = a.operand(a.raised(m.given("x")), "data")
    grouped = NewNode("Reshape", (data, a.integers("groups", (0, count, -1))))
    normalized = standardised(a, grouped, (2,), group.epsilon(m)).value
    scale, shift = (m.value(name).astype(np.float64).reshape(-1) for name in _PARAMETERS)
    if group.per_group(m):
        columns = (np.broadcast_to(value, (count,)).reshape(count, 1) for value in (scale, shift))
        normalized, scale, shift = _scaled(a, normalized, *columns), np.ones(1), np.zeros(1)
    restored = NewNode("Reshape", (normalized, group.shape_of_data(m, a)))
    along = along_channels(m)
    return a.lowered(_scaled(a, restored, scale.reshape(along), shift.reshape(along)), data_type(m))


def _scaled(a: Arithmetic, x: NewNode, scale: np.ndarray, shift: np.ndarray) -> NewNode:
    made = a.binary("Add", a.binary("Mul", x, scale), shift)
    assert isinstance(made, NewNode), "x is of run time"
    return made


RULE = Rule(
    name="normalization-parameters-to-vectors",
    pattern=op((group.INSTANCE, group.GROUP), Var("x"), Const("scale"), Const("shift"), name="normalization"),
    preconditions=(
        type_and_rank_are_known,
        parameters_are_not_vectors,
        group.groups_divide_channels,
        one_reading_is_possible,
    ),
    replacement=with_vectors,
    because="scale and bias of an instance or group normalization are vectors, and can be read in one way only",
    warning=warning,
    reference=as_broadcasting_reads_them,
)
