"""The sizes at which a model does the same as at its own; where anything is in doubt, there are none."""

from __future__ import annotations

import time

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.models import parse, random
from trtnorm_cli.compare import position_numbers, sized_tensors, smaller_inputs
from trtnorm_cli.evaluate.model_file import resized
from trtnorm_cli.evaluate.ort_runner import OrtRunner

SIZES = {"x": (1, 3, 96, 96)}
SMALLER = {"x": (1, 3, 32, 64)}
DOWN = {"w": random(4, 3, 3, 3), "v": random(4, 4, 3, 3, seed=1)}
PLAIN = """g (float[1, 3, 96, 96] x) => (float[1, 4] y) {
    a = Conv<strides=[2, 2], pads=[1, 1, 1, 1]>(x, w)
    r = Relu(a)
    b = Conv<strides=[2, 2], pads=[1, 1, 1, 1]>(r, v)
    c = GlobalAveragePool(b)
    y = Flatten(c)
}"""


@pytest.fixture(autouse=True)
def _however_quick(monkeypatch):
    monkeypatch.setattr(smaller_inputs, "_FEW_MULTIPLY_ADDS", 0)


def shapes_of(text: str, weights: dict[str, np.ndarray], sizes: dict[str, tuple[int, ...]] = SIZES, **how: int):
    found = smaller_inputs.smaller_inputs(parse(text, weights, **how), sizes)
    return None if found is None else dict(found.shapes)


def at_smaller(model: onnx.ModelProto, sizes: dict[str, tuple[int, ...]], smaller: dict[str, tuple[int, ...]]):
    return smaller_inputs.at_smaller(model, sizes, smaller_inputs.Smaller(smaller, model, position_numbers.PositionNumbers(())))


def test_convolutions_do_the_same_at_fewer_positions():
    assert shapes_of(PLAIN, DOWN) == {"x": (1, 3, 32, 64)}


@pytest.mark.parametrize(
    ("own", "smaller"),
    [((96, 96), (32, 64)), ((64, 64), (32, 32)), ((64, 96), (32, 64)), ((64, 128), (32, 64)), ((32, 64), None)],
)
def test_height_and_width_are_equal_only_where_they_have_to_be(own: tuple[int, int], smaller: tuple[int, int] | None):
    """One that is a step longer shows what was swapped. At 64 x 64 it would leave half of the work."""
    sizes = {"x": (1, 3, *own)}
    text = PLAIN.replace("float[1, 3, 96, 96]", f"float[1, 3, {own[0]}, {own[1]}]")
    assert shapes_of(text, DOWN, sizes) == (None if smaller is None else {"x": (1, 3, *smaller)})


@pytest.mark.parametrize(
    ("own", "wanted"),
    [
        (224, [(32, 64), (64, 96), (64, 128), (96, 128), (96, 160), (128, 160)]),
        (160, [(32, 64), (64, 96), (64, 128), (96, 96)]),
        (144, [(48, 80), (80, 112)]),
    ],
)
def test_an_image_within_one_that_was_too_small_is_not_looked_at(monkeypatch, own: int, wanted: list[tuple[int, int]]):
    looked_at = []
    monkeypatch.setattr(smaller_inputs, "is_large_enough", lambda own, other, *_: looked_at.append(other.shape("x")[2:]))
    assert shapes_of(PLAIN.replace("96, 96", f"{own}, {own}"), DOWN, {"x": (1, 3, own, own)}) is None
    assert looked_at == wanted


def test_quick_models_are_left_as_they_are(monkeypatch):
    monkeypatch.setattr(smaller_inputs, "_FEW_MULTIPLY_ADDS", 1 << 20)
    assert shapes_of(PLAIN, DOWN) is None
    monkeypatch.setattr(smaller_inputs, "_FEW_MULTIPLY_ADDS", 1 << 17)
    assert shapes_of(PLAIN, DOWN) is not None


@pytest.mark.parametrize("place", ["a node", "worked out"])
def test_weights_are_not_only_in_initializers(monkeypatch, place: str):
    """Paddle's exporter writes all of them into Constant nodes."""
    model = parse(PLAIN, DOWN)
    weights = list(model.graph.initializer)
    del model.graph.initializer[:]
    made = [onnx.helper.make_node("Constant", [], [tensor.name], value=tensor) for tensor in weights]
    if place == "worked out":
        made += [onnx.helper.make_node("Identity", [node.output[0]], [f"{node.output[0]}2"]) for node in made]
        for node in model.graph.node:
            node.input[1:] = [f"{name}2" for name in node.input[1:]]
    made += model.graph.node
    del model.graph.node[:]
    model.graph.node.extend(made)
    for few, found in ((1 << 17, True), (1 << 20, False)):
        monkeypatch.setattr(smaller_inputs, "_FEW_MULTIPLY_ADDS", few)
        assert (smaller_inputs.smaller_inputs(model, SIZES) is not None) is found


