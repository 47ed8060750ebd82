"""Optimization profiles in real builds: elements of inputs that decide sizes, and sizes that fit nowhere."""

from __future__ import annotations

import numpy as np
import pytest

from tests.models import parse, random
from tests.tensorrt.builds import built
from trtnorm_cli.tensorrt.explain import explain

pytestmark = pytest.mark.rtx

RESHAPE = "g (float[N, 6] x, int64[2] shape) => (float[?, ?] y) { y = Reshape(x, shape) }"
ROWS = {"x": ((1, 6), (2, 6), (4, 6))}


def test_elements_that_decide_sizes(tmp_path):
    result = built(parse(RESHAPE), tmp_path, ({**ROWS, "shape": ((1, 6), (2, 6), (4, 6))},))
    assert result.ok
    assert "MinShape: [1,6], OptShape: [2,6], MaxShape: [4,6]" in (tmp_path / "build.log").read_text()


def test_a_scalar_that_decides_a_size(tmp_path):
    model = parse(
        "g (int64 n, float[2] x) => (float[?, 2] y) { u = Unsqueeze(n, z) t = Concat<axis=0>(u, one) y = Expand(x, t) }",
        {"z": np.array([0]), "one": np.array([1])},
    )
    assert built(model, tmp_path, ({"n": ((1,), (2,), (9,))},)).ok


def test_without_elements_it_says_which(tmp_path):
    result = built(parse(RESHAPE), tmp_path, (ROWS,))
    assert (result.ok, result.stage) == (False, "profile")
    assert result.errors[0].text == "Optimization profile 0 is missing values for shape input tensor shape"
    assert "values:" in explain(result.errors[0].text).advice


def test_elements_that_decide_nothing_need_no_range(tmp_path):
    model = parse("g (float[N, 6] x, int64[2] i) => (float[N, 2] y) { y = Gather<axis=1>(x, i) }")
    assert built(model, tmp_path, ({**ROWS, "i": ((0, 1), (0, 1), (0, 1))},)).ok


@pytest.mark.parametrize("corner", [0, 2])
def test_a_corner_that_does_not_fit_is_an_error(tmp_path, corner):
    """TensorRT only warns, and fails when the engine runs at that size."""
    model = parse("g (float[N, 6, H] x) => (float[N, ?] y) { y = Reshape(x, s) }", {"s": np.array([-1, 16])})
    heights = [8, 8, 16]
    heights[corner] = 3 if corner == 0 else 17
    result = built(model, tmp_path, ({"x": tuple((1, 6, h) for h in heights)},))
    assert (result.ok, result.stage) == (False, "profile")
    assert f"Profile k{'MIN' if corner == 0 else 'MAX'} values are not self-consistent" in result.errors[0].text
    assert not (tmp_path / "out.engine").exists()


def test_what_tensorrt_does_not_notice(tmp_path):
    """The reason for proving profiles before the build: neither an error nor a warning."""
    model = parse("g (float[N, 6, H] x, float[N, 6, K] z) => (float[N, 12, ?] y) { y = Concat<axis=1>(x, z) }")
    ranges = {"x": ((1, 6, 8), (1, 6, 9), (1, 6, 16)), "z": ((1, 6, 7), (1, 6, 9), (1, 6, 17))}
    result = built(model, tmp_path, (ranges,))
    assert result.ok
    assert result.warnings == ()


def test_a_convolution_smaller_than_its_kernel(tmp_path):
    model = parse("g (float[N, 3, H, 9] x) => (float[N, 4, ?, ?] y) { y = Conv(x, w) }", {"w": random(4, 3, 5, 5)})
    result = built(model, tmp_path, ({"x": ((1, 3, 3, 9), (1, 3, 9, 9), (1, 3, 9, 9))},))
    assert "spatial dimension of convolution/deconvolution output cannot be negative" in result.errors[0].text
