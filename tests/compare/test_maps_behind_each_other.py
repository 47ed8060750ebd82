"""Detectors at smaller images: maps of features behind each other, masks of positions, choices among all, sampled places."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx
import pytest

from tests.compare.smaller import found_at, is_same_at
from tests.models import parse, random
from trtnorm_cli.compare import sized_tensors, smaller_inputs
from trtnorm_cli.compare.joints import Joints
from trtnorm_cli.compare.sampled_places import sampled_places, within_images
from trtnorm_cli.evaluate.float64 import ReferenceUnavailable, evaluate_float64
from trtnorm_cli.evaluate.model_file import resized

SIZES = {"x": (1, 3, 256, 256)}
LARGE, SMALL = 64 * 64, 32 * 32
ALL = LARGE + SMALL
MOST = np.float32(np.finfo(np.float32).max)
# Two maps of features, all of their positions behind each other, what is known of each position, and the maps again.
LEVELS = """g (float[1, 3, 256, 256] x) => (float y, float z) {
    a = Conv<strides=[4, 4], pads=[1, 1, 1, 1]>(x, w)
    b = Conv<strides=[2, 2], pads=[1, 1, 1, 1]>(a, v)
    af = Reshape(a, large)
    bf = Reshape(b, small)
    c = Concat<axis=2>(af, bf)
    t = Transpose<perm=[0, 2, 1]>(c)
    LINES
}"""
SPLIT = "s0, s1 = Split<axis=1>(t, parts)"
SLICED = "s0 = Slice(t, zero, first, axis) s1 = Slice(t, first, whole, axis)"
AGAIN = """
    m = MatMul(t, q)
    PARTS
    t0 = Transpose<perm=[0, 2, 1]>(s0)
    t1 = Transpose<perm=[0, 2, 1]>(s1)
    y = Reshape(t0, map0)
    z = Reshape(t1, map1)
