"""Of a kernel, only what lies on data at any position is multiplied; the rest would be by padding."""

from __future__ import annotations

import numpy as np
import pytest

from trtnorm_cli.evaluate.float64.kernels import convolution as module
from trtnorm_cli.evaluate.float64.kernels.windows import Windows


def windows(size: int, kernel: int, stride: int, dilation: int, begin: int, end: int) -> Windows:
    output = (size + begin + end - (kernel - 1) * dilation - 1) // stride + 1
    return Windows((kernel,), (stride,), (dilation,), (begin,), (end,), (output,))


@pytest.mark.parametrize(
    ("how", "elements"),
    [
        ((4, 3, 1, 36, 36, 36), slice(1, 2)),
        ((40, 3, 1, 36, 36, 36), slice(0, 3)),
        ((36, 3, 1, 36, 36, 36), slice(1, 2)),
        ((37, 3, 1, 36, 36, 36), slice(0, 3)),
        ((2, 3, 1, 1, 1, 1), slice(0, 3)),
        ((1, 3, 1, 1, 1, 1), slice(1, 2)),
        ((1, 5, 1, 1, 4, 0), slice(4, 5)),
        ((1, 5, 1, 1, 0, 4), slice(0, 1)),
        ((3, 7, 2, 1, 3, 3), slice(1, 6)),
        ((2, 2, 3, 2, 4, 3), slice(1, 2)),
        ((2, 1, 1, 1, -1, 0), slice(0, 1)),
    ],
    ids=str,
)
def test_elements_that_lie_on_data(how, elements):
    assert windows(*how).on_data((how[0],)) == (elements,)


def test_the_result_is_that_of_the_whole_kernel(monkeypatch):
    """Also where nothing lies on data, in blocks, in groups and of several samples."""
    draw, cut = np.random.default_rng(0), 0
    for _ in range(300):
        rank, group = int(draw.integers(1, 4)), int(draw.integers(1, 3))
        sizes, kernel = draw.integers(1, 6, rank), draw.integers(1, 5, rank)
        strides, dilations = draw.integers(1, 4, rank), draw.integers(1, 6, rank)
        extents = (kernel - 1) * dilations + 1
        begin, end = draw.integers(-1, 9, rank), draw.integers(0, 9, rank)
        end += np.maximum(extents - (sizes + begin + end), 0)
        output = (sizes + begin + end - extents) // strides + 1
        all_axes = [tuple(map(int, each)) for each in (kernel, strides, dilations, begin, end, output)]
        x = draw.standard_normal((int(draw.integers(1, 3)), 2 * group, *sizes))
        weight = draw.standard_normal((3 * group, 2, *kernel)).astype(np.float32)
        got = module.convolution(x, weight, Windows(*all_axes), group)
        with monkeypatch.context() as patched:
            patched.setattr(module, "_on_data", lambda x, weight, windows: (weight, windows))
            wanted = module.convolution(x, weight, Windows(*all_axes), group)
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)
        cut += module._on_data(x, weight, Windows(*all_axes))[0].size < weight.size
    assert cut > 100


@pytest.mark.parametrize(("value", "is_cut"), [(np.inf, False), (np.nan, False), (1.0, True)])
def test_what_is_not_finite_is_multiplied_by_padding_too(value: float, is_cut: bool):
    x, weight = np.ones((1, 1, 2)), np.ones((1, 1, 3), np.float32)
    weight[0, 0, 0] = value
    how = windows(2, 3, 1, 5, 5, 5)
    with np.errstate(invalid="ignore"):
        result = module.convolution(x, weight, how, 1)
    assert np.isfinite(result).all() == is_cut
    assert (module._on_data(x, weight, how)[0].shape != weight.shape) == is_cut
