"""Sizes and distances in pieces against the same of whole arrays."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from trtnorm_cli.compare import squares
from trtnorm_cli.compare.inner_tensors import (
    InnerTensors,
    Recognition,
    SliceDistances,
    _held_to,
    relative_distance,
    slice_distances,
)
from trtnorm_cli.compare.squares import Apart, Sizes, apart, first_apart, furthest_and_square, squares_by_axis
from trtnorm_cli.evaluate.float64 import Follower, Ties

SHAPES = [(), (1,), (7,), (1, 1), (5, 1), (3, 4), (1, 6, 1), (2, 3, 5, 7), (1, 4, 1, 9), (40, 3), (0, 4), (2, 0), (3, 1, 5)]


@pytest.fixture(params=[4, 1 << 15], ids=["small pieces", "pieces as they are"], autouse=True)
def piece(request, monkeypatch):
    monkeypatch.setattr(squares, "_PIECE", request.param)


def drawn(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def _is_same(one: np.ndarray, other: np.ndarray, limit: float, furthest: float) -> bool:
    return _held_to(one, other, limit, furthest, Sizes(one))[0]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("is_difference", [False, True])
def test_the_squares_of_each_slice_are_those_of_the_whole_array(shape, is_difference):
    one, other = drawn(shape, 0), drawn(shape, 1)
    found = squares_by_axis(one, other if is_difference else None)
    whole = np.square(one - other if is_difference else one)
    assert list(found) == [axis for axis, length in enumerate(shape) if length > 1 and one.size]
    for axis, sums in found.items():
        assert sums == pytest.approx(whole.sum(tuple(i for i in range(one.ndim) if i != axis)), rel=1e-12)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sizes_and_distances_are_those_of_the_whole_array(shape):
    one, other = drawn(shape, 0), drawn(shape, 1)
    assert Sizes(one).largest == np.max(np.abs(one), initial=0.0)
    assert Sizes(one).square == pytest.approx(np.square(one).sum(), rel=1e-12)
    furthest, square = furthest_and_square(one, other)
    assert furthest == np.max(np.abs(one - other), initial=0.0)
    assert square == pytest.approx(np.square(one - other).sum(), rel=1e-12)
    measured, squares = apart(one, other), squares_by_axis(other, one)
    assert (measured.furthest, measured.square) == (furthest, pytest.approx(square, rel=1e-12))
    assert list(measured.squares) == list(squares)
    for axis, sums in squares.items():
        np.testing.assert_array_equal(measured.squares[axis], sums)
    assert first_apart(one, one.copy()) == 0
    assert 0 < first_apart(one, other) <= furthest or not one.size


LAYOUTS = {
    "transposed": lambda x: x.transpose(2, 0, 3, 1),
    "last axes exchanged": lambda x: x.swapaxes(2, 3),
    "a part of each row": lambda x: x[:, :, :, 1:-1],
    "every second": lambda x: x[:, ::2, :, ::2],
    "backwards": lambda x: x[::-1, :, ::-1],
    "one row for all": lambda x: np.broadcast_to(x[:1, :, :1], (3, 8, 5, 6)),
    "one element for all": lambda x: np.broadcast_to(x[0, 0, 0, 0], (2, 3, 4)),
    "one row": lambda x: x[1, 2, 3, ::2],
    "one column": lambda x: x[:, :, :, 3:4],
}


@pytest.mark.parametrize("lie", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("other_lies", [*LAYOUTS.values(), None], ids=[*LAYOUTS, "in order"])
def test_sizes_and_distances_do_not_depend_on_how_the_elements_lie(lie, other_lies):
    one = lie(drawn((4, 8, 5, 6), 0))
    other = drawn(one.shape, 1)
    if other_lies is not None:
        laid = other_lies(drawn((4, 8, 5, 6), 2))
        if laid.shape == one.shape:
            other = laid
    wanted_one, wanted = np.array(one, order="C"), np.array(other, order="C")
    found, exact = Sizes(one), Sizes(wanted_one)
    assert (found.largest, found.square) == (exact.largest, pytest.approx(exact.square, rel=1e-12))
    assert furthest_and_square(one, other) == pytest.approx(furthest_and_square(wanted_one, wanted), rel=1e-12)
    measured, whole = apart(one, other), np.square(wanted - wanted_one)
    assert measured.furthest == pytest.approx(np.abs(wanted - wanted_one).max(), rel=1e-12)
    for axis in range(one.ndim):
        assert (axis in measured.squares) == (one.shape[axis] > 1)
        if axis in measured.squares:
            sums = whole.sum(tuple(i for i in range(one.ndim) if i != axis))
            assert measured.squares[axis] == pytest.approx(sums, rel=1e-12)


def test_what_is_transposed_is_measured_without_a_copy_of_the_whole():
    """That takes longer than all else that a comparison does with a tensor, and attention is full of them."""
    one, other = (drawn((8, 16 if squares._PIECE < 100 else 4096, 64), seed).transpose(2, 0, 1) for seed in range(2))

    def measure() -> None:
        assert not _is_same(one, other, 1e-6, math.inf)
        assert _is_same(one, one, 1e-6, 1.0)
        assert Sizes(one).square > 0

    measure()  # what is kept from the first time on is none of it
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        measure()
        assert tracemalloc.get_traced_memory()[1] - before < max(one.nbytes / 4, 1 << 14)
    finally:
        tracemalloc.stop()


@pytest.mark.filterwarnings("ignore:overflow")
def test_squares_beyond_the_largest_double_are_infinite():
    """As an exponential of what overflows in single precision has: no reason to give a comparison up."""
    large = np.full(1 << 17, 7e151)
    assert Sizes(large).square == math.inf
    assert furthest_and_square(large, -large) == (1.4e152, math.inf)
    assert slice_distances(large.reshape(2, -1), apart(large.reshape(2, -1), -large.reshape(2, -1)), 1e-6) == {}
    assert relative_distance(large, np.zeros_like(large)) != 0


def test_a_tensor_that_is_kept_again_is_measured_again():
    kept = InnerTensors()
    kept.keep("t", np.ones(3))
    assert kept.sizes("t").largest == 1
    kept.keep("t", np.full(3, 2.0))
    assert kept.sizes("t").largest == 2


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.filterwarnings("ignore:invalid value")
def test_what_is_not_finite_is_infinitely_far(value):
    one, other = drawn((3, 5), 0), drawn((3, 5), 0)
    other[2, 4] = value
    assert furthest_and_square(one, other) == (math.inf, math.inf)
    assert apart(one, other) == Apart(math.inf, math.inf, {})
    assert furthest_and_square(other, other) == (math.inf, math.inf)
    assert not _is_same(one, other, 1e-6, 1.0)
    assert not _is_same(other, other, 1e-6, math.inf)


@pytest.mark.parametrize("index", [0, 7, 14])
def test_of_equal_tensors_one_element_tells_them_apart(index):
    """Wherever it is: within a slice's limit it may be, beyond that of the whole tensor not."""
    one = drawn((3, 5), 0)
    limit = 1e-6
    largest = limit * float(np.abs(one).max())
    assert _is_same(one, one * (1 + limit / 2), limit, largest)
    near, far = one.copy(), one.copy()
    near.flat[index] += 0.3 * limit * np.abs(one).mean()
    far.flat[index] += 1.01 * largest
    assert _is_same(one, near, limit, largest)
    assert not _is_same(one, far, limit, largest)


