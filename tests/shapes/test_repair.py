"""The nearest sizes that satisfy relations between several symbols."""

from __future__ import annotations

import pytest

from trtnorm_cli.shapes.parse import parse_expression
from trtnorm_cli.shapes.repair import repaired


@pytest.mark.parametrize(
    ("condition", "sizes", "movable", "found"),
    [
        ("H + W <= 10", {"H": (8, 8, 8), "W": (8, 8, 8)}, {"H"}, {"H": (2, 2, 2), "W": (8, 8, 8)}),
        ("H + W >= 30", {"H": (8, 8, 8), "W": (8, 8, 8)}, {"H"}, {"H": (22, 22, 22), "W": (8, 8, 8)}),
        ("H == W", {"H": (4, 8, 16), "W": (5, 7, 20)}, {"W"}, {"H": (4, 8, 16), "W": (4, 8, 16)}),
        ("H == W", {"H": (4, 8, 16), "W": (5, 7, 20)}, {"H"}, {"H": (5, 7, 20), "W": (5, 7, 20)}),
        ("H*W == 36", {"H": (5, 5, 5), "W": (7, 7, 7)}, None, {"H": (6, 6, 6), "W": (6, 6, 6)}),
        ("H*W == 37", {"H": (5, 5, 5), "W": (7, 7, 7)}, {"H"}, None),
        ("H + W >= 30", {"H": (8, 8, 8), "W": (8, 8, 8)}, set(), None),
    ],
)
def test_relations_are_mended_by_moving_what_may_move(condition, sizes, movable, found):
    assert repaired([parse_expression(condition)], sizes, movable) == found


@pytest.mark.parametrize(
    ("condition", "corners", "found"),
    [
        ("H % 8 == 0", (5, 20, 30), (8, 24, 24)),
        ("H % 8 == 0", (9, 9, 15), (8, 8, 8)),
        ("H % 8 == 0", (8, 8, 8), (8, 8, 8)),
        ("H <= 3", (5, 6, 7), (3, 3, 3)),
        ("H*H == 50", (5, 6, 7), None),
    ],
)
def test_a_size_moves_inwards_or_to_the_nearest(condition, corners, found):
    assert repaired([parse_expression(condition)], {"H": corners}) == (None if found is None else {"H": found})
