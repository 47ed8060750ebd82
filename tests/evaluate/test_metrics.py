"""Distances between arrays, against hand-made values and in hostile cases."""

from __future__ import annotations

import math
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from trtnorm_cli.evaluate.metrics import distance, measure, relative_max

INF, NAN = math.inf, math.nan


def array(*values: float, dtype=np.float32) -> np.ndarray:
    return np.array(values, dtype)


def test_values_that_can_be_checked_by_hand():
    found = measure(array(3, 4, 0, 0), array(3, 4, 0, 1))
    assert (found.max_abs, found.mean_abs) == (1.0, 0.25)
    assert found.relative_l2 == pytest.approx(1 / 5)
    assert found.relative_max == pytest.approx(1 / 4)
    assert found.cosine == pytest.approx(25 / math.sqrt(25 * 26))
    assert found.psnr_db == pytest.approx(20 * math.log10(4 / 0.5))
    assert (found.worst, found.worst_reference, found.worst_candidate) == ((3,), 0.0, 1.0)
    assert (found.not_finite_reference, found.not_finite_candidate, found.not_finite_differs) == (0, 0, 0)


def test_equal_arrays():
    found = measure(array(1, -2, 3), array(1, -2, 3))
    assert (found.max_abs, found.mean_abs, found.relative_l2, found.relative_max) == (0, 0, 0, 0)
    assert found.cosine == pytest.approx(1.0)
    assert found.psnr_db == INF
    assert found.ulp == (0, 0, 0)


def test_the_worst_element_of_several_axes():
    r = np.zeros((2, 3, 4), np.float32)
    c = r.copy()
    c[1, 2, 3], c[0, 1, 2] = -7, 5
    assert measure(r, c).worst == (1, 2, 3)


@pytest.mark.parametrize(("reference", "candidate", "differs"), [
    (array(NAN, 1), array(NAN, 1), 0), (array(INF, 1), array(INF, 1), 0), (array(-INF, 1), array(-INF, 1), 0),
    (array(INF, 1), array(-INF, 1), 1), (array(NAN, 1), array(INF, 1), 1), (array(NAN, 1), array(2, 1), 1),
    (array(2, 1), array(NAN, 1), 1), (array(INF, NAN), array(NAN, INF), 2),
])  # fmt: skip
def test_what_is_not_finite(reference, candidate, differs):
    found = measure(reference, candidate)
    assert found.not_finite_differs == differs
    assert found.max_abs == (INF if differs else 0.0)
    expected = INF if differs else 0.0
    assert (distance(reference, candidate).relative_max, distance(reference, candidate).relative_l2) == (expected, expected)


def test_a_constant_zero_reference():
    zeros = array(0, 0)
    assert distance(zeros, zeros).largest == 0.0
    assert distance(zeros, array(0, 1e-30)).largest == INF
    assert measure(zeros, zeros).cosine == 1.0
    assert measure(zeros, array(0, 1)).cosine == 0.0


def test_shapes_that_differ_are_infinitely_far():
    assert distance(array(1, 2), array(1, 2, 3)).largest == INF
    assert distance(array(1), np.float32([[1]])).largest == INF


def test_empty_and_scalar_arrays():
    empty = np.zeros((0, 3), np.float32)
    found = measure(empty, empty)
    assert (found.max_abs, found.mean_abs, found.worst, found.ulp, found.top1_agreement) == (0, 0, (), None, None)
    scalar = measure(np.array(2.0), np.array(3.0))
    assert (scalar.max_abs, scalar.worst) == (1.0, ())


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1.0, 1e30, 1e300])
def test_neither_overflow_nor_underflow(scale):
    r, c = np.array([3.0, 4.0]) * scale, np.array([3.0, 4.4]) * scale
    assert distance(r, c).relative_l2 == pytest.approx(0.08)
    assert distance(r, c).relative_max == pytest.approx(0.1)
    assert measure(r, c).cosine == pytest.approx(0.99897, abs=1e-4)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64], ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("value", [1.0, -1.0, 0.0, 2.0**-10, -(2.0**7)])
def test_units_in_the_last_place(dtype, value):
    r = np.array([value], dtype)
    assert measure(r, r).ulp == (0, 0, 0)
    up = np.nextafter(r, np.array([np.inf], dtype))
    assert measure(r, up).ulp == (1, 1, 1)
    assert measure(np.nextafter(r, np.array([-np.inf], dtype)), up).ulp == (2, 2, 2)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_units_across_zero(dtype):
    tiny = np.nextafter(np.array([0], dtype), np.array([1], dtype))
    assert measure(tiny, -tiny).ulp == (2, 2, 2)
    assert measure(np.array([0.0], dtype), np.array([-0.0], dtype)).ulp == (0, 0, 0)
    largest = np.finfo(dtype).max
    assert measure(np.array([largest], dtype), np.array([-largest], dtype)).ulp[0] > 2.0 ** (np.dtype(dtype).itemsize * 8 - 2)


