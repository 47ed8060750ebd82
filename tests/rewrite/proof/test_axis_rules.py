"""Axes that operators make of those of their inputs: as long as in a run, at the file's lengths and at shorter ones."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from tests.models import batchnorm, parse, random
from tests.shapes.runs import IS_RECENT_RUNTIME
from trtnorm_cli.rewrite.proof import short_shapes
from trtnorm_cli.rewrite.proof.axes import Axes, NotShortened
from trtnorm_cli.rewrite.proof.region import Region

REAL = (6, 12, 40, 44)
K = {
    "w": random(6, 12, 3, 2), "wg": random(6, 6, 3, 2), "bias": random(6), "wt": random(12, 3, 3, 2), "m": random(44, 5),
    "square": random(44, 44), "a1": np.array([1]), "a03": np.array([0, -1]), "a23": np.array([2, 3]), "row": random(44),
    "table": random(12, 1, 1), "g": random(12), "half": np.array(0.5, np.float32), **batchnorm(12),
}  # fmt: skip
# What is made, and the axes of x that get shorter on the way.
BODIES = {
    "y = Relu(x)": "0123",
    "a = Mul(x, row) y = Add(table, a)": "02",
    "y = Where(b, x, half)": "0123",
    "y = BatchNormalization(x, gamma, beta, mu, var)": "023",
    "y = InstanceNormalization(x, g, g)": "0",
    "y = LayerNormalization(x, row)": "012",
    "y = LayerNormalization<axis=2>(x, m2)": "01",
    "y = Softmax<axis=1>(x)": "023",
    "y = LpNormalization(x)": "012",
    "y = LRN<size=3>(x)": "023",
    "y = MeanVarianceNormalization<axes=[0, 2]>(x)": "13",
    "y = ReduceMean<axes=[-1, 1]>(x)": "02",
    "y = ReduceMax<axes=[2], keepdims=0>(x)": "013",
    "y = ReduceSum(x, a23)": "01",
    "y = ReduceSum<noop_with_empty_axes=1>(x)": "0123",
    "y = ReduceMean(x)": "",
    "y = GlobalAveragePool(x)": "01",
    "y = Transpose(x)": "0123",
    "y = Transpose<perm=[0, 2, 3, 1]>(x)": "0123",
    "y = Unsqueeze(x, a03)": "0123",
    "a = ReduceMean<axes=[1]>(x) y = Squeeze(a, a1)": "023",
    "y = MatMul(x, m)": "012",
    "f = ReduceMax<axes=[1], keepdims=0>(x) y = MatMul(f, m)": "02",
    "f = ReduceMax<axes=[1, 2], keepdims=0>(x) y = MatMul(f, m)": "0",
    "t = Transpose<perm=[0, 1, 3, 2]>(x) y = MatMul(x, t)": "01",
    "f = ReduceMax<axes=[1, 2], keepdims=0>(x) y = Gemm(f, m)": "0",
    "f = ReduceMax<axes=[1, 2], keepdims=0>(x) t = Transpose(f) y = Gemm<transA=1, transB=1>(t, square, row)": "0",
    "y = Conv(x, w, bias)": "023",
    "y = Conv<strides=[2, 3], pads=[1, 0, 2, 1]>(x, w)": "023",
    "y = Conv<dilations=[3, 2], group=2>(x, wg)": "023",
    'y = Conv<auto_pad="SAME_UPPER", strides=[2, 1]>(x, w)': "023",
    'y = Conv<auto_pad="SAME_LOWER", strides=[1, 2]>(x, w)': "023",
    'y = Conv<auto_pad="VALID", strides=[3, 2]>(x, w)': "023",
    'y = Conv<auto_pad="VALID">(x, w)': "023",
    "y = MaxPool<kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 0]>(x)": "0123",
    "y = AveragePool<kernel_shape=[3, 3], strides=[3, 2]>(x)": "0123",
    "y = MaxPool<kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1>(x)": "0123",
    'y = AveragePool<kernel_shape=[1, 1], auto_pad="SAME_UPPER">(x)': "0123",
    "y = ConvTranspose(x, wt)": "023",
    "y = ConvTranspose<strides=[2, 3], pads=[1, 0, 2, 1], output_padding=[1, 0], group=2>(x, wt)": "023",
    "y = ConvTranspose<strides=[1, 2], dilations=[2, 1]>(x, wt)": "023",
    "y = Reshape(x, heads)": "0123",
    "y = Reshape(x, planes)": "013",
    "y = Reshape(x, copied)": "123",
    "t = Transpose<perm=[1, 2, 3, 0]>(x) u = Reshape(t, turned) y = Relu(u)": "123",
    "a = Reshape(x, heads) y = Transpose<perm=[0, 3, 1, 2, 4]>(a)": "0123",
    "a = Reshape(x, heads) y = Reshape(a, regrouped)": "03",
    "a = Reshape(x, whole) y = Relu(a)": "0123",
    "y = Flatten<axis=3>(x)": "23",
    "y = Flatten<axis=4>(x)": "3",
    "f = ReduceMax<axes=[1], keepdims=0>(x) y = Concat<axis=-1>(f, f)": "02",
    "r = Relu(x) y = Concat<axis=1>(x, r)": "023",
    "y = Slice(x, a1, a3)": "123",
    "y = Slice(x, zeros, ends)": "023",
    "y = Slice(x, start, stop, a1v, down)": "02",
    "y = Gather<axis=1>(x, a03)": "023",
    "y = Gather<axis=-1>(x, one)": "012",
    "s = Shape(x) n = Gather(s, zero) c = Gather(s, one) n1 = Unsqueeze(n, zeros1) c1 = Unsqueeze(c, zeros1)"
    " t = Concat<axis=0>(n1, c1, rest) y = Reshape(x, t)": "013",
    "s = Shape<end=3>(x) t = Concat<axis=0>(s, four11) y = Reshape(x, t)": "0123",
    "s = Shape(x) n = Slice(s, zeros1, a1) t = Concat<axis=0>(n, a12, a40, a44) y = Reshape(x, t)": "0123",
    "d = Add(a12, zeros1) t = Concat<axis=0>(d, a40) u = Concat<axis=0>(a6, a12, a40, a44) r = Reshape(x, u)"
    " v = Concat<axis=0>(zeros1, t, rest) y = Reshape(r, v)": "03",
    "t = Concat<axis=0>(a6, a12, a40, a44) r = Reshape(x, t) n = Neg(r) y = Reshape(n, t)": "0123",
    "t = Concat<axis=0>(a6, a12, a40, a44) r = Reshape(x, t) d = Sub(t, t) y = Reshape(r, d)": "",
    "s = Shape(x) c = Slice(s, a1, a2) d = Mul(c, a40) n = Slice(s, zeros1, a1) t = Concat<axis=0>(n, d, a44)"
    " y = Reshape(x, t)": "03",
    "s = Shape(x) y = Reshape(x, s)": "0123",
}
K["m2"] = random(40, 44)
K |= {
    "heads": np.array([6, 12, 40, 4, 11]), "regrouped": np.array([6, 3, 160, 44]),
    "planes": np.array([0, 12, -1]), "copied": np.array([3, 2, 12, 40, -1]),
    "turned": np.array([12, 40, -1, 2, 3]), "whole": np.array([6, 12, 40, 44]), "a3": np.array([3]),
    "down": np.array([-1, 2]), "start": np.array([5, 2]), "stop": np.array([1, 40]), "zeros": np.array([0, 1]),
    "ends": np.array([2**40, 7]), "a1v": np.array([1, 3]), "one": np.array(1), "zero": np.array(0), "a6": np.array([6]),
    "zeros1": np.array([0]), "rest": np.array([-1]), "four11": np.array([4, 11]), "a12": np.array([12]),
    "a40": np.array([40]), "a44": np.array([44]), "a2": np.array([2]),
}  # fmt: skip
NONE = {
    "more outputs": "y, i = MaxPool<kernel_shape=[2, 2]>(x)",
    "no rule": "y = CumSum(x, a1)",
    "training": "y, u, v = BatchNormalization<training_mode=1>(x, gamma, beta, mu, var)",
    "training, of which the statistics are not taken": "y = BatchNormalization<training_mode=1>(x, gamma, beta, mu, var)",
    "a window beyond the data": "y = MaxPool<kernel_shape=[50, 2]>(x)",
    "a window beyond the data, rounded up": "y = MaxPool<kernel_shape=[41, 2], strides=[3, 1], ceil_mode=1>(x)",
    "padding that cuts": "y = MaxPool<kernel_shape=[2, 2], pads=[-1, 0, 0, 0]>(x)",
    "padding that cuts at the end": "y = MaxPool<kernel_shape=[2, 2], pads=[0, 0, 0, -1]>(x)",
    "axes of a run": "s = Shape(x) y = ReduceSum(x, s)",
    "a shape of which a part is not known": "s = Shape(x) q = Sqrt(s) y = Reshape(x, q)",
    "data that are a length": "s = Shape(x) n = Gather(s, one) f = Cast<to=1>(n) y = Mul(x, f)",
    "data that are several": "s = Shape(x) n = Slice(s, a1, a2) u = Unsqueeze(n, a1) f = Cast<to=1>(u) y = Mul(x, f)",
    "places of a run": "s = Shape(x) y = Gather(x, s)",
    "another number of elements": "y = Reshape(x, a12)",
    "a stated output": "y = ConvTranspose<output_shape=[80, 90]>(x, wt)",
    "transposed padding by itself": 'y = ConvTranspose<auto_pad="SAME_UPPER">(x, wt)',
    "axes that nobody states": "y = Squeeze(x)",
    "a vector": "y = MatMul(x, row)",
    "sizes that do not fit": "y = Add(x, m)",
}


def traced(body: str, work: list[list[int]] | None = None):
    """The model of ``body`` at given lengths, the lengths of the axes of x and y, and those when they are shortened.

    ``work`` is filled with the axes whose lengths multiply to what each operator does.
    """
    used = {key: value for key, value in K.items() if re.search(rf"[( ]{key}[,)]", body)}
    model = parse(f"g (float[6, 12, 40, 44] x, bool[6, 12, 40, 44] b) => (float[?] y) {{ {body} }}", used)
    if "(b," not in body:
        del model.graph.input[1]
    axes = Axes(may_split=True)
    fed = {value.name: axes.fed(REAL) for value in model.graph.input}
    region = Region(model)
    one = short_shapes._Traced(region, fed, axes, [] if work is None else work)

    def at(sizes: list[int]) -> onnx.ModelProto:
        return region.restating(one.restated(sizes)).model

    return at, [axes.sizes, *(axes.shortened(further) for further in (0, 3))], fed["x"], one.made["y"]


def shape_of_run(given: onnx.ModelProto, shape: list[int]) -> tuple[int, ...]:
    """The shape of y for data of ``shape``."""
    model = onnx.ModelProto()
    model.CopyFrom(given)
    for value in model.graph.input:
        for axis in range(len(shape)):
            value.type.tensor_type.shape.dim[axis].dim_param = f"d{axis}"
    model.graph.output[0].type.tensor_type.ClearField("shape")
    feeds = {"x": random(*shape), "b": np.ones(shape, bool)}
    session = ort.InferenceSession(model.SerializeToString())
    try:
        return session.run(["y"], {value.name: feeds[value.name] for value in model.graph.input})[0].shape
    except Exception as error:
        if IS_RECENT_RUNTIME:
            raise
        pytest.skip(f"ONNX Runtime before 1.24 does not run it: {str(error)[:80]}")


@pytest.mark.parametrize(("body", "shorter"), BODIES.items(), ids=[re.sub(r"[^\w=, ]", " ", body) for body in BODIES])
def test_axes_are_as_long_as_in_a_run_and_those_that_may_be_are_shorter(body, shorter):
    at, lengths, x, y = traced(body)
    for sizes in lengths:
        given = [sizes[axis] for axis in x]
        assert shape_of_run(at(sizes), given) == tuple(sizes[axis] for axis in y), given
    shortest = [lengths[1][axis] for axis in x]
    assert "".join(str(axis) for axis in range(4) if shortest[axis] < REAL[axis]) == shorter


@pytest.mark.parametrize(
    ("body", "lengths"),
    [
        ("y = MatMul(x, m)", [6, 12, 40, 5, 44]),
        (
            "f = ReduceMax<axes=[1, 2], keepdims=0>(x) t = Transpose(f) y = Gemm<transA=1, transB=1>(t, square, row)",
            [6, 44, 44],
        ),
    ],
    ids=["MatMul", "Gemm"],
)
def test_the_work_of_a_product_is_that_of_its_result_times_what_is_summed(body, lengths):
    work: list[list[int]] = []
    _, (sizes, *_), _, _ = traced(body, work)
    assert lengths in [
        sorted(sizes[axis] for axis in axes) if "Gemm" in body else [sizes[axis] for axis in axes] for axes in work
    ]


@pytest.mark.parametrize("body", NONE.values(), ids=NONE)
def test_where_axes_may_mean_more_nothing_is_shortened(body):
    with pytest.raises(NotShortened):
        traced(body)


def test_a_batch_gets_as_short_as_two_and_other_axes_as_three():
    axes = Axes()
    _, kept, *_ = axes.fed([8, 9, 1, 2])
    axes.keep([kept])
    assert axes.shortened() == [2, 9, 1, 2]


def test_every_other_set_of_axes_stays_a_step_longer():
    axes = Axes()
    axes.fed([8, 8, 8])
    assert axes.shortened() == [2, 4, 3]
