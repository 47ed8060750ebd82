"""Sizes that only a run tells: they stay unknown, all others are known, and nothing is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.models import parse, random
from tests.shapes.runs import ints
from trtnorm_cli.shapes.propagate import propagate

# ``k`` is one integer of which nothing is known, and ``k2`` are two. ``e`` is one too, but among others they stay known.
GIVEN = """g (float[N, 4, H, 6] x, int64[1, 1] a, int64[1, 2] b) => (float[?] y) {
    k = Reshape(a, one) k2 = Reshape(b, two) s0 = Shape<end=1>(x) f0 = Cast<to=1>(s0) b0 = Cast<to=9>(f0) e = Cast<to=7>(b0)"""
CONSTANTS = {
    "one": ints(1), "two": ints(2), "i0": ints(0), "i1": ints(1), "i2": ints(2), "i3": ints(3), "end": ints(2**63 - 1),
    "at0": np.array(0), "at1": np.array(1), "onoff": np.float32([0, 1]), "values": np.float32([0, 1]), "m43": random(4, 3),
    "s4": np.float32([1, 1, 2, 2]), "w": random(8, 4, 3, 3),
}  # fmt: skip
BODIES = {
    "y = Slice(x, k, i3, i2)": "N, 4, None, 6",
    "y = Slice(x, i1, k, i2)": "N, 4, None, 6",
    "y = Slice(x, i0, i3, i2, k)": "N, 4, None, 6",
    "y = Slice(x, i0, i3, k)": "None, None, None, None",
    "y = Slice(x, k2, k2)": "None, None, None, None",
    "s = Shape(x) y = Slice(s, k, i3)": "None",
    "s = Shape(x) y = Slice(s, i0, k)": "None",
    "s = Shape(x) y = Gather(s, k)": "1",
    "y = Gather<axis=2>(x, k)": "N, 4, 1, 6",
    "y = Reshape(x, k2)": "None, None",
    "c = Concat<axis=0>(i2, e) y = Reshape(x, c)": "2, None",
    "y = Unsqueeze(x, k)": None,
    "y = Squeeze(x, k)": None,
    "y = Squeeze(x)": None,
    "y = ReduceSum(x, k)": "None, None, None, None",
    "y = ReduceSum<keepdims=0>(x, k)": None,
    "s = Shape<start=1, end=3>(x) f = Cast<to=1>(s) r = ReduceSum(f) c = Cast<to=7>(r) y = ConstantOfShape(c)": "None",
    "c = Concat<axis=0>(i1, i1, e, i1) y = Tile(x, c)": "N, 4, None, 6",
    "c = Concat<axis=0>(i1, e, i1, i1) y = Expand(x, c)": "N, 4, H, 6",
    "c = Concat<axis=0>(i0, i0, e, i1, i0, i0, i0, i1) y = Pad(x, c)": "N, 4, None, 8",
    "y, i = TopK<axis=2>(x, k)": "N, 4, None, 6",
    "y, z = Split<axis=2>(x, k2)": "N, 4, None, 6",
    "c = Concat<axis=0>(i1, i1, e, i1) y = ConstantOfShape(c)": "1, 1, None, 1",
    "c = Squeeze(e) y = Range(at0, c, at1)": "None",
    "c = Squeeze(k) y = Range(at0, at1, c)": "None",
    "y = OneHot<axis=1>(a, k, onoff)": "1, None, 1",
    "c = Concat<axis=0>(i1, i1, e, i3) y = Resize(x, , , c)": "1, 1, None, 3",
    "f = Cast<to=1>(e) c = Concat<axis=0>(values, f, f) y = Resize(x, , c)": "0, 4, None, None",
    "i = NonZero(x) t = Transpose(i) y = Cast<to=1>(t)": "None, 4",
    "i = NonZero(x) t = Transpose(i) y = Concat<axis=1>(t, t)": "None, 8",
}
UNKNOWN_RANK = {
    "y = MatMul(u, m43)": 1, "y = MatMul(m43, u)": 1, "y = Relu(u)": 1, "y = Cast<to=7>(u)": 7, "y = ArgMax(u)": 7,
    "y = Transpose(u)": 1, "y = Concat<axis=0>(u, u)": 1, "y = Gather(u, i1)": 1, "y = Slice(u, i0, i1)": 1,
    "y = Pad(u, two)": 1, "y = Conv(u, w)": 1, "y = MaxPool<kernel_shape=[2, 2]>(u)": 1, "y = ConvTranspose(u, w)": 1,
    "y = GlobalAveragePool(u)": 1, "y = ReduceMean(u)": 1, "y = Flatten(u)": 1, "y = Unsqueeze(u, i0)": 1,
    "y = Squeeze(u, i0)": 1, "y = Expand(u, i3)": 1, "y = Tile(u, i3)": 1, "y = Resize(u, , s4)": 1,
    "y = DepthToSpace<blocksize=2>(u)": 1, "y = Gemm(u, m43)": 1, "y, z = Split(u)": 1, "y, i = TopK(u, i1)": 1,
    "q = SplitToSequence(u) y = SequenceAt(q, at0)": 1, "y = Shape(u)": 7, "y = Size(u)": 7,
    "y = BatchNormalization(u, values, values, values, values)": 1, "y = LayerNormalization(u, values)": 1,
    "y = Add(u, x)": 1, "y = Equal(u, x)": 9, "y = GatherND(u, i0)": 1, "y = NonZero(u)": 7,
}  # fmt: skip


def shape_of_y(body: str, before: str = ""):
    used = {key: value for key, value in CONSTANTS.items() if re.search(rf"[( ]{key}[,)]", f"{GIVEN} {before} {body}")}
    model = parse(f"{GIVEN} {before} {body} }}", used)
    del model.graph.output[:]
    model.graph.output.add(name="y")
    return propagate(model)


@pytest.mark.parametrize(("body", "shape"), BODIES.items())
def test_what_only_a_run_tells_stays_unknown_and_the_rest_is_known(body, shape):
    found = shape_of_y(body)
    made = found.tensors["y"].shape
    assert (None if made is None else ", ".join(map(str, made))) == shape
    assert found.constraints == []
    if shape is not None:
        assert found.unread == []


@pytest.mark.parametrize(("body", "dtype"), UNKNOWN_RANK.items())
def test_of_a_tensor_of_any_rank_the_type_is_known(body, dtype):
    found = shape_of_y(body, "u = Unsqueeze(x, k)")
    assert found.tensors["y"].dtype == dtype
    assert found.constraints == []