def body(lines: str, shape: str = "1, 3, 96, 96") -> str:
    return f"g (float[{shape}] x) => (float y) {{ a = Conv<pads=[1, 1, 1, 1]>(x, w) {lines} }}"


# All places along the third axis in order, and with the first repeated twice before and the last once after them.
RANGE = "s = Shape<start=2, end=3>(a) n = Squeeze(s) r = Range(zero, n, one)"
PADDED = "n3 = Add(n, three) r3 = Range(zero, n3, one) d = Sub(r3, two0) b = Max(d, zero) l = Sub(n, one) g = Min(b, l)"


# What a node does after a convolution with four channels at all positions.
@pytest.mark.parametrize(
    "lines",
    [
        "y = Relu(a)",
        "y = CastLike(a, two)",
        "y = Concat<axis=1>(a, a)",
        "p, q = Split<axis=1>(a, two) y = Add(p, q)",
        "y = InstanceNormalization(a, four, four)",
        "y = ReduceMean<axes=[2, 3]>(a)",
        "y = MaxPool<kernel_shape=[2, 2], strides=[2, 2]>(a)",
        "y = Resize<mode='nearest'>(a, , twice)".replace("'", '"'),
        "y = Resize<mode='linear'>(a, , , sizes)".replace("'", '"'),
        "c = Slice(x, i0, i1, i1) e = Expand(c, whole) y = Add(a, e)",
        "p = GlobalAveragePool(a) e = Expand(p, whole) y = Add(a, e)",
        # What a mean over all positions is spread over again.
        "p = GlobalAveragePool(a) e = Resize<mode='linear'>(p, , , whole) y = Concat<axis=1>(a, e)".replace("'", '"'),
        "s = Shape(a) n = Gather(s, i0) k = Concat<axis=0>(n, minus1) y = Reshape(a, k)",
        "y = Slice(a, i0, i2, i1)",
        "y = Pad(a, pads)",
        "y = Gather<axis=1>(a, two)",
        "y = Einsum<equation='nchw,ndhw->ncd'>(a, a)".replace("'", '"'),
        # As many places at one end, whichever, or all but as many.
        "y = Concat<axis=3>(a, a)",
        "y = Gather<axis=2>(a, two)",
        "y = Gather<axis=2>(a, minus1)",
        "y = Slice(a, i0, i1, axis2)",
        "y = Slice(a, minus2, minus1, axis2)",
        "y = Slice(a, i1, far, axis2)",
        "y = Slice(a, i1, i96, axis2)",
        # Numbers for each position.
        "y = Mul(a, strides)",
        "y = Mul(strides, a)",
        "y = Div(a, strides)",
        "b = Sub(coordinates, a) y = Mul(b, strides)",
        # A rotation by an angle of its own for each position.
        "n = Neg(a) c = Mul(a, cosine) s = Mul(sine, n) y = Add(s, c)",
        "n = Neg(a) c = Mul(a, cosine) s = Mul(n, sine) y = Sub(c, s)",
        "y = Add(a, table)",
        "u = Unsqueeze(table, zeros_ones) y = Concat<axis=1>(a, u)",
        "u = Unsqueeze(table, zeros_ones) y = Concat<axis=-3>(u, a, u)",
        "y = Sub(table, a)",
        "t = Transpose<perm=[1, 0]>(table) u = Unsqueeze(t, i0) y = Add(a, u)",
        "f = Reshape(a, merged) t = Transpose<perm=[0, 2, 1]>(f) c = Concat<axis=1>(class, t) y = Add(c, embedding)",
        f"{RANGE} y = Gather<axis=2>(a, r)",
        f"{RANGE} {PADDED} y = Gather<axis=2>(a, g)",
        "f = Reshape(a, rows) m = ReduceMean<axes=[2]>(f) y = Sub(f, m)",
        "y = Reshape(a, halves)",
        # All positions in a row, and heads of what is known of each.
        "f = Reshape(a, merged) t = Transpose<perm=[0, 2, 1]>(f) u = MatMul(t, six) k = Reshape(u, heads) y = Relu(k)",
        "t = Transpose<perm=[0, 2, 3, 1]>(a) u = MatMul(t, square) y = Transpose<perm=[0, 3, 1, 2]>(u)",
    ],
)
def test_what_does_not_know_its_position_does_the_same(lines: str):
    assert shapes_of(body(lines), WEIGHTS) == {"x": (1, 3, 32, 64)}


