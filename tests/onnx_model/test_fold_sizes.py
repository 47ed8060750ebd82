"""Constants that unfold: their size is known before they are evaluated."""

from __future__ import annotations

import numpy as np
import pytest

from tests.models import operators, parse
from trtnorm_cli.onnx_model import fold
from trtnorm_cli.onnx_model.clean import clean

HUGE = 1 << 33


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def int_(value: int) -> np.ndarray:
    return np.array(value, np.int64)


ONE, FOUR = np.ones(1, np.float32), np.ones((1, 1, 8, 8), np.float32)
# Everything is behind an Identity, so that inference of the whole graph does not know it.
BOMBS = {
    "Range": ("r = Range(zero, n, one) k = Cast<to = 1>(r)", {"zero": int_(0), "n0": int_(HUGE), "one": int_(1)}),
    "Range of a product": (
        "m = Mul(n, n) r = Range(zero, m, one) k = Cast<to = 1>(r)", {"zero": int_(0), "n0": int_(1 << 17), "one": int_(1)}),
    "Expand": ("k = Expand(v, n)", {"v": ONE, "n0": ints(1 << 17, 1 << 17)}),
    "ConstantOfShape": ("k = ConstantOfShape(n)", {"n0": ints(HUGE)}),
    "Tile": ("k = Tile(v, n)", {"v": ONE, "n0": ints(HUGE)}),
    "Resize": ("k = Resize(v, , n)", {"v": FOUR, "n0": np.array([1, 1, 1 << 15, 1 << 15], np.float32)}),
    "Pad": ("k = Pad(v, n)", {"v": ONE, "n0": ints(HUGE, 0)}),
    "OneHot": ("k = OneHot(i, n, v)", {"i": ints(3), "n0": int_(HUGE), "v": np.array([0, 1], np.float32)}),
    "an outer product": ("k = Mul(v, n)", {"v": np.ones((1 << 17, 1), np.float32), "n0": np.ones((1, 1 << 17), np.float32)}),
    "Einsum": ('k = Einsum<equation = "i,j->ij">(n, n)', {"n0": np.ones(1 << 17, np.float32)}),
    "an Einsum of few elements and many products": (
        'k = Einsum<equation = "i,j,l->">(n, n, n)', {"n0": np.ones(1 << 12, np.float32)}),
}  # fmt: skip


@pytest.mark.parametrize(("nodes", "weights"), BOMBS.values(), ids=BOMBS)
def test_what_would_unfold_is_left(nodes, weights):
    rest = "t = ReduceMax<keepdims = 0>(k) y = Add(x, t)"
    source = parse(f"g (float[1] x) => (float y) {{ n = Identity(n0) {nodes} {rest} }}", weights)
    assert operators(clean(source).model)[-2:] == ["ReduceMax", "Add"]
    assert len(clean(source).model.graph.node) > 2


def test_what_stays_small_is_folded():
    source = parse(
        "g (float[1] x) => (float y) { n = Identity(n0) r = Range(zero, n, one) k = Cast<to = 1>(r)"
        " t = ReduceMax<keepdims = 0>(k) y = Add(x, t) }",
        {"zero": int_(0), "n0": int_(1000), "one": int_(1)},
    )
    assert operators(clean(source).model) == ["Add"]


def test_many_small_constants_are_a_large_one(monkeypatch):
    monkeypatch.setattr(fold, "_GROWN_BYTES", 1 << 20)
    nodes = " ".join(f"k{i} = ConstantOfShape(n{i}) t{i + 1} = Add(t{i}, k{i})" for i in range(8))
    sizes = {f"n{i}": ints(1 << 16) for i in range(8)}
    source = parse(f"g (float[65536] t0) => (float[65536] t8) {{ {nodes} }}", sizes)
    assert operators(clean(source).model).count("ConstantOfShape") == 4  # 256 KiB each
