"""Sizes to start from are ones at which the model has been run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trtnorm_cli.profile.model import DimRange
from trtnorm_cli.profile.model_input import ModelInput
from trtnorm_cli.profile.paste import Start, default_ranges
from trtnorm_cli.profile.runnable import OutOfTime, Trial, tried

SPEECH = [ModelInput("x", "float32", (None, None)), ModelInput("state", "float32", (2, None, 128))]


def trial(inputs: list[ModelInput], runs: Callable[[dict[str, int]], bool]) -> Trial:
    start = Start(default_ranges(inputs))
    return tried(start, inputs, lambda point: None if runs(dict(point)) else "shapes differ")


def corners(found: Trial) -> dict[str, tuple[int, int, int]]:
    return {name: dim.corners() for name, dim in found.start.ranges.items()}


def test_what_runs_stays():
    found = trial(SPEECH, lambda at: True)
    assert found == Trial(Start(default_ranges(SPEECH)))


def test_dimensions_that_must_be_equal_vary_together():
    found = trial(SPEECH, lambda at: at["x[0]"] == at["state[1]"])
    assert corners(found) == {"x[0]": (1, 8, 32), "x[1]": (1, 128, 512), "state[1]": (1, 8, 32)}
    assert found.remarks == ("x[0] and state[1] are equal: the model ran with no others",)


def test_a_least_size_leaves_a_range():
    found = trial(SPEECH, lambda at: at["x[0]"] == at["state[1]"] and at["x[1]"] >= 100)
    low, opt, high = corners(found)["x[1]"]
    assert 100 <= low < opt <= high
    assert corners(found)["state[1]"] == (1, 8, 32)


def test_a_single_legal_size_is_found_and_fixed():
    found = trial(SPEECH, lambda at: at["x[0]"] == at["state[1]"] and at["x[1]"] == 576)
    assert corners(found) == {"x[0]": (1, 8, 32), "x[1]": (576, 576, 576), "state[1]": (1, 8, 32)}
    assert "x[1] is fixed to 576: with other sizes that were tried, the model did not run" in found.remarks


def test_a_batch_that_a_static_state_fixes_is_one():
    inputs = [ModelInput("x", "float32", ("N", 3, "frames", 160)), ModelInput("h", "float32", (4, 1, 64))]
    found = trial(inputs, lambda at: at["N"] == 1)
    assert corners(found)["N"] == (1, 1, 1)
    assert corners(found)["frames"] == default_ranges(inputs)["frames"].corners()


def test_three_that_are_equal():
    inputs = [*SPEECH, ModelInput("mask", "bool", (None, 4))]
    found = trial(inputs, lambda at: at["x[0]"] == at["state[1]"] == at["mask[0]"])
    assert len({corners(found)[name] for name in ("x[0]", "state[1]", "mask[0]")}) == 1
    assert corners(found)["x[0]"] == (1, 8, 32)


def test_what_never_runs_keeps_its_sizes_and_the_reason():
    found = trial(SPEECH, lambda at: False)
    assert (found.start, found.failure) == (Start(default_ranges(SPEECH)), "shapes differ")


@pytest.mark.parametrize(("most", "settled"), [(1, False), (3, True), (8, True), (12, True)])
def test_without_time_what_is_known_is_used(most, settled):
    count = 0

    def attempt(point):
        nonlocal count
        count += 1
        if count > most:
            raise OutOfTime
        return None if point["x[0]"] == point["state[1]"] == 1 else "shapes differ"

    found = tried(Start(default_ranges(SPEECH)), SPEECH, attempt)
    assert (corners(found)["x[0]"] == corners(found)["state[1]"] == (1, 1, 1)) == settled
    assert found.failure == (None if settled else "shapes differ")


def test_a_multiple_stays_with_its_range():
    inputs = [ModelInput("x", "float32", ("N", 3, "H", "W"))]
    start = Start({**default_ranges(inputs), "H": DimRange(min=32, opt=64, max=96, multiple_of=32)})
    found = tried(start, inputs, lambda point: None if point["N"] == 1 else "one only")
    assert found.start.ranges["H"] == start.ranges["H"]
    assert found.start.ranges["N"].corners() == (1, 1, 1)


def test_usual_sizes_are_tried_with_a_batch_of_one():
    inputs = [ModelInput("x", "float32", ("N", 3, "H", "W"))]
    found = trial(inputs, lambda at: at["N"] == 1 and at["H"] == at["W"] == 64)
    assert corners(found) == {"N": (1, 1, 1), "H": (64, 64, 64), "W": (64, 64, 64)}