BETWEEN = np.arange(96)[:, None] % 3 == 1
ANGLES = np.arange(96 * 96, dtype=np.float32).reshape(96, 96) / 7
WEIGHTS = {
    "w": random(4, 3, 3, 3),
    "two": np.array([2, 2]),
    "four": random(4),
    "twice": np.array([1, 1, 2, 2], np.float32),
    "zero": np.array(0),
    "one": np.array(1),
    "two0": np.array(2),
    "three": np.array(3),
    "i0": np.array([0]),
    "i1": np.array([1]),
    "i2": np.array([2]),
    "minus1": np.array([-1]),
    "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
    "rows": np.array([0, 4, -1]),
    "square": random(4, 5),
    "table": random(96, 96),
    "sizes": np.array([1, 4, 192, 192]),
    "uneven": np.array([1, 4, 127, 127]),
    "whole": np.array([1, 4, 96, 96]),
    "plane": np.array([192, 192]),
    "halves": np.array([1, 4, 48, 2, 48, 2]),
    "windows": np.array([1, 4, 8, 12, 8, 12]),
    "axis2": np.array([2]),
    "i95": np.array([95]),
    "half": np.array([48, 48]),
    "wide": random(96, 8),
    "merged": np.array([1, 4, 96 * 96]),
    "six": random(4, 6),
    "heads": np.array([1, 96 * 96, 2, 3]),
    "minus2": np.array([-2]),
    "far": np.array([2**63 - 1]),
    "i96": np.array([96]),
    "longer": random(1, 97),
    "mask": np.where(random(96, 96) > 0, -1e9, 0).astype(np.float32),
    "closed": np.where(random(96, 96) > 0, -np.inf, 0).astype(np.float32),
    "last": np.where(np.arange(96)[:, None] < 95, 0, random(96, 96)).astype(np.float32),
    "between": np.where(np.arange(96)[:, None] % 3 == 0, 0, random(96, 96)).astype(np.float32),
    "strides": np.repeat(np.float32([8, 16, 32]), 32)[:, None] * np.ones((1, 96), np.float32),
    "masked": (np.abs(random(96, 96)) + 1) * (np.arange(96) >= 20).astype(np.float32),
    "huge": np.where(np.arange(96) == 50, 1e6, np.abs(random(96, 96)) + 1).astype(np.float32),
    "swin": np.where(random(96, 96) > 0, -100, 0).astype(np.float32),
    "coordinates": np.arange(96 * 96, dtype=np.float32).reshape(96, 96) / 100 + 0.5,
    "muted": (-31 + np.where(np.arange(96) == 50, 31, random(96, 96) / 9)).astype(np.float32),
    "far_away": np.arange(96 * 96, dtype=np.float32).reshape(96, 96) / 100 + 40,
    "zeros": np.array([0, 0]),
    "below": random(1, 4, 5, 96),
    "zeros_ones": np.array([0, 1]),
    "whole_plane": np.array([1, 1, 96, 96]),
    "is_left": random(96, 96) > 0,
    "class": random(1, 1, 4),
    "embedding": random(1, 96 * 96 + 1, 4),
    "sine": np.sin(ANGLES),
    "shown": np.where(BETWEEN, np.cos(ANGLES / 50) + 2, ANGLES / 1e7).astype(np.float32),
    "hidden": np.where(BETWEEN, ANGLES / 1e7, np.cos(ANGLES / 50) + 2).astype(np.float32),
    "cosine": np.cos(ANGLES),
    "waves": np.sin(np.arange(96, dtype=np.float32))[None],
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "lines",
    [
        "y = Resize<mode='nearest'>(a, , , uneven)".replace("'", '"'),  # 32 and 64 positions would become 42.3 and 84.7
        "y = Reshape(a, windows)",  # of 12, or 12 of them
        "p, q = Split<axis=2>(a, half) y = Add(p, q)",
        "y = MatMul(a, wide)",
        "y = Einsum<equation='nchw,hk->nckw'>(a, wide)".replace("'", '"'),
        "y = CumSum(a, i1)",
        "y = Gather<axis=2>(a, i95)",  # no such place is left
        "y = Slice(a, i0, i95, axis2, two)",
        "b = Add(a, table) y = MatMul(b, wide)",
        "y = Add(a, longer)",
        # What is read beside the numbers has the size of the file.
        "p = GlobalAveragePool(a) t = Tile(p, whole_plane) y = Where(is_left, a, t)",
        # What the numbers that are taken may keep from what follows, or do not show.
        "y = Mul(table, a)",
        "b = Relu(a) y = Where(is_left, a, b)",
        "y = Add(a, mask)",
        "y = Add(a, closed)",
        "y = Add(a, swin)",
        "y = Sub(far_away, a)",
        "y = Add(a, muted)",
        "y = Add(a, last)",
        "y = Mul(a, between)",
        "y = Mul(a, masked)",
        "y = Concat<axis=2>(a, below)",  # an image, and not its channels
        "u = Unsqueeze(mask, zeros_ones) y = Concat<axis=1>(a, u)",
        "y = Mul(a, sine)",
        "c = Mul(a, cosine) s = Mul(a, sine) y = Mul(c, s)",
        "c = Mul(a, cosine) s = Mul(a, sine) y = Add(s, c) n = Neg(s)",
        "c = Mul(a, cosine) s = Add(a, sine) y = Add(s, c)",
        "c = Mul(a, sine) s = Mul(a, sine) y = Add(s, c)",
        "c = Mul(a, cosine) s = Mul(a, waves) y = Add(s, c)",
        "y = Mul(huge, a)",
        "y = Div(a, huge)",
        "y = Div(strides, a)",
        "b = Add(a, strides) y = Mul(b, masked)",
        f"{RANGE} b = Sub(n, r) p = Sub(b, one) y = Gather<axis=2>(a, p)",  # from the last to the first
        f"{RANGE} h = Div(r, two0) y = Gather<axis=2>(a, h)",
        f"{RANGE} l = Sub(n, one) c = Range(zero, l, one) y = Gather<axis=2>(a, c)",  # all but the last
        f"{RANGE} t = Add(n, n) q = Range(zero, t, one) l = Sub(n, one) p = Min(q, l) y = Gather<axis=2>(a, p)",
    ],
)
def test_what_may_know_its_position_keeps_its_shapes(lines: str):
    assert shapes_of(body(lines), WEIGHTS) is None


