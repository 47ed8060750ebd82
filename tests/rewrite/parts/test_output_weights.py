"""Weights times factors: rounded once, and without a copy in float64."""

from __future__ import annotations

import tracemalloc

import ml_dtypes
import numpy as np
import pytest

from tests.models import random
from trtnorm_cli.rewrite.parts.output_weights import scaled


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("shapes", [((64, 40, 3), (64, 1, 1)), ((5, 7), (1, 7)), ((), ()), ((0, 3), (1, 3))], ids=str)
def test_a_product_is_computed_in_float64_and_rounded_once(dtype, shapes):
    weight, factors = np.asarray(random(*shapes[0]) * 100).astype(dtype), np.asarray(random(*shapes[1], seed=1), np.float64)
    found = scaled(weight, factors)
    assert found.dtype == dtype
    assert found.tobytes() == np.asarray(weight.astype(np.float64) * factors).astype(dtype).tobytes()


def test_a_product_takes_the_memory_of_its_result():
    weight, factors = np.ones((1 << 10, 1 << 10), np.float32), np.full((1 << 10, 1), 2.0)
    tracemalloc.start()
    try:
        scaled(weight, factors)
        assert tracemalloc.get_traced_memory()[1] < 1.2 * weight.nbytes
    finally:
        tracemalloc.stop()
