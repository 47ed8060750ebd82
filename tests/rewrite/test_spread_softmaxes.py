"""Which scales stand behind a convolution whose channels are spread over many axes for a softmax."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import batchnorm, parse, random
from trtnorm_cli.rewrite.spread_softmaxes import scales_before_spread_softmaxes

SPREAD = "m = Reshape(s, spread) y = Softmax <axis=2> (m)"


def model(nodes: str, outputs: str = "float[N,A,B,C,D,E,F] y") -> onnx.ModelProto:
    weights = {"w": random(36, 4, 1, 1), "quarter": np.array(0.25, np.float32), **batchnorm(36)}
    weights |= {
        "spread": np.array([0, 1, 9, 2, 2, 8, 8]),
        "six": np.array([0, 9, 2, 2, 8, 8]),
        "own": np.array([0, 1, 9, 2, 2]),
    }
    weights |= {"axes": np.array([0]), "at": np.array(2), "flat": random(36, 36)}
    return parse(f"g (float[N,4,8,8] x) => ({outputs}) {{ c = Conv(x, w) {nodes} }}", weights)


@pytest.mark.parametrize(
    "nodes",
    [
        f"s = Mul(c, quarter) {SPREAD}",
        f"s = Mul(quarter, c) {SPREAD}",
        f"s = Div(c, quarter) {SPREAD}",
        f"s = BatchNormalization(c, gamma, beta, mu, var) {SPREAD}",
        f"""z = Shape(s) h = Gather(z, at) hh = Unsqueeze(h, axes) spread2 = Concat <axis=0> (own, hh, hh)
            {SPREAD.replace("spread", "spread2")} s = Mul(c, quarter)""",
    ],
    ids=["factor", "factor first", "divisor", "batchnorm", "open sizes"],
)
def test_a_spread_softmax_follows(nodes: str) -> None:
    assert scales_before_spread_softmaxes(model(nodes)) == {"s"}


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        ("s = Mul(c, quarter) m = Reshape(s, six) y = Softmax <axis=1> (m)", "float[N,9,2,2,8,8] y"),
        ("s = Mul(c, quarter) y = Softmax <axis=1> (s)", "float[N,36,8,8] y"),
        ("s = Mul(c, quarter) y = Reshape(s, spread)", "float[N,A,B,C,D,E,F] y"),
        ("s = Mul(c, quarter) m = Reshape(s, spread) y = ReduceSum(m, axes)", "float[A,B,C,D,E,F,G] y"),
        (f"r = Relu(c) s = Mul(r, quarter) {SPREAD}", "float[N,A,B,C,D,E,F] y"),
        (f"s = Add(c, quarter) {SPREAD}", "float[N,A,B,C,D,E,F] y"),
        (f"r = Sigmoid(c) s = Mul(c, r) {SPREAD}", "float[N,A,B,C,D,E,F] y"),
        (f"s = Mul(c, quarter) {SPREAD} r = Relu(s)", "float[N,A,B,C,D,E,F] y, float[N,36,8,8] r"),
        (f"s = Mul(c, quarter) {SPREAD}", "float[N,A,B,C,D,E,F] y, float[N,36,8,8] s"),
        (f"s = Mul(c, quarter) {SPREAD} r = Relu(m)", "float[N,A,B,C,D,E,F] y, float[N,A,B,C,D,E,F] r"),
        ("z = Shape(c) s = Mul(c, quarter) m = Reshape(s, z) y = Softmax <axis=1> (m)", "float[N,36,8,8] y"),
    ],
    ids=[
        *(
            "six axes",
            "where they are",
            "no softmax",
            "a sum",
            "an activation",
            "a shift",
            "a gate",
            "read elsewhere",
            "a result",
        ),
        *("spread for another one", "a shape that is not written down"),
    ],
)
def test_none_follows_that_costs_a_kernel(nodes: str, outputs: str) -> None:
    assert scales_before_spread_softmaxes(model(nodes, outputs)) == set()


def test_a_reshape_of_an_old_opset_has_its_shape_in_an_attribute() -> None:
    old = (
        "g (float[N,4,8,8] x) => (float[N,A,B,C,D,E,F] y) { m = Reshape <shape=[1,1,1,1,4,8,8]> (x) y = Softmax <axis=2> (m) }"
    )
    assert scales_before_spread_softmaxes(parse(old, opset=4)) == set()
