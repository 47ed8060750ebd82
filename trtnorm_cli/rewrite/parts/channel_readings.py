"""How parameters that do not fit the channels of a normalization are meant: what the repairs of such nodes share.

The pattern of a rule calls the parameters as ``data_channels.ROLES`` does, and all of them are constants.
"""

from __future__ import annotations

import numpy as np

from trtnorm_cli.onnx_model.shapes import format_shape
from trtnorm_cli.rewrite.audit.diagnosis import Finding, diagnose
from trtnorm_cli.rewrite.audit.readings import (
    CHECKPOINT,
    PER_CHANNEL,
    Choice,
    Reading,
    axis_of,
    choose,
    read,
    source_of,
    yaml_line,
)
from trtnorm_cli.rewrite.parts import training
from trtnorm_cli.rewrite.parts.arithmetic import arithmetic_for
from trtnorm_cli.rewrite.parts.data_channels import ROLES
from trtnorm_cli.rewrite.pattern import describe
from trtnorm_cli.rewrite.rule import Match, NewConstant, NewNode


def parameter_names(m: Match) -> tuple[str, ...]:
    """The parameters of the match, by their names in the pattern."""
    return tuple(name for name in ROLES if name in m.bindings.tensors)


def counts_do_not_fit(m: Match) -> str | None:
    """scale, bias, mean or variance does not hold one value per channel of the data."""
    return None if finding_of(m) is not None else f"the parameters of {describe(m.root)} fit, or its channel count is not known"


def one_reading_is_certain(m: Match) -> str | None:
    """the file supports exactly one reading of the parameters, or the build profile or a checkpoint says which it is."""
    finding = finding_of(m)
    assert finding is not None, "counts_do_not_fit holds"
    choice = _choice(m, finding)
    if choice.reading is not None:
        return None
    return f"{choice.why_not}: {'; '.join(finding.lines())}"


def finding_of(m: Match) -> Finding | None:
    return diagnose(m.root, m.surgery, m.types)


def _choice(m: Match, finding: Finding) -> Choice:
    values = {ROLES[name]: m.value(name) for name in parameter_names(m)}
    names = {ROLES[name]: m.given(name).name for name in parameter_names(m)}
    in_training = m.root.op == "BatchNormalization" and training.is_training(m) is None
    return choose(finding, values, names, m.settings, in_training)


def decided(m: Match) -> tuple[Finding, Reading]:
    """The misfit, and the reading to take."""
    finding = finding_of(m)
    assert finding is not None, "counts_do_not_fit holds"
    reading = _choice(m, finding).reading
    assert reading is not None, "one_reading_is_certain holds"
    return finding, reading


def warning(m: Match) -> str:
    """A warning that says which reading was taken, and why."""
    finding, reading = decided(m)
    counts = " and ".join(map(str, sorted(set(finding.misfits.values()))))
    why = "the build profile says so" if asked_for(m) and reading.name != CHECKPOINT else reading.evidence
    text = f"has {counts} values per parameter for {finding.wanted} channels of {format_shape(finding.shape)}; "
    text += f"read as {reading.name} ({reading.says}), because {why}"
    other = next((r for r in _choice(m, finding).readings if r.name != reading.name), None)
    if asked_for(m) or other is None:
        return text
    line = yaml_line(finding.node, other.name)
    return f"{text}. Where that is not meant, name another reading in the build profile, as in\n{line}"


def asked_for(m: Match) -> bool:
    """True when the build profile or a checkpoint decided."""
    finding = finding_of(m)
    return finding is not None and _choice(m, finding).asked_for


def values(m: Match) -> dict[str, np.ndarray]:
    """The parameters as they are meant, by their names in the pattern."""
    finding, reading = decided(m)
    if axis_of(reading) is not None or reading.name == PER_CHANNEL:
        return {name: m.value(name).reshape(-1) for name in parameter_names(m)}
    result = {}
    for name in parameter_names(m):
        value = m.value(name)
        if reading.name == CHECKPOINT and ROLES[name] in finding.misfits:
            assert m.settings.checkpoint is not None, "the reading comes from it"
            result[name] = m.settings.checkpoint.values(m.given(name).name).reshape(-1).astype(value.dtype)
        else:
            result[name] = read(reading, value, finding.wanted)
    return result


def not_finite(m: Match) -> str | None:
    """None when the parameters as they are read are finite; else which is not."""
    bad = (name for name, value in values(m).items() if not np.isfinite(value.astype(np.float64)).all())
    return next((f"{m.given(name).name} is not finite" for name in bad), None)


def picked(m: Match, name: str) -> NewNode:
    """A parameter with one value per channel, each picked from those of the file: the definition of a reading."""
    finding, reading = decided(m)
    a, value = arithmetic_for(m), m.value(name).reshape(-1)
    if reading.name == CHECKPOINT and ROLES[name] in finding.misfits:
        value = values(m)[name]
    count = value.size if axis_of(reading) is not None or reading.name == PER_CHANNEL else finding.wanted
    indices = np.array([source_of(reading, channel, value.size, count) for channel in range(count)], np.int64)
    stored = NewConstant(name, value.astype(a.dtype))
    return NewNode("Gather", (stored, NewConstant(f"{name}_indices", indices)), {"axis": 0})


def order_with_channels_first(m: Match, axis: int) -> list[int]:
    """The permutation that brings ``axis`` to the channels' place, and back."""
    order = list(range(len(m.shape("x") or ())))
    order[axis], order[1] = 1, axis
    return order