def test_flattening_positions_into_a_product_keeps_its_shapes():
    lines = "g = Flatten(a) y = MatMul(g, large)"
    assert shapes_of(body(lines), WEIGHTS | {"large": random(4 * 96 * 96, 2)}) is None


def test_every_place_of_a_kernel_reaches_the_data():
    # At 32 x 64, two positions by four are left. A kernel of five reaches two places over either border, and needs three.
    text = """g (float[1, 3, 224, 224] x) => (float y) {
        a = Conv<strides=[16, 16], pads=[1, 1, 1, 1]>(x, w) y = Conv<pads=[PADS, PADS, PADS, PADS]>(a, k)
    }"""
    sizes = {"x": (1, 3, 224, 224)}
    three, five = DOWN | {"k": random(4, 4, 3, 3)}, DOWN | {"k": random(4, 4, 5, 5)}
    assert shapes_of(text.replace("PADS", "1"), three, sizes) == {"x": (1, 3, 32, 64)}
    assert shapes_of(text.replace("PADS", "2"), five, sizes) == {"x": (1, 3, 64, 96)}


def test_images_that_belong_together_get_the_same_size():
    text = """g (float[1, 3, 96, 96] x, float[1, 3, 96, 96] z, float[1, 7] k) => (float y, float u) {
        a = Conv<pads=[1, 1, 1, 1]>(x, w) b = Conv<pads=[1, 1, 1, 1]>(z, w) y = Sub(a, b) u = Relu(k)
    }"""
    sizes = {"x": (1, 3, 96, 96), "z": (1, 3, 96, 96), "k": (1, 7)}
    assert shapes_of(text, DOWN, sizes) == {"x": (1, 3, 32, 64), "z": (1, 3, 32, 64), "k": (1, 7)}


def test_channels_that_come_last_are_no_positions():
    text = """g (float[1, 96, 96, 3] x) => (float y) {
        t = Transpose<perm=[0, 3, 1, 2]>(x) y = Conv<pads=[1, 1, 1, 1]>(t, w)
    }"""
    assert shapes_of(text, DOWN, {"x": (1, 96, 96, 3)}) == {"x": (1, 32, 64, 3)}


