"""Convolutions use memory again for what they pad and copy: no result may lie in it, nor depend on what was there before."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from trtnorm_cli.evaluate.float64.kernels import convolution as module
from trtnorm_cli.evaluate.float64.kernels.convolution import convolution
from trtnorm_cli.evaluate.float64.kernels.windows import Windows

CASES = [((3, 3), (1, 1), 1), ((3, 3), (2, 1), 1), ((1, 1), (1, 1), 0), ((5, 1), (1, 1), 2), ((1, 1), (2, 2), 0)]


def windows(sizes: tuple[int, int], kernel: tuple[int, int], strides: tuple[int, int], pad: int) -> Windows:
    output = tuple((n + 2 * pad - k) // s + 1 for n, k, s in zip(sizes, kernel, strides, strict=True))
    return Windows(kernel, strides, (1, 1), (pad, pad), (pad, pad), output)


def by_definition(x: np.ndarray, weight: np.ndarray, where: Windows) -> np.ndarray:
    pad = where.begin[0]
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    result = np.zeros((x.shape[0], weight.shape[0], *where.output))
    for (i, j), (si, sj) in [((i, j), where.strides) for i in range(weight.shape[2]) for j in range(weight.shape[3])]:
        part = padded[:, :, i : i + (where.output[0] - 1) * si + 1 : si, j : j + (where.output[1] - 1) * sj + 1 : sj]
        result += np.einsum("nchw,mc->nmhw", part, weight[:, :, i, j])
    return result


@pytest.mark.parametrize("elements", [64, 1 << 19], ids=["in blocks", "at once"])
@pytest.mark.parametrize(("kernel", "strides", "pad"), CASES)
def test_a_result_is_that_of_its_own_numbers_alone(monkeypatch, elements, kernel, strides, pad):
    monkeypatch.setattr(module, "MATRIX_ELEMENTS", elements)
    where = windows((9, 7), kernel, strides, pad)
    rng = np.random.default_rng(0)
    first, second = (rng.standard_normal((2, 3, 9, 7)) for _ in range(2))
    weight = rng.standard_normal((4, 3, *kernel))
    before = convolution(first, weight, where, 1)
    kept = before.copy()
    convolution(np.full_like(second, np.nan), weight, where, 1)
    after = convolution(second, weight, where, 1)
    np.testing.assert_array_equal(before, kept, "the next one does not write into it")
    np.testing.assert_allclose(after, by_definition(second, weight, where), rtol=1e-12, atol=1e-12)


def test_threads_have_memory_of_their_own():
    where = windows((32, 32), (3, 3), (1, 1), 1)
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((4, 3, 3, 3))
    inputs = [rng.standard_normal((1, 3, 32, 32)) for _ in range(64)]
    expected = [convolution(x, weight, where, 1) for x in inputs]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda x: convolution(x, weight, where, 1), inputs))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_other_types_and_larger_blocks_get_memory_that_fits(monkeypatch):
    where = windows((9, 7), (3, 3), (1, 1), 1)
    weight = np.random.default_rng(0).standard_normal((4, 3, 3, 3))
    for elements, dtype in ((2000, np.float32), (1 << 19, np.float64), (2000, np.float32), (1 << 19, np.float32)):
        monkeypatch.setattr(module, "MATRIX_ELEMENTS", elements)
        x = np.random.default_rng(1).standard_normal((1, 3, 9, 7)).astype(dtype)
        found = convolution(x, weight.astype(dtype), where, 1)
        assert found.dtype == dtype
        np.testing.assert_allclose(found, by_definition(x, weight.astype(dtype), where), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("first", range(9))
def test_rows_of_windows_that_lie_in_the_padding_alone(first):
    where = Windows((1, 1), (1, 1), (1, 1), (3, 2), (3, 2), (9, 7))
    x = np.random.default_rng(0).standard_normal((1, 2, 3, 3))
    part = where.rows(first, first + 1)
    np.testing.assert_array_equal(part.padded(x, 0.0), where.padded(x, 0.0)[:, :, first : first + 1])


def test_what_is_not_padded_is_not_copied():
    where = Windows((1, 1), (2, 2), (1, 1), (0, 0), (0, 0), (4, 4))
    x = np.random.default_rng(0).standard_normal((1, 2, 8, 8))
    assert np.shares_memory(where.padded(x, 0.0), x)
