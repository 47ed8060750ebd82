"""The largest sizes in a weight, some of its rows at a time."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.models import random
from trtnorm_cli.rewrite.scale_shift import weights
from trtnorm_cli.rewrite.scale_shift.weights import _largest

SHAPES = [(1,), (0,), (7,), (5, 3), (6, 4, 3, 2), (1, 8, 1), (3, 0, 2)]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("elements", [1, 10, 1 << 16])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_they_are_those_of_the_whole_weight(monkeypatch, shape, elements, dtype):
    monkeypatch.setattr(weights, "_BLOCK", elements)
    values = random(*shape).astype(dtype)
    for kept in [(), *((axis,) for axis in range(len(shape)))]:
        axes = tuple(axis for axis in range(len(shape)) if axis not in kept)
        wanted = np.abs(values.astype(np.float64)).max(axis=axes, keepdims=True, initial=0)
        np.testing.assert_array_equal(_largest(values, kept), wanted, strict=True)


@pytest.mark.parametrize("elements", [1, 1 << 16])
def test_what_is_no_number_is_larger_than_all(monkeypatch, elements):
    monkeypatch.setattr(weights, "_BLOCK", elements)
    values = np.array([[1, np.inf, 3], [-4, np.nan, 2], [-np.inf, 0, -5]], np.float32)
    np.testing.assert_array_equal(_largest(values, (0,)), [[np.inf], [np.nan], [np.inf]])
    np.testing.assert_array_equal(_largest(values, (1,)), [[np.inf, np.nan, 5]])
