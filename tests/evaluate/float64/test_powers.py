"""Small whole powers, which are products, beside NumPy's power of any exponent."""

from __future__ import annotations

import numpy as np
import pytest

from trtnorm_cli.evaluate.float64.kernels.call import Call
from trtnorm_cli.evaluate.float64.kernels.elementwise import power

SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e200, -1e200, 1e-200, 5e-324, 1.0, -1.0]


def powers(base: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return power(Call("Pow", 15, (base, exponent), {}, ("y",)))


@pytest.mark.parametrize("exponent", [2.0, 3.0, 4.0])
def test_a_product_is_as_good_as_a_power(monkeypatch, exponent):
    base = np.concatenate([SPECIAL, np.random.default_rng(0).standard_normal(1 << 17)]).reshape(-1, 1)
    with np.errstate(all="ignore"):
        expected = np.power(base, exponent)
    monkeypatch.setattr(np, "power", None)
    for given in (np.array(exponent), np.array([exponent], np.float32), np.array([[int(exponent)]])):
        found = powers(base, given)
        assert (found.dtype, found.shape) == (base.dtype, base.shape)
        np.testing.assert_array_max_ulp(found[len(SPECIAL) :], expected[len(SPECIAL) :], 2)
        np.testing.assert_array_equal(found[: len(SPECIAL)], expected[: len(SPECIAL)])
        np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


@pytest.mark.parametrize(
    ("base", "exponent"),
    [
        (np.float32([1.1, 2.2, 3.3]), np.array(3.0)),  # what decides sizes keeps its type, and its rounding
        (np.array([1.1, 2.2]), np.array([3.0, 2.0])),
        (np.array([1.1, 2.2]), np.array([[3.0]])),
        (np.array([1.1, 2.2]), np.array(0.5)),
        (np.array([1.1, 2.2]), np.array(-2.0)),
        (np.array([3, 4]), np.array(3)),
    ],
    ids=["float32", "several exponents", "another rank", "a root", "an inverse", "integers"],
)
def test_all_else_is_left_to_numpy(base, exponent):
    expected = np.power(base, exponent).astype(base.dtype)
    found = powers(base, exponent)
    assert found.tobytes() == expected.tobytes()
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
