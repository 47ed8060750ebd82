"""Which readings are offered, which is certain, and the order in which they are preferred."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from trtnorm_cli.checkpoint import Checkpoint
from trtnorm_cli.profile.rewriting import READINGS, RewriteSettings
from trtnorm_cli.rewrite.audit.channel_origin import Origin
from trtnorm_cli.rewrite.audit.diagnosis import Finding
from trtnorm_cli.rewrite.audit.readings import Choice, Reading, axis_of, choose, read, source_of, yaml_line

ROLES = ("scale", "bias", "mean", "variance")


def decide(
    count: int, shape: tuple = ("N", 64, 8, 8), groups: tuple[int, ...] = (), settings: RewriteSettings | None = None, **values
) -> Choice:
    finding = Finding("bn", "BatchNormalization", "x", shape, 1, shape[1], dict.fromkeys(ROLES, count), Origin("", (), groups))
    rng = np.random.default_rng(0)
    parameters = {role: values.get(role, rng.standard_normal(count)) for role in ROLES}
    return choose(finding, parameters, {role: f"bn.{role}" for role in ROLES}, settings or RewriteSettings())


def offered(choice: Choice) -> list[str]:
    return [reading.name for reading in choice.readings]


def test_nothing_is_certain_about_a_divisor():
    choice = decide(16)
    assert (choice.reading, offered(choice)) == (None, ["repeat-per-group", "tile"])
    assert choice.why_not == "nothing in the file says which reading is meant"


def test_a_group_count_makes_it_certain():
    choice = decide(16, groups=(16,))
    assert choice.reading is not None
    assert (choice.reading.name, choice.reading.evidence) == ("repeat-per-group", "the graph has 16 groups here")
    assert not choice.asked_for


def test_another_group_count_does_not():
    assert decide(16, groups=(8,)).reading is None


def test_one_matching_axis_makes_it_certain():
    choice = decide(16, ("N", 64, 16, 8))
    assert choice.reading is not None
    assert choice.reading.name == "axis-2"


def test_two_matching_axes_do_not():
    choice = decide(16, ("N", 64, 16, 16))
    assert choice.reading is None
    assert offered(choice) == ["axis-2", "axis-3", "repeat-per-group", "tile"]


def test_two_kinds_of_evidence_are_none():
    choice = decide(16, ("N", 64, 16, 8), groups=(16,))
    assert choice.reading is None
    assert choice.why_not == "several readings are supported by the file"


def test_one_value():
    assert offered(decide(1)) == ["expand"]


def test_the_head():
    assert offered(decide(128)) == ["take-head"]
    assert decide(128).reading is None
    doubled = {role: np.tile(np.random.default_rng(1).standard_normal(64), 2) for role in ROLES}
    assert decide(128, **doubled).reading is not None
    nearly = {**doubled, "bias": doubled["bias"] + np.eye(1, 128, 127)[0] * 1e-15}
    assert decide(128, **nearly).reading is None


def test_no_reading():
    choice = decide(15)
    assert (choice.readings, choice.why_not) == ((), "no reading is possible")


def test_what_the_profile_asks_for():
    asked = decide(16, ("N", 64, 16, 8), settings=RewriteSettings(mismatch={"bn": "tile"}))
    assert asked.reading is not None
    assert (asked.reading.name, asked.asked_for) == ("tile", True)
    other = decide(16, settings=RewriteSettings(mismatch={"another": "tile"}))
    assert other.reading is None
    impossible = decide(16, settings=RewriteSettings(mismatch={"bn": "take-head"}))
    assert impossible.reading is None
    assert "not possible here" in impossible.why_not


def checkpoint(size: int) -> Checkpoint:
    sizes = {f"bn.{role}": size for role in ROLES}
    return Checkpoint(Path("w.safetensors"), sizes, lambda name: np.zeros(size))


def test_a_checkpoint_comes_first():
    choice = decide(16, ("N", 64, 16, 8), settings=RewriteSettings(checkpoint=checkpoint(64)))
    assert choice.reading is not None
    assert (choice.reading.name, choice.asked_for) == ("checkpoint", True)
    assert decide(16, settings=RewriteSettings(checkpoint=checkpoint(32))).reading is None


def test_the_profile_overrules_the_checkpoint():
    settings = RewriteSettings(checkpoint=checkpoint(64), mismatch={"bn": "tile"})
    choice = decide(16, settings=settings)
    assert choice.reading is not None
    assert choice.reading.name == "tile"


@pytest.mark.parametrize("name", ["repeat-per-group", "tile", "take-head", "expand"])
def test_a_reading_does_what_its_definition_says(name):
    count = {"take-head": 12, "expand": 1}.get(name, 3)
    values = np.arange(float(count))
    reading = Reading(name, "")
    wanted = [values[source_of(reading, channel, count, 6)] for channel in range(6)]
    np.testing.assert_array_equal(read(reading, values, 6), wanted)


def test_fitting_parameters_are_read_as_they_are():
    values = np.arange(6.0)
    np.testing.assert_array_equal(read(Reading("tile", ""), values, 6), values)


def test_names_of_readings_are_those_of_the_settings():
    made = {name for count in (1, 16, 128) for name in offered(decide(count, (64, 64, 16, 1)))}
    assert made < set(READINGS)
    assert [axis_of(Reading(name, "")) for name in READINGS if name.startswith("axis")] == [0, 1, 2, 3, 4, 5]
    assert axis_of(Reading("tile", "")) is None


def test_the_yaml_line_can_be_pasted():
    from trtnorm_cli.profile.load import parse_profile

    for node in ("/layer1/bn/BatchNormalization", "bn", "BatchNormalization -> y", 'a "b": c', "on"):
        assert parse_profile(yaml_line(node, "repeat-per-group")).mismatch == {node: "repeat-per-group"}
