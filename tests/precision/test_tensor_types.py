"""The types of tensors that no model states."""

from __future__ import annotations

import onnx

from tests.models import parse, random
from trtnorm_cli.onnx_model.shapes import declared_types
from trtnorm_cli.precision.tensor_types import complete_types


def test_what_is_missing_is_inferred_and_the_model_stays_as_it_is():
    model = parse("g (float[N, 4] x) => (float[N, 4] y) { a = MatMul(x, w) y = Relu(a) }", {"w": random(4, 4)})
    before = model.SerializeToString()
    types = complete_types(model, declared_types(model))
    assert types["a"].dtype == onnx.TensorProto.FLOAT
    assert types["a"].shape == ("N", 4)
    assert model.SerializeToString() == before
