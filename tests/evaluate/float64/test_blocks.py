"""Kernels that work in several steps take some elements, rows or channels at a time: the result is that of the whole array."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.models import parse, random
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.evaluate.float64.kernels import elementwise, normalization

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
