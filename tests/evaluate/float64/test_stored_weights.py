"""Weights that are given as they are stored: kernels that can raise them in pieces do, and the others get them raised."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.models import parse, random
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.evaluate.float64.kernels import convolution
from trtnorm_cli.evaluate.float64.perturbation import Moves, Perturbation
from trtnorm_cli.evaluate.float64.raising import Stored

CONV = "(float[1, C, H, W] x, float[M, K, R, S] w) => (float[1, M, P, Q] y)"


def both(text: str, x: np.ndarray, weight: np.ndarray, **further) -> tuple[np.ndarray, np.ndarray]:
    """The output of the model with the weight raised before, and with it as it is stored."""
    model = parse(f"g {text}", {})
    raised, stored = (
        evaluate_float64(model, {"x": x, "w": fed}, **further).outputs["y"]
        for fed in (weight.astype(np.float64), Stored(weight))
    )
    assert stored.dtype == np.float64
    return raised, stored


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.float64])
@pytest.mark.parametrize("group", [1, 3, 12])
@pytest.mark.parametrize("elements", [1, 40, 200, 1 << 16])
def test_a_convolution_takes_a_stored_weight_exactly(monkeypatch, dtype, group, elements):
    monkeypatch.setattr(convolution, "RAISED_ELEMENTS", elements)
    text = f"{CONV} {{ y = Conv<group={group}, pads=[1, 1, 1, 1]>(x, w) }}"
    raised, stored = both(text, random(1, 12, 5, 4), random(24, 12 // group, 3, 3).astype(dtype))
    np.testing.assert_allclose(stored, raised, rtol=0, atol=1e-14 * np.abs(raised).max())


def test_a_convolution_of_many_windows_raises_its_weight_once(monkeypatch):
    monkeypatch.setattr(convolution, "MATRIX_ELEMENTS", 100)
    monkeypatch.setattr(convolution, "_product", lambda matrix, columns: (kinds.append(matrix.dtype), matrix @ columns)[1])
    kinds: list[np.dtype] = []
    raised, stored = both(f"{CONV} {{ y = Conv(x, w) }}", random(1, 3, 9, 9), random(4, 3, 3, 3))
    assert len(kinds) > 2
    assert set(kinds) == {np.dtype(np.float64)}
    np.testing.assert_array_equal(stored, raised)


@pytest.mark.parametrize("node", ["Mul(x, w)", "Conv(w, x)", "ConvTranspose(x, w)"])
def test_other_operators_and_places_get_it_raised(node):
    raised, stored = both(f"{CONV} {{ y = {node} }}", random(1, 4, 5, 5), random(4, 4, 5, 5))
    np.testing.assert_array_equal(stored, raised)


def test_a_noisy_evaluation_gets_it_raised():
    noise = Perturbation(2.0**-24, 0, Moves.ARITHMETIC)
    raised, stored = both(f"{CONV} {{ y = Conv(x, w) }}", random(1, 4, 5, 5), random(4, 4, 3, 3), perturbation=noise)
    np.testing.assert_allclose(stored, raised, rtol=0, atol=1e-5 * np.abs(raised).max())


def test_a_body_reads_the_stored_weight_of_the_graph_around_it():
    text = """(float[1, C, H, W] x, float[M, K, R, S] w, bool b) => (float[1, M, P, Q] y) { y = If (b) <
      then_branch = t () => (float[1, M, P, Q] c) { c = Conv(x, w) },
      else_branch = e () => (float[1, M, P, Q] d) { d = Neg(x) }> }"""
    x, weight = random(1, 4, 5, 5), random(4, 4, 3, 3)
    model = parse(f"g {text}", {})
    fed = {"x": x, "b": np.array(True)}
    found = [evaluate_float64(model, {**fed, "w": w}).outputs["y"] for w in (weight.astype(np.float64), Stored(weight))]
    np.testing.assert_allclose(*found, rtol=1e-13)
