"""The nearest sizes that satisfy relations between several symbols."""

from __future__ import annotations

import random

import pytest

from trtnorm_cli.shapes.evaluate import value_at
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
        ("H % 8 == W % 8", {"H": (1, 25, 39), "W": (9, 33, 34)}, None, {"H": (1, 39, 39), "W": (9, 31, 31)}),
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


RELATIONS = (
    "H == W", "H + W >= 30", "H*W <= 400", "H % 8 == W % 8", "H // 2 == W // 2", "H <= 2*W", "H != W", "H + 3 == W",
    "H*W % 12 == 0",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_what_is_found_satisfies_every_relation_at_every_corner(seed):
    draw = random.Random(seed)
    conditions = [
        parse_expression(text) for text in (*draw.sample(RELATIONS, 2), draw.choice(("H % 4 == 0", "W >= 3", "N == 2")))
    ]
    sizes = {name: tuple(sorted(draw.randint(1, 40) for _ in range(3))) for name in "HWN"}
    found = repaired(conditions, sizes, draw.choice((None, {"H"}, {"H", "W"})))
    if found is not None:
        for corner in range(3):
            at = {name: corners[corner] for name, corners in found.items()}
            assert [value_at(condition, at) for condition in conditions if value_at(condition, at) == 0] == []
        assert all(low <= opt <= high for low, opt, high in found.values())


def test_relations_are_mended_more_often_than_not():
    """A condition that nothing can meet is not mended, one that two symbols meet together is."""
    impossible = parse_expression("H*W == 0")
    assert repaired([impossible], {"H": (1, 2, 3), "W": (1, 2, 3)}) is None
    corners = {"H": (9, 9, 30), "W": (4, 20, 20)}
    assert repaired([parse_expression("H == W")], corners, {"H", "W"}) is not None
    assert repaired([parse_expression("H + W == 20")], {"H": (3, 15, 19), "W": (19, 4, 3)}) is not None
