"""Operators with weights that cannot take a scale and shift in, each with its reason."""

from __future__ import annotations

import numpy as np
import pytest

from tests.models import batchnorm, random
from tests.rewrite.scale_shift.operations import operation
from trtnorm_cli.rewrite.scale_shift import absorb_input, absorb_output
from trtnorm_cli.rewrite.scale_shift.affine import Affine, CannotMove, affine
from trtnorm_cli.rewrite.scale_shift.window import window_of

IMAGE = "g (float[N, 4, 6, 6] x) => (float[] y)"
ROWS = "g (float[N, 4] x) => (float[] y)"
W = random(6, 4, 3, 3)


def scaled(*shape: int, shift: float = 0.0) -> Affine:
    return affine(np.full(shape, 2.0), np.full(shape, shift))


BEFORE = {
    "groups that do not divide the output": (
        f"{IMAGE} {{ y = Conv<group=4>(x, w) }}", {"w": random(6, 1, 3, 3)}, {0: scaled(1, 4, 1, 1)},
        "has 6 output channels in 4 groups",
    ),
    "weights of run time": (
        f"{IMAGE} {{ y = Conv(x, w) }}", {"w": W}, {1: scaled(1, 4, 1, 1)}, "the scale and shift reaches the weights of",
    ),
    "a bias of another length": (
        f"{IMAGE} {{ y = Conv(x, w, b) }}", {"w": W, "b": random(5)}, {0: scaled(1, 4, 1, 1)}, "has shape [5], not [6]",
    ),
    "a vector": (f"{ROWS} {{ y = MatMul(x, w) }}", {"w": random(4)}, {0: scaled(1, 4)}, "multiplies with a vector"),
    "a border of zeros": (
        f"{IMAGE} {{ y = Conv<pads=[0, 0, 0, 1]>(x, w) }}", {"w": W}, {0: scaled(1, 4, 1, 1, shift=3.0)},
        "pads with zeros, and the shift is not zero (channel 0: 3)",
    ),
    "a kernel that spreads": (
        f"{IMAGE} {{ y = ConvTranspose(x, w) }}", {"w": random(4, 6, 2, 2)}, {0: scaled(1, 4, 1, 1, shift=3.0)},
        "a shift of its input does not reach all of its output alike",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("graph", "weights", "given", "reason"), BEFORE.values(), ids=BEFORE)
def test_what_is_before_cannot_be_taken_in(graph, weights, given, reason):
    op = operation(graph, weights)
    absorb = absorb_input.ABSORBERS[op.op]
    with pytest.raises(CannotMove) as caught:
        absorb(op, given)
    assert reason in str(caught.value)


BEHIND = {
    "training": (
        f"{IMAGE} {{ y, m, v = BatchNormalization<training_mode=1>(x, gamma, beta, mu, var) }}", 17, "is in training mode",
    ),
    "training of old": (f"{IMAGE} {{ y, m, v = BatchNormalization(x, gamma, beta, mu, var) }}", 9, "is in training mode"),
    "training of old with means alone": (
        f"{IMAGE} {{ y, m = BatchNormalization(x, gamma, beta, mu, var) }}", 9, "is in training mode",
    ),
    "each element on its own": (
        f"{IMAGE} {{ y = BatchNormalization<spatial=0>(x, gamma, beta, mu, var) }}", 7, "has spatial=0",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("graph", "opset", "reason"), BEHIND.values(), ids=BEHIND)
def test_what_is_behind_cannot_be_taken_in(graph, opset, reason):
    op = operation(graph, batchnorm(4), opset=opset)
    with pytest.raises(CannotMove) as caught:
        absorb_output.ABSORBERS[op.op](op, scaled(1, 4, 1, 1))
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("graph", "takes"),
    [
        (f"{ROWS} {{ y = MatMul(x, w) }}", True),
        (f"{ROWS} {{ y = MatMul(x, x) }}", False),
        (f"{ROWS} {{ y = Relu(x) }}", False),
        (f"{ROWS} {{ y = Gemm(x, w) }}", True),
        (f"{ROWS} {{ y = Gemm(w, x) }}", False),
    ],
)
def test_only_constant_weights_take_what_is_before_them_in(graph, takes):
    weights = {"w": random(4, 4)} if "w" in graph.partition("{")[2] else {}
    assert (absorb_input.absorber(operation(graph, weights)) is not None) == takes


@pytest.mark.parametrize(
    ("attributes", "sizes"),
    [("", ()), ("strides=[1]", (3, 3)), ("dilations=[1, 1, 1]", (3, 3)), ("pads=[1, 1, 1]", (3, 3)), ("pads=[1, 1]", (3, 3))],
)
def test_a_window_of_another_rank_than_its_kernel(attributes, sizes):
    op = operation(f"{IMAGE} {{ y = Conv<{attributes}>(x, w) }}".replace("<>", ""), {"w": W})
    with pytest.raises(CannotMove, match="does not fit its kernel"):
        window_of(op, sizes)
