"""Every operator that passes a scale and shift on: B(op(x)) = op(A(x)), numerically, in both directions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from tests.models import parse
from tests.rewrite.scale_shift.operations import apply, operation
from trtnorm_cli.rewrite.scale_shift.affine import CannotMove, affine, identity
from trtnorm_cli.rewrite.scale_shift.carry import CARRIERS


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@dataclass(frozen=True)
class Case:
    """One node ``text`` that reads a (and b) and writes y (and z). ``shapes`` are those of a and b."""

    text: str
    shapes: tuple[tuple[int, ...], ...]
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    opset: int = 17
    positive: bool = False
    shifted: bool = True
    axes: tuple[int, ...] = (1,)
    outputs: int = 1

    @property
    def graph(self) -> str:
        inputs = ", ".join(f"double[{', '.join(map(str, s))}] {n}" for n, s in zip("ab", self.shapes, strict=False))
        return f"g ({inputs}) => ({', '.join(f'double[] {n}' for n in 'yz'[: self.outputs])}) {{ {self.text} }}"

    def run(self, feeds: list[np.ndarray]) -> list[np.ndarray]:
        model = parse(self.graph, self.weights, opset=self.opset)
        return ReferenceEvaluator(model).run(None, dict(zip("ab", feeds, strict=False)))

    def given(self, shape: tuple[int, ...], seed: int):
        rng = np.random.default_rng(seed)
        sizes = [size if axis in self.axes else 1 for axis, size in enumerate(shape)]
        scale = rng.uniform(0.5, 2, sizes) * (1 if self.positive else rng.choice([-1, 1], sizes))
        return affine(scale, rng.standard_normal(sizes) if self.shifted else np.zeros(sizes))


X4 = ((2, 4, 6, 6),)
FORTH_AND_BACK = {
    "Identity": Case("y = Identity(a)", X4),
    "Dropout": Case("y = Dropout(a)", X4),
    "Dropout outside of training": Case('y = Dropout(a, "", t)', X4, {"t": np.False_}),
    "Transpose": Case("y = Transpose<perm=[0, 2, 3, 1]>(a)", X4),
    "Transpose reversed": Case("y = Transpose(a)", ((2, 4, 3),)),
    "Reshape keeps": Case("y = Reshape(a, s)", X4, {"s": i64(0, 4, -1)}),
    "Reshape splits": Case("y = Reshape(a, s)", X4, {"s": i64(2, 2, 2, 6, 6)}),
    "Flatten": Case("y = Flatten(a)", ((2, 4, 3, 2),)),
    "Flatten tokens": Case("y = Flatten<axis=2>(a)", ((2, 3, 4),), axes=(2,)),
    "Squeeze": Case("y = Squeeze(a, s)", ((2, 4, 1, 3),), {"s": i64(2)}),
    "Squeeze all": Case("y = Squeeze(a)", ((2, 4, 1, 3),)),
    "Squeeze attribute": Case("y = Squeeze<axes=[-2]>(a)", ((2, 4, 1, 3),), opset=11),
    "Unsqueeze": Case("y = Unsqueeze(a, s)", ((2, 4, 3),), {"s": i64(0, -1)}),
    "DepthToSpace CRD, blocks alike": Case('y = DepthToSpace<blocksize=2, mode="CRD">(a)', ((2, 8, 3, 3),), axes=()),
    "Slice of the plane": Case("y = Slice(a, s, e, d)", X4, {"s": i64(1), "e": i64(5), "d": i64(2)}),
    "Slice attribute": Case("y = Slice<starts=[1], ends=[5], axes=[2]>(a)", X4, opset=9),
    "Gather of the plane": Case("y = Gather<axis=2>(a, s)", X4, {"s": i64(3, 0, 3)}),
    "Gather permutes channels": Case("y = Gather<axis=1>(a, s)", X4, {"s": i64(3, 0, -2, 1)}),
    "AveragePool": Case("y = AveragePool<kernel_shape=[2, 2], strides=[2, 2]>(a)", X4),
    "AveragePool padded": Case("y = AveragePool<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(a)", X4),
    "GlobalAveragePool": Case("y = GlobalAveragePool(a)", X4),
    "MaxPool": Case("y = MaxPool<kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]>(a)", X4, positive=True),
    "GlobalMaxPool": Case("y = GlobalMaxPool(a)", X4, positive=True),
    "ReduceMean": Case("y = ReduceMean<axes=[-1, 2]>(a)", X4),
    "ReduceMean without keeping": Case("y = ReduceMean<axes=[2, 3], keepdims=0>(a)", X4),
    "ReduceMean in front": Case("y = ReduceMean<axes=[0], keepdims=0>(a)", X4),
    "ReduceMean input": Case("y = ReduceMean<keepdims=0>(a, s)", X4, {"s": i64(2, 3)}, opset=18),
    "ReduceMean of nothing": Case("y = ReduceMean<noop_with_empty_axes=1>(a)", X4, opset=18),
    "ReduceMax": Case("y = ReduceMax<axes=[2, 3]>(a)", X4, positive=True),
    "Resize nearest": Case('y = Resize<mode="nearest">(a, "", s)', X4, {"s": np.array([1, 1, 2, 2], np.float32)}),
    "Resize linear": Case('y = Resize<mode="linear">(a, "", "", s)', X4, {"s": i64(2, 4, 9, 4)}),
    "Pad with zeros": Case("y = Pad(a, s)", X4, {"s": i64(0, 0, 1, 1, 0, 0, 2, 0)}, shifted=False),
    "Pad reflecting": Case('y = Pad<mode="reflect">(a, s)', X4, {"s": i64(0, 0, 1, 1, 0, 0, 2, 0)}),
    "Pad some axes": Case('y = Pad<mode="edge">(a, s, "", d)', X4, {"s": i64(1, 2), "d": i64(-1)}, opset=18),
    "Pad nothing": Case("y = Pad(a, s)", X4, {"s": i64(*[0] * 8)}),
    "Relu": Case("y = Relu(a)", X4, positive=True, shifted=False),
    "LeakyRelu": Case("y = LeakyRelu<alpha=0.1>(a)", X4, positive=True, shifted=False),
    "PRelu": Case("y = PRelu(a, s)", X4, {"s": np.full((4, 1, 1), -0.3)}, positive=True, shifted=False),
    "Neg": Case("y = Neg(a)", X4),
}  # fmt: skip
BACK = {
    "DepthToSpace DCR": Case("y = DepthToSpace<blocksize=2>(a)", ((2, 12, 3, 3),)),
    "DepthToSpace CRD": Case('y = DepthToSpace<blocksize=2, mode="CRD">(a)', ((2, 12, 3, 3),)),
    "Concat": Case("y = Concat<axis=1>(a, b)", ((2, 4, 3), (2, 2, 3))),
    "Concat of another axis": Case("y = Concat<axis=-1>(a, b)", ((2, 4, 3), (2, 4, 2))),
    "Split": Case("y, z = Split<axis=1>(a, s)", ((2, 6, 3),), {"s": i64(4, 2)}, outputs=2),
    "Split of another axis": Case("y, z = Split<axis=2>(a)", ((2, 6, 4),), outputs=2, axes=()),
    "Slice of channels": Case("y = Slice(a, s, e, d)", X4, {"s": i64(1), "e": i64(3), "d": i64(1)}),
    "Slice backwards": Case("y = Slice(a, s, e, d, t)", X4, {"s": i64(-1), "e": i64(-9), "d": i64(1), "t": i64(-2)}),
    "Gather of channels": Case("y = Gather<axis=1>(a, s)", X4, {"s": i64(3, 0)}),
    "Add": Case("y = Add(a, b)", ((2, 4, 3), (2, 4, 3))),
    "Add broadcasts": Case("y = Add(a, b)", ((2, 4, 3), (4, 1))),
    "Add broadcasts the first": Case("y = Add(a, b)", ((4, 1), (2, 4, 3))),
    "Sub": Case("y = Sub(a, b)", ((2, 4, 3), (2, 4, 3))),
    "Sum": Case("y = Sum(a, b)", ((2, 4, 3), (2, 4, 3))),
}  # fmt: skip
FORTH = {
    "SpaceToDepth": Case("y = SpaceToDepth<blocksize=2>(a)", X4),
    "Concat": Case("y = Concat<axis=1>(a, b)", ((2, 4, 3), (2, 2, 3))),
    "Slice of channels": Case("y = Slice(a, s, e, d)", X4, {"s": i64(1), "e": i64(3), "d": i64(1)}),
    "Gather of channels, repeated": Case("y = Gather<axis=1>(a, s)", X4, {"s": i64(3, 0, 3)}),
    "Split": Case("y, z = Split<axis=1>(a, s)", ((2, 6, 3),), {"s": i64(4, 2)}, outputs=2),
}  # fmt: skip


def feeds_of(case: Case) -> list[np.ndarray]:
    return [np.random.default_rng(i).standard_normal(shape) for i, shape in enumerate(case.shapes)]


@pytest.mark.parametrize("case", [*FORTH_AND_BACK.values(), *FORTH.values()], ids=[*FORTH_AND_BACK, *FORTH])
def test_forth(case):
    op, feeds = operation(case.graph, case.weights, opset=case.opset), feeds_of(case)
    given = {0: case.given(case.shapes[0], 1)}
    passed = CARRIERS[op.op].forth(op, given)
    wanted = case.run([apply(given[0], feeds[0]), *feeds[1:]])
    for index, output in enumerate(case.run(feeds)):
        np.testing.assert_allclose(apply(passed.get(index, identity(output.ndim)), output), wanted[index], atol=1e-13)


WAYS_BACK = [(name, output) for name, case in {**FORTH_AND_BACK, **BACK}.items() for output in range(case.outputs)]


@pytest.mark.parametrize(("name", "asked_of"), WAYS_BACK)
def test_back(name, asked_of):
    case = {**FORTH_AND_BACK, **BACK}[name]
    op, feeds = operation(case.graph, case.weights, opset=case.opset), feeds_of(case)
    outputs = case.run(feeds)
    asked = {asked_of: _along_what_the_case_varies(case, op, outputs[asked_of])}
    passed = CARRIERS[op.op].back(op, asked)
    wanted = [apply(asked.get(i, identity(output.ndim)), output) for i, output in enumerate(outputs)]
    got = case.run([apply(passed.get(i, identity(feed.ndim)), feed) for i, feed in enumerate(feeds)])
    for expected, result in zip(wanted, got, strict=True):
        np.testing.assert_allclose(result, expected, atol=1e-13)


def _along_what_the_case_varies(case: Case, op, output: np.ndarray):
    """A demand on the output. Where the channels end up elsewhere, it is what a scale and shift of the input comes to."""
    if op.op in ("Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "ReduceMean") and case.axes:
        return CARRIERS[op.op].forth(op, {0: case.given(case.shapes[0], 1)})[0]
    return case.given(output.shape, 1)


ASKS = {
    "cubic Resize": (Case('y = Resize<mode="cubic">(a, "", s)', X4, {"s": np.array([1, 1, 2, 2], np.float32)}), "is cubic"),
    "training Dropout": (Case('y = Dropout(a, "", t)', X4, {"t": np.True_}), "training_mode=True"),
    "padding counts": (
        Case("y = AveragePool<kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1>(a)", X4),
        "averages over zeros that it pads",
    ),
    "ceil_mode": (Case("y = AveragePool<kernel_shape=[4, 4], strides=[3, 3], ceil_mode=1>(a)", X4), "ceil_mode=1"),
    "negative scale at a maximum": (Case("y = GlobalMaxPool(a)", X4), "is GlobalMaxPool, and a scale is negative (-"),
    "shift at a rectifier": (Case("y = Relu(a)", X4, positive=True), "a shift does not go through Relu -> y"),
    "negative scale at a rectifier": (Case("y = Relu(a)", X4, shifted=False), "a scale is negative"),
    "zero padding and a shift": (Case("y = Pad(a, s)", X4, {"s": i64(0, 0, 1, 1, 0, 0, 2, 0)}), "pads with 0"),
    "padding of channels": (
        Case("y = Pad(a, s)", X4, {"s": i64(0, 1, 0, 0, 0, 0, 0, 0)}),
        "pads axis 1, along which scale and shift differ",
    ),
    "resized channels": (
        Case('y = Resize<mode="nearest">(a, "", s)', X4, {"s": np.array([1, 2, 1, 1], np.float32)}),
        "resizes axis 1",
    ),
    "cropping Resize": (
        Case(
            'y = Resize<mode="linear", coordinate_transformation_mode="tf_crop_and_resize">(a, r, s)',
            X4,
            {"r": np.array([0, 0, 0, 0, 1, 1, 1, 1], np.float32), "s": np.array([1, 1, 2, 2], np.float32)},
        ),
        "fills in a constant",
    ),
    "reduced channels": (Case("y = ReduceMean<axes=[1]>(a)", X4), "reduces axis 1, along which scale and shift differ"),
    "pooled channels of a plane": (Case("y = GlobalAveragePool(a)", X4, axes=(2,)), "differ along axis 2"),
    "rows of blocks": (Case("y = DepthToSpace<blocksize=2>(a)", ((2, 8, 3, 3),), axes=(2,)), "differ along axis 2"),
    "columns of what becomes blocks": (
        Case("y = SpaceToDepth<blocksize=2>(a)", ((2, 8, 4, 4),), axes=(3,)),
        "differ along axis 3",
    ),
    "different blocks": (
        Case('y = DepthToSpace<blocksize=2, mode="CRD">(a)', ((2, 8, 3, 3),)),
        "puts channels with different scales and shifts into one",
    ),
    "indices are a table": (Case("y = Gather<axis=1>(a, s)", X4, {"s": i64(1, 2).reshape(1, 2)}), "are no list"),
    "sum": (Case("y = Add(a, b)", ((2, 4, 3), (2, 4, 3))), "adds another tensor"),
}


@pytest.mark.parametrize(("case", "reason"), ASKS.values(), ids=ASKS)
def test_refuses_forth(case, reason):
    op = operation(case.graph, case.weights, opset=case.opset)
    with pytest.raises(CannotMove) as caught:
        CARRIERS[op.op].forth(op, {0: case.given(case.shapes[0], 1)})
    assert reason in str(caught.value)


BACKWARDS = {
    "space to depth with different channels": (
        Case("y = SpaceToDepth<blocksize=2>(a)", X4),
        (1, 16, 1, 1),
        "puts channels with different scales and shifts into one",
    ),
    "a channel selected twice": (
        Case("y = Gather<axis=1>(a, s)", X4, {"s": i64(3, 0, 3)}),
        (1, 3, 1, 1),
        "selects an element of axis 1 more than once",
    ),
    "a summand that is one value": (
        Case("y = Add(a, b)", ((2, 4, 3), (2, 1, 3))),
        (1, 4, 1),
        "input 1 of Add -> y has not 4 values along axis 1 to be scaled",
    ),
    "a Concat of other sizes": (
        Case("y = Concat<axis=1>(a, b)", ((2, 4, 3), (2, 2, 3))),
        (1, 5, 1),
        "there are 5 values for scale and shift, but the parts of Concat -> y have 6 channels",
    ),
}


@pytest.mark.parametrize(("case", "shape", "reason"), BACKWARDS.values(), ids=BACKWARDS)
def test_refuses_back(case, shape, reason):
    op = operation(case.graph, case.weights, opset=case.opset)
    asked = affine(np.arange(np.prod(shape)).reshape(shape) + 1.0, np.ones(shape))
    with pytest.raises(CannotMove) as caught:
        CARRIERS[op.op].back(op, {0: asked})
    assert reason in str(caught.value)


def test_what_is_the_same_along_the_axis_is_that_of_each_part():
    op = operation("g (double[N, 4, 3] a) => (double[] y) { y, z = Split<axis=1>(a, parts) }", {"parts": i64(1, 3)}, node=0)
    given = affine(np.arange(3.0).reshape(1, 1, 3) + 1, np.zeros((1, 1, 3)))
    assert CARRIERS["Split"].forth(op, {0: given}) == {0: given, 1: given}


def test_other_values_than_the_axis_has_elements():
    given = affine(np.arange(3.0).reshape(1, 3, 1) + 1, np.zeros((1, 3, 1)))
    op = operation("g (double[N, 4, 2] a) => (double[] y) { y = Gather<axis=1>(a, places) }", {"places": i64(2, 0)})
    with pytest.raises(CannotMove, match="there are 3 values for the 4 elements of axis 1 of Gather -> y"):
        CARRIERS["Gather"].forth(op, {0: given})
    op = operation("g (double[N, 4, 2] a, double[N, 2, 2] b) => (double[] y) { y = Concat<axis=1>(a, b) }")
    with pytest.raises(CannotMove, match="there are 3 values for scale and shift of a part with 4 channels"):
        CARRIERS["Concat"].forth(op, {0: given, 1: affine(np.ones((1, 2, 1)), np.ones((1, 2, 1)))})


def test_a_part_of_an_axis_of_unknown_size():
    op = operation("g (double[N, C, 2] a) => (double[] y) { y = Gather<axis=1>(a, places) }", {"places": i64(2, 0)})
    given = affine(np.arange(3.0).reshape(1, 3, 1) + 1, np.zeros((1, 3, 1)))
    with pytest.raises(CannotMove, match="the size of axis 1 of Gather -> y is not known"):
        CARRIERS["Gather"].forth(op, {0: given})


def test_unknown_sizes_of_the_parts_are_not_guessed():
    op = operation("g (double[N, A, 3] a, double[N, B, 3] b) => (double[] y) { y = Concat<axis=1>(a, b) }")
    asked = affine(np.arange(6.0).reshape(1, 6, 1) + 1, np.zeros((1, 6, 1)))
    with pytest.raises(CannotMove, match="the sizes of the parts of Concat -> y are not known"):
        CARRIERS["Concat"].back(op, {0: asked})


def test_dynamic_shapes_keep_the_channels():
    op = operation("g (double[N, 4, ?, ?] a) => (double[] y) { y = Reshape(a, s) }", {"s": i64(0, 4, -1)})
    asked = affine(np.arange(4.0).reshape(1, 4, 1) + 1, np.zeros((1, 4, 1)))
    assert CARRIERS["Reshape"].back(op, {0: asked})[0].shape == (1, 4, 1, 1)


COMPUTED = (
    "n = Shape<start=0, end=1>(a) h = Shape<start=2, end=3>(a) w = Shape<start=3, end=4>(a)"
    " s = Concat<axis=0>(n, two, h, w) y = Reshape<allowzero=1>(a, s)"
)


@pytest.mark.parametrize("sizes", ["N, 4, H, W", "?, 4, ?, ?"])
def test_a_shape_made_from_the_sizes_of_a_tensor(sizes):
    op = operation(f"g (double[{sizes}] a) => (double[] y) {{ {COMPUTED} }}", {"two": i64(2, 2)}, opset=18)
    op.match.types.pop("y")
    asked = affine(np.arange(4.0).reshape(1, 2, 2, 1, 1) + 1, np.zeros((1, 2, 2, 1, 1)))
    assert CARRIERS["Reshape"].back(op, {0: asked})[0].shape == (1, 4, 1, 1)


def test_a_shape_made_from_the_sizes_of_a_tensor_of_any_rank_is_not_guessed():
    body = COMPUTED.replace("(a) h", "(u) h")
    op = operation(f"g (double[N, 4, H, W] a, double[P, Q] u) => (double[] y) {{ {body} }}", {"two": i64(2, 2)}, opset=18)
    op.match.types.pop("y")
    op.match.types["u"] = replace(op.match.types["u"], shape=None)
    asked = affine(np.arange(4.0).reshape(1, 2, 2, 1, 1) + 1, np.zeros((1, 2, 2, 1, 1)))
    with pytest.raises(CannotMove):
        CARRIERS["Reshape"].back(op, {0: asked})


def test_every_operator_is_tested():
    cases = [*FORTH_AND_BACK.values(), *BACK.values(), *FORTH.values(), *(case for case, *_ in ASKS.values())]
    tested = {node.op_type for case in cases for node in parse(case.graph, opset=case.opset).graph.node}
    assert set(CARRIERS) - {"Upsample"} <= tested


def test_upsample_of_opset_9():
    scales = {"s": np.array([1, 1, 2, 2], np.float32)}
    op = operation("g (float[2, 4, 3, 3] a) => (float[] y) { y = Upsample(a, s) }", scales, opset=9)
    given = affine(np.arange(4.0).reshape(1, 4, 1, 1) + 1, np.ones((1, 4, 1, 1)))
    assert CARRIERS["Upsample"].back(op, {0: given})[0] is given
