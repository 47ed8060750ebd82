"""Constants of another type than the data of a convolution or matrix product take the data's type."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest

from tests.models import parse, random
from trtnorm_cli.onnx_model.clean import clean


def types(model: onnx.ModelProto) -> dict[str, int]:
    return {tensor.name: tensor.data_type for tensor in model.graph.initializer}


@pytest.mark.parametrize(("kind", "number"), [("bfloat16", 16), ("float16", 10), ("double", 11)])
def test_float32_weights_of_a_convolution(kind, number):
    weight = random(4, 2, 3, 3)
    model = parse(
        f"g ({kind}[N, 2, 5, 5] x) => ({kind}[N, 4, 3, 3] y) {{ y = Conv(x, w, b) }}", {"w": weight, "b": random(4)}, opset=22
    )
    result = clean(model)
    assert set(types(result.model).values()) == {number}
    assert result.counts["constants cast to the type of the data"] == 2
    onnx.checker.check_model(result.model, full_check=True)
    assert clean(result.model).model == result.model


def test_values_are_rounded_once():
    weight = random(4, 2)
    model = parse("g (bfloat16[N, 4] x) => (bfloat16[N, 2] y) { y = MatMul(x, w) }", {"w": weight}, opset=22)
    (tensor,) = clean(model).model.graph.initializer
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(tensor), weight.astype(ml_dtypes.bfloat16))


def test_a_weight_that_two_nodes_read_in_different_types():
    body = "{ a = MatMul(x, w) b = MatMul(z, w) y = Cast<to = 1>(a) c = Add(y, b) }"
    model = parse(f"g (bfloat16[N, 4] x, float[N, 4] z) => (float[N, 4] c) {body}", {"w": random(4, 4)}, opset=22)
    assert sorted(types(clean(model).model).values()) == [1, 16]


def test_equal_types_and_data_of_two_types_stay():
    same = parse("g (float[N, 4] x) => (float[N, 4] y) { y = MatMul(x, w) }", {"w": random(4, 4)})
    assert "constants cast to the type of the data" not in clean(same).counts
