"""Kernels that work in several steps take some elements, rows or channels at a time: the result is that of the whole array."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.models import parse, random
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.evaluate.float64.kernels import elementwise, linear, normalization
from trtnorm_cli.evaluate.float64.kernels.call import Call

FORMULAS = (
    *("Celu<alpha = 0.7>", "Elu<alpha = 0.5>", "Gelu", 'Gelu<approximate = "tanh">', "HardSigmoid", "HardSwish"),
    *("LeakyRelu<alpha = 0.1>", "Mish", "Selu", "Shrink<bias = 0.2, lambd = 0.4>", "Sigmoid", "Softplus", "Softsign"),
    *("Swish<alpha = 1.5>", "ThresholdedRelu<alpha = 0.3>"),
)
NORMALIZATIONS = (
    "BatchNormalization(x, s, b, s, v)",
    "InstanceNormalization(x, s, b)",
    "GroupNormalization<num_groups = 3>(x, s, b)",
    "LayerNormalization<axis = 2>(x, r)",
    "LayerNormalization<axis = -1>(x, r, r)",
    "MeanVarianceNormalization<axes = [0, 2, 3]>(x)",
)
SHAPES = [(2, 6, 5, 4), (1, 6, 1, 4), (3, 6, 7, 4), (9, 6, 1, 4)]


def evaluated(node: str, feeds: dict[str, np.ndarray]) -> np.ndarray:
    inputs = ", ".join(f"float[{', '.join('ABCD'[: value.ndim])}] {name}" for name, value in feeds.items())
    model = parse(f"g ({inputs}) => (y) {{ y = {node} }}", {}, opset=24)
    return evaluate_float64(model, feeds).outputs["y"]


@pytest.mark.parametrize("elements", [1, 7, 1000])
@pytest.mark.parametrize("formula", FORMULAS)
def test_a_formula_of_blocks_is_that_of_the_whole(monkeypatch, formula, elements):
    x = np.moveaxis(random(2, 5, 4, 6), 1, 3)
    whole = evaluated(f"{formula}(x)", {"x": x})
    monkeypatch.setattr(elementwise, "_BLOCK", elements)
    np.testing.assert_array_equal(evaluated(f"{formula}(x)", {"x": x}), whole)


@pytest.mark.parametrize("formula", FORMULAS)
def test_so_is_that_of_a_single_number(formula):
    x = random(2, 5)
    found = [evaluated(f"{formula}(x)", {"x": np.array(value)}) for value in x.ravel()]
    np.testing.assert_array_equal(np.reshape(found, x.shape), evaluated(f"{formula}(x)", {"x": x}))


# Pieces of two branches; the formulas choose none of them element by element, which takes longer than computing both.
BRANCHES = {
    "LeakyRelu<alpha = 0.1>(x)": lambda x: np.where(x < 0, float(np.float32(0.1)) * x, x),
    "LeakyRelu<alpha = 1.5>(x)": lambda x: np.where(x < 0, 1.5 * x, x),
    "LeakyRelu<alpha = -0.5>(x)": lambda x: np.where(x < 0, -0.5 * x, x),
    "LeakyRelu<alpha = 0.0>(x)": lambda x: np.where(x < 0, 0.0 * x, x),
    "Elu<alpha = 0.5>(x)": lambda x: np.where(x < 0, 0.5 * np.expm1(np.minimum(x, 0)), x),
    "Selu<alpha = 2.0, gamma = 0.5>(x)": lambda x: np.where(x > 0, 0.5 * x, np.expm1(np.minimum(x, 0))),
    "Sigmoid(x)": lambda x: np.where(x < 0, np.exp(-np.abs(x)), 1.0) / (1.0 + np.exp(-np.abs(x))),
}
EDGES = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324, -5e-324, 800.0, -800.0, 1.5, -0.25])


@pytest.mark.parametrize("node", BRANCHES)
def test_both_branches_of_a_formula_are_taken_where_they_belong(node):
    x = np.concatenate([EDGES, random(40)])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(evaluated(node, {"x": x}), BRANCHES[node](x))


@pytest.mark.parametrize("slope", [0.25, -3.0, 0.0, np.inf, np.nan])
def test_so_they_are_with_a_slope_for_each_channel(slope):
    x, slopes = np.concatenate([EDGES, random(9)]).reshape(1, 4, 5), np.array([[0.5], [slope], [2.0], [slope]])
    with np.errstate(all="ignore"):
        expected = np.where(x < 0, slopes * x, x)
    np.testing.assert_array_equal(evaluated("PRelu(x, s)", {"x": x, "s": slopes}), expected)


@pytest.mark.parametrize("elements", [1, 7, 1000])
@pytest.mark.parametrize("bounds", [("l", "h"), ("l", ""), ("", "h")])
@pytest.mark.parametrize("shape", [(), (1,)])
def test_so_is_a_clip(monkeypatch, shape, bounds, elements):
    feeds = {"x": random(2, 5, 4, 6), "l": np.full(shape, -0.4), "h": np.full(shape, 0.3)}
    feeds = {name: value for name, value in feeds.items() if name == "x" or name in bounds}
    node = f"Clip(x, {', '.join(bounds)})"
    monkeypatch.setattr(elementwise, "_BLOCK", elements)
    low, high = feeds.get("l", -np.inf), feeds.get("h", np.inf)
    np.testing.assert_array_equal(evaluated(node, feeds), np.clip(feeds["x"], low, high))


@pytest.mark.parametrize("elements", [1, 7, 50])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("node", NORMALIZATIONS)
def test_so_is_a_normalization(monkeypatch, node, shape, elements):
    feeds = {"x": random(*shape), "s": random(6), "b": random(6), "v": random(6) ** 2, "r": random(4)}
    feeds = {name: value for name, value in feeds.items() if name in node.split("(")[1]}
    whole = evaluated(node, feeds)
    monkeypatch.setattr(normalization, "_BLOCK", elements)
    np.testing.assert_allclose(evaluated(node, feeds), whole, rtol=1e-12, atol=1e-13)


def test_many_small_samples_are_one_block(monkeypatch):
    """As the points of a cloud are: a step of Python for each of them would take longer than the arithmetic."""
    steps: list[int] = []
    real = itertools.product
    monkeypatch.setattr(
        normalization.itertools, "product", lambda *given: steps.append(len(made := list(real(*given)))) or iter(made)
    )
    x, values = random(5000, 6), random(6)
    feeds = {"x": x, "s": values, "v": values**2}
    found = evaluated("BatchNormalization(x, s, s, s, v)", feeds)
    np.testing.assert_allclose(found, (x - values) / np.sqrt(values**2 + 1e-5) * values + values, rtol=1e-4, atol=1e-4)
    assert steps == [1]


def test_a_normalization_of_transposed_data_is_that_of_its_copy(monkeypatch):
    monkeypatch.setattr(normalization, "_BLOCK", 8)
    x = np.moveaxis(random(2, 5, 4, 6), 3, 1)
    for node in ("InstanceNormalization(x, s, s)", "BatchNormalization(x, s, s, s, v)"):
        feeds = {"s": random(6), "v": random(6) ** 2}
        found = [evaluated(node, {"x": given, **feeds}) for given in (x, np.ascontiguousarray(x))]
        np.testing.assert_allclose(*found, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("elements", [1, 7, 1000])
@pytest.mark.parametrize("shape", [(3, 5, 6), (1, 1), (4,)])
def test_so_is_a_softmax(monkeypatch, shape: tuple[int, ...], elements: int):
    x = random(*shape).astype(np.float64)
    x.flat[0] = -np.inf
    monkeypatch.setattr(linear, "SOFTMAX_ELEMENTS", elements)
    with np.errstate(all="ignore"):
        powers = np.exp(x - x.max(-1, keepdims=True))
        whole = powers / powers.sum(-1, keepdims=True)
        for given in (x, np.asfortranarray(x)):
            np.testing.assert_array_equal(linear.softmax(given, -1), whole)


@pytest.mark.parametrize("elements", [1, 7, 1000])
def test_a_sum_with_zeros_has_the_bits_of_the_other(monkeypatch, elements: int):
    monkeypatch.setattr(elementwise, "_BLOCK", elements)
    monkeypatch.setattr(elementwise, "_FEW", 1)
    x, zeros = random(3, 5).astype(np.float64), np.zeros(5)
    x[1, 2], x[2, 4] = 0.0, np.nan
    turned = x.copy()
    turned[1, 2] = -0.0
    for pair, given in (((x, zeros), x), ((zeros, x), x), ((turned, zeros), None), ((x, zeros.astype(np.float32)), None)):
        (found,) = elementwise.KERNELS["Add"](Call("Add", 17, pair, {}, ("y",)))
        np.testing.assert_array_equal(found, pair[0] + pair[1])
        assert not np.signbit(found[1, 2])
        assert (found is given) == (given is not None)
    (found,) = elementwise.KERNELS["Add"](Call("Add", 17, (x[:1], np.zeros((3, 5))), {}, ("y",)))
    assert found.shape == (3, 5)
