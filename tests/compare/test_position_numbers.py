"""Constants with numbers for each position, of which some are taken at smaller inputs."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest

from tests.compare.test_smaller_inputs import DOWN, SIZES, SMALLER, WEIGHTS, at_smaller, body, shapes_of
from tests.models import parse, random
from trtnorm_cli.compare import position_numbers, sized_tensors, smaller_inputs
from trtnorm_cli.evaluate.model_file import resized
from trtnorm_cli.evaluate.ort_runner import OrtRunner


@pytest.fixture(autouse=True)
def _however_quick(monkeypatch):
    monkeypatch.setattr(smaller_inputs, "_FEW_MULTIPLY_ADDS", 0)


TOKENS = """g (float[1, 3, 96, 96] x) => (float y) {
    a = Conv<pads=[1, 1, 1, 1]>(x, w)
    f = Reshape(a, merged)
    t = Transpose<perm=[0, 2, 1]>(f)
    c = Concat<axis=1>(class, t)
    y = Add(c, embedding)
}"""


@pytest.mark.parametrize("opset", [9, 17])
def test_of_numbers_for_each_position_some_are_taken(tmp_path, opset: int):
    model = parse(TOKENS, WEIGHTS, opset=opset)
    found = smaller_inputs.smaller_inputs(model, SIZES)
    assert found is not None
    assert len(found.positions) == 1
    x, w = random(*SMALLER["x"]), WEIGHTS["w"]
    run = onnx.ModelProto.FromString(resized(found.model, SMALLER, tmp_path / "m.onnx")[0])
    alone = "g (float[1, 3, 32, 64] x) => (float a) { a = Conv<pads=[1, 1, 1, 1]>(x, w) }"
    with OrtRunner(threads=1) as runner:
        (made,) = runner.run(run, {"x": x}).values()
        (convolved,) = runner.run(parse(alone, {"w": w}), {"x": x}).values()
    tokens = np.concatenate([WEIGHTS["class"], convolved.reshape(1, 4, -1).transpose(0, 2, 1)], axis=1)
    taken = sized_tensors.spread_places((96 * 96 + 1,), (32 * 64 + 1,))[0]
    np.testing.assert_array_equal(made, tokens + WEIGHTS["embedding"][:, taken])


@pytest.mark.parametrize("changed", [0, 32 * 64 + 1, -1])
def test_numbers_for_each_position_are_the_same_in_all_models(changed: int):
    """Wherever the other number is: nobody would see one at a position that is left out."""
    found = smaller_inputs.smaller_inputs(parse(TOKENS, WEIGHTS), SIZES)
    assert found is not None
    assert smaller_inputs.at_smaller(parse(TOKENS, WEIGHTS), SIZES, found) is not None
    other = WEIGHTS["embedding"].copy()
    other[0, changed, 2] *= 1 + 1e-6
    assert smaller_inputs.at_smaller(parse(TOKENS, WEIGHTS | {"embedding": other}), SIZES, found) is None
    assert at_smaller(parse(TOKENS.replace("Add(c, embedding)", "Relu(c)"), WEIGHTS), SIZES, SMALLER) is not None
    without = parse(TOKENS.replace("Add(c, embedding)", "Relu(c)"), WEIGHTS)
    assert smaller_inputs.at_smaller(without, SIZES, found) is None


def test_numbers_beside_the_channels_are_the_same_in_all_models():
    """As the positions that a DETR puts beside its keys."""
    text = body("u = Unsqueeze(table, zeros_ones) c = Concat<axis=1>(a, u) y = Conv(c, v)")
    weights = WEIGHTS | {"v": random(2, 5, 1, 1)}
    found = smaller_inputs.smaller_inputs(parse(text, weights), SIZES)
    assert found is not None
    assert len(found.positions) == 1
    for row, column in ((0, 0), (95, 95), (41, 7)):
        other = WEIGHTS["table"].copy()
        other[row, column] *= 1 + 1e-6
        assert smaller_inputs.at_smaller(parse(text, weights | {"table": other}), SIZES, found) is None
    last = parse(text.replace("Concat<axis=1>(a, u)", "Concat<axis=1>(u, a)"), weights)
    assert smaller_inputs.at_smaller(last, SIZES, found) is not None, "the comparison there tells"


def test_numbers_for_each_position_may_be_worked_out_or_stored_elsewhere(tmp_path):
    order, rows = np.random.default_rng(0).permutation(96), random(96, 96, seed=2)
    text = "e = Gather<axis=0>(rows, order) u = Unsqueeze(e, i0) y = Add(a, u)"
    gathered = parse(body(text), WEIGHTS | {"rows": rows, "order": order})
    found = smaller_inputs.smaller_inputs(gathered, SIZES)
    assert found is not None
    stored = parse(body("y = Add(a, table)"), WEIGHTS | {"table": rows[order]})
    onnx.save(stored, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    stored = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    assert smaller_inputs.at_smaller(stored, SIZES, found, tmp_path) is not None
    (tmp_path / "m.data").unlink()
    assert smaller_inputs.at_smaller(stored, SIZES, found, tmp_path) is None


@pytest.mark.parametrize(
    "lines",
    [
        "y = Add(a, between)",
        "n = Neg(a) c = Mul(a, shown) s = Mul(n, hidden) y = Add(s, c)",  # the first is seen at every third place only
    ],
)
def test_more_numbers_are_taken_where_few_do_not_show_the_whole(lines: str):
    assert shapes_of(body(lines), WEIGHTS) == {"x": (1, 3, 64, 64)}


def test_numbers_whose_parts_are_alike_are_no_numbers_to_cut():
    """Which of both is added where would not show."""
    other = WEIGHTS["table"].copy()
    other[1::3] *= 2
    lines = "b = Add(a, table) c = Relu(b) y = Add(c, other)"
    assert shapes_of(body(lines), WEIGHTS | {"other": other}) == {"x": (1, 3, 64, 64)}
    assert shapes_of(body(lines), WEIGHTS | {"other": random(96, 96, seed=7)}) == SMALLER
    twice = smaller_inputs.smaller_inputs(parse(body(lines), WEIGHTS | {"other": WEIGHTS["table"]}), SIZES)
    assert twice is not None
    once = parse(body("b = Add(a, table) y = Relu(b)"), WEIGHTS)
    assert smaller_inputs.at_smaller(once, SIZES, twice) is None


def test_numbers_are_taken_along_the_same_axes_in_all_models():
    """Of positions in a row others are taken than of an image."""
    image = body("b = Add(a, table) f = Reshape(b, merged) y = Relu(f)")
    row = body("f = Reshape(a, merged) b = Add(f, table) y = Relu(b)")
    found = smaller_inputs.smaller_inputs(parse(image, WEIGHTS), SIZES)
    assert found is not None
    in_a_row = WEIGHTS | {"table": WEIGHTS["table"].reshape(1, -1)}
    assert smaller_inputs.smaller_inputs(parse(row, in_a_row), SIZES) is not None
    assert smaller_inputs.at_smaller(parse(row, in_a_row), SIZES, found) is None


def test_numbers_that_are_added_many_times_are_worked_out_once(monkeypatch):
    worked_out, real = [], position_numbers.evaluate_float64
    monkeypatch.setattr(position_numbers, "evaluate_float64", lambda *given: worked_out.append(1) or real(*given))
    found = smaller_inputs.smaller_inputs(parse(body("b = Add(a, table) c = Relu(b) y = Add(c, table)"), WEIGHTS), SIZES)
    assert found is not None
    assert (len(found.positions), len(worked_out)) == (2, 1)


@pytest.mark.parametrize(("changed", "is_same"), [(0.0, True), (1e-5, False)])
def test_numbers_that_are_worked_out_are_rounded_where_another_model_stores_them(changed: float, is_same: bool):
    """Of those that both store, every bit has to be the same."""
    angles = np.linspace(0, 60, 96 * 96, dtype=np.float32).reshape(96, 96)
    found = smaller_inputs.smaller_inputs(parse(body("e = Sin(angles) y = Add(a, e)"), WEIGHTS | {"angles": angles}), SIZES)
    assert found is not None
    table = np.sin(angles)
    table[95, 95] += changed
    stored = parse(body("y = Add(a, table)"), WEIGHTS | {"table": table})
    assert (smaller_inputs.at_smaller(stored, SIZES, found) is not None) is is_same
    of_stored = smaller_inputs.smaller_inputs(parse(body("y = Add(a, table)"), WEIGHTS | {"table": np.sin(angles)}), SIZES)
    rounded = parse(body("y = Add(a, table)"), WEIGHTS | {"table": np.nextafter(table, np.float32(2))})
    assert smaller_inputs.at_smaller(rounded, SIZES, of_stored) is None


@pytest.mark.parametrize(("changed", "is_same"), [(1.0, True), (1 + 1e-6, False)])
def test_numbers_may_be_multiples_by_one_factor(changed: float, is_same: bool):
    """As those of a rotary embedding into which the scale of an attention was folded."""
    found = smaller_inputs.smaller_inputs(parse(body("y = Add(a, table)"), WEIGHTS), SIZES)
    table = WEIGHTS["table"] * np.float32(0.354)
    table[95, 95] *= np.float32(changed)
    scaled = parse(body("y = Add(a, table)"), WEIGHTS | {"table": table})
    assert (smaller_inputs.at_smaller(scaled, SIZES, found) is not None) is is_same


def test_few_places_lie_in_all_columns():
    """A place at the same distance from the next would be in the first column of an image each time."""
    (places,) = sized_tensors.spread_places((64 * 64,), (24,)).values()
    assert places == sorted(set(places))
    assert places[0] == 0
    assert len({place % 64 for place in places}) > 12
    assert all(one < other for one, other in itertools.pairwise(sized_tensors.spread_places((96,), (31,))[0]))


def test_numbers_that_nobody_can_work_out_keep_the_shapes():
    text = body("r = RandomNormalLike(table) y = Add(a, r)")
    assert shapes_of(text, WEIGHTS) is None


def test_numbers_and_their_multiple_are_told_apart():
    """Cosines for the keys of an attention, and the same times its scale for the queries."""
    angles = np.linspace(0, 60, 96 * 96, dtype=np.float32).reshape(96, 96)
    lines = "a = Conv<pads=[1, 1, 1, 1]>(x, w) {} k = Add(a, one) q = Add(a, eighth) y = Mul(k, q)"
    made = "one = Cos(angles) eighth = Mul(one, scale)"
    scale, cosines = np.float32(0.125), np.cos(angles)
    model = parse(body(lines.format(made)), DOWN | {"angles": angles, "scale": scale})
    stored = parse(body(lines.format("")), DOWN | {"one": cosines, "eighth": cosines * scale})
    swapped = parse(body(lines.format("")), DOWN | {"one": cosines * scale, "eighth": cosines * scale})
    found = smaller_inputs.smaller_inputs(model, SIZES)
    assert found is not None
    assert smaller_inputs.at_smaller(stored, SIZES, found) is not None
    assert smaller_inputs.at_smaller(swapped, SIZES, found) is None


def test_too_many_numbers_for_each_position_keep_the_shapes(monkeypatch):
    text, weights = body("a = Conv<pads=[1, 1, 1, 1]>(x, w) y = Add(a, p)"), DOWN | {"p": random(4, 96, 96)}
    assert shapes_of(text, weights) is not None
    monkeypatch.setattr(position_numbers, "_MOST_NUMBERS", 4 * 96 * 96 - 1)
    assert shapes_of(text, weights) is None


def test_numbers_are_worked_out_in_turns(monkeypatch):
    monkeypatch.setattr(position_numbers, "_NUMBERS_AT_ONCE", 4 * 96 * 96)
    seen = list[int]()
    original = position_numbers.evaluate_float64
    monkeypatch.setattr(position_numbers, "evaluate_float64", lambda model, feeds: seen.append(1) or original(model, feeds))
    lines = "a = Conv<pads=[1, 1, 1, 1]>(x, w) t = Sin(p) u = Cos(p) b = Add(a, t) y = Add(b, u)"
    assert shapes_of(body(lines), DOWN | {"p": random(4, 96, 96)}) is not None
    assert len(seen) == 2


def test_factors_near_zero_are_so_in_any_part(monkeypatch):
    """To look at more and more positions took four of the eleven seconds of a DAB-DETR."""
    tried, real = [], smaller_inputs.PositionNumbers.of
    monkeypatch.setattr(smaller_inputs.PositionNumbers, "of", staticmethod(lambda *given: tried.append(1) or real(*given)))
    table = np.sin(np.linspace(0, 60, 512 * 512, dtype=np.float32)).reshape(512, 512)
    text = body("y = Mul(a, table)").replace("96, 96", "512, 512")
    assert shapes_of(text, WEIGHTS | {"table": table}, {"x": (1, 3, 512, 512)}) is None
    assert len(tried) == 3


def test_factors_of_an_axis_that_keeps_its_length_are_not_taken_in_part():
    """A larger image may have a side as long as the model's own."""
    table = np.sin(np.linspace(0, 3, 64, dtype=np.float32)).reshape(64, 1)
    table[10:20] = 0
    text = body("y = Mul(a, table)").replace("96, 96", "64, 512")
    assert shapes_of(text, WEIGHTS | {"table": table}, {"x": (1, 3, 64, 512)}) == {"x": (1, 3, 64, 96)}
