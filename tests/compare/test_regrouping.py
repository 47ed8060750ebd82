"""The shapes that a Reshape gives other sizes than its own."""

from __future__ import annotations

import math

import pytest

from trtnorm_cli.compare import regrouping


@pytest.mark.parametrize(
    ("before", "own", "now", "wanted"),
    [
        ((1, 64, 1536), (1, 64, 3, 16, 32), (1, 20, 1536), (1, 20, 3, 16, 32)),
        ((1, 8, 8, 24), (1, 64, 24), (1, 4, 5, 24), (1, 20, 24)),
        ((1, 8, 8, 24), (64, 2, 12), (1, 4, 5, 24), (20, 2, 12)),
        ((2, 6, 10), (2, 6, 1, 10), (2, 6, 7), (2, 6, 1, 7)),
        ((4, 10), (1, 4, 10, 1, 1), (4, 7), (1, 4, 7, 1, 1)),
        ((4, 10, 1), (4, 10), (4, 7, 1), (4, 7)),
        ((), (1, 1), (), (1, 1)),
        ((1, 64, 24), (1, 8, 8, 24), (1, 20, 24), None),  # which of 4 x 5, 5 x 4, … nobody knows
        ((6, 4), (4, 6), (3, 4), None),
        ((4, 10, 1), (4, 10), (4, 7, 2), None),
        ((0, 4), (0, 4), (0, 2), None),
        ((4, 6), (4, 6), (24,), None),
    ],
)
def test_a_reshape_merges_and_splits_axes_as_at_the_models_own_sizes(before, own, now, wanted):
    assert regrouping.regrouped(before, own, now) == wanted


@pytest.mark.parametrize(
    ("grids", "wanted"),
    [
        ({(8, 6): {(4, 5)}}, (1, 4, 5, 24)),
        ({(8, 6): {(4, 5), (2, 10)}}, None),  # in which of both ways nobody knows
        ({(8, 6): {(4, 5), (3, 3)}}, (1, 4, 5, 24)),
        ({(6, 8): {(4, 5)}}, None),
    ],
)
def test_an_axis_is_split_as_an_image_lies_elsewhere(grids, wanted):
    assert regrouping.regrouped((1, 48, 24), (1, 8, 6, 24), (1, 20, 24), grids) == wanted


def test_the_times_of_a_video_may_stay_as_they_are():
    grids = {(8, 6): {(4, 5)}}
    assert regrouping.regrouped((1, 4 * 48, 24), (1, 4, 8, 6, 24), (1, 4 * 20, 24), grids) == (1, 4, 4, 5, 24)
    assert regrouping.regrouped((1, 4 * 48, 24), (1, 4, 8, 6, 24), (1, 8 * 20, 24), grids) is None


@pytest.mark.parametrize(
    ("own", "now", "wanted"),
    [
        ((4, 16, 24), 40, (4, 10, 24)),  # the areas of YOLO's attention, each with a quarter of the positions
        ((16, 4, 24), 40, (10, 4, 24)),
        ((4, 16, 24), 42, None),
        ((6, 11, 24), 60, None),  # neither is few
        ((2, 2, 16, 24), 40, None),
    ],
)
def test_positions_in_a_row_are_split_into_as_few_areas(own, now: int, wanted):
    before, image = (1, math.prod(own[:-1]), 24), (2, math.prod(own[:-1]) // 2)
    grids = {image: {(2, now // 2)}}
    assert regrouping.regrouped(before, own, (1, now, 24), grids) == wanted
    assert regrouping.regrouped(before, own, (1, now, 24), {(5, 5): {(2, now // 2)}}) is None, "they are no image's"


@pytest.mark.parametrize(
    ("before", "own", "now", "wanted"),
    [
        ((1, 18, 18, 24), (1, 9, 2, 9, 2, 24), (1, 4, 6, 24), (1, 2, 2, 3, 2, 24)),
        ((1, 24, 32, 24), (1, 2, 12, 2, 16, 24), (1, 8, 12, 24), (1, 2, 4, 2, 6, 24)),
        ((1, 18, 18, 24), (1, 9, 2, 9, 2, 24), (1, 5, 6, 24), None),
        ((1, 56, 56, 24), (1, 8, 7, 8, 7, 24), (1, 21, 28, 24), None),  # windows of 7, or 8 windows
        ((1, 18, 24), (1, 9, 2, 24), (1, 4, 24), None),  # it may be anything
    ],
)
def test_each_axis_of_an_image_is_split_into_as_few_parts(before, own, now, wanted):
    """Patches that are merged two by two."""
    assert regrouping.regrouped(before, own, now) == wanted


def test_an_axis_is_split_by_a_length_that_has_changed_elsewhere():
    """As windows and heads, which an attention has in one axis."""
    before, own, now = (300, 196, 64), (25, 12, 14, 14, 64), (72, 196, 64)
    assert regrouping.regrouped(before, own, now) is None
    assert regrouping.regrouped(before, own, now, seen={25: {6}}) == (6, 12, 14, 14, 64)
    assert regrouping.regrouped(before, own, now, seen={25: {5}}) is None
    assert regrouping.regrouped(before, own, (100, 196, 64), seen={12: {4}}) == (25, 4, 14, 14, 64)


@pytest.mark.parametrize(
    ("order", "now", "wanted"),
    [
        ((0, 1, 3, 2, 4, 5), (1, 21, 28, 24), (1, 3, 7, 4, 7, 24)),  # windows of 7
        ((0, 2, 4, 1, 3, 5), (1, 24, 32, 24), (1, 8, 3, 8, 4, 24)),  # a grid of 8 places in each window
        ((0, 1, 3, 2, 4, 5), (1, 20, 28, 24), None),
    ],
)
def test_an_image_is_split_into_windows_whose_number_comes_first(order, now, wanted):
    before, own = (1, 56, 56, 24), (1, 8, 7, 8, 7, 24)
    assert regrouping.regrouped(before, own, now, order=[order.index(axis) for axis in range(6)]) == wanted
