"""Arrays in the order of their elements."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from trtnorm_cli.contiguous import contiguous

LARGE = np.arange(600 * 500, dtype=np.float32).reshape(600, 500)


@pytest.mark.parametrize(
    "value",
    [
        LARGE.T,
        LARGE.T[:, ::-1],
        LARGE[:, ::3],
        LARGE.T[3:-5, 7:-11],
        LARGE.reshape(60, 10, 500).transpose(2, 0, 1),
        LARGE.reshape(60, 10, 500).transpose(1, 2, 0),
        np.broadcast_to(LARGE[:, :1], (600, 500)),
        LARGE.astype(ml_dtypes.bfloat16).T,
        LARGE.astype(np.int8).T,
        LARGE.T[:2],
        LARGE[:0].T,
    ],
    ids=lambda value: f"{value.dtype} {value.shape} {value.strides}",
)
def test_the_elements_are_the_same_in_order(value: np.ndarray) -> None:
    made = contiguous(value)
    assert made.flags.c_contiguous
    assert made.dtype == value.dtype
    np.testing.assert_array_equal(made, value)


@pytest.mark.parametrize("value", [LARGE, LARGE[0], np.array(3, np.float32)])
def test_what_is_in_order_is_not_copied(value: np.ndarray) -> None:
    assert np.shares_memory(contiguous(value), value)
