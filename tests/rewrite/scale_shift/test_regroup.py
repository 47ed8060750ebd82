"""Which axes of the one shape hold the elements of which of the other."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtnorm_cli.rewrite.scale_shift.affine import CannotMove, affine
from trtnorm_cli.rewrite.scale_shift.regroup import regroup

C = np.arange(2.0, 8.0)


def along(axis: int, rank: int, values: np.ndarray = C):
    shape = [1] * rank
    shape[axis] = values.size
    return affine(values.reshape(shape), -values.reshape(shape))


@pytest.mark.parametrize(("first", "axis", "second", "expected"), [
    (["N", 6, 5], 1, ["N", 6, 5], (1, 6, 1)),
    (["N", 5, 6], 2, ["M", 6], (1, 6)),
    ([None, None, 6], 2, [None, 6], (1, 6)),
    (["N", 6, None, None], 1, ["N", 6, None], (1, 6, 1)),
    (["N", 6, "H", "W"], 1, ["N", 6, "H*W"], (1, 6, 1)),
    (["N", 6, 1, 1], 1, ["N", 6], (1, 6)),
    (["N", 6], 1, ["N", 6, 1, 1], (1, 6, 1, 1)),
    (["N", 6, 4], 1, ["N", 2, 3, 4], (1, 2, 3, 1)),
    (["N", 2, 3, 4], 1, ["N", 6, 4], (1, 6, 1)),
    (["N", 6, 2, 2], 1, ["N", 24], (1, 24)),
    (["N", 6, "L"], 1, [1, "N", 6, "L"], (1, 1, 6, 1)),
    ([2, 6, 3], 1, [12, 3], (12, 1)),
])  # fmt: skip
def test_axes_are_found(first, axis, second, expected):
    size = first[axis]
    given = along(axis, len(first), C[:size])
    assert regroup(given, first, second, "r").shape == expected


@pytest.mark.parametrize(("first", "axis", "second"), [
    (["N", 6, "L"], 1, ["N", "6*L"]),
    (["N", 6, "L"], 1, ["M", "K"]),
    ([None, 6, None], 1, [None, 6]),
    (["N", 6, 0], 1, ["N", 0]),
])  # fmt: skip
def test_unknown_sizes_are_not_guessed(first, axis, second):
    with pytest.raises(CannotMove, match=r"r mixes channels with axes of unknown size"):
        regroup(along(axis, len(first)), first, second, "r")


def test_values_of_another_number_than_the_axis_are_refused():
    with pytest.raises(CannotMove, match=r"do not fit \[N, 4, 2\] at r"):
        regroup(along(1, 3), ["N", 4, 2], ["N", 8], "r")


def test_what_depends_on_nothing_passes_everywhere():
    given = affine(np.full((1, 1), 2.0), np.ones((1, 1)))
    assert regroup(given, [None, None], [None, None, None], "r").shape == (1, 1, 1)


@st.composite
def regrouped(draw) -> tuple[list[int], list[int]]:
    """Two shapes of the same number of elements."""
    atoms = draw(st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=6))

    def shape() -> list[int]:
        sizes = [1]
        for atom in atoms:
            if draw(st.booleans()):
                sizes.append(atom)
            else:
                sizes[-1] *= atom
        return sizes

    return shape(), shape()


@given(shapes=regrouped(), data=st.data())
def test_the_same_elements_are_scaled(shapes, data):
    first, second = shapes
    own = [size if data.draw(st.booleans()) else 1 for size in first]
    given_ = affine(np.arange(math.prod(own)).reshape(own) + 1.0, -np.arange(math.prod(own)).reshape(own) * 2.0)
    values = np.random.default_rng(0).standard_normal(first)
    moved = regroup(given_, first, second, "r")
    assert moved.rank == len(second)
    wanted = (given_.scale * values + given_.shift).reshape(second)
    np.testing.assert_array_equal(moved.scale * values.reshape(second) + moved.shift, wanted)
