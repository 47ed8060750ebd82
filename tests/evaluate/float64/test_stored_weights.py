"""Weights that are given as they are stored: kernels that can raise them in pieces do, and the others get them raised."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.models import parse, random
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.evaluate.float64.kernels import convolution, linear
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
    monkeypatch.setattr(convolution, "LEAST_COLUMNS", 1)
    real = convolution._multiply
    monkeypatch.setattr(convolution, "_multiply", lambda matrix, *given: kinds.append(matrix.dtype) or real(matrix, *given))
    kinds: list[np.dtype] = []
    raised, stored = both(f"{CONV} {{ y = Conv(x, w) }}", random(1, 3, 9, 9), random(4, 3, 3, 3))
    assert len(kinds) > 2
    assert set(kinds) == {np.dtype(np.float64)}
    np.testing.assert_array_equal(stored, raised)


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("sizes", [(5,), (5, 4), (3, 4, 5)])
def test_a_few_windows_of_all_samples_are_multiplied_at_once(monkeypatch, group, sizes):
    """A weight is read and raised once for them; each sample's result is what it is alone."""
    kernel = (3, 2, 2)[: len(sizes)]
    axes = ", ".join(f"D{i}" for i in range(len(sizes)))
    windows = ", ".join(f"R{i}" for i in range(len(sizes)))
    text = f"(float[N, C, {axes}] x, float[M, K, {windows}] w) => (float[N, M, {axes}] y)"
    text += f' {{ y = Conv<group={group}, auto_pad = "SAME_UPPER">(x, w) }}'
    x, weight = random(3, 4, *sizes), random(6, 4 // group, *kernel)
    alone = [both(text, x[sample : sample + 1], weight)[1] for sample in range(3)]
    products: list[tuple[int, ...]] = []
    real = convolution._multiply
    monkeypatch.setattr(convolution, "_multiply", lambda *given: products.append(given[1].shape) or real(*given))
    raised, stored = both(text, x, weight)
    assert len(products) == 2, "one for each of both"
    assert products[0] == (group, 4 // group * int(np.prod(kernel)), 3 * int(np.prod(sizes)))
    for found in (raised, stored):
        np.testing.assert_allclose(found, np.concatenate(alone), rtol=0, atol=1e-14 * np.abs(found).max())


MATRIX = "(float[A, B, C] x, float[K, N] w) => (float[P, Q, R] y)"


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.float64])
@pytest.mark.parametrize("elements", [1, 50, 64, 1 << 21])
@pytest.mark.parametrize(
    ("body", "weight"),
    [
        ("y = MatMul(x, w)", (8, 10)),
        ("y = MatMul(x, w)", (1, 8, 10)),
        ("y = MatMul(x, w)", (2, 8, 10)),
        ("y = MatMul(x, w)", (8,)),
        ("t = Transpose<perm = [1, 0]>(w) y = MatMul(x, t)", (10, 8)),
        ("s = Constant<value_ints = [0]>() t = Unsqueeze(w, s) y = MatMul(x, t)", (8, 10)),
        ("s = Constant<value_ints = [8, -1]>() t = Reshape(w, s) y = MatMul(x, t)", (80,)),
        ("q = Constant<value_ints = [6, 8]>() m = Reshape(x, q) y = Gemm(m, w)", (8, 10)),
        ("q = Constant<value_ints = [6, 8]>() m = Reshape(x, q) y = Gemm<transB = 1, alpha = 0.5>(m, w)", (10, 8)),
        ("q = Constant<value_ints = [8, 6]>() m = Reshape(x, q) y = Gemm<transA = 1>(m, w)", (8, 10)),
        ("i = Constant<value_ints = [3, 0, 3]>() g = Gather<axis = 1>(w, i) y = MatMul(x, g)", (8, 5)),
        ("i = Constant<value_ints = [3, 0, 3]>() g = Gather(w, i) y = Neg(g)", (8, 5)),
        ("t = Transpose<perm = [1, 0]>(w) y = Identity(t)", (10, 8)),
        ("t = Transpose<perm = [1, 0]>(w) n = Neg(t) y = MatMul(x, n)", (10, 8)),
    ],
)
def test_products_and_views_take_a_stored_weight_exactly(monkeypatch, dtype, elements, body, weight):
    monkeypatch.setattr(linear, "RAISED_ELEMENTS", elements)
    raised, stored = both(f"{MATRIX} {{ {body} }}", random(2, 3, 8), random(*weight).astype(dtype))
    np.testing.assert_allclose(stored, raised, rtol=0, atol=1e-14 * np.abs(raised).max())


@pytest.mark.parametrize(("rows", "adds_up"), [(6, True), (7, False)])
def test_products_of_a_large_result_are_not_added_up(monkeypatch, rows, adds_up):
    """Each piece of the weight would take a pass over the result."""
    monkeypatch.setattr(linear, "RAISED_ELEMENTS", 60)
    asked: list[str] = []
    real = linear.working_memory
    monkeypatch.setattr(linear, "working_memory", lambda name, *given: asked.append(name) or real(name, *given))
    a, b = random(rows, 40).astype(np.float64), random(40, 10)
    np.testing.assert_allclose(linear.matrix_product(a, b), a @ b.astype(np.float64), rtol=0, atol=1e-13)
    assert asked == (["product"] * 6 if adds_up else [])


@pytest.mark.parametrize("node", ["Mul(x, w)", "Conv(w, x)", "ConvTranspose(x, w)"])
def test_other_operators_and_places_get_it_raised(node):
    raised, stored = both(f"{CONV} {{ y = {node} }}", random(1, 4, 5, 5), random(4, 4, 5, 5))
    np.testing.assert_array_equal(stored, raised)


def test_a_body_gives_the_stored_weight_of_the_graph_around_it():
    text = """(float[A, B, C] x, float[K, N] w, bool b) => (float[P, Q, R] y) { c = If (b) <
      then_branch = t () => (float[K, N] d) { d = Identity(w) },
      else_branch = e () => (float[K, N] f) { f = Neg(w) }> y = MatMul(x, c) }"""
    x, weight = random(2, 3, 8), random(8, 10)
    fed = {"x": x, "b": np.array(True)}
    found = [evaluate_float64(parse(f"g {text}", {}), {**fed, "w": w}).outputs["y"] for w in (weight, Stored(weight))]
    np.testing.assert_allclose(*found, rtol=1e-13)


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
