"""Give a BatchNormalization whose parameters do not fit its channels the parameters that are meant.

    y_c = (x_c − μ_i) · γ_i/√(σ²_i+ε) + β_i      i = i(c) by the reading

Such a model is invalid: ONNX Runtime refuses it, and TensorRT says "shift weights has count 16 but 64 was expected". A reading
is taken when the file supports exactly one (i = c·n/C where the graph states n groups, i = c where the tail repeats the head,
the axis of x that is as long as the parameters), when a checkpoint has the right tensors, or when the build profile names it.
Source: Ioffe & Szegedy 2015; one value per group as in Wu & He 2018, "Group Normalization".
"""

from __future__ import annotations

import numpy as np

from trtnorm_cli.rewrite.diagnosis import Finding, diagnose, shape_text
from trtnorm_cli.rewrite.pattern import Var, describe, op
from trtnorm_cli.rewrite.readings import CHECKPOINT, Choice, Reading, axis_of, choose, read, source_of, yaml_line
from trtnorm_cli.rewrite.rule import Match, NewConstant, NewNode, Rule
from trtnorm_cli.rewrite.rules import batchnorm, training
from trtnorm_cli.rewrite.rules.arithmetic import arithmetic_for, data_type
from trtnorm_cli.rewrite.rules.data_channels import ROLES, type_and_rank_are_known
from trtnorm_cli.rewrite.rules.definition import definition


def counts_do_not_fit(m: Match) -> str | None:
    """scale, bias, mean or variance does not hold one value per channel of the data."""
    return None if _finding(m) is not None else f"the parameters of {describe(m.root)} fit, or its channel count is not known"


def one_reading_is_certain(m: Match) -> str | None:
    """the file supports exactly one reading of the parameters, or the build profile or a checkpoint says which it is."""
    finding = _finding(m)
    assert finding is not None, "counts_do_not_fit holds"
    choice = _choice(m, finding)
    if choice.reading is not None:
        return None
    return f"{choice.why_not}: {'; '.join(finding.lines())}"


def _finding(m: Match) -> Finding | None:
    return diagnose(m.root, m.surgery, m.types)


def _choice(m: Match, finding: Finding) -> Choice:
    values = {ROLES[name]: m.value(name) for name in batchnorm.PARAMETER_NAMES}
    names = {ROLES[name]: m.given(name).name for name in batchnorm.PARAMETER_NAMES}
    return choose(finding, values, names, m.settings, in_training=training.is_training(m) is None)


def _decided(m: Match) -> tuple[Finding, Reading]:
    finding = _finding(m)
    assert finding is not None, "counts_do_not_fit holds"
    reading = _choice(m, finding).reading
    assert reading is not None, "one_reading_is_certain holds"
    return finding, reading


def warning(m: Match) -> str:
    finding, reading = _decided(m)
    counts = " and ".join(map(str, sorted(set(finding.misfits.values()))))
    why = "the build profile says so" if _asked_for(m) and reading.name != CHECKPOINT else reading.evidence
    text = f"has {counts} values per parameter for {finding.wanted} channels of {shape_text(finding.shape)}; "
    text += f"read as {reading.name} ({reading.says}), because {why}"
    other = next((r for r in _choice(m, finding).readings if r.name != reading.name), None)
    if _asked_for(m) or other is None:
        return text
    line = yaml_line(finding.node, other.name)
    return f"{text}. Where that is not meant, name another reading in the build profile, as in\n{line}"


def _asked_for(m: Match) -> bool:
    finding = _finding(m)
    return finding is not None and _choice(m, finding).asked_for


