"""Demands of nodes on sizes, in the words in which a user reads them when a profile breaks them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.models import parse, random
from tests.shapes.runs import ints
from trtnorm_cli.shapes.propagate import propagate

INPUTS = "float[N, C, H, W] x, float[A, B] f, float[M, 4, 4, 2] grid, uint8[N, 17] u, uint8[1, A] b"
AT = {"N": 2, "C": 5, "H": 17, "W": 19, "A": 7, "B": 9, "M": 3}
K = {
    "table": random(1, 1, 12, 1), "row": random(12), "yes": np.array([[True] * 12] * 12), "shape": ints(1, 1, 12, 1),
    "halves": ints(0, 2, -1), "flat": ints(4, 6), "rest": ints(0, -1, 0), "one": ints(1), "two": ints(2),
    "picked": ints(0, 9, -3), "zero": np.array(0), "step": np.array(1), "parts": ints(3, 4),
    "pads": ints(0, 0, 2, 0, 0, 0, 1, 0), "cuts": ints(0, 0, -3, 0, 0, 0, -1, 0), "five": ints(5), "w": random(4, 2, 3, 3),
    "m": random(6, 6), "v": random(6), "scale": np.array(1, np.float32),
}  # fmt: skip
# A body, and below it what each of its nodes demands.
DEMANDS = """
y = Add(x, table)
    y (Add): dimension 2 of its inputs must be equal, or 1: x is 17 and table is 12
y = Add(row, x)
    y (Add): dimension 3 of its inputs must be equal, or 1: row is 12 and x is 19
y = Where(yes, x, table)
    y (Where): dimension 2 of its inputs must be equal, or 1: yes is 12 and x is 17
    y (Where): dimension 3 of its inputs must be equal, or 1: yes is 12 and x is 19
y = Concat<axis=1>(x, table, x)
    y (Concat): dimension 0 of its inputs must be equal: that of x is 2 and that of table is 1
    y (Concat): dimension 2 of its inputs must be equal: that of x is 17 and that of table is 12
    y (Concat): dimension 3 of its inputs must be equal: that of x is 19 and that of table is 1
y = Expand(x, shape)
    y (Expand): dimension 2 of its inputs must be equal, or 1: x is 17 and its shape is 12
y = Reshape(x, halves)
    y (Reshape): the number of elements must be divisible by what -1 leaves:
        what the input has is 1615 and what its shape asks for is 2
y = Reshape(x, flat)
    y (Reshape): the number of elements must stay the same: what the input has is 3230 and what its shape asks for is 24
a = Slice(x, one, two, two, one) y = Reshape(a, rest)
    y (Reshape): dimension 2 must not be 0, or what -1 stands for cannot be told: it is 1
y = Squeeze(x, two)
    y (Squeeze): dimension 2 must be 1 to be removed: dimension 2 of x is 17 and what it takes is 1
y = DepthToSpace<blocksize=2>(x)
    y (DepthToSpace): channels must be divisible by 4: dimension 1 of x is 5
y = SpaceToDepth<blocksize=2>(x)
    y (SpaceToDepth): dimension 2 must be divisible by 2: dimension 2 of x is 17
    y (SpaceToDepth): dimension 3 must be divisible by 2: dimension 3 of x is 19
y = Gather<axis=2>(x, picked)
    y (Gather): dimension 2 must be at least 10, because of the indices: dimension 2 of x is 17
s = Shape<start=3>(x) w = Squeeze(s) r = Range(zero, w, step) y = Gather<axis=2>(x, r)
    y (Gather): indices must lie inside of dimension 2: dimension 2 of x is 17 and the largest index is 18
a, b = Split<axis=2>(x, parts)
    a (Split): dimension 2 must be the sum of the parts: dimension 2 of x is 17 and the sum is 7
a, b = Split<axis=3>(x)
    a (Split): dimension 3 must be divisible by 2: dimension 3 of x is 19
a, b = Split<axis=3, num_outputs=2>(x)
    a (Split): dimension 3 must leave something for the last of 2 parts: the last part is 9
y = SplitToSequence<axis=2>(x, parts)
    y (SplitToSequence): dimension 2 must be the sum of the parts: dimension 2 of x is 17 and the sum is 7
y = Pad<mode="reflect">(x, pads)
    y (Pad): dimension 2 must be larger than what is reflected: dimension 2 of x is 17 and that is 2
y = Pad(x, cuts)
    y (Pad): dimension 2 must not be cut to less than nothing: what is left is 13
y, i = TopK<axis=2>(x, five)
    y (TopK): dimension 2 must hold at least k elements: dimension 2 of x is 17 and k is 5