def test_a_slice_that_is_off_tells_tensors_apart():
    """Though each of its elements is nearer than the largest element allows."""
    one = drawn((3, 40), 0)
    one[1] *= 1e-3
    other = one.copy()
    other[1] *= 1 + 3e-6
    largest = 1e-6 * float(np.abs(one).max())
    assert np.abs(other - one).max() < largest
    assert not _is_same(one, other, 1e-6, largest)


def test_tensors_of_one_element_are_the_same_only_where_each_is():
    assert _is_same(np.ones(1), np.ones(1), 1e-6, 1e-6)
    assert not _is_same(np.ones(1), np.ones(1) * (1 + 2e-6), 1e-6, 1.0)


def test_the_distance_of_tensors_is_measured_once(monkeypatch):
    """Whether they are the same, and how far they are where not: what differs from the first piece on is measured later."""
    passes: list[str] = []
    real = squares._by_axis
    monkeypatch.setattr(squares, "_by_axis", lambda values, minus, look: passes.append("") or real(values, minus, look))
    one = drawn((40, 50), 0)
    kept = InnerTensors()
    for name in "ab":
        kept.keep(name, one)
    seen = Recognition(SliceDistances(kept, 0.0), (), 1e-7, Follower(Ties(0.0)))
    same, other = one * (1 + 1e-15), one.copy()
    other[3] *= 1 + 1.2e-12
    assert np.shares_memory(seen.watch("a", same), one)
    assert len(passes) == 2, "the sizes of the slices, and how far they are"
    assert seen.watch("b", other) is other
    assert len(passes) == 4
    assert list(seen.slices.found) == ["b"]
    np.testing.assert_allclose(seen.slices.found["b"][0].argmax(), 3)
    assert seen.depth == {"a": 0.0, "b": pytest.approx(relative_distance(one, other))}
