"""Biases of convolutions become vectors where they can only mean one; others stay."""

from __future__ import annotations

import numpy as np
import pytest

from tests.models import operators, parse, random
from tests.onnx_model.running import cleaned, initializers, run
from trtnorm_cli.onnx_model.clean import clean


def bias_of(result) -> np.ndarray:
    (node,) = (node for node in result.model.graph.node if node.op_type.startswith("Conv"))
    return initializers(result.model)[node.input[2]]


@pytest.mark.parametrize("shape", [(4, 1), (1, 4), (4, 1, 1, 1), (1, 4, 1, 1)])
def test_as_many_values_as_channels_are_one_for_each(shape):
    values = random(*shape)
    result = cleaned(
        parse("g (float[N, 2, 5, 5] x) => (float[N, 4, 3, 3] y) { y = Conv(x, w, b) }", {"w": random(4, 2, 3, 3), "b": values})
    )
    np.testing.assert_array_equal(bias_of(result), values.reshape(4))
    assert result.counts["biases of convolutions made vectors"] == 1


@pytest.mark.parametrize("shape", [(), (1,), (4, 2), (3, 3)])
def test_one_value_repeated_is_that_value_for_each_channel(shape):
    weights = {"w": random(4, 2, 3, 3), "b": np.full(shape, 1.5, np.float32)}
    result = cleaned(parse("g (float[N, 2, 5, 5] x) => (float[N, 4, 3, 3] y) { y = Conv(x, w, b) }", weights))
    np.testing.assert_array_equal(bias_of(result), np.full(4, 1.5, np.float32))


def test_the_missing_bias_of_a_conv3d_as_dynamo_writes_it():
    model = parse(
        """g (float[N, 2, 5, 5, 5] x) => (float[N, 4, 3, 3, 3] y) {
        channels = Shape<start = 0, end = 1>(w) batch = Shape<start = 0, end = 1>(x)
        size = Concat<axis = 0>(channels, batch) zero = Constant<value = float {0}>() like = CastLike(zero, x)
        bias = Expand(like, size) y = Conv(x, w, bias) }""",
        {"w": random(4, 2, 3, 3, 3)},
        opset=21,
        ir=10,
    )
    result = cleaned(model)
    assert operators(result.model) == ["Conv"]
    np.testing.assert_array_equal(bias_of(result), np.zeros(4, np.float32))
    without = parse(
        "g (float[N, 2, 5, 5, 5] x) => (float[N, 4, 3, 3, 3] y) { y = Conv(x, w) }",
        {"w": random(4, 2, 3, 3, 3)},
        opset=21,
        ir=10,
    )
    feeds = {"x": random(3, 2, 5, 5, 5)}
    np.testing.assert_array_equal(run(result.model, feeds)["y"], run(without, feeds)["y"])


def test_a_grouped_transposed_convolution_has_its_channels_in_the_second_axis():
    weights = {"w": random(4, 3, 2, 2), "b": random(6, 1)}
    result = cleaned(
        parse("g (float[N, 4, 5, 5] x) => (float[N, 6, P, Q] y) { y = ConvTranspose<group = 2>(x, w, b) }", weights)
    )
    np.testing.assert_array_equal(bias_of(result), weights["b"].reshape(6))


def test_a_convolution_in_a_branch():
    model = parse(
        """g (float[N, 2, 5, 5] x, bool c) => (float[N, 4, 3, 3] y) {
        y = If(c) <then_branch = t () => (float[N, 4, 3, 3] p) { p = Conv(x, w, b) },
                   else_branch = e () => (float[N, 4, 3, 3] q) { q = Conv(x, w) }> }""",
        {"w": random(4, 2, 3, 3), "b": random(4, 1)},
    )
    assert cleaned(model).counts["biases of convolutions made vectors"] == 1


@pytest.mark.parametrize("shape", [(2,), (3,), (2, 3), (4, 2), (0,)])
def test_other_shapes_have_no_meaning_and_stay(shape):
    weights = {"w": random(4, 2, 3, 3), "b": random(*shape)}
    result = clean(parse("g (float[N, 2, 5, 5] x) => (float[N, 4, 3, 3] y) { y = Conv(x, w, b) }", weights))
    np.testing.assert_array_equal(bias_of(result), weights["b"])
    assert "biases of convolutions made vectors" not in result.counts


@pytest.mark.parametrize("channels", [1, 4])
def test_vectors_stay(channels):
    weights = {"w": random(channels, 2, 3, 3), "b": random(channels)}
    model = parse(f"g (float[N, 2, 5, 5] x) => (float[N, {channels}, 3, 3] y) {{ y = Conv(x, w, b) }}", weights)
    assert cleaned(model).counts == {}
