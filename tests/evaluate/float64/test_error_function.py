"""The error function of arrays, held to Python's own."""

import math

import numpy as np
import pytest

from trtnorm_cli.evaluate.float64.kernels.error_function import erf


@pytest.mark.parametrize(
    "places",
    [
        np.linspace(-7, 7, 100_001),
        np.linspace(-1.001, -0.999, 10_001),
        np.linspace(0.999, 1.001, 10_001),
        np.linspace(5.9, 6.1, 10_001),
        np.logspace(-300, 0.8, 10_001),
    ],
    ids=["all over", "left seam", "right seam", "end", "small"],
)
def test_two_units_from_pythons_own(places: np.ndarray) -> None:
    wanted = np.array([math.erf(x) for x in places.tolist()])
    assert np.max(np.abs(erf(places) - wanted) / np.spacing(np.abs(wanted))) <= 2


def test_special_values() -> None:
    given = np.array([math.inf, -math.inf, 0.0, -0.0, 1e-320, 40.0, -40.0])
    found = erf(given)
    assert found.tolist() == [1.0, -1.0, 0.0, 0.0, math.erf(1e-320), 1.0, -1.0]
    assert np.signbit(found).tolist() == np.signbit(given).tolist()
    assert math.isnan(erf(np.array([math.nan]))[0])


@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3, 4), (3, 40_000)], ids=str)
def test_any_shape(shape: tuple[int, ...]) -> None:
    given = np.random.default_rng(0).standard_normal(shape)
    found = erf(given)
    assert found.shape == shape
    flat = given.reshape(-1)
    assert [float(x) for x in found.reshape(-1)[-3:]] == pytest.approx([math.erf(x) for x in flat[-3:].tolist()], rel=1e-15)


def test_a_view_that_is_not_contiguous() -> None:
    given = np.random.default_rng(0).standard_normal((50, 60)).T
    assert np.array_equal(erf(given), erf(np.ascontiguousarray(given)))
