"""Roundings that are played through: where they go, and that a draw is the same in whatever pieces it is made."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import parse
from trtnorm_cli.evaluate.float64 import evaluate_float64, perturbation
from trtnorm_cli.evaluate.float64.perturbation import Moves, Perturbation

HALF = 2.0**-24


def moved(value: np.ndarray) -> np.ndarray:
    return Perturbation(HALF, 1, Moves.CONSTANTS).constant(value)


@pytest.mark.parametrize("shape", [(), (0, 3), (40_000,), (3, 50, 333)], ids=str)
def test_each_value_moves_by_half_a_unit_to_one_side(shape):
    value = np.asarray(np.random.default_rng(0).standard_normal(shape))
    tosses = np.random.default_rng(1).bytes(-(-value.size // 8)) if value.size else b""
    up = np.unpackbits(np.frombuffer(tosses, np.uint8), count=value.size).reshape(shape) == 1
    assert np.array_equal(moved(value), value + np.where(up, HALF, -HALF) * value)


def test_half_of_the_values_move_up():
    value = np.random.default_rng(0).standard_normal(100_000)
    assert np.mean(moved(value) > value) == pytest.approx(0.5, abs=0.005)


def test_a_draw_is_the_same_in_smaller_pieces(monkeypatch):
    value = np.random.default_rng(0).standard_normal((7, 333)).T
    value[3] = 2.0
    whole = moved(value)
    monkeypatch.setattr(perturbation, "_BLOCK", 128)
    assert np.array_equal(moved(value), whole)
    assert np.array_equal(whole[3], value[3])


def in_a_row(number: int, gamma: float, variance: float) -> onnx.ModelProto:
    """So many BatchNormalizations of two channels, one after the other, with the same parameters."""
    nodes = " ".join(f"t{i + 1} = BatchNormalization(t{i}, gamma, beta, mean, var)" for i in range(number))
    nodes = nodes.replace(f"t{number} =", "y =")
    values = {"gamma": gamma, "beta": 0.0, "mean": 0.0, "var": variance}
    weights = {name: np.full(2, value, np.float32) for name, value in values.items()}
    return parse(f"g (float[1, 2, 3] t0) => (float[1, 2, 3] y) {{ {nodes} }}", weights)


@pytest.mark.parametrize("moves", [Moves.CONSTANTS, Moves.ARITHMETIC])
@pytest.mark.parametrize("seed", range(4))
def test_the_scale_of_a_batchnorm_rounds_though_its_parameters_are_whole_numbers(seed, moves):
    """A chain of new BatchNorms: 1/√(1 + 1e-5) rounds to the same side in each, whoever folds its parameters."""
    number = 100
    model, x = in_a_row(number, 1.0, 1.0), np.full((1, 2, 3), 3.0, np.float32)
    exact = evaluate_float64(model, {"t0": x}).outputs["y"]
    scale = np.float64(np.float32(1 / np.sqrt(1.0 + np.float32(1e-5))))
    off = np.abs(3.0 * scale**number - exact).max()
    noisy = evaluate_float64(model, {"t0": x}, perturbation=Perturbation(HALF, seed, moves)).outputs["y"]
    assert off > 3 * HALF
    assert off < np.abs(noisy - exact).max() < 1.5 * number * HALF * exact.max()


def test_a_scale_that_is_a_whole_number_stays():
    model, x = in_a_row(3, 2.0, 4.0), np.ones((1, 2, 3), np.float32)
    for node in model.graph.node:
        node.attribute.append(onnx.helper.make_attribute("epsilon", 0.0))
    noisy = evaluate_float64(model, {"t0": x}, perturbation=Perturbation(HALF, 0, Moves.CONSTANTS)).outputs["y"]
    assert np.array_equal(noisy, x)


def test_parameters_that_every_side_holds_make_no_noise():
    model, x = in_a_row(3, 1.0, 1.0), np.full((1, 2, 3), 3.0, np.float32)
    held = Perturbation(HALF, 0, Moves.CONSTANTS, kept=lambda value: True)
    noisy = evaluate_float64(model, {"t0": x}, perturbation=held).outputs["y"]
    assert np.array_equal(noisy, evaluate_float64(model, {"t0": x}).outputs["y"])
