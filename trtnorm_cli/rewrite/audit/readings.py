"""How parameters that are not one value per channel can be meant, and how sure that is.

A reading is certain when the file itself says so: an axis that the parameters match, a group count, values that repeat, or a
checkpoint that the user gave. Any other is only offered, and taken when the build profile names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.profile.rewriting import RewriteSettings
from trtnorm_cli.profile.yaml_keys import yaml_key
from trtnorm_cli.rewrite.audit.diagnosis import Finding

CHECKPOINT, PER_CHANNEL = "checkpoint", "per-channel"
_AXIS = "axis-"


@dataclass(frozen=True)
class Reading:
    """One way to read the parameters. ``evidence`` says what makes it certain, if anything."""

    name: str
    says: str
    evidence: str = ""


@dataclass(frozen=True)
class Choice:
    """The reading to take, or None and ``why_not``. ``asked_for`` is set when the user chose it."""

    reading: Reading | None
    readings: tuple[Reading, ...]
    asked_for: bool = False
    why_not: str = ""


def choose(
    finding: Finding,
    values: Mapping[str, np.ndarray],
    names: Mapping[str, str],
    settings: RewriteSettings,
    in_training: bool = False,
) -> Choice:
    """The reading for ``finding``: what the user asked for, else a checkpoint, else the only one that is certain.

    ``values`` and ``names`` are the parameters and their tensors' names by role. ``in_training`` leaves out other axes: the
    statistics of the batch are those of the channels.
    """
    offered = tuple(r for r in _readings(finding, values, names, settings) if not (in_training and axis_of(r) is not None))
    asked = settings.mismatch.get(finding.node)
    if asked is not None:
        found = next((reading for reading in offered if reading.name == asked), None)
        why_not = "" if found else f"the build profile asks for {asked}, which is not possible here"
        return Choice(found, offered, asked_for=True, why_not=why_not)
    if offered and offered[0].name == CHECKPOINT:
        return Choice(offered[0], offered, asked_for=True)
    certain = [reading for reading in offered if reading.evidence]
    if len(certain) == 1:
        return Choice(certain[0], offered)
    why_not = "several readings are supported by the file" if certain else "nothing in the file says which reading is meant"
    return Choice(None, offered, why_not=why_not if offered else "no reading is possible")


def yaml_line(node: str, reading: str) -> str:
    """The line of a build profile that selects a reading."""
    return f"mismatch: {{{yaml_key(node)}: {reading}}}"


def _readings(
    finding: Finding, values: Mapping[str, np.ndarray], names: Mapping[str, str], settings: RewriteSettings
) -> Iterator[Reading]:
    counts, wanted = set(finding.misfits.values()), finding.wanted
    checkpoint = settings.checkpoint
    if checkpoint is not None and all(checkpoint.size(names[role]) == wanted for role in finding.misfits):
        file = checkpoint.path.name
        yield Reading(CHECKPOINT, f"take them from {file}", f"{file} has them under their names")
    # The one axis of a vector is the batch: there is no other for the channels to have been moved to.
    if finding.operator != "GroupNormalization" and len(finding.shape) > 1:
        yield from _axes(finding)
    if _are_per_channel(finding, counts):
        channels = finding.shape[finding.axis]
        says = f"each of the {channels} channels has its own value, as since opset 21"
        yield Reading(PER_CHANNEL, says, "there are as many values as channels")
        return
    if counts == {1}:
        yield Reading("expand", f"the one value stands for all {wanted} channels", "there is one value")
    elif all(count > 1 and wanted % count == 0 for count in counts):
        yield from _spread(finding, counts)
    if all(count > wanted for count in counts):
        repeats = all(_repeats_head(values[role], wanted) for role in finding.misfits)
        evidence = "the rest repeats them bit for bit" if repeats else ""
        yield Reading("take-head", f"the first {wanted} values are meant", evidence)


def _are_per_channel(finding: Finding, counts: set[int]) -> bool:
    """True when all values of a GroupNormalization, which should be those of groups, are as many as the channels."""
    channels = finding.shape[finding.axis]
    return finding.operator == "GroupNormalization" and counts == {channels} and finding.misfits.keys() == finding.counts.keys()


def _axes(finding: Finding) -> Iterator[Reading]:
    axes = finding.matching_axes
    for axis in axes:
        evidence = f"axis {axis} is the only one of that length" if len(axes) == 1 else ""
        yield Reading(f"{_AXIS}{axis}", f"normalize over axis {axis}, which is as long as the parameters", evidence)


def _spread(finding: Finding, counts: set[int]) -> Iterator[Reading]:
    stated = counts & set(finding.origin.groups)
    each = " or ".join(str(finding.wanted // count) for count in sorted(counts))
    evidence = f"the graph has {stated.pop()} groups here" if len(counts) == 1 and stated else ""
    yield Reading("repeat-per-group", f"each value stands for {each} neighbouring channels", evidence)
    yield Reading("tile", f"the values repeat from the start after every {' or '.join(map(str, sorted(counts)))} channels")


def _repeats_head(values: np.ndarray, length: int) -> bool:
    """True when ``values`` is its first ``length`` values again and again, bit for bit."""
    content, head = values.tobytes(), values.reshape(-1)[:length].tobytes()
    return len(head) > 0 and len(content) % len(head) == 0 and content == head * (len(content) // len(head))


def axis_of(reading: Reading) -> int | None:
    """The axis that ``axis-…`` names; None for the other readings."""
    return int(reading.name.removeprefix(_AXIS)) if reading.name.startswith(_AXIS) else None


def read(reading: Reading, values: np.ndarray, wanted: int) -> np.ndarray:
    """``wanted`` values, one per channel; for every reading but an axis and a checkpoint."""
    flat = values.reshape(-1)
    if flat.size == wanted:
        return flat
    if reading.name in ("expand", "repeat-per-group"):
        return np.repeat(flat, wanted // flat.size)
    if reading.name == "tile":
        return np.tile(flat, wanted // flat.size)
    return flat[:wanted]


def source_of(reading: Reading, channel: int, count: int, wanted: int) -> int:
    """The one of ``count`` values that belongs to ``channel``, which is the definition of a reading, one channel at a time."""
    if count == wanted or reading.name in ("take-head", PER_CHANNEL):
        return channel
    if reading.name == "tile":
        return channel % count
    return channel * count // wanted
