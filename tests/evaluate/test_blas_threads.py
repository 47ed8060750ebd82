from __future__ import annotations

import numpy as np
import pytest

from trtnorm_cli.evaluate import blas_threads


def test_products_use_one_thread_and_then_as_many_as_before():
    found = blas_threads._functions()
    if found is None:
        pytest.skip("this NumPy has no OpenBLAS of its own")
    get, _ = found
    before = get()
    with blas_threads.one_thread():
        assert get() == 1
        assert (np.ones((300, 300)) @ np.ones((300, 300)))[0, 0] == 300
    assert get() == before


def test_another_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(blas_threads, "_libraries", list)
    blas_threads._functions.cache_clear()
    with blas_threads.one_thread():
        assert blas_threads._functions() is None
    blas_threads._functions.cache_clear()
