"""Shifted windows at smaller images: masks for each window, and patches that are merged by slices with steps."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx
import pytest

from tests.compare.smaller import found_at, is_same_at
from tests.models import parse, random
from trtnorm_cli.compare import smaller_inputs
from trtnorm_cli.compare.hidden_positions import are_hidden, may_be_taken_in_part
from trtnorm_cli.compare.sized_tensors import spread_places
from trtnorm_cli.compare.slices import places_by_axis
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.evaluate.model_file import resized

SIZES = {"x": (1, 3, 192, 192)}
# At 32 x 64 pixels none of the eight windows would have a mask.
SMALLER = {"x": (1, 3, 64, 96)}
GRID, WINDOW, SHIFT = 48, 4, 2
WINDOWS, TOKENS = (GRID // WINDOW) ** 2, WINDOW**2
# Features at each fourth pixel, moved around their ends; windows of them, that attend to themselves under a mask; and the
# features again, of which four neighbours are merged.
SHIFTED = """g (float[1, 3, 192, 192] x) => (float y) {
    a = Conv<strides=[4, 4]>(x, w)
    t = Transpose<perm=[0, 2, 3, 1]>(a)
    b0 = Slice(t, shift, most, rows)
    b1 = Slice(t, zero, shift, rows)
    b = Concat<axis=1>(b0, b1)
    c0 = Slice(b, shift, most, columns)
    c1 = Slice(b, zero, shift, columns)
    c = Concat<axis=2>(c0, c1)
    split = Reshape(c, in_windows)
    beside = Transpose<perm=[0, 1, 3, 2, 4, 5]>(split)
    v = Reshape(beside, windows)
    q = MatMul(v, wq)
    k = Transpose<perm=[0, 2, 1]>(v)
    s = MatMul(q, k)
    MASKED
    p = Softmax<axis=-1>(h)
    o = MatMul(p, v)
    apart = Reshape(o, of_windows)
    back = Transpose<perm=[0, 1, 3, 2, 4, 5]>(apart)
    f = Reshape(back, grid)
    MERGED
}"""
ADDED = "h = Add(s, mask)"
CHOSEN = "keeps = Equal(mask, nothing) h = Where(keeps, s, lowest)"
PHASES = [f"m{row}{column} = Slice(f, at{row}{column}, ends, both, twice)" for row in (0, 1) for column in (0, 1)]
MERGED = "\n".join([*PHASES, "m = Concat<axis=3>(m00, m10, m01, m11) y = MatMul(m, wm)"])


def mask_of(grid: int = GRID, window: int = WINDOW, shift: int = SHIFT, hidden: float = -100.0) -> np.ndarray:
    """For each window which of its positions do not belong together, as they came from opposite ends [windows, N, N]."""
    parts = np.repeat([0, 1, 2], [grid - window, window - shift, shift])
    areas = 3 * parts[:, None] + parts[None, :]
    count = grid // window
    each = areas.reshape(count, window, count, window).transpose(0, 2, 1, 3).reshape(count * count, window * window)
    return np.where(each[:, None] != each[:, :, None], hidden, 0.0).astype(np.float32)


WEIGHTS = {
    "w": random(4, 3, 4, 4),
    "wq": random(4, 4, seed=1),
    "wm": random(16, 4, seed=2),
    "shift": np.array([SHIFT]),
    "zero": np.array([0]),
    "most": np.array([2**63 - 1]),
    "rows": np.array([1]),
    "columns": np.array([2]),
    "both": np.array([1, 2]),
    "twice": np.array([2, 2]),
    "ends": np.array([GRID, GRID]),
    **{f"at{row}{column}": np.array([row, column]) for row in (0, 1) for column in (0, 1)},
    "in_windows": np.array([1, GRID // WINDOW, WINDOW, GRID // WINDOW, WINDOW, 4]),
    "windows": np.array([WINDOWS, TOKENS, 4]),
    "of_windows": np.array([1, GRID // WINDOW, GRID // WINDOW, WINDOW, WINDOW, 4]),
    "grid": np.array([1, GRID, GRID, 4]),
    "mask": mask_of(),
    "nothing": np.array(0, np.float32),
    "lowest": np.array(np.finfo(np.float32).min),
}


@pytest.fixture(autouse=True)
def _however_quick(monkeypatch):
    monkeypatch.setattr(smaller_inputs, "_FEW_MULTIPLY_ADDS", 0)


def shifted(masked: str = ADDED, merged: str = MERGED, **weights: np.ndarray) -> onnx.ModelProto:
    return parse(SHIFTED.replace("MASKED", masked).replace("MERGED", merged), {**WEIGHTS, **weights}, opset=17)


found_for, is_same = partial(found_at, SIZES), partial(is_same_at, SIZES)


@pytest.mark.parametrize("masked", [ADDED, CHOSEN])
def test_windows_with_masks_stand_at_smaller_images(tmp_path, masked: str):
    found = found_for(shifted(masked))
    assert found.shapes == SMALLER
    run = onnx.ModelProto.FromString(resized(found.model, found.shapes, tmp_path / "m.onnx")[0])
    made = evaluate_float64(run, {"x": random(1, 3, 64, 96, seed=3)}, ["s", "h", "y"]).outputs
    assert made["h"].shape == (4 * 6, TOKENS, TOKENS)
    assert made["y"].shape == (1, 8, 12, 4)
    # Some windows have positions that do not see each other, and some have none.
    hidden = (made["h"] < made["s"] - 50).any((1, 2))
    assert 0 < hidden.sum() < len(hidden)


@pytest.mark.parametrize("masked", [ADDED, CHOSEN])
@pytest.mark.parametrize("place", [(0, 0, 1), (WINDOWS - 1, 3, 9), (77, 15, 15), (WINDOWS // 12 - 1, 0, 2)])
def test_masks_are_the_same_in_all_models(masked: str, place: tuple[int, int, int]):
    found, other = found_for(shifted(masked)), WEIGHTS["mask"].copy()
    assert is_same(shifted(masked), found)
    other[place] = 0.0 if other[place] else -100.0
    assert not is_same(shifted(masked, mask=other), found)


def test_masks_may_not_hide_most():
    """As many positions would be looked at as are seen."""
    of_one_window = np.repeat(mask_of()[-1:], WINDOWS, 0)
    assert np.mean(of_one_window != 0) > 0.5
    assert smaller_inputs.smaller_inputs(shifted(mask=of_one_window), SIZES) is None
    of_rows = WEIGHTS["mask"].copy()
    of_rows[5, 3] = -100.0
    assert smaller_inputs.smaller_inputs(shifted(mask=of_rows), SIZES) is None, "one position sees none"


def test_masks_of_all_windows_stay():
    """A mask that is the same for each window has nothing to do with the image."""
    one = np.where(np.eye(TOKENS, dtype=bool), np.float32(-100), np.float32(0))
    assert found_for(shifted(mask=one)).shapes == {"x": (1, 3, 32, 64)}


def test_what_is_merged_with_steps_is_told_apart():
    """By what comes of it: which neighbours are merged shows at any size."""
    found = found_for(shifted())
    assert is_same(shifted(merged=MERGED.replace("(m00, m10, m01, m11)", "(m10, m00, m01, m11)")), found)
    far = shifted(ends=np.array([GRID + 9, GRID + 1]))
    assert is_same(far, found), "up to the end, however that is said"


@pytest.mark.parametrize(
    ("merged", "is_found"),
    [
        ("y = Slice(f, first, last, rows, step)", {"first": [0], "last": [2**63 - 1], "step": [4]}),
        ("y = Slice(f, first, last, rows, step)", {"first": [1], "last": [-1], "step": [2]}),
        ("y = Slice(f, first, last, rows, step)", {"first": [-1], "last": [-(2**63)], "step": [-1]}),
        ("y = Slice(f, first, last, rows, step)", {"first": [-2], "last": [0], "step": [-2]}),
    ],
)
def test_slices_with_steps_stand_at_smaller_images(merged: str, is_found: dict[str, list[int]]):
    model = shifted(merged=merged, **{name: np.array(value) for name, value in is_found.items()})
    found = found_for(model)
    assert found.shapes == SMALLER
    assert is_same(model, found)


@pytest.mark.parametrize(
    ("numbers", "size"),
    [
        ({"first": [0], "last": [GRID - 1], "step": [2]}, None),  # up to the last but one here, and to the last there
        ({"first": [0], "last": [2**63 - 1], "step": [3]}, (96, 128)),  # as much is left behind the last step at such a height
        ({"first": [GRID - 2], "last": [0], "step": [-2]}, None),  # from the last but one here, and from the last there
        ({"first": [0], "last": [9], "step": [2]}, None),  # there are nine at such a height, but a crop is no image
        ({"first": [0], "last": [2**63 - 1], "step": [2]}, (32, 64)),
    ],
)
def test_steps_that_end_elsewhere_have_no_smaller_images(numbers: dict[str, list[int]], size: tuple[int, int] | None):
    weights = {name: np.array(value) for name, value in numbers.items()}
    model = shifted("h = Identity(s)", "y = Slice(f, first, last, rows, step)", **weights)
    found = smaller_inputs.smaller_inputs(model, SIZES)
    assert (None if found is None else found.shapes["x"][2:]) == size


LEFT_OUT = """g (float[1, 4, 1504] x) => (float y) {
    a = Conv<strides=[8]>(x, w) p = Pad(a, pads) c = Conv(p, v) TAKEN y = Relu(s) }"""
SLICE = "s = Slice(c, start, end, axis, step)"
POOLED = "d = MaxPool<kernel_shape=[1], strides=[2]>(c) s = Slice(d, start, end, axis, step)"


@pytest.mark.parametrize(
    ("taken", "numbers"),
    [
        (SLICE, {"start": 0, "end": 2**63 - 1, "step": 8}),
        (SLICE, {"start": -1, "end": -(2**63), "step": -8}),
        ("s = MaxPool<kernel_shape=[1], strides=[8]>(c)", {}),
        ("s = Conv<strides=[8]>(c, one)", {}),
        (POOLED, {"start": 0, "end": 2**63 - 1, "step": 4}),
    ],
)
def test_a_kernel_that_is_laid_where_no_step_goes_is_not_reached(taken: str, numbers: dict[str, int]):
    """Its last places lie on data at a few positions between two steps alone, where the signal is short."""
    text, numbers = LEFT_OUT.replace("TAKEN", taken), {**numbers, "axis": 2}
    weights = {"w": random(8, 4, 8), "v": random(8, 8, 5, seed=1), "pads": np.array([0, 0, 24, 0, 0, 44])}
    weights |= {name: np.array([value]) for name, value in numbers.items()} | {"one": random(8, 8, 1, seed=2)}
    sizes = {"x": (1, 4, 1504)}
    found = smaller_inputs.smaller_inputs(parse(text, weights, opset=17), sizes)
    for place in range(5 if found is not None else 0):
        other = weights["v"].copy()
        other[..., place] *= 2
        there = smaller_inputs.at_smaller(parse(text, weights | {"v": other}, opset=17), sizes, found)
        data = {"x": random(*found.shapes["x"])}
        one, changed = (evaluate_float64(model, data).outputs["y"] for model in (found.model, there))
        assert not np.array_equal(one, changed), "each place is seen"


@pytest.mark.parametrize("start", [0, 1, -1, -3, 99, -99])
@pytest.mark.parametrize("end", [0, 5, -1, -99, 99])
@pytest.mark.parametrize("step", [1, 3, -1, -2])
def test_places_of_a_slice_are_those_of_numpy(start: int, end: int, step: int):
    found = places_by_axis([[start], [end], [-1], [step]], (4, 7))
    assert found is not None
    np.testing.assert_array_equal(np.arange(7)[start:end:step], np.array(range(*found[1]), int))
    assert found[0] == (0, 4, 1)


@pytest.mark.parametrize(
    ("numbers", "hidden"),
    [
        ([0.0, -100.0, 0.0, 1.0], [False, True, False, False]),
        ([0.0, 7.0, 14.0, 21.0], [False] * 4),
        ([-20.0, -7.0, 3.0, 12.0], [True, False, False, True]),
        ([600.0, np.inf, -np.inf, 4.0], [True, True, True, False]),
        ([100.0, 101.0, 102.0, 103.0], [True] * 4),
    ],
)
def test_what_is_far_from_all_others_hides(numbers: list[float], hidden: list[bool]):
    np.testing.assert_array_equal(are_hidden(np.array(numbers, np.float32), are_factors=False), hidden)


def test_factors_hide_where_they_are_zero():
    np.testing.assert_array_equal(are_hidden(np.array([0.0, 1e-9, 2.0]), are_factors=True), [True, False, False])


def swapped(masks: dict[str, np.ndarray], first: str, second: str) -> onnx.ModelProto:
    """Two attentions behind each other, each with a mask."""
    again = "k2 = Transpose<perm=[0, 2, 1]>(v2) s2 = MatMul(v2, k2) h = Add(s2, second)"
    lines = f"h0 = Add(s, first) p0 = Softmax<axis=-1>(h0) v2 = MatMul(p0, v) {again}".replace("first", first)
    return shifted(lines.replace("second", second), **masks)


def test_masks_that_only_differ_where_nothing_is_taken_are_told_apart():
    """How far the numbers are that hide shows nothing."""
    one, part = WEIGHTS["mask"], spread_places((WINDOWS,), (4 * 6,))[0]
    other = np.where(one < 0, np.float32(-101), one)
    for window in [window for window in range(WINDOWS) if window not in part][::3]:
        other[window] = np.roll(other[window], 5, (0, 1))
    found = found_for(swapped({"one": one, "other": other}, "one", "other"))
    there = smaller_inputs.at_smaller(swapped({"one": one, "other": other}, "other", "one"), SIZES, found)
    assert found.shapes != SMALLER
    assert there is not None, "the comparison there tells"


@pytest.mark.parametrize("kind", ["two numbers", "a factor and a number", "another axis", "axes that do not go together"])
def test_masks_that_hide_all_together_are_looked_at_together(kind: str):
    """A pair of positions is let through by each mask in some windows of the part, and by both in none."""
    part = spread_places((WINDOWS,), (4 * 6,))[0]
    one, other = np.zeros((2, WINDOWS, TOKENS, TOKENS), np.float32)
    one[part[::2], 2, 5], other[part[1::2], 2, 5] = -100, -100
    lines = "h0 = Add(s, one) h = Add(h0, other)"
    if kind == "a factor and a number":
        one, lines = 1 + one / 100, "h0 = Mul(s, one) h = Add(h0, other)"
    if kind == "another axis":
        lines = "h0 = Add(s, one) u = Unsqueeze(h0, zero) h1 = Add(u, other) h = Squeeze(h1, zero)"
        other = other[None]
    if kind == "axes that do not go together":
        lines = "h0 = Add(s, one) r = Reshape(h0, apart) h1 = Add(r, other) h = Reshape(h1, together)"
        other = other.reshape(WINDOWS, 4, 4, TOKENS)
        sizes = {"apart": np.array([WINDOWS, 4, 4, TOKENS]), "together": np.array([WINDOWS, TOKENS, TOKENS])}
        found = smaller_inputs.smaller_inputs(shifted(lines, one=one, other=other, **sizes), SIZES)
        assert found is None
        return
    found = smaller_inputs.smaller_inputs(shifted(lines, one=one, other=other), SIZES)
    assert found is None or found.shapes != SMALLER


@pytest.mark.parametrize("further", [100.0, -300.0])
def test_each_kind_of_number_that_hides_is_in_the_part(further: float):
    """What cuts off one may not cut off another."""
    mask = WEIGHTS["mask"].copy()
    few, more = (set(spread_places((WINDOWS,), (windows,))[0]) for windows in (4 * 6, 4 * 8))
    mask[min(more - few), 0, 1] = further
    assert found_for(shifted(mask=mask)).shapes == {"x": (1, 3, 64, 128)}


def test_numbers_far_from_each_other_are_no_mask():
    many = np.where(WEIGHTS["mask"] < 0, -20.0 * (1 + np.arange(WINDOWS) % 12).reshape(-1, 1, 1), 0.0).astype(np.float32)
    assert smaller_inputs.smaller_inputs(shifted(mask=many), SIZES) is None


@pytest.mark.parametrize(
    ("factors", "is_taken"),
    [
        (np.arange(160), True),  # the columns of an image, by which a detector's masks are multiplied
        (np.linspace(1, 600, 160), False),
        (np.geomspace(1 / 100, 400, 160), False),
        (np.geomspace(1 / 100, 100, 160), True),
        (np.linspace(0, 1, 160), False),
        (np.append(np.ones(159), np.inf), False),
        (np.append(np.ones(159), np.nan), False),
    ],
)
def test_factors_are_moderate_and_of_like_sizes(factors: np.ndarray, is_taken: bool):
    factors = factors.astype(np.float32).reshape(-1, 1)
    assert may_be_taken_in_part(factors, are_hidden(factors, True), (40, 1), True) is is_taken


STRIDED = """g (float[1, 3, 640, 32] x) => (float y) {
    a = Conv<strides=[4, 4]>(x, w) MASKED c = Conv<strides=[2, 2]>(h, v) y = Relu(c) }"""


@pytest.mark.parametrize(
    "masked", ["h = Mul(a, m)", "k = Cast<to=9>(m) h = Where(k, a, nothing)", "h0 = Add(a, far) h = Relu(h0)"]
)
def test_a_kernel_with_strides_meets_what_is_not_hidden(masked: str):
    """Each other row of those that are taken hides each other column, so that one place of the kernel sees nothing there."""
    rows = spread_places((160,), (16,))[0]
    mask = np.ones((1, 1, 160, 8), np.float32)
    for number, row in enumerate(rows):
        mask[0, 0, row, number % 2 :: 2] = 0
    weights = {"w": random(8, 3, 4, 4), "v": random(8, 8, 2, 2, seed=1), "m": mask, "far": 100 * mask - 100}
    model = parse(STRIDED.replace("MASKED", masked), weights | {"nothing": WEIGHTS["nothing"]}, opset=17)
    found = smaller_inputs.smaller_inputs(model, {"x": (1, 3, 640, 32)})
    assert found is None or found.shapes["x"][2] != 64
