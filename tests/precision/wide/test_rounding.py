"""Doubles as float32."""

from __future__ import annotations

import numpy as np
import pytest

from trtnorm_cli.precision.wide.rounding import LARGEST, SMALLEST, as_float32, rounding_of


@pytest.mark.parametrize(("value", "rounded"), [
    (0.1, np.float32(0.1)), (0.0, 0.0), (-0.0, -0.0), (1e300, LARGEST), (-1.7e308, -LARGEST), (1e-300, SMALLEST),
    (-1e-45, -SMALLEST), (np.inf, np.inf), (-np.inf, -np.inf), (LARGEST, LARGEST), (SMALLEST, SMALLEST),
    (16777217.0, 16777216.0),
])  # fmt: skip
def test_finite_stays_finite_and_nothing_becomes_zero(value, rounded):
    found = as_float32(np.array(value))
    assert found.dtype == np.float32
    assert found == np.float32(rounded)
    assert np.signbit(found) == np.signbit(value)


def test_nan_stays():
    assert np.isnan(as_float32(np.array([np.nan]))).all()


def test_what_rounding_does():
    values = np.array([0.1, 1e300, 1e-300, 0.0, np.inf, 3.0])
    found = rounding_of(values, as_float32(values))
    assert (found.clamped, found.raised) == (1, 1)
    assert found.worst_relative == abs(float(np.float32(0.1)) - 0.1) / 0.1
    assert found.spread < 1e-8


def test_values_that_become_equal():
    seconds = 1.6e9 + np.arange(8)
    assert rounding_of(seconds, as_float32(seconds)).spread > 0.5
    assert rounding_of(np.full(8, 1.6e9 + 1), as_float32(np.full(8, 1.6e9 + 1))).spread == 0.0
    assert rounding_of(np.zeros(0), as_float32(np.zeros(0))).worst_relative == 0.0