y = Conv<pads=[1, 0, 0, 0], dilations=[1, 3]>(x, w)
    y (Conv): the input's channels must be those of the weight:
        dimension 1 of x is 5 and the number that the weight takes is 2
    y (Conv): dimension 2 must not be smaller than the kernel, which reaches over 3: dimension 2 of x with its padding is 18
    y (Conv): dimension 3 must not be smaller than the kernel, which reaches over 7: dimension 3 of x with its padding is 19
y = Conv<group=2>(x, w)
    y (Conv): the input's channels must be those of the weight:
        dimension 1 of x is 5 and the number that the weight takes is 4
    y (Conv): dimension 2 must not be smaller than the kernel, which reaches over 3: dimension 2 of x with its padding is 17
    y (Conv): dimension 3 must not be smaller than the kernel, which reaches over 3: dimension 3 of x with its padding is 19
y = MaxPool<kernel_shape=[5, 2], strides=[2, 1], ceil_mode=1>(x)
    y (MaxPool): dimension 2 must not be smaller than the kernel, which reaches over 5:
        dimension 2 of x with its padding is 17
    y (MaxPool): dimension 3 must not be smaller than the kernel, which reaches over 2:
        dimension 3 of x with its padding is 19
y = ConvTranspose<pads=[2, 0, 1, 0]>(x, w)
    y (ConvTranspose): the input's channels must be those of the weight:
        dimension 1 of x is 5 and the number that the weight takes is 4
    y (ConvTranspose): the padding must leave something of dimension 2: dimension 2 of the output is 16
y = MatMul(x, m)
    y (MatMul): the inner dimensions of the product must be equal: that of x is 19 and that of m is 6
y = MatMul(m, x)
    y (MatMul): the inner dimensions of the product must be equal: that of m is 6 and that of x is 17
y = Gemm<transA=1>(f, m)
    y (Gemm): the inner dimensions of the product must be equal: that of f is 7 and that of m is 6
y = Gemm(f, m, m)
    y (Gemm): the inner dimensions of the product must be equal: that of f is 9 and that of m is 6
    y (Gemm): dimension 0 of its inputs must be equal, or 1: the product is 7 and m is 6
y = Einsum<equation="nchw,wk->nchk">(x, m)
    y (Einsum): the dimensions called w must be equal: w of x is 19 and w of m is 6
y = GridSample(x, grid)
    y (GridSample): the batch sizes must be equal: x is 2 and grid is 3
y = BatchNormalization(x, v, v, v, v)
    y (BatchNormalization): there must be one parameter for each channel: dimension 1 of x is 5 and the length of v is 6
y = LayerNormalization(x, v)
    y (LayerNormalization): dimension 3 of its inputs must be equal, or 1: x is 19 and v is 6
y = InstanceNormalization(x, v, v)
    y (InstanceNormalization): there must be one parameter for each channel: dimension 1 of x is 5 and the length of v is 6
y = com.microsoft.QLinearAdd(u, scale, , b, scale, , scale)
    y (QLinearAdd): dimension 1 of its inputs must be equal, or 1: u is 17 and b is 7
q = SequenceConstruct(x, table) y = ConcatFromSequence<axis=1>(q)
    y (ConcatFromSequence): dimension 0 of its inputs must be equal: that of item 0 of q is 2 and that of item 1 of q is 1
    y (ConcatFromSequence): dimension 2 of its inputs must be equal: that of item 0 of q is 17 and that of item 1 of q is 12
    y (ConcatFromSequence): dimension 3 of its inputs must be equal: that of item 0 of q is 19 and that of item 1 of q is 1
"""
CASES = dict(re.findall(r"^(\S.*)\n((?: .*\n)+)", DEMANDS, re.MULTILINE))


@pytest.mark.parametrize(("body", "demands"), CASES.items(), ids=[re.sub(r"[<(].*", "", body) for body in CASES])
def test_a_demand_names_the_node_the_tensors_and_their_sizes(body, demands):
    used = {key: value for key, value in K.items() if re.search(rf"[( ]{key}[,)]", body)}
    model = parse(f"g ({INPUTS}) => (float[?] y) {{ {body} }}", used, opset=18)
    model.opset_import.add(domain="com.microsoft", version=1)
    said = [f"{one.place}: {one.demand}: {one.values(AT)}" for one in propagate(model).constraints]
    assert " ".join(text.removeprefix("node -> ") for text in said) == " ".join(demands.split())


def test_nobody_may_need_to_know_more_than_a_broken_demand():
    text = """g (float[2, 3] x) => (float z) { a = Relu(x) b = Add(a, v) c = Add(b, m) z = Relu(c) }"""
    model = parse(text, K)
    found = propagate(model, ends_at=lambda node: "b" in node.output)
    assert (len(found.broken), found.unmet, "c" in found.tensors) == (1, {"b"}, False)
    further = propagate(model, ends_at=lambda node: "c" in node.output)
    assert {"b", "c"} >= further.unmet
    assert "c" in further.tensors
