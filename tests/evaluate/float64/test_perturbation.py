"""Roundings that are played through: where they go, and that a draw is the same in whatever pieces it is made."""

from __future__ import annotations

import numpy as np
import pytest

from trtnorm_cli.evaluate.float64 import perturbation
from trtnorm_cli.evaluate.float64.perturbation import Moves, Perturbation

HALF = 2.0**-24


def moved(value: np.ndarray) -> np.ndarray:
    return Perturbation(HALF, 1, Moves.CONSTANTS).constant(value)


@pytest.mark.parametrize("shape", [(), (0, 3), (40_000,), (3, 50, 333)], ids=str)
def test_each_value_moves_by_half_a_unit_to_one_side(shape):
    value = np.asarray(np.random.default_rng(0).standard_normal(shape))
    up = np.random.default_rng(1).integers(0, 2, shape) == 1
    assert np.array_equal(moved(value), value + np.where(up, HALF, -HALF) * np.abs(value))


def test_a_draw_is_the_same_in_smaller_pieces(monkeypatch):
    value = np.random.default_rng(0).standard_normal((7, 333)).T
    value[3] = 2.0
    whole = moved(value)
    monkeypatch.setattr(perturbation, "_BLOCK", 101)
    assert np.array_equal(moved(value), whole)
    assert np.array_equal(whole[3], value[3])
