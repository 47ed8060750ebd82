"""Caches of RotaryEmbedding with one entry for all are expanded; the rest stays."""

from __future__ import annotations

import numpy as np
import pytest

from tests.models import operators, parse, random
from tests.onnx_model.running import run
from trtnorm_cli.onnx_model.clean import clean

COUNT = "caches of RotaryEmbedding expanded"
GRAPH = "g (float[N, 2, T, 8] x, {caches}) => (float[N, 2, T, 8] y) {{ y = RotaryEmbedding(x, c, s{more}) }}"


def test_one_entry_serves_every_entry_of_the_batch():
    model = parse(GRAPH.format(caches="float[1, T, 4] c, float[1, T, 4] s", more=""), opset=23)
    result = clean(model)
    assert result.counts[COUNT] == 2
    feeds = {"x": random(3, 2, 5, 8), "c": random(1, 5, 4), "s": random(1, 5, 4, seed=1)}
    each = [run(model, {**feeds, "x": feeds["x"][i : i + 1]})["y"] for i in range(3)]
    np.testing.assert_array_equal(run(result.model, feeds)["y"], np.concatenate(each))
    assert clean(result.model).model == result.model


def test_constant_caches():
    model = parse("g (float[N, 2, 5, 8] x) => (float[N, 2, 5, 8] y) { y = RotaryEmbedding(x, c, s) }",
                  {"c": random(1, 5, 4), "s": random(1, 5, 4, seed=1)}, opset=23)  # fmt: skip
    result = clean(model)
    x = random(3, 2, 5, 8)
    each = [run(model, {"x": x[i : i + 1]})["y"] for i in range(3)]
    np.testing.assert_array_equal(run(result.model, {"x": x})["y"], np.concatenate(each))


@pytest.mark.parametrize(("caches", "more", "why"), [
    ("float[N, T, 4] c, float[N, T, 4] s", "", "an entry for each"),
    ("float[9, 4] c, float[9, 4] s, int64[N, T] p", ", p", "with positions there is no batch"),
])  # fmt: skip
def test_others_stay(caches, more, why):
    result = clean(parse(GRAPH.format(caches=caches, more=more), opset=23))
    assert operators(result.model) == ["RotaryEmbedding"], why


def test_a_batch_of_one_stays():
    graph = (
        "g (float[1, 2, T, 8] x, float[1, T, 4] c, float[1, T, 4] s) => (float[1, 2, T, 8] y) { y = RotaryEmbedding(x, c, s) }"
    )
    assert operators(clean(parse(graph, opset=23)).model) == ["RotaryEmbedding"]