def test_graphs_within_nodes_keep_their_shapes():
    text = """g (float[1, 3, 96, 96] x, bool c) => (float y) {
        a = Conv<pads=[1, 1, 1, 1]>(x, w)
        y = If(c) <then_branch = t () => (float p) { p = Relu(a) }, else_branch = e () => (float q) { q = Neg(a) }>
    }"""
    assert shapes_of(text, DOWN, {"x": (1, 3, 96, 96), "c": ()}) is None


RESTORED = """g (float[1, 3, 96, 96] x) => (float[1, 4, 96, 96] y) {
    a = Conv<pads=[1, 1, 1, 1]>(x, w)
    f = Reshape(a, rows)
    m = ReduceMean<axes=[2]>(f)
    d = Sub(f, m)
    y = Reshape(d, restored)
}"""


def test_sizes_that_are_written_as_numbers_are_those_of_the_tensor_that_is_restored():
    model = parse(RESTORED, WEIGHTS | {"restored": np.array([0, 4, 96, 96])})
    there = at_smaller(model, SIZES, {"x": (1, 3, 32, 64)})
    assert there is not None
    target = next(node for node in there.graph.node if node.output[0] == "y").input[1]
    values = {tensor.name: numpy_helper.to_array(tensor).tolist() for tensor in there.graph.initializer}
    assert values[target] == [1, 4, 32, 64]
    assert values["restored"] == [0, 4, 96, 96]
    assert "restored" in next(node for node in model.graph.node if node.output[0] == "y").input
    swapped = parse(RESTORED, WEIGHTS | {"restored": np.array([1, 4, 48, 192])})
    assert at_smaller(swapped, SIZES, {"x": (1, 3, 32, 64)}) is None


@pytest.mark.parametrize(
    "lines",
    [
        "s = Shape(a) h = Slice(s, i2, far) t = Slice(table, zeros, h) y = Add(a, t)",
        "s = Shape(a) f = Cast<to=1>(s) n = ReduceProd<keepdims=0>(f) d = Div(n, n) e = Sin(n) y = Mul(a, e)",
    ],
)
def test_what_is_worked_out_from_sizes_is_that_of_the_models_own(lines: str):
    found = smaller_inputs.smaller_inputs(parse(body(lines), WEIGHTS), SIZES)
    assert found is not None
    assert (found.shapes, found.is_pinned) == (SMALLER, True)
    assert smaller_inputs.at_smaller(parse(body(lines), WEIGHTS), SIZES, found) is not None
    assert not any(node.op_type == "Shape" for node in found.model.graph.node)


@pytest.mark.parametrize(
    "lines",
    [
        "t = Transpose<perm=[0, 2, 3, 1]>(a) y = Einsum<equation='bhwc,hkc->bhwk'>(t, relative)",
        "t = Transpose<perm=[0, 2, 3, 1]>(a) y = Einsum<equation='bhwc, wkc -> bhwk'>(t, relative)",
        "t = Transpose<perm=[0, 2, 3, 1]>(a) y = MatMul(t, turned)",
    ],
)
def test_of_relative_positions_some_are_taken(tmp_path, lines: str):
    """Those of one axis of an image to all others of it, as an attention of Segment Anything has them."""
    relative = random(96, 96, 4)
    weights = WEIGHTS | {"relative": relative, "turned": relative.transpose(0, 2, 1)}
    text = body(lines.replace("'", '"'))
    found = smaller_inputs.smaller_inputs(parse(text, weights), SIZES)
    assert found is not None
    assert found.shapes == SMALLER
    length = SMALLER["x"][3] if "wkc" in lines else SMALLER["x"][2]
    places = sized_tensors.spread_places((96,), (length,))[0]
    with OrtRunner(threads=1) as runner:
        x = random(*SMALLER["x"])
        run = onnx.ModelProto.FromString(resized(found.model, SMALLER, tmp_path / "m.onnx")[0])
        (made,) = runner.run(run, {"x": x}).values()
        (convolved,) = runner.run(
            parse("g (float[1, 3, 32, 64] x) => (float a) { a = Conv<pads=[1, 1, 1, 1]>(x, w) }", WEIGHTS), {"x": x}
        ).values()
    equation = "bchw,wkc->bhwk" if "wkc" in lines else "bchw,hkc->bhwk"
    wanted = np.einsum(equation, convolved, relative[np.ix_(places, places)])
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-4)
    weights["relative"][95, 95, 3] += 1e-5
    weights["turned"] = weights["relative"].transpose(0, 2, 1)
    assert smaller_inputs.at_smaller(parse(text, weights), SIZES, found) is None