def test_percentiles_of_units():
    r = np.ones(1000, np.float32)
    c = r.copy()
    c[0] = 2
    median, high, largest = measure(r, c).ulp
    assert (median, high, largest) == (0, 0, 2**23)


def test_integers_have_no_units_and_are_compared_exactly():
    found = measure(np.array([1, 2], np.int64), np.array([1, 3], np.int64))
    assert (found.max_abs, found.ulp) == (1.0, None)
    assert measure(np.array([True, False]), np.array([True, True])).max_abs == 1.0


def test_the_same_winner():
    scores = np.float32([[1, 2, 3], [3, 2, 1], [1, 3, 2], [0, 0, 1]])
    assert measure(scores, scores).top1_agreement == 1.0
    assert measure(scores, scores[:, ::-1].copy()).top1_agreement == 0.25
    for other in (scores[:, :1], scores[0], scores.astype(np.int64)):
        assert measure(other, other).top1_agreement is None


# Neither numbers nor their ratios leave the range of float64.
NUMBERS = st.floats(-1e100, 1e100, allow_subnormal=False).map(lambda x: x if abs(x) > 1e-100 else 0.0)
FINITE = hnp.arrays(np.float64, st.integers(1, 20), elements=NUMBERS)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_distances_are_like_distances(data):
    r = data.draw(FINITE)
    c = data.draw(hnp.arrays(np.float64, r.shape, elements=NUMBERS))
    found, near = measure(r, c), distance(r, c)
    assert (near.relative_l2, near.relative_max) == (found.relative_l2, found.relative_max)
    assert found.max_abs == np.max(np.abs(c - r))
    assert 0 <= found.mean_abs <= found.max_abs * (1 + 1e-12)
    assert -1 <= found.cosine <= 1
    assert (found.max_abs == 0) == (found.relative_l2 == 0) == np.array_equal(r, c)
    assert abs(c[found.worst] - r[found.worst]) == found.max_abs


def test_a_tiny_peak_beside_a_huge_error_has_a_ratio():
    found = measure(np.array([0.0, 2.3e-308]), np.array([9e15, 9e15]))
    assert -6600 < found.psnr_db < -6400


@pytest.mark.parametrize("place", [0, 32_767, 32_768, 99_999])
def test_a_distance_is_that_of_the_whole_array_wherever_it_lies(place):
    reference = np.linspace(-3, 2, 100_000).astype(np.float32).reshape(100, 1000)
    candidate = reference.astype(np.float64)
    candidate.reshape(-1)[place] += 6.0
    found = distance(reference, candidate)
    assert found.relative_max == 2.0
    assert found.relative_l2 == pytest.approx(6.0 / np.linalg.norm(reference.astype(np.float64)), rel=1e-12)
    halves = [list(array.reshape(2, -1)) for array in (reference, candidate)]
    assert relative_max(*halves) == 2.0


@pytest.mark.parametrize(
    ("reference", "candidate", "expected"),
    [
        ([1.0, np.nan], [1.5, np.nan], 0.5),
        ([1.0, np.inf], [1.5, np.inf], 0.5),
        ([1.0, np.inf], [1.0, -np.inf], np.inf),
        ([1.0, np.nan], [1.0, 1.0], np.inf),
        ([1.5e308, 1.0], [-1.5e308, 1.0], np.inf),
        ([0.0, 0.0], [0.0, 0.0], 0.0),
        ([0.0, 0.0], [0.0, 1.0], np.inf),
        ([], [], 0.0),
    ],
)
def test_the_largest_difference_of_several_arrays_is_that_of_one(reference, candidate, expected):
    arrays = [np.array(values) for values in (reference, candidate)]
    assert relative_max(*([array] for array in arrays)) == distance(*arrays).relative_max == expected
    assert relative_max([np.ones(2), arrays[0]], [np.ones(3), arrays[1]]) == np.inf


def test_a_distance_takes_no_memory_in_proportion_to_the_arrays():
    reference, candidate = np.zeros(1 << 21), np.ones(1 << 21, np.float32)
    tracemalloc.start()
    try:
        distance(reference, candidate)
        relative_max([reference], [candidate])
        assert tracemalloc.get_traced_memory()[1] < reference.nbytes / 8
    finally:
        tracemalloc.stop()
