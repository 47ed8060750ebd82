"""The positions that surely hold data and are used at some shapes, and those that may."""

from __future__ import annotations

import numpy as np
import pytest

from tests.models import parse, random
from trtnorm_cli.compare.data_ranges import DataRanges
from trtnorm_cli.compare.regrouped_ranges import regrouped_ranges
from trtnorm_cli.compare.sized_model import SizedModel

WEIGHTS = {
    "w": random(6, 6, 3), "m": random(6, 6), "s": random(6), "front": np.array([0, 0, 4, 0, 0, 0]),
    "behind": np.array([0, 0, 0, 0, 0, 4]), "n0": np.array([0]), "n2": np.array([2]), "n4": np.array([4]), "n6": np.array([6]),
    "n1": np.array([1]), "n20": np.array([20]), "back": np.array([-1]), "far": np.array([-99]),
    "n12": np.array([12]), "n16": np.array([16]), "windows": np.array([1, 6, 4, 5]), "row": np.array([1, 6, 20]),
}  # fmt: skip


def of(lines: str, at_least: bool = True) -> DataRanges:
    model = parse(f"g (float[1, 6, 16] x) => (float y) {{ {lines} }}", WEIGHTS, opset=17)
    return DataRanges(SizedModel(model, {"x": (1, 6, 16)}).own, at_least)


@pytest.mark.parametrize(
    ("lines", "least", "most"),
    [
        ("y = Pad(x, front)", (4, 20), (4, 20)),
        (
            "p = Pad(x, front) t = Transpose<perm=[0, 2, 1]>(p) u = MatMul(t, m) y = Transpose<perm=[0, 2, 1]>(u)",
            (4, 20),
            (0, 20),
        ),
        ("p = Pad(x, front) y = Softmax<axis=1>(p)", (4, 20), (0, 20)),
        ("p = Pad(x, front) g0 = ReduceMean<axes=[2]>(x) y = Mul(p, g0)", (4, 20), (0, 20)),
        ("p = Pad(x, front) q = Pad(x, behind) y = Mul(p, q)", (4, 16), (0, 20)),
        ("p = Pad(x, front) q = Pad(x, behind) y = Add(p, q)", (4, 20), (0, 20)),
        ("p = Pad(x, front) q = Pad(x, behind) y = Concat<axis=1>(p, q)", (4, 16), (0, 20)),
        ("p = Pad(x, front) r = Reshape(p, windows) u = Relu(r) y = Reshape(u, row)", (5, 20), (0, 20)),
        ("p = Pad(x, front) y = CumSum(p, n2)", None, (0, 20)),
        ("p = Pad(x, front) y = Conv(p, w)", (2, 18), (2, 18)),
        ("p = Pad(x, front) y = Slice(p, n0, n20, n2, n2)", (2, 10), (2, 10)),
        ("p = Pad(x, front) y = Slice(p, n1, n20, n2, n4)", (1, 5), (1, 5)),
        ("p = Pad(x, front) y = Slice(p, back, far, n2, back)", (0, 16), (0, 16)),
        ("p = Pad(x, behind) y = Slice(p, back, far, n2, back)", (4, 20), (4, 20)),
    ],
)
def test_data_are_followed_through_nodes(lines: str, least, most):
    found, may = of(lines).data["y"], of(lines, at_least=False).data["y"]
    assert (None if found is None else found[2]) == least
    assert may is not None
    assert may[2] == most


@pytest.mark.parametrize(
    ("lines", "least", "most"),
    [
        ("y = Slice(c, n0, n12, n2)", (0, 12), (0, 12)),
        ("t = Transpose<perm=[0, 2, 1]>(c) u = MatMul(t, m) s0 = Transpose<perm=[0, 2, 1]>(u) y = Slice(s0, n0, n12, n2)",
         (0, 12), (0, 16)),
        ("h = Slice(c, n0, n12, n2) i = Slice(c, n4, n16, n2) y = Add(h, i)", (4, 12), (0, 16)),
        ("h, i = Split<axis=1>(c) j = Slice(i, n0, n12, n2) k = Slice(h, n4, n16, n2) y = Mul(j, k)", (4, 12), (0, 16)),
        ("u = CumSum(c, n2) y = Slice(u, n0, n12, n2)", None, (0, 16)),
        ("y = Slice(c, n0, n12, n2, n2)", (0, 11), (0, 11)),
        ("y = Slice(c, n12, n1, n2, back)", (2, 13), (2, 13)),
        ("h = Slice(c, n0, n12, n2, n2) i = Slice(c, n1, n12, n2, n2) y = Add(h, i)", (1, 11), (0, 12)),
    ],
)  # fmt: skip
def test_use_is_followed_back(lines: str, least, most):
    lines = f"c = Conv<pads=[1, 1]>(x, w) {lines}"
    found, may = of(lines).used["c"], of(lines, at_least=False).used["c"]
    assert (None if found is None else found[2]) == least
    assert may is not None
    assert may[2] == most


def test_channels_that_are_taken_apart_are_used_together():
    """Queries, keys and values of an attention, say, of which each channel is mixed from all of those before it."""
    lines = """c = Conv<pads=[1, 1]>(x, w) r = Relu(c) d = Conv<pads=[1, 1]>(r, w)
      one = Slice(d, n0, n2, channels) two = Slice(d, n2, n6, channels) y = Concat<axis=1>(two, one)"""
    model = parse(f"g (float[1, 6, 16] x) => (float y) {{ {lines} }}", WEIGHTS | {"channels": np.array([1])}, opset=17)
    assert DataRanges(SizedModel(model, {"x": (1, 6, 16)}).own, at_least=True).used["c"] == ((0, 1), (0, 6), (0, 16))


@pytest.mark.parametrize(
    ("ranges", "before", "after", "wanted"),
    [
        ([(0, 1), (4, 20)], (1, 20), (1, 4, 5), ((0, 1), (1, 4), (0, 5))),
        ([(0, 1), (1, 4), (0, 5)], (1, 4, 5), (1, 20), ((0, 1), (5, 20))),
        ([(0, 2), (1, 3)], (2, 3), (6,), ((1, 3),)),  # of the second row as many lie apart
        ([(1, 3)], (6,), (2, 3), ((0, 1), (1, 3))),
        ([(2, 4)], (6,), (2, 3), ((0, 1), (2, 3))),
        ([(0, 6)], (6,), (1, 2, 3), ((0, 1), (0, 2), (0, 3))),
        ([(0, 4), (0, 6)], (4, 6), (3, 8), ((0, 3), (0, 8))),
    ],
)
def test_a_reshape_leaves_a_box_where_it_is(ranges, before, after, wanted):
    assert regrouped_ranges(ranges, before, after) == wanted
    within, outside = np.zeros(before), np.zeros(after)
    within[tuple(slice(*one) for one in ranges)] = 1
    outside[tuple(slice(*one) for one in wanted)] = 1
    assert np.all(within.reshape(after) >= outside)
