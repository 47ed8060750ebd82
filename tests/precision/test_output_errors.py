from __future__ import annotations

import math

import numpy as np
import pytest

from trtnorm_cli.precision.output_errors import OutputErrors, output_errors, worst


def error(wanted: list[float], found: list[float]) -> float:
    return output_errors({"y": np.array(wanted, np.float32)}, {"y": np.array(found, np.float32)}).relative["y"]


def test_an_output_is_off_by_its_relative_l2() -> None:
    assert error([3.0, 4.0], [3.0, 4.5]) == pytest.approx(0.1)


def test_an_infinity_that_float32_does_not_have_is_an_infinite_error() -> None:
    assert error([3.0, 4.0], [3.0, math.inf]) == math.inf
    assert error([3.0, 4.0], [3.0, math.nan]) == math.inf


def test_what_is_not_finite_in_float32_is_not_judged() -> None:
    """As rows that are masked throughout: NaN in float32, and uniform with a mask that is finite."""
    assert error([3.0, -math.inf], [3.0, -math.inf]) == 0.0
    assert error([3.0, math.nan], [3.0, 0.25]) == 0.0
    assert error([math.nan], [1.0]) == 0.0


def test_zeros_are_held_against_one() -> None:
    assert error([0.0, 0.0], [0.01, 0.01]) == pytest.approx(0.01)
    assert error([0.0, 0.0], [0.0, math.nan]) == math.inf


def test_numbers_that_half_precision_does_not_have_are_held_against_the_smallest_that_it_has() -> None:
    assert error([1e-12], [2e-12]) == pytest.approx(1e-12 / 2**-24, rel=1e-3)


def test_small_numbers_that_vanish_are_wholly_lost() -> None:
    assert error([1e-6, 1e-6], [0.0, 0.0]) == pytest.approx(1.0)


def test_integers_and_truth_values_count_by_how_many_differ_and_are_not_judged_beside_floats() -> None:
    wanted = {"y": np.ones(4, np.float32), "best": np.array([1, 2, 3, 4])}

    found = output_errors(wanted, {"y": np.ones(4, np.float32), "best": np.array([1, 2, 4, 3])})

    assert found.differing == {"best": 0.5}
    assert found.judged == {"y": 0.0}


def test_integers_are_judged_where_there_is_nothing_else() -> None:
    found = output_errors({"best": np.array([1, 2, 3, 4])}, {"best": np.array([1, 2, 4, 4])})

    assert found.largest == 0.25


def test_an_output_of_another_shape_differs_wholly() -> None:
    found = output_errors({"boxes": np.ones((3, 4), np.float32)}, {"boxes": np.ones((2, 4), np.float32)})

    assert found.relative == {}
    assert found.differing == {"boxes": 1.0}


def test_the_worst_of_several_runs_counts_for_each_output() -> None:
    both = worst([OutputErrors({"a": 1.0, "b": 2.0}), OutputErrors({"a": 3.0, "b": 1.0}, {"c": 0.5})])

    assert both == OutputErrors({"a": 3.0, "b": 2.0}, {"c": 0.5})