def _values(m: Match, finding: Finding, reading: Reading) -> dict[str, np.ndarray]:
    """The parameters as they are meant, by their names in the pattern."""
    if axis_of(reading) is not None:
        return {name: m.value(name).reshape(-1) for name in batchnorm.PARAMETER_NAMES}
    result = {}
    for name in batchnorm.PARAMETER_NAMES:
        value = m.value(name)
        if reading.name == CHECKPOINT and ROLES[name] in finding.misfits:
            assert m.settings.checkpoint is not None, "the reading comes from it"
            result[name] = m.settings.checkpoint.values(m.given(name).name).reshape(-1).astype(value.dtype)
        else:
            result[name] = read(reading, value, finding.wanted)
    return result


def values_are_finite(m: Match) -> str | None:
    """the parameters as they are read are finite, and their variance + epsilon, where it is used, is above zero."""
    finding, reading = _decided(m)
    values = _values(m, finding, reading)
    for name, value in values.items():
        if not np.isfinite(value.astype(np.float64)).all():
            return f"{m.given(name).name} is not finite"
    if training.is_training(m) is not None and (values["variance"].astype(np.float64) + batchnorm.epsilon(m) <= 0).any():
        return f"variance + epsilon of {describe(m.root)} is not positive in every channel"
    return None


def as_it_is_meant(m: Match) -> NewNode:
    finding, reading = _decided(m)
    values = _values(m, finding, reading)
    axis = axis_of(reading)
    if axis is not None:
        return _along_axis(m, values, axis)
    return batchnorm.with_parameters(m, (NewConstant(name, value) for name, value in values.items()), "as_meant")


def _along_axis(m: Match, values: dict[str, np.ndarray], axis: int) -> NewNode:
    a, shape = arithmetic_for(m), m.shape("x")
    assert shape is not None, "type_and_rank_are_known holds"
    scale, shift, mean, variance = (value.astype(np.float64) for value in values.values())
    factor = scale / np.sqrt(variance + batchnorm.epsilon(m))
    along = (-1, *[1] * (len(shape) - 1 - axis))
    scaled = a.binary("Mul", a.raised(m.given("x"), "to_float32"), factor.reshape(along), "scale")
    return a.lowered(a.binary("Add", scaled, (shift - mean * factor).reshape(along), "shift"), data_type(m))


def as_the_reading_defines_it(m: Match) -> NewNode:
    """The reading in elementary operators: each channel picks its value, or the axis is brought to the channels' place."""
    finding, reading = _decided(m)
    picked = {name: _picked(m, finding, reading, name) for name in batchnorm.PARAMETER_NAMES}
    axis = axis_of(reading)
    if axis is None:
        return definition(m, picked)
    a, order = arithmetic_for(m), list(range(len(m.shape("x") or ())))
    order[axis], order[1] = 1, axis
    data = NewNode("Transpose", (a.operand(a.raised(m.given("x")), "data"),), {"perm": order})
    return NewNode("Transpose", (definition(m, picked, data),), {"perm": order})


def _picked(m: Match, finding: Finding, reading: Reading, name: str) -> NewNode:
    a, value = arithmetic_for(m), m.value(name).reshape(-1)
    if reading.name == CHECKPOINT and ROLES[name] in finding.misfits:
        value = _values(m, finding, reading)[name]
    count = value.size if axis_of(reading) is not None else finding.wanted
    indices = np.array([source_of(reading, channel, value.size, count) for channel in range(count)], np.int64)
    stored = NewConstant(name, value.astype(a.dtype))
    return NewNode("Gather", (stored, NewConstant(f"{name}_indices", indices)), {"axis": 0})


RULE = Rule(
    name="repair-batchnorm-channels",
    pattern=op("BatchNormalization", Var("x"), *batchnorm.PARAMETERS, name=batchnorm.BATCHNORM),
    preconditions=(
        batchnorm.is_per_channel,
        type_and_rank_are_known,
        counts_do_not_fit,
        one_reading_is_certain,
        values_are_finite,
    ),
    replacement=as_it_is_meant,
    because="its parameters do not fit its channels, and one reading of them is certain or was asked for",
    warning=warning,
    reference=as_the_reading_defines_it,
    changes_meaning=_asked_for,
)
