"""Malformed and unusual nodes and inputs at smaller inputs: they end no comparison."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compare.test_smaller_inputs import DOWN, SIZES, WEIGHTS, at_smaller, body, shapes_of
from tests.models import parse, saved
from trtnorm_cli.compare import smaller_inputs
from trtnorm_cli.evaluate.ort_runner import OrtRunner


@pytest.fixture(autouse=True)
def _however_quick(monkeypatch):
    monkeypatch.setattr(smaller_inputs, "_FEW_MULTIPLY_ADDS", 0)


@pytest.mark.parametrize("node", ["Conv<pads=[1, 1]>(a, v)", "Conv<kernel_shape=[3]>(a, v)", "MaxPool<kernel_shape=[2]>(a)"])
def test_nodes_that_are_malformed_keep_their_shapes(node: str):
    text = f"g (float[1, 3, 96, 96] x) => (float y) {{ a = Conv<pads=[1, 1, 1, 1]>(x, w) y = {node} }}"
    assert shapes_of(text, DOWN) is None


@pytest.mark.parametrize(
    "node",
    [
        *("Slice(r, one, one)", "Gather(r, one)", "Gather<axis=9>(x, one)", "Gather(x, nine)", "Pad(x, few)", "Pad(r, one)"),
        *("DepthToSpace<blocksize=0>(x)", "SpaceToDepth<blocksize=0>(x)", "Concat<axis=9>(x, x)", "Transpose<perm=[0]>(x)"),
        *("Transpose<perm=[3, 2, 1, 9]>(x)", "Reshape(r, one)", "ReduceMean<axes=[9]>(x)", "MatMul(r, x)", "Softmax(r)"),
        *('Einsum<equation="">(x)', "MaxPool<kernel_shape=[2, 2], strides=[0, 0]>(x)", "Conv<strides=[0, 0]>(x, w)"),
        *("ConvTranspose<pads=[1]>(x, w)", "Conv(x)", "Mul(x)", "InstanceNormalization(x)", "Where(x)", "Clip(x, one)"),
    ],
)
@pytest.mark.parametrize("reads_it", [True, False])
def test_malformed_nodes_end_no_comparison(node: str, reads_it: bool):
    lines = f"a = Conv<pads=[1, 1, 1, 1]>(x, w) r = ReduceMax<keepdims=0>(x) s = {node} y = Add(a, {'s' if reads_it else 'a'})"
    model = parse(body(lines), DOWN | {"one": np.array([1]), "nine": np.array([9]), "few": np.array([1, 2])}, opset=17)
    found = smaller_inputs.smaller_inputs(model, SIZES)
    assert found is None or smaller_inputs.at_smaller(model, SIZES, found) is not None


@pytest.mark.parametrize(("axes", "ends"), [([2, 3], [95]), ([7], [95]), ([-5], [95])])
def test_a_malformed_crop_is_for_others_to_say(axes: list[int], ends: list[int]):
    weights = WEIGHTS | {"no_axes": np.array(axes), "no_ends": np.array(ends), "no_starts": np.zeros(len(ends), np.int64)}
    assert shapes_of(body("y = Slice(a, no_starts, no_ends, no_axes)"), weights) is None


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_the_ends_of_a_crop_are_of_one_type(tmp_path, dtype: type[np.integer]):
    lines = "a = Conv<pads=[1, 1, 1, 1]>(x, w) s = Slice(a, first, last, axes) y = Conv(s, v)"
    ends = {"first": np.array([1, 1], dtype), "last": np.array([95, 95], dtype), "axes": np.array([2, 3], dtype)}
    found = smaller_inputs.smaller_inputs(parse(body(lines), DOWN | ends), SIZES)
    assert found is not None
    OrtRunner(saved(found.model, tmp_path / "m.onnx")).close()


def test_the_ends_of_no_axes_are_for_others_to_say():
    lines = "r = ReduceMax<keepdims=0>(x) s = Slice(r, none, none) a = Conv(x, w) y = Mul(a, s)"
    assert shapes_of(body(lines), DOWN | {"none": np.array([], np.int64)}) == {"x": (1, 3, 32, 64)}


def test_an_input_of_any_rank_keeps_its_shapes():
    model = parse("g (float[1, 3, 96, 96] x, float z) => (float y, float u) { y = Conv(x, w) u = Relu(z) }", DOWN)
    model.graph.input[1].type.tensor_type.ClearField("shape")
    sizes = SIZES | {"z": (1, 4)}
    assert smaller_inputs.smaller_inputs(model, sizes) is None
    assert at_smaller(model, sizes, sizes) is None