def test_a_reshape_leaves_open_a_length_that_has_not_changed():
    """The exporter of a language model's vision tower writes the positions as a number, and minus one for the channels."""
    text = "f = Reshape(a, merged) t = Transpose<perm=[0, 2, 1]>(f) h = Reshape(t, split) m = Reshape(h, joined) y = Relu(m)"
    open_ = {"split": np.array([1, -1, 2, 2]), "joined": np.array([1, 96 * 96, -1])}
    found = smaller_inputs.smaller_inputs(parse(body(text), WEIGHTS | open_), SIZES)
    assert found is not None
    assert found.shapes == SMALLER
    *_, joined = (tensor for tensor in found.model.graph.initializer if tensor.name.startswith("m/"))
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(joined), [1, 32 * 64, 4])


def test_positions_in_a_row_become_an_image_again_with_other_channels():
    """As a decoder has them that reads a vision transformer."""
    lines = "f = Reshape(a, merged) t = Transpose<perm=[0, 2, 1]>(f) u = MatMul(t, six) c = Transpose<perm=[0, 2, 1]>(u)"
    text = body(f"{lines} i = Reshape(c, image) y = Conv<pads=[1, 1, 1, 1]>(i, k)")
    weights = WEIGHTS | {"image": np.array([-1, 6, 96, 96]), "k": random(2, 6, 3, 3)}
    assert shapes_of(text, weights) == {"x": (1, 3, 32, 64)}
    model = at_smaller(parse(text, weights), SIZES, SMALLER)
    assert model is not None
    target = next(node.input[1] for node in model.graph.node if node.output[0] == "i")
    assert {tensor.name: numpy_helper.to_array(tensor).tolist() for tensor in model.graph.initializer}[target] == [1, 6, 32, 64]


@pytest.mark.parametrize(("start", "end", "wanted"), [(0, 95, (0, 31)), (1, 95, (1, 31)), (93, 96, (29, 96)), (0, 3, (0, 3))])
def test_a_crop_leaves_out_as_many_positions(start: int, end: int, wanted: tuple[int, int]):
    """What an exporter wrote as numbers: a place nearer to the end of the image stays as far from it."""
    weights = WEIGHTS | {"start": np.array([start]), "end": np.array([end])}
    found = smaller_inputs.smaller_inputs(parse(body("c = Slice(a, start, end, axis2) y = Relu(c)"), weights), SIZES)
    assert found is not None
    (crop,) = (node for node in found.model.graph.node if node.op_type == "Slice")
    numbers = {tensor.name: numpy_helper.to_array(tensor) for tensor in found.model.graph.initializer}
    assert tuple(int(numbers[name].item()) for name in crop.input[1:3]) == wanted


def test_sizes_that_a_crop_works_out_are_no_numbers():
    """As those of a padded image whose windows are put together again."""
    pads = {"pads": np.array([0, 0, 0, 0, 0, 0, 2, 2]), "both": np.array([2, 3])}
    lines = "p = Pad(a, pads) s = Shape(a) h = Slice(s, i2, far) y = Slice(p, zeros, h, both)"
    assert shapes_of(body(lines), WEIGHTS | pads) == SMALLER


WINDOWS = {
    "pads": np.array([0, 0, 0, 0, 0, 0, 2, 2]),
    "windows": np.array([1, 4, 39, 14, 39, 14]),
    "padded": np.array([1, 4, 546, 546]),
    "ends": np.array([544, 544]),
    "both": np.array([2, 3]),
}
IN_WINDOWS = """
    p = Pad(a, pads)
    q = Reshape(p, windows)
    r = Transpose<perm=[0, 2, 4, 1, 3, 5]>(q)
    z = Softmax<axis=-1>(r)
    t = Transpose<perm=[0, 3, 1, 4, 2, 5]>(z)
    u = Reshape(t, padded)
    y = Slice(u, zeros, ends, both)"""


SIGNAL = """g (float[1, CHANNELS, LENGTH] x) => (float y) {
    TAKEN
    a = Conv<pads=[1, 1], strides=[2]>(t, kernel)
    r = Relu(a)
    m = Transpose<perm=[0, 2, 1]>(r)
    e = Add(m, places)
    y = MatMul(e, six)
}"""
OF_SIGNAL = {"kernel": random(4, 8, 3), "places": random(1, 750, 4, seed=3), "six": random(4, 6, seed=4)}


