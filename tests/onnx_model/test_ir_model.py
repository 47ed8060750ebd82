"""Weights in files and in memory: where they are after cleaning."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.external_data_helper import convert_model_to_external_data

from tests.models import operators, parse, random
from tests.onnx_model.running import cleaned, run_both
from trtnorm_cli.errors import ModelError
from trtnorm_cli.onnx_model.clean import clean


def with_external_weights(folder) -> onnx.ModelProto:
    """A convolution with its weights in ``weights.bin``, loaded by reference."""
    weight = random(4, 2, 3, 3)
    model = parse(
        "g (float[N, 2, 5, 5] x) => (float[N, 4, 3, 3] y) { b2 = Neg(b) w2 = Identity(w) y = Conv(x, w2, b2) }",
        {"w": weight, "b": random(4)},
    )
    convert_model_to_external_data(model, location="weights.bin", size_threshold=0)
    onnx.save(model, folder / "m.onnx")
    return onnx.load(folder / "m.onnx", load_external_data=False)


def test_external_weights_stay_in_their_file_and_small_ones_are_folded(tmp_path):
    model = with_external_weights(tmp_path)
    original = onnx.load(tmp_path / "m.onnx")
    result = clean(model, tmp_path)
    assert operators(result.model) == ["Conv"]
    onnx.load_external_data_for_model(result.model, str(tmp_path))
    wanted, got = run_both(original, result.model)
    np.testing.assert_array_equal(got["y"], wanted["y"])


def test_large_external_weights_are_references_in_the_result(tmp_path):
    model = parse(
        "g (float[N, 64] x) => (float[N, 64] y) { w2 = Identity(w) t = MatMul(x, w2) y = Relu(t) }", {"w": random(64, 64)}
    )
    convert_model_to_external_data(model, location="weights.bin", size_threshold=0)
    onnx.save(model, tmp_path / "m.onnx")
    model = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    (tensor,) = clean(model, tmp_path).model.graph.initializer
    assert tensor == model.graph.initializer[0]


def test_missing_external_data_is_an_error(tmp_path):
    model = with_external_weights(tmp_path)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ModelError, match=r"weights\.bin is missing") as caught:
        clean(model, tmp_path)
    assert caught.value.where == "tensor w"


def test_large_weights_in_memory_come_back_as_they_were():
    weight = random(256, 256)
    model = parse("g (float[N, 256] x) => (float[N, 256] y) { v = Identity(w) y = MatMul(x, v) }", {"w": weight})
    model.graph.initializer[0].doc_string = "kept"
    assert cleaned(model).model.graph.initializer == model.graph.initializer
