"""Which BatchNormalizations stand in front of a mean over the plane, so that their fold is likely to cost a kernel."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import batchnorm, parse, random
from trtnorm_cli.rewrite.before_means import batchnorms_before_means


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


FIRST = "c0 = Conv(x, w) n0 = BatchNormalization(c0, gamma, beta, mu, var) a = Relu(n0)"
POINTWISE, WIDE, DEPTHWISE = "Conv(a, w)", "Conv <pads=[1,1,1,1]> (a, wide)", "Conv <group=4, pads=[1,1,1,1]> (a, each)"


def model(nodes: str, conv: str = POINTWISE, outputs: str = "float[N,4,1,1] y", opset: int = 17) -> onnx.ModelProto:
    """A convolution with its BatchNormalization and Relu ``a``, another two, and ``nodes``."""
    text = f"{FIRST} c = {conv} n = BatchNormalization(c, gamma, beta, mu, var) {nodes}"
    weights = {"w": random(4, 4, 1, 1), "wide": random(4, 4, 3, 3), "each": random(4, 1, 3, 3), **batchnorm(4)}
    weights |= {"low": np.zeros((), np.float32), "high": np.full((), 6, np.float32), "slope": np.full(4, 0.1, np.float32)}
    weights |= {"plane": i64(-1, -2), "row": i64(3), "channels": i64(1, 2)}
    return parse(f"g (float[N,4,8,8] x) => ({outputs}) {{ {text} }}", weights, opset=opset)


@pytest.mark.parametrize(
    ("nodes", "conv", "opset"),
    [
        ("y = GlobalAveragePool(n)", POINTWISE, 17),
        ("r = Relu(n) y = GlobalAveragePool(r)", WIDE, 17),
        ("r = Clip(n, low, high) y = ReduceMean <axes=[2, 3]> (r)", POINTWISE, 17),
        ("r = HardSwish(n) y = ReduceMean <axes=[-1, -2]> (r)", POINTWISE, 17),
        ("r = LeakyRelu(n) y = ReduceMean(r, plane)", POINTWISE, 18),
        ("s = Add(a, n) y = GlobalAveragePool(s)", POINTWISE, 17),
        ("s = Add(n, a) r = Relu(s) y = GlobalAveragePool(r)", POINTWISE, 17),
        ("r = Relu(n) q = GlobalAveragePool(r) m = Mul(r, q) y = ReduceMean <axes=[2, 3]> (m)", DEPTHWISE, 17),
    ],
    ids=["nothing between", "relu", "clip", "hard swish", "axes as input", "residual", "residual and relu", "squeeze"],
)
def test_a_mean_over_the_plane_follows(nodes: str, conv: str, opset: int) -> None:
    assert batchnorms_before_means(model(nodes, conv, opset=opset)) == {"n"}


@pytest.mark.parametrize(
    ("nodes", "conv", "outputs"),
    [
        ("r = Relu(n) y = MaxPool <kernel_shape=[8, 8]> (r)", POINTWISE, "float[N,4,1,1] y"),
        ("y = ReduceMean(n, row)", POINTWISE, "float[N,4,8,1] y"),
        ("y = ReduceMean(n, channels)", POINTWISE, "float[N,1,1,8] y"),
        ("y = ReduceMean(n)", POINTWISE, "float[1,1,1,1] y"),
        ("s = Softplus(n) y = GlobalAveragePool(s)", POINTWISE, "float[N,4,1,1] y"),
        ("r = Relu(n) y = GlobalAveragePool(r)", POINTWISE, "float[N,4,1,1] y, float[N,4,8,8] n, float[N,4,8,8] r"),
        ("s = Sigmoid(n) m = Mul(n, s) y = GlobalAveragePool(m)", DEPTHWISE, "float[N,4,1,1] y"),
        ("q = GlobalAveragePool(n) m = Mul(n, q) y = ReduceMean <axes=[2, 3]> (m)", DEPTHWISE, "float[N,4,1,1] y"),
        ("r = Relu(n) q = GlobalAveragePool(r) m = Mul(r, q) y = ReduceMean <axes=[2, 3]> (m)", WIDE, "float[N,4,1,1] y"),
        ("s = Add(a, n) r = Relu(s) y = GlobalAveragePool(r)", WIDE, "float[N,4,1,1] y"),
        ("s = Add(c0, n) r = Relu(s) y = GlobalAveragePool(r)", POINTWISE, "float[N,4,1,1] y"),
        ("r = Relu(n) d = Dropout(r) y = GlobalAveragePool(d)", POINTWISE, "float[N,4,1,1] y"),
    ],
    ids=[
        *("largest", "row", "channels", "all axes", "another activation", "read outside", "swish", "squeeze of no activation"),
        *("squeeze of a wide convolution", "residual of a wide one", "residual of two convolutions", "another node"),
    ],
)
def test_none_follows_that_costs_a_kernel(nodes: str, conv: str, outputs: str) -> None:
    opset = 18 if "row)" in nodes or "channels)" in nodes else 17
    assert batchnorms_before_means(model(nodes, conv, outputs, opset)) == set()


@pytest.mark.parametrize(("plane", "found"), [("8,8", set()), ("H,8", {"n"}), ("8,W", {"n"})])
def test_a_wide_convolution_that_ends_a_block_counts_where_the_plane_is_open(plane: str, found: set[str]) -> None:
    one = model("s = Add(a, n) r = Relu(s) y = GlobalAveragePool(r)", WIDE)
    sizes = one.graph.input[0].type.tensor_type.shape.dim
    for size, text in zip(sizes[2:], plane.split(","), strict=True):
        if not text.isdigit():
            size.dim_param = text
    assert batchnorms_before_means(one) == found


def test_all_is_no_choice() -> None:
    """What every fold costs, an engine with all of them and one without tell."""
    text = "c = Conv(x, w) n = BatchNormalization(c, gamma, beta, mu, var) y = GlobalAveragePool(n)"
    one = parse(f"g (float[N,4,8,8] x) => (float[N,4,1,1] y) {{ {text} }}", {"w": random(4, 4, 1, 1), **batchnorm(4)})
    assert batchnorms_before_means(one) == set()


def test_a_batchnorm_behind_something_else_is_not_meant() -> None:
    text = f"{FIRST} m = MaxPool <kernel_shape=[2, 2]> (a) n = BatchNormalization(m, gamma, beta, mu, var)"
    text += " y = GlobalAveragePool(n)"
    source = parse(f"g (float[N,4,8,8] x) => (float[N,4,1,1] y) {{ {text} }}", {"w": random(4, 4, 1, 1), **batchnorm(4)})
    assert batchnorms_before_means(source) == set()