@pytest.mark.parametrize(
    ("sizes", "taken", "smaller"),
    [((1, 8, 1500), "t = Identity(x)", (1, 8, 60)), ((1, 1500, 8), "t = Transpose<perm=[0, 2, 1]>(x)", (1, 60, 8))],
)
def test_a_signal_may_be_shorter(sizes, taken, smaller):
    """As the spectrogram that an encoder of speech reads: its times are the longest axis."""
    text = SIGNAL.replace("TAKEN", taken).replace("CHANNELS, LENGTH", f"{sizes[1]}, {sizes[2]}")
    found = smaller_inputs.smaller_inputs(parse(text, OF_SIGNAL), {"x": sizes})
    assert found is not None
    assert found.shapes == {"x": smaller}
    assert len(found.positions) == 1


def test_the_times_of_a_signal_may_be_its_shorter_axis():
    text = SIGNAL.replace("TAKEN", "t = Identity(x)").replace("CHANNELS, LENGTH", "2000, 1500")
    found = smaller_inputs.smaller_inputs(parse(text, OF_SIGNAL | {"kernel": random(4, 2000, 3)}), {"x": (1, 2000, 1500)})
    assert found is not None
    assert found.shapes == {"x": (1, 2000, 60)}


def test_sets_of_numbers_and_words_are_no_signals():
    words = parse("g (int64[1, 8, 1500] x) => (float y) { t = Cast<to=1>(x) y = Conv(t, kernel) }", OF_SIGNAL)
    assert smaller_inputs.smaller_inputs(words, {"x": (1, 8, 1500)}) is None
    rows = parse("g (float[8, 1500] x) => (float y) { y = MatMul(x, table) }", {"table": random(1500, 8)})
    assert smaller_inputs.smaller_inputs(rows, {"x": (8, 1500)}) is None


def test_what_an_exporter_asks_of_a_softmax_is_asked_of_each_number():
    lines = "s = Softmax<axis=-1>(a) n = IsNaN(s) z = Sub(s, s) y = Where(n, z, s)"
    assert shapes_of(body(lines), WEIGHTS) == SMALLER


@pytest.mark.parametrize("pooling", ["AveragePool", "MaxPool"])
def test_a_pooling_over_a_whole_image_is_one_over_another(tmp_path, pooling: str):
    """As those of networks that were written for images of one size."""
    lines = f"p = {pooling}<kernel_shape=[96, 96], strides=[96, 96]>(a) y = Flatten(p)"
    found = smaller_inputs.smaller_inputs(parse(body(lines), WEIGHTS), SIZES)
    assert found is not None
    assert found.shapes == SMALLER
    (pool,) = (node for node in found.model.graph.node if node.op_type == pooling)
    assert [list(each.ints) for each in pool.attribute if each.name == "kernel_shape"] == [[32, 64]]
    x = random(*SMALLER["x"])
    with OrtRunner(threads=1) as runner:
        run = onnx.ModelProto.FromString(resized(found.model, SMALLER, tmp_path / "m.onnx")[0])
        (made,) = runner.run(run, {"x": x}).values()
    assert made.shape == (1, 4)


def test_a_pooling_over_most_of_an_image_keeps_its_kernel():
    """Images at which it is larger than what it reads are too small."""
    lines = "p = AveragePool<kernel_shape=[40, 40]>(a) y = GlobalAveragePool(p)"
    assert shapes_of(body(lines), WEIGHTS) == {"x": (1, 3, 64, 64)}
    assert shapes_of(body(lines.replace("40, 40", "90, 90")), WEIGHTS) is None


def test_parts_of_channels_in_a_sequence_are_followed():
    """As an exporter writes torch.split."""
    lines = "s = SplitToSequence<axis=1>(a, half_each) p = SequenceAt(s, i0_0) q = SequenceAt(s, i1_0) y = Add(p, q)"
    weights = WEIGHTS | {"half_each": np.array([2, 2]), "i0_0": np.array(0), "i1_0": np.array(1)}
    assert shapes_of(body(lines), weights) == SMALLER
    assert shapes_of(body(lines.replace("axis=1", "axis=2")), weights | {"half_each": np.array([48, 48])}) is None


