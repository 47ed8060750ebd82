"""Give an instance or group normalization whose parameters do not fit its channels the parameters that are meant.

    y_c = (x_c − μ)/√(σ²+ε) · γ_i + β_i      i = i(c) by the reading

Such a model is invalid: ONNX Runtime refuses it, and TensorRT says that "the scale is expected to match the output at the
channel dimension". The readings are those of a BatchNormalization, and the two in which opsets 18 and 21 of GroupNormalization
differ: one value per group where there should be one per channel (i = c·G/C), and the other way round (i = c).
Source: Ulyanov, Vedaldi & Lempitsky 2016; Wu & He 2018; GroupNormalization-18 and -21 in the ONNX operator specification.
"""

from __future__ import annotations

import numpy as np

from trtnorm_cli.rewrite.audit.readings import PER_CHANNEL, axis_of
from trtnorm_cli.rewrite.parts import channel_readings as readings
from trtnorm_cli.rewrite.parts import group_parameters as group
from trtnorm_cli.rewrite.parts.arithmetic import Arithmetic, Operand, arithmetic_for, data_type
from trtnorm_cli.rewrite.parts.data_channels import along_channels, type_and_rank_are_known
from trtnorm_cli.rewrite.parts.standardised import standardised
from trtnorm_cli.rewrite.pattern import Const, Var, op
from trtnorm_cli.rewrite.rule import Match, NewConstant, NewNode, Rule


def values_are_finite(m: Match) -> str | None:
    """the parameters as they are read are finite."""
    return readings.not_finite(m)


def as_it_is_meant(m: Match) -> NewNode:
    finding, reading = readings.decided(m)
    parameters = {name: NewConstant(name, value) for name, value in readings.values(m).items()}
    axis = axis_of(reading)
    if axis is not None:
        order = readings.order_with_channels_first(m, axis)
        data = NewNode("Transpose", (m.given("x"),), {"perm": order}, role="channels_first")
        return NewNode("Transpose", (_node(m, data, parameters),), {"perm": order}, role="channels_back")
    if reading.name == PER_CHANNEL:
        a = arithmetic_for(m)
        ones, zeros = (NewConstant(n, np.full(finding.wanted, v, a.dtype)) for n, v in (("ones", 1), ("zeros", 0)))
        raised = a.operand(a.raised(m.given("x"), "to_float32"), "data")
        normalized = NewNode(m.root.op, (raised, ones, zeros), dict(m.root.attrs), name=m.root.name, role="normalized")
        return a.lowered(group.affine(m, a, normalized), data_type(m))
    return _node(m, m.given("x"), parameters)


def _node(m: Match, data: Operand, parameters: dict[str, NewConstant]) -> NewNode:
    assert not isinstance(data, np.ndarray), "the data are of run time"
    return NewNode(m.root.op, (data, *parameters.values()), dict(m.root.attrs), name=m.root.name, role="as_meant")


def as_the_reading_defines_it(m: Match) -> NewNode:
    """The reading in elementary operators: each channel picks its value, or the axis is brought to the channels' place."""
    a, x = arithmetic_for(m), arithmetic_for(m).raised(m.given("x"))
    axis = axis_of(readings.decided(m)[1])
    order = list(range(len(m.shape("x") or ()))) if axis is None else readings.order_with_channels_first(m, axis)
    data = NewNode("Transpose", (a.operand(x, "data"),), {"perm": order})
    scale, shift = (a.reshape(_for_channels(m, a, name), along_channels(m)) for name in ("scale", "shift"))
    y = a.binary("Add", a.binary("Mul", _standardised(m, a, data), scale), shift)
    return a.lowered(NewNode("Transpose", (a.operand(y, "y"),), {"perm": order}), data_type(m))


def _standardised(m: Match, a: Arithmetic, data: NewNode) -> Operand:
    rank = len(m.shape("x") or ())
    if m.root.op == group.INSTANCE:
        return standardised(a, data, tuple(range(2, rank)), group.epsilon(m)).value
    grouped = NewNode("Reshape", (data, a.integers("groups", (0, int(m.root.attrs["num_groups"]), -1))))
    return NewNode("Reshape", (standardised(a, grouped, (2,), group.epsilon(m)).value, group.shape_of_data(m, a)))


def _for_channels(m: Match, a: Arithmetic, name: str) -> Operand:
    """A parameter as it is read, with a value for each channel also where the node has one per group."""
    finding, reading = readings.decided(m)
    one_each = readings.picked(m, name)
    channels = finding.shape[finding.axis]
    if reading.name == PER_CHANNEL or not group.per_group(m) or not isinstance(channels, int):
        return one_each
    indices = np.repeat(np.arange(finding.wanted), channels // finding.wanted)
    return NewNode("Gather", (one_each, NewConstant(f"{name}_of_group", indices)), {"axis": 0})


RULE = Rule(
    name="repair-normalization-channels",
    pattern=op((group.INSTANCE, group.GROUP), Var("x"), Const("scale"), Const("shift"), name="normalization"),
    preconditions=(
        type_and_rank_are_known,
        group.groups_divide_channels,
        readings.counts_do_not_fit,
        readings.one_reading_is_certain,
        values_are_finite,
    ),
    replacement=as_it_is_meant,
    because="its parameters do not fit its channels, and one reading of them is certain or was asked for",
    warning=readings.warning,
    reference=as_the_reading_defines_it,
    changes_meaning=readings.asked_for,
)
