"""What is known of a tensor whose value stands in the file."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from trtnorm_cli.shapes.tensor import constant


@pytest.mark.parametrize(("kind", "number"), [
    ("int64", int), ("int32", int), ("uint8", int), ("bool", int), ("float16", float), ("float32", float), ("float64", float),
])  # fmt: skip
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 2)])
def test_elements_of_a_constant_are_numbers_of_python(kind, number, shape):
    """Those of NumPy overflow, and round."""
    array = np.ones(shape, kind)
    found = constant(array, onnx.helper.np_dtype_to_tensor_dtype(array.dtype)).elements
    assert found.shape == shape
    assert {type(value) for value in found.reshape(-1)} == ({number} if array.size else set())
    assert found.tolist() == array.tolist()
