"""The time that the comparison of a build may take."""

from __future__ import annotations

import pytest

from trtnorm_cli.build_job import Duration, comparison_budget_s


@pytest.mark.parametrize(("seconds", "budget"), [(0.1, 1.0), (12.0, 3.0), (600.0, 8.0)])
def test_the_budget_of_a_comparison_follows_what_tensorrt_took(seconds: float, budget: float) -> None:
    assert comparison_budget_s(Duration(0.0, seconds)) == budget


def test_before_tensorrt_begins_nothing_is_known_of_it() -> None:
    assert comparison_budget_s(Duration()) == 1.0
    with (duration := Duration()).measured():
        assert duration.seconds >= 0.0