"""
WEIGHTS = {
    "w": random(4, 3, 3, 3),
    "v": random(4, 4, 3, 3, seed=1),
    "q": random(4, 4, seed=2),
    "large": np.array([1, 4, LARGE]),
    "small": np.array([1, 4, SMALL]),
    "parts": np.array([LARGE, SMALL]),
    "zero": np.array([0]),
    "first": np.array([LARGE]),
    "whole": np.array([ALL]),
    "axis": np.array([1]),
    "map0": np.array([1, 4, 64, 64]),
    "map1": np.array([1, 4, 32, 32]),
    "k": np.array([50]),
    "last": np.array([-1]),
    "wide": np.array([1, 1, 4]),
    "nothing": np.array(0, np.float32),
    "corners": random(4, 2, seed=5) / 4,
    "grid": np.array([1, 5, 10, 2]),
}


@pytest.fixture(autouse=True)
def _however_quick(monkeypatch):
    monkeypatch.setattr(smaller_inputs, "_FEW_MULTIPLY_ADDS", 0)


def levels(lines: str, weights: dict[str, np.ndarray] | None = None) -> onnx.ModelProto:
    return parse(LEVELS.replace("LINES", lines), {**WEIGHTS, **(weights or {})}, opset=17)


found_for, is_same = partial(found_at, SIZES), partial(is_same_at, SIZES)


@pytest.mark.parametrize("parts", [SPLIT, SLICED, SLICED.replace("whole, axis", "end, axis")])
def test_maps_behind_each_other_are_taken_apart_where_they_meet(tmp_path, parts: str):
    model = levels(AGAIN.replace("PARTS", parts), {"end": np.array([2**63 - 1])})
    found = found_for(model)
    assert found.shapes == {"x": (1, 3, 32, 64)}
    run = onnx.ModelProto.FromString(resized(found.model, found.shapes, tmp_path / "m.onnx")[0])
    x = random(1, 3, 32, 64, seed=3)
    made = evaluate_float64(run, {"x": x}, ["a", "b", "y", "z"]).outputs
    np.testing.assert_array_equal(made["y"], made["a"])
    np.testing.assert_array_equal(made["z"], made["b"])
    for other in (SPLIT, SLICED):
        assert is_same(levels(AGAIN.replace("PARTS", other)), found), "they say the same"


@pytest.mark.parametrize(
    ("parts", "weights"),
    [
        (SPLIT, {"parts": np.array([LARGE - 64, SMALL + 64])}),
        (SLICED, {"first": np.array([LARGE - 1])}),
        (SLICED, {"first": np.array([SMALL])}),
        (SLICED.replace("zero, first", "one, first"), {"one": np.array([1])}),
    ],
)
def test_what_is_taken_apart_elsewhere_has_no_smaller_inputs(parts: str, weights: dict[str, np.ndarray]):
    lines = f"{parts} y = Relu(s0) z = Relu(s1)"
    assert smaller_inputs.smaller_inputs(levels(lines, weights), SIZES) is None
    assert not is_same(levels(lines, weights), found_for(levels(f"{SPLIT} y = Relu(s0) z = Relu(s1)")))


def test_a_place_that_is_not_always_the_same_is_no_joint():
    joints = Joints()
    joints.learn([4, 2], [8, 4])
    joints.learn([1, 5], [3, 9])
    assert [joints.place(6, 12, place) for place in (0, 4, 6, -2, -6, 99, 3)] == [0, 8, 12, 8, 0, 12, None]
    joints.learn([4, 2], [6, 6])
    assert [joints.place(6, 12, place) for place in (4, 1)] == [None, 3]
    assert joints.place(6, 11, 4) is None
    joints.learn([3, 2], [3, 2])
    assert joints.place(5, 5, 3) is None, "nothing has changed"


CHOSEN = "m = MatMul(t, q) r = ReduceMax<axes=[2], keepdims=0>(m) y, i = TopK<axis=1>(r, k) "
GATHERED = CHOSEN + "u = Unsqueeze(i, last) e = Tile(u, wide) z = GatherElements<axis=1>(m, e)"


def test_as_many_are_chosen_of_fewer_positions():
    assert found_for(levels(GATHERED)).shapes == {"x": (1, 3, 32, 64)}
    more = found_for(levels(GATHERED, {"k": np.array([500])}))
    assert more.shapes == {"x": (1, 3, 64, 128)}, "of 480 positions there are not 500 to choose"


def test_search_goes_on_from_where_there_are_enough(monkeypatch):
    """However often there are too few: that says nothing against larger ones."""
    tried, real = [], smaller_inputs.SizedModel.at
    monkeypatch.setattr(smaller_inputs.SizedModel, "at", lambda self, shapes: tried.append(shapes) or real(self, shapes))
    assert found_for(levels(GATHERED, {"k": np.array([1100])})).shapes["x"][2:] in ((96, 128), (96, 160), (64, 160))
    assert len(tried) <= 3


def test_all_are_ordered_only_where_all_are_at_the_own_shapes():
    assert smaller_inputs.smaller_inputs(levels(GATHERED, {"k": np.array([ALL])}), SIZES) is None


@pytest.mark.parametrize("places", [np.arange(50)[None, :, None], np.full((1, 50, 1), 4096)])
def test_places_that_stand_in_the_model_may_not_be_there(places: np.ndarray):
    lines = "m = MatMul(t, q) y = GatherElements<axis=1>(m, places) z = Relu(m)"
    assert smaller_inputs.smaller_inputs(levels(lines, {"places": places}), SIZES) is None


TABLE = {
    "table": random(1, ALL, 4, seed=9),
    "other_table": random(ALL + 1, 4),
    "ones": np.ones((1, 50), np.int64),
    "lv": np.array(4096),
    "number": np.array(300),
}


@pytest.mark.parametrize(
    "lines",
    [
        "u = Unsqueeze(i, last) e = Tile(u, wide) z = GatherElements<axis=1>(table, e)",
        "z = Gather<axis=0>(other_table, i)",  # which has more rows than there are positions
        "n = Cast<to=7>(r) z = Gather<axis=1>(table, n)",  # by what is no place
        "j = Add(i, ones) z = Gather<axis=1>(m, j)",
        "j = Add(i, i) z = Gather<axis=1>(m, j)",
        "o = Mod(i, lv) u = Unsqueeze(o, last) e = Tile(u, wide) z = GatherElements<axis=1>(m, e)",
        "z = Clip(i, , number)",
        "h = Cast<to=10>(i) j = Cast<to=7>(h) z = Gather<axis=1>(m, j)",  # half precision rounds what is beyond 2048
        "z = Less(i, number)",
        "c = Cast<to=1>(i) z = Neg(c)",
        "j = Unsqueeze(i, last) z = GatherElements<axis=2>(m, j)",  # along the channels
        "z = Gather<axis=2>(m, i)",
        "z = Add(i, i)",
    ],
)
def test_places_among_all_are_good_for_nothing_but_taking_what_is_there(lines: str):
    """There are fewer at a smaller image, and a table that is looked up in would be seen in part alone."""
    assert smaller_inputs.smaller_inputs(levels(CHOSEN + lines, TABLE), SIZES) is None


@pytest.mark.parametrize(
    "lines",
    [
        "z = Gather<axis=1>(m, i)",
        "z = Cast<to=1>(i)",
        "z = Gather<axis=1>(t, i)",
        "f = Reshape(i, last) j = Add(f, zeros) z = Gather<axis=1>(m, j)",  # where the first sample begins
        "f = Reshape(i, last) j = Add(none, f) z = Gather<axis=1>(m, j)",
        # As TensorRT's parser repeats them.
        "u = Unsqueeze(i, last) c = Cast<to=6>(u) e = Gather<axis=2>(c, four) z = GatherElements<axis=1>(m, e)",
        "u = Unsqueeze(i, last) h, g = Split<axis=1>(u, two) e = Tile(h, wide) z = GatherElements<axis=1>(m, e)",
    ],
)
def test_places_among_all_take_what_is_there(lines: str):
    weights = {
        "zeros": np.zeros(50, np.int64),
        "none": np.zeros((), np.int64),
        "four": np.zeros(4, np.int64),
        "two": np.array([20, 30]),
    }
    assert found_for(levels(CHOSEN + lines, weights)).shapes == {"x": (1, 3, 32, 64)}


def test_where_samples_begin_may_be_stored_beside_the_model(tmp_path):
    lines = CHOSEN + "f = Reshape(i, last) j = Add(f, zeros) z = Gather<axis=1>(m, j)"
    model = levels(lines, {"zeros": np.zeros(50, np.int64)})
    found = found_for(model)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=300)
    stored = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    assert smaller_inputs.at_smaller(stored, SIZES, found, tmp_path) is not None
    (tmp_path / "m.data").write_bytes(b"\1" * (tmp_path / "m.data").stat().st_size)
    assert smaller_inputs.at_smaller(stored, SIZES, found, tmp_path) is None


@pytest.mark.parametrize("hidden", [0.0, 0.04])
def test_a_table_of_all_positions_is_looked_up_in_part(tmp_path, hidden: float):
    """As the anchors of a detector."""
    table = hiding(hidden, np.inf, STEADY)
    lines = CHOSEN + "z = Gather<axis=1>(table, i)"
    found = found_for(levels(lines, {"table": table}))
    assert (found.shapes, len(found.positions)) == ({"x": (1, 3, 32, 64)}, 1)
    run = onnx.ModelProto.FromString(resized(found.model, found.shapes, tmp_path / "m.onnx")[0])
    made = evaluate_float64(run, {"x": random(1, 3, 32, 64, seed=3)}, ["i", "z"]).outputs
    part = table[:, sized_tensors.spread_places((1, ALL, 1), (1, 160, 1))[1]]
    np.testing.assert_array_equal(made["z"], part[:, made["i"][0]][:, None])
    for place in (1, ALL // 2, ALL - 1):
        other = table.copy()
        other[0, place] = 3.5
        assert not is_same(levels(lines, {"table": other}), found)


def hiding(share: float, value: float, shown: np.ndarray) -> np.ndarray:
    """Numbers of all positions [1, N, 1], a share of which has this value, spread over all."""
    hidden = np.arange(ALL) * 7919 % ALL < share * ALL
    return np.where(hidden, np.float32(value), shown).astype(np.float32).reshape(1, ALL, 1)


STEADY = np.linspace(1, 4, ALL, dtype=np.float32)
CHOICES = [
    ("y = Mul(t, n)", 0.0, STEADY),
    ("y = Add(t, n)", float(MOST), STEADY),
    ("y = Add(t, n)", -np.inf, STEADY),
    ("y = Add(t, n)", -1e9, STEADY),
    ("o = Cast<to=9>(n) y = Where(o, t, nothing)", 0.0, np.ones(ALL)),
    ("o = Cast<to=9>(n) y = Where(o, nothing, t)", 1.0, np.zeros(ALL)),
]


@pytest.mark.parametrize(("line", "value", "shown"), CHOICES, ids=[f"{line} {value:g}" for line, value, _ in CHOICES])
@pytest.mark.filterwarnings("error")
def test_a_few_positions_may_be_hidden(line: str, value: float, shown: np.ndarray):
    """As those at the border of an image are in RT-DETR."""
    lines = f"{line} z = Relu(y)"
    few = hiding(0.04, value, shown)
    found = found_for(levels(lines, {"n": few}))
    assert found.shapes == {"x": (1, 3, 32, 64)}
    assert len(found.positions) == 1
    assert is_same(levels(lines, {"n": few}), found)
    for place in (1, ALL // 2, ALL - 1):
        other = few.copy()
        other[0, place] = shown[place] if few[0, place] != shown[place] else value
        assert not is_same(levels(lines, {"n": other}), found), "one more or one less"
    assert smaller_inputs.smaller_inputs(levels(lines, {"n": hiding(0.2, value, shown)}), SIZES) is None


def test_the_part_hides_something_where_the_whole_does():
    """What becomes of it may be all that differs, as the bounds of a logarithm."""
    lines = "y = Add(t, n) z = Relu(y)"
    one = STEADY.copy().reshape(1, ALL, 1)
    part = sized_tensors.spread_places((1, ALL, 1), (1, 8 * 16 + 4 * 8, 1))[1]
    one[0, next(place for place in range(ALL) if place not in part)] = MOST
    found = smaller_inputs.smaller_inputs(levels(lines, {"n": one}), SIZES)
    assert found is None or found.shapes != {"x": (1, 3, 32, 64)}


@pytest.mark.parametrize("line", ["o = Cast<to=9>(n) y = Where(o, nothing, t)", "o = Cast<to=9>(m) y = Where(o, t, nothing)"])
def test_what_a_choice_keeps_is_held_to_the_whole(line: str):
    """One channel is hidden nearly everywhere in the part, and not in the whole."""
    part = sized_tensors.spread_places((1, ALL, 1), (1, 8 * 16 + 4 * 8, 1))[1]
    hidden = np.zeros((1, ALL, 4), np.float32)
    hidden[0, np.random.default_rng(0).random(ALL) < 0.36, 3] = 1
    hidden[0, part[1:], 3], hidden[0, part[0], 3] = 1, 0
    found = smaller_inputs.smaller_inputs(levels(f"{line} z = Relu(y)", {"n": hidden, "m": 1 - hidden}), SIZES)
    assert found is None or found.shapes != {"x": (1, 3, 32, 64)}


def test_a_condition_that_has_nothing_to_do_with_the_image_stays():
    text = """g (float[1, 3, 256, 256] x, float[1, 1, 4] e) => (float y, float z) {
        a = Conv<strides=[4, 4], pads=[1, 1, 1, 1]>(x, w) y = GlobalAveragePool(a) h = Where(c, e, nothing) z = Relu(h) }"""
    model = parse(text, WEIGHTS | {"c": np.arange(77).reshape(1, 77, 1) % 2 > 0}, opset=17)
    found = smaller_inputs.smaller_inputs(model, SIZES | {"e": (1, 1, 4)})
    assert found is not None
    assert found.shapes["x"] == (1, 3, 32, 64)


def test_a_mask_of_nothing_is_a_mask():
    lines = "o = Cast<to=9>(n) y = Where(o, nothing, t) z = Relu(y)"
    found = found_for(levels(lines, {"n": np.zeros((1, ALL, 1), np.float32)}))
    assert found.shapes == {"x": (1, 3, 32, 64)}


def test_a_choice_between_two_tensors_keeps_its_shapes():
    lines = "o = Cast<to=9>(n) u = Relu(t) y = Where(o, u, t) z = Relu(y)"
    assert smaller_inputs.smaller_inputs(levels(lines, {"n": hiding(0.04, 0, np.ones(ALL))}), SIZES) is None


ANCHORS = "l = Log(n) o = Greater(n, small_one) h = Where(o, l, most) y = Add(t, h) z = Sigmoid(y)"


@pytest.mark.parametrize(("factor", "same"), [(1.0, True), (1 + 1e-6, True), (1 + 1e-3, False)])
def test_hidden_numbers_do_not_hide_others_that_are_worked_out(factor: float, same: bool):
    """What is rounded is held to the largest of all: the largest float is no measure."""
    numbers = {"n": hiding(0.04, 1e-4, STEADY), "small_one": np.float32(0.01), "most": MOST}
    found = found_for(levels(ANCHORS, numbers))
    shown = np.log(STEADY + 0.5 - 0.5)
    stored = hiding(0.04, float(MOST), shown)
    place = max(at for at in range(ALL) if stored[0, at] < 100)
    stored[0, place] *= np.float32(factor)
    assert is_same(levels("y = Add(t, h) z = Sigmoid(y)", {"h": stored}), found) is same
    stored[0, place] = MOST
    assert not is_same(levels("y = Add(t, h) z = Sigmoid(y)", {"h": stored}), found)


def test_a_channel_that_the_part_hides_keeps_its_shapes():
    """Though few are hidden of all channels."""
    added = np.zeros((1, ALL, 4), np.float32) + STEADY[None, :, None]
    part = sized_tensors.spread_places((1, ALL, 4), (1, 128 + 32, 4))[1]
    added[0, part, 2] = MOST
    assert smaller_inputs.smaller_inputs(levels("y = Add(t, n) z = Relu(y)", {"n": added}), SIZES).shapes["x"] != (1, 3, 32, 64)


SAMPLED = """
    m = MatMul(t, q)
    s0, s1 = Split<axis=1>(m, parts)
    f = Transpose<perm=[0, 2, 1]>(s0)
    p = Reshape(f, map0)
    z = Relu(s1)