def test_the_windows_of_a_padded_image_stay_as_large():
    model = parse(body(IN_WINDOWS).replace("96, 96", "544, 544"), WEIGHTS | WINDOWS)
    found = smaller_inputs.smaller_inputs(model, {"x": (1, 3, 544, 544)})
    assert found is not None
    assert found.shapes == {"x": (1, 3, 320, 320)}  # 544 lie two before 39 windows, and these two before 23
    numbers = {tensor.name: numpy_helper.to_array(tensor).tolist() for tensor in found.model.graph.initializer}
    asked = {node.output[0]: [numbers[name] for name in node.input[1:] if name in numbers] for node in found.model.graph.node}
    assert (asked["q"], asked["u"]) == ([[1, 4, 23, 14, 23, 14]], [[1, 4, 322, 322]])
    assert asked["y"][1] == [320, 320]


def test_an_image_without_elements_is_enlarged_by_no_factor():
    lines = "z = Slice(a, i0, i0, axis2) y = Resize(z, , , none)"
    assert shapes_of(body(lines), WEIGHTS | {"none": np.array([1, 4, 0, 192])}) is None


@pytest.mark.parametrize(("sizes", "axes", "wanted"), [("sizes", "", [1, 4, 64, 128]), ("plane", ", axes=[2, 3]", [64, 128])])
def test_an_image_is_enlarged_by_the_same_factor(tmp_path, sizes: str, axes: str, wanted: list[int]):
    lines = f"e = Resize<mode='linear'{axes}>(a, , , {sizes}) y = Relu(e)".replace("'", '"')
    model = parse(body(lines), WEIGHTS, opset=18)  # the first with the attribute axes
    there = at_smaller(model, SIZES, {"x": (1, 3, 32, 64)})
    assert there is not None
    target = next(node for node in there.graph.node if node.op_type == "Resize").input[3]
    assert {tensor.name: numpy_helper.to_array(tensor).tolist() for tensor in there.graph.initializer}[target] == wanted
    run = onnx.ModelProto.FromString(resized(there, {"x": (1, 3, 32, 64)}, tmp_path / "m.onnx")[0])
    with OrtRunner(threads=1) as runner:
        (made,) = runner.run(run, {"x": random(1, 3, 32, 64)}).values()
    assert made.shape == (1, 4, 64, 128)


def test_a_kernel_that_is_spread_reaches_the_result():
    text = """g (float[1, 3, 128, 64] x) => (float y) {
        a = Conv<strides=[16, 16], pads=[1, 1, 1, 1]>(x, w)
        y = ConvTranspose<strides=[4, 4], pads=[PADS, PADS, PADS, PADS]>(a, t)
    }"""
    weights, sizes = DOWN | {"t": random(4, 2, 8, 8)}, {"x": (1, 3, 128, 64)}
    small = {"x": (1, 3, 64, 32)}
    assert at_smaller(parse(text.replace("PADS", "2"), weights), sizes, small) is not None
    # Two positions lay no more than places 5, 6, 9 and 10 on a result of two.
    wide = DOWN | {"t": random(4, 2, 16, 16)}
    assert at_smaller(parse(text.replace("PADS", "9"), wide), sizes, small) is None


def test_the_places_of_a_long_kernel_are_asked_at_once():
    """Each place at each position would be a thousand million times."""
    text = "g (float[1, 2, 48000] x) => (float y) { y = Conv(x, k) }"
    began = time.process_time()
    assert shapes_of(text, {"k": random(2, 2, 16001)}, {"x": (1, 2, 48000)}) is None
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("lines", "smaller"),
    [
        ("b = Relu(a) y = Conv(b, v)", (64, 128)),
        ("b = Softplus(a) y = Conv(b, v)", (64, 96)),
        ("m = ReduceMean<axes=[2, 3]>(a) b = Sub(a, m) y = Conv(b, v)", (64, 128)),
        ("t = Transpose<perm=[0, 2, 3, 1]>(a) m = ReduceMean<axes=[3]>(t) y = Sub(t, m)", (64, 96)),
    ],
    ids=["dead channels", "none", "normalized over positions", "over channels"],
)
def test_more_positions_where_channels_may_be_let_through_or_normalized_over_them(lines: str, smaller: tuple[int, int]):
    text = f"g (float[1, 3, 224, 224] x) => (float y) {{ a = Conv<strides=[32, 32]>(x, k) {lines} }}"
    weights = {"k": random(16, 3, 32, 32), "v": random(4, 16, 1, 1)}
    assert shapes_of(text, weights, {"x": (1, 3, 224, 224)}, opset=17) == {"x": (1, 3, *smaller)}