"""


def test_places_that_are_worked_out_are_sampled_on_a_smaller_image():
    worked_out = f"{SAMPLED} g0 = ReduceMean<axes=[2, 3], keepdims=0>(p) g1 = Reshape(g0, square) " + (
        "g2 = Tanh(g1) y = GridSample(p, g2)"
    )
    square = {"square": np.array([1, 2, 1, 2])}
    found = found_for(levels(worked_out, square))
    assert found.shapes == {"x": (1, 3, 32, 64)}
    assert sampled_places(found.model) == {"g2"}
    stored = f"{SAMPLED} y = GridSample(p, places)"
    assert smaller_inputs.smaller_inputs(levels(stored, {"places": random(1, 5, 5, 2)}), SIZES) is None


def test_how_places_at_the_border_are_sampled_is_the_same_in_all_models():
    """At a smaller image none may lie there."""
    base = np.stack(np.meshgrid(np.linspace(-1, 1, 64), np.linspace(-1, 1, 64)), -1)[None].astype(np.float32)
    text = """g (float[1, 3, 256, 256] x) => (float y) {
        a = Conv<strides=[4, 4], pads=[1, 1, 1, 1]>(x, w) b = Conv<pads=[1, 1, 1, 1]>(a, pair) s = Sigmoid(b)
        p = Transpose<perm=[0, 2, 3, 1]>(s) g1 = Add(p, base) y = GridSample<HOW>(a, g1) }"""
    weights = WEIGHTS | {"base": base, "pair": random(2, 4, 3, 3, seed=8)}

    def sampling(how: str) -> onnx.ModelProto:
        return parse(text.replace("HOW", how), weights, opset=17)

    found = found_for(sampling('padding_mode="zeros"'))
    assert found.shapes == {"x": (1, 3, 32, 64)}
    assert is_same(sampling('mode="bilinear", align_corners=0'), found)
    for how in ('padding_mode="border"', "align_corners=1", 'mode="nearest"'):
        assert not is_same(sampling(how), found)


def test_two_places_that_are_one_at_a_smaller_image_are_told_apart():
    text = """g (float[1, 3, 256, 256] x) => (float y, float z) {
        a = Conv<strides=[8, 33], kernel_shape=[1, 1]>(x, a1) b = Conv<strides=[8, 40], kernel_shape=[1, 1]>(x, b1)
        ab = Concat<axis=3>(a, b) ba = Concat<axis=3>(b, a) s0, s1 = Split<axis=3>(ab, p) y = ReduceMean<axes=[3]>(s0)
        z0, z1 = Split<axis=3>(ba, r) q0 = ReduceMean<axes=[3]>(s1) q1 = ReduceMean<axes=[3]>(z0) q2 = ReduceMean<axes=[3]>(z1)
        z = Sum(q0, q1, q2) }"""
    weights = {"a1": random(4, 3, 1, 1), "b1": random(4, 3, 1, 1, seed=1), "r": np.array([7, 8])}
    found = found_for(parse(text, weights | {"p": np.array([8, 7])}, opset=17))
    assert found.shapes == {"x": (1, 3, 96, 160)}, "of 2 and 2 columns, as of 64, either may be the first"


@pytest.mark.parametrize(
    "line",
    ["TopK<axis=1>(r, k)", "Where(o, t, nothing)", "MatMul(t, six)", "Unsqueeze(t, six)", "Reshape(t, six)", "Concat(t, n)"],
)
def test_malformed_nodes_are_for_others_to_name(line: str):
    model = levels(CHOSEN + "z = Relu(m)", {"six": np.full(5, 6), "o": np.ones((1, 7, 1), bool), "n": hiding(0.0, 0, STEADY)})
    node = onnx.parser.parse_node(f"out = {line}")
    for outputs in ([], ["out"], [""]):
        del node.output[:]
        node.output.extend(outputs)
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        copy.graph.node.append(node)
        smaller_inputs.smaller_inputs(copy, SIZES)
        smaller_inputs.at_smaller(copy, SIZES, found_for(model))


@pytest.mark.parametrize(
    ("places", "lie_within"),
    [
        (np.zeros((2, 3, 3, 2)), True),
        (np.full((2, 3, 3, 2), 1.5), False),
        (np.stack([np.zeros((3, 3, 2)), np.full((3, 3, 2), 1.5)]), False),
        (np.concatenate([np.zeros((1, 1, 3, 2)), np.full((1, 2, 3, 2), 9.0)], axis=1), True),
        (np.concatenate([np.zeros((1, 1, 3, 2)), np.full((1, 9, 3, 2), 9.0)], axis=1), False),
        (np.full((1, 2, 2, 2), np.nan), False),
        (np.zeros((0, 2, 2, 2)), False),
    ],
)
def test_an_evaluation_ends_where_most_places_lie_outside(places: np.ndarray, lie_within: bool):
    watch = within_images({"p"}, lambda name, value: value)
    assert watch("another", places) is places
    if lie_within:
        assert watch("p", places) is places
    else:
        with pytest.raises(ReferenceUnavailable, match="outside"):
            watch("p", places)


def test_as_many_positions_as_channels_come_last():
    """TensorRT's network says a product of positions and channels in either order."""
    text = """g (float[1, 3, 256, 256] x) => (float y) {
        a = Conv<strides=[4, 4], pads=[1, 1, 1, 1]>(x, w) f = Reshape(a, flat) y = MatMul(up, f) }"""
    weights = {"w": random(4, 3, 3, 3), "flat": np.array([1, 4, LARGE])}
    for channels, smaller in ((100, (32, 64)), (128, (64, 96))):
        model = parse(text, weights | {"up": random(channels, 4)}, opset=17)
        assert found_for(model).shapes == {"x": (1, 3, *smaller)}
