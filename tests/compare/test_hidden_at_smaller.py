"""Defects that a smaller image or signal would hide, and are found all the same.

Each defect is small, so that float64 alone sees it, and lies where only the model's own sizes reach.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.models import parse, random
from trtnorm_cli.compare import smaller_first, smaller_inputs
from trtnorm_cli.compare.result import FAILED, PASSED
from trtnorm_cli.compare.sized_tensors import spread_places

WEIGHTS = {"w": random(4, 3, 3, 3), "v": random(4, 4, 3, 3, seed=1)}
LITTLE, LEAST = np.float32(1.0001), np.float32(1.00001)


@pytest.fixture(autouse=True)
def _however_quick(monkeypatch):
    monkeypatch.setattr(smaller_inputs, "_FEW_MULTIPLY_ADDS", 0)


def off(values: np.ndarray, *places: object, by: np.float32 = LITTLE) -> np.ndarray:
    changed = values.copy()
    changed[places] *= by
    return changed


def causal() -> tuple[str, dict[str, np.ndarray]]:
    """As networks for sound are: what a convolution looks back at is padded by a node."""
    lines, weights = "a0 = Identity(x)", dict[str, np.ndarray]()
    for n in range(7):
        lines += f" p{n} = Pad(a{n}, q{n}) c{n} = Conv<dilations=[{2**n}]>(p{n}, w{n}, b{n})"
        lines += f" r{n} = Relu(c{n}) a{n + 1} = Add(r{n}, a{n})"
        weights |= {
            f"w{n}": random(16, 16, 3, seed=n) / np.float32(6),
            f"b{n}": random(16, seed=n),
            f"q{n}": np.array([0, 0, 2 * 2**n, 0, 0, 0]),
        }
    return f"g (float[1, 16, 1500] x) => (float[1, 16] y) {{ {lines} m = GlobalAveragePool(a7) y = Flatten(m) }}", weights


def test_a_place_of_a_kernel_that_looks_back_at_padding_alone(compared):
    text, weights = causal()
    changed = weights | {"w6": off(weights["w6"], 3, slice(None), 0)}
    assert compared(parse(text, weights), parse(text, changed)).state == FAILED


def test_a_place_of_a_kernel_that_gives_only_what_is_cut_off(compared):
    text = """g (float[1, 16, 1500] x) => (float[1, 16] y) { a = Conv<pads=[1, 1]>(x, w)
      c = Conv<dilations=[64], pads=[128, 128]>(a, v, b) s = Slice(c, zero, length, two) r = Relu(s)
      m = GlobalAveragePool(r) y = Flatten(m) }"""
    weights = {"w": random(16, 16, 3), "v": random(16, 16, 3, seed=1), "b": random(16)}
    weights |= {"zero": np.array([0]), "length": np.array([1500]), "two": np.array([2])}
    changed = weights | {"v": off(weights["v"], 3, slice(None), 0, by=np.float32(1.000015))}
    renamed = text.replace("c = Conv", "d = Conv").replace("Slice(c", "Slice(d")
    assert compared(parse(text, weights), parse(renamed, changed)).state == FAILED


def test_padding_by_a_node_is_that_of_its_convolution(compared):
    text = """g (float[1, 3, 224, 224] x) => (float[1, 8] y) { a = Conv<strides=[32, 32]>(x, w) p = Pad(a, q) b = Conv(p, v)
      r = Relu(b) c = GlobalAveragePool(r) y = Flatten(c) }"""
    weights = {"w": random(32, 3, 32, 32) / np.float32(50), "v": random(8, 32, 5, 5, seed=1), "q": np.array([0, 0, 2, 2] * 2)}
    assert compared(parse(text, weights), parse(text, weights)).trials[0] == "default min (smaller: x 1x3x96x128)"
    changed = weights | {"v": off(weights["v"], 2, slice(None), 0)}
    assert compared(parse(text, weights), parse(text, changed)).state == FAILED


def test_what_is_moved_by_more_than_its_length(compared):
    text = """g (float[1, 16, 1500] x) => (float[1, 16] y) { c = Conv<pads=[1, 1]>(x, w) p = Pad(c, shift) d = Conv(p, v)
      e = Conv(c, u) s = Add(d, e) r = Relu(s) m = GlobalAveragePool(r) y = Flatten(m) }"""
    weights = {"w": random(16, 16, 3), "v": random(16, 16, 1), "u": random(16, 16, 1, seed=3)}
    weights["shift"] = np.array([0, 0, 128, 0, 0, -128])
    changed = weights | {"v": off(weights["v"], 3)}
    assert compared(parse(text, weights), parse(text, changed)).state == FAILED


BEHIND = "b = Conv<strides=[2, 2], pads=[1, 1, 1, 1]>(m, v) c = GlobalAveragePool(b) y = Flatten(c)"
SIZE = "a = Conv<strides=[2, 2], pads=[1, 1, 1, 1]>(x, w) s = Shape<start=2, end=3>(a)"
CUT = "t = Slice(table, zero, s, two) m = Mul(a, t)"
CUT_AT_ITS_END = "f = Sub(s, ten) t = Slice(table, f, s, two) u = ReduceMean<axes=[2]>(t) m = Mul(a, u)"
LIMITED = """n = Squeeze(s) z = Squeeze(zero) i = Range(z, n, one) f = Cast<to=1>(i) p = Min(f, high) e = Mul(p, tenth)
  t = Sin(e) u = Reshape(t, column) m = Add(a, u)"""
POSITIVE = np.abs(random(1, 1, 48, 1, seed=5)) + np.float32(0.5)
OF_SIZES = {"zero": np.array([0]), "two": np.array([2]), "ten": np.array([10]), "one": np.array(1)}
OF_SIZES |= {"table": POSITIVE, "high": np.float32(46.5), "tenth": np.float32(0.1)}
OF_SIZES |= {"column": np.array([-1, 1])}


@pytest.mark.parametrize(
    ("lines", "changed"),
    [
        (CUT, {"table": off(POSITIVE, 0, 0, 40)}),
        (CUT_AT_ITS_END, {"table": off(POSITIVE, 0, 0, 40, by=LEAST)}),
        (LIMITED, {"high": np.float32(46.5) * LITTLE}),
    ],
)
def test_numbers_that_the_size_takes_or_chooses(compared, lines: str, changed: dict[str, np.ndarray]):
    text = f"g (float[1, 3, 96, 96] x) => (float[1, 4] y) {{ {SIZE} {lines} {BEHIND} }}"
    weights = WEIGHTS | OF_SIZES
    assert compared(parse(text, weights, opset=17), parse(text, weights, opset=17)).state == PASSED
    assert compared(parse(text, weights, opset=17), parse(text, weights | changed, opset=17)).state == FAILED


def test_factors_that_the_size_chooses(compared):
    text = f"""g (float[1, 3, 96, 96] x) => (float[1, 4] y) {{ {SIZE} q = Greater(s, limit) t = Where(q, long, short)
      m = Mul(a, t) {BEHIND} }}"""
    long, short = (np.abs(random(64, 1, 1, seed=seed)) + np.float32(0.5) for seed in (5, 6))
    weights = {
        "w": random(64, 3, 3, 3),
        "v": random(4, 64, 3, 3, seed=1),
        "limit": np.array([40]),
        "long": long,
        "short": short,
    }
    changed = weights | {"long": off(long, int(np.argmin(long)))}
    assert compared(parse(text, weights, opset=17), parse(text, changed, opset=17)).state == FAILED


def test_sizes_that_become_the_same_at_smaller_images(compared):
    """The branch has so little weight that ONNX Runtime's rounding hides it."""
    text = """g (float[1, 3, 96, 96] x) => (float[1, 4] y) { c = Conv<pads=[1, 1, 1, 1]>(x, w) s = Slice(c, zero, end, three)
      r = Relu(s) p = MaxPool<kernel_shape=[3, 3]>(r) g7 = GlobalAveragePool(p) k = Mul(g7, gamma) t = Relu(c)
      h = GlobalAveragePool(t) j = Add(h, k) y = Flatten(j) }"""
    weights = {"w": WEIGHTS["w"], "zero": np.array([0]), "three": np.array([3]), "gamma": np.float32(1e-4)}
    right, wrong = (parse(text, weights | {"end": np.array([end])}) for end in (70, 38))
    assert compared(right, right).state == PASSED
    assert compared(right, wrong).state == FAILED


def test_a_small_number_beside_large_ones_in_a_table_that_is_worked_out(compared):
    text = """g (float[1, 3, 96, 96] x) => (float[1, 4] y) { a = Conv<strides=[2, 2], pads=[1, 1, 1, 1]>(x, w)
      f = Reshape(a, row) t = Mul(grid, eight) m = Add(f, t) e = Sigmoid(m) y = ReduceMean<axes=[2], keepdims=0>(e) }"""
    places, sizes = np.arange(48 * 48), np.random.default_rng(0).uniform(0.005, 0.05, (2, 48 * 48))
    grid = np.stack([places % 48 + 0.5, places // 48 + 0.5, *sizes])[None].astype(np.float32)
    left_out = next(place for place in range(1000, 2000) if place not in spread_places((48 * 48,), (16 * 32,))[0])
    weights = {"w": WEIGHTS["w"], "row": np.array([1, 4, -1]), "eight": np.float32([8])}
    right, wrong = (parse(text, weights | {"grid": one}) for one in (grid, off(grid, 0, 2, left_out, by=np.float32(1.03))))
    assert compared(right, right).state == PASSED
    assert compared(right, wrong).state == FAILED


def test_float64_that_says_nothing_at_a_smaller_image_stands_for_nothing(compared, monkeypatch):
    text = (
        "g (float[1, 3, 96, 96] x) => (float[1, 4] y) { a = Conv(x, w) m = Conv(a, v) c = GlobalAveragePool(m) y = Flatten(c) }"
    )
    original = smaller_first.at_smaller

    def without_float64(model, shapes, smaller, folder=None):
        found = original(model, shapes, smaller, folder)
        for node in found.graph.node:
            node.domain = "com.nobody" if node.op_type == "Flatten" else ""
        return found

    assert compared(parse(text, WEIGHTS), parse(text, WEIGHTS)).trials[0].startswith("default min (smaller")
    monkeypatch.setattr(smaller_first, "at_smaller", without_float64)
    found = compared(parse(text, WEIGHTS), parse(text, WEIGHTS | {"v": off(WEIGHTS["v"], 2)}))
    assert (found.state, found.trials) == (FAILED, ["default min"])


SIGNAL = "g (float[1, 16, 1500] x) => (float[1, 16] y)"
OF_SIGNAL = {f"w{n}": random(16, 16, 3, seed=n) / np.float32(7) for n in range(2)} | {
    "look": np.array([0, 0, 128, 0, 0, 0]), "delay": np.array([0, 0, 40, 0, 0, -40]), "zero": np.array([0]),
    "last": np.array([2]), "end": np.array([-40]), "fill": np.array([0, 0, 0, 0, 0, 40]), "scale": np.abs(random(16)),
    "mixed": random(16, 16, seed=9) / np.float32(4), "wide": random(16, 32, 3, seed=1) / np.float32(9),
    "double": random(32, 16, 3, seed=1) / np.float32(7), "pair": random(16, 16, 2, seed=1) / np.float32(6),
    "before": np.array([0, 0, 200, 0, 0, 0]), "behind": np.array([0, 0, 0, 0, 0, 200]), "hundred": np.array([-100]),
}  # fmt: skip
IN_ROWS = "t = Transpose<perm=[0, 2, 1]>(p) {} q = Transpose<perm=[0, 2, 1]>(m)"
LOOKING_BACK = "p = Pad(a, look) {} d = Conv<dilations=[64]>(q, w1)"


@pytest.mark.parametrize(
    ("lines", "name", "places", "by"),
    [
        (LOOKING_BACK.format(IN_ROWS.format("m = MatMul(t, mixed)")), "w1", (3, slice(None), 0), 1e-5),
        (LOOKING_BACK.format(IN_ROWS.format("m = LayerNormalization(t, scale)")), "w1", (3, slice(None), 0), 1e-5),
        (LOOKING_BACK.format("g0 = ReduceMean<axes=[2]>(a) g1 = Sigmoid(g0) q = Mul(p, g1)"), "w1", (3, slice(None), 0), 1e-5),
        (
            "z = Pad(a, delay) c = Concat<axis=1>(a, z) d = Conv<dilations=[64], pads=[128, 0]>(c, wide)",
            "wide", (3, slice(16, 32), 0), 1e-4,
        ),
        (
            "c = Conv<dilations=[64], pads=[128, 0]>(a, double) h, i = Split<axis=1>(c) s = Slice(i, zero, end, last) "
            "t = Pad(s, fill) d = Add(h, t)", "double", (20, slice(None), 0), 3e-5,
        ),
        (
            "p = Pad(a, before) q = Pad(a, behind) s = Add(p, q) c = Conv<dilations=[100]>(s, pair) "
            "d = Slice(c, zero, hundred, last)", "pair", (3, slice(None), 1), 1e-5,
        ),
    ],
    ids=["a product", "a normalization", "a gate", "channels that come late", "channels that are cropped", "an echo"],
)  # fmt: skip
def test_padding_is_followed_through_what_is_between(compared, lines: str, name: str, places: tuple[object, ...], by: float):
    text = f"{SIGNAL} {{ a = Conv<pads=[1, 1]>(x, w0) {lines} r = Relu(d) n = GlobalAveragePool(r) y = Flatten(n) }}"
    renamed = text.replace("c = Conv", "e = Conv").replace("(c", "(e") if "c = Conv" in text else text
    changed = OF_SIGNAL | {name: off(OF_SIGNAL[name], *places, by=np.float32(1 + by))}
    right = parse(text, OF_SIGNAL, opset=17)
    assert compared(right, right).state == PASSED
    assert compared(right, parse(renamed, changed, opset=17)).state == FAILED


@pytest.mark.parametrize("factor", ["q = Greater(s, limit) f = Cast<to=1>(q)", "q = Div(s, limit) f = Cast<to=1>(q)"])
def test_a_branch_that_the_size_turns_off(compared, factor: str):
    text = f"""g (float[1, 3, 96, 96] x) => (float[1, 16] y) {{ {SIZE} {factor} B = Conv<pads=[1, 1, 1, 1]>(a, v)
      h = GlobalAveragePool(B) i = Mul(h, f) e = Conv(a, k) j = GlobalAveragePool(e) o = Add(i, j) y = Flatten(o) }}"""
    weights = {"w": random(16, 3, 3, 3) / np.float32(5), "v": random(16, 16, 3, 3, seed=1) / np.float32(12)}
    weights |= {"k": random(16, 16, 1, 1, seed=2) / np.float32(4), "limit": np.array([40])}
    changed = weights | {"v": off(weights["v"], 3, slice(None), 0, by=np.float32(1.000015))}
    one, other = (
        parse(text, weights, opset=17),
        parse(text.replace("B =", "C =").replace("(B)", "(C)").replace("h =", "z =").replace("(h,", "(z,"), changed, opset=17),
    )
    assert compared(one, other).state == FAILED


def sliced(start: int, end: int) -> dict[str, np.ndarray]:
    return {"start": np.array([start]), "stop": np.array([end]), "last": np.array([2])}


SLICE = "s = Slice(c, start, stop, last)"


@pytest.mark.parametrize(
    ("lines", "others", "given", "changed"),
    [
        (SLICE, SLICE, sliced(0, -10), sliced(0, 50)),
        (SLICE, SLICE, sliced(-20, 1 << 40), sliced(40, 60)),
        ("s = Gather<axis=2>(c, at)", "s = Gather<axis=2>(c, at)", {"at": np.array([-1])}, {"at": np.array([59])}),
        (SLICE, "s = Pad(c, cut)", sliced(0, 10), {"cut": np.array([0, 0, 0, 0, 0, -50])}),
        (SLICE, "s = Identity(c)", sliced(0, 60), {}),
        ("s = Identity(c)", SLICE, {}, sliced(0, 60)),
    ],
    ids=["an end", "a start", "a place", "a pad", "nothing left out", "something left out"],
)
def test_places_that_are_the_same_at_one_size_alone(compared, lines: str, others: str, given, changed):
    """Of a branch with little weight, at the smallest signal that was taken before there had to be eight positions or more."""
    text = f"{SIGNAL} {{ c = Conv<pads=[1, 1]>(x, w0) %s b = Relu(s) p = GlobalAveragePool(b) k = Mul(p, little) t = Relu(c) "
    text += "h = GlobalAveragePool(t) j = Add(h, k) y = Flatten(j) }"
    weights = {"w0": OF_SIGNAL["w0"], "little": np.float32(1e-5)}
    assert compared(parse(text % lines, weights | given), parse(text % others, weights | changed)).state == FAILED


def test_an_image_that_is_turned_into_a_square(compared):
    text = """g (float[1, 3, 128, 32] x) => (float[1, 16] y) { c = Conv<pads=[1, 1, 1, 1]>(x, w) %s m = Conv(t, v)
      p = GlobalAveragePool(m) k = Mul(p, little) r = Relu(c) h = GlobalAveragePool(r) j = Add(h, k) y = Flatten(j) }"""
    weights = {"w": random(16, 3, 3, 3) / np.float32(5), "v": random(16, 16, 3, 3, seed=1), "little": np.float32(1e-5)}
    weights["turned"] = np.array([1, 16, 32, 128])
    as_it_is, turned = (parse(text % line, weights) for line in ("t = Identity(c)", "t = Reshape(c, turned)"))
    assert compared(as_it_is, turned).state == FAILED


def test_a_pooling_that_is_rounded_up_where_that_shows(compared):
    text = """g (float[1, 16, 1495] x) => (float[1, 16] y) { c = Conv<pads=[1, 1]>(x, w0)
      s = MaxPool<kernel_shape=[11], strides=[11], ceil_mode=UP>(c) b = Relu(s) p = GlobalAveragePool(b) k = Mul(p, little)
      t = Relu(c) h = GlobalAveragePool(t) j = Add(h, k) y = Flatten(j) }"""
    weights = {"w0": OF_SIGNAL["w0"], "little": np.float32(1e-4)}
    assert compared(*(parse(text.replace("UP", mode), weights) for mode in ("1", "0"))).state == FAILED


def test_a_small_factor_that_is_worked_out(compared):
    angles = np.linspace(0, 4.5, 1500, dtype=np.float32)[None, None]
    text = f"{SIGNAL} {{ a = Conv<pads=[1, 1]>(x, w0) %s m = Mul(a, t) r = Relu(m) d = Conv(r, w1)"
    text += " n = GlobalAveragePool(d) y = Flatten(n) }"
    made = parse(text % "f = Neg(g0) t = Exp(f)", OF_SIGNAL | {"g0": angles})
    stored, left_out = np.exp(-angles.astype(np.float64)).astype(np.float32), list(range(900, 1500))
    for by, state in ((1.0, PASSED), (1.00003, FAILED)):
        changed = off(stored, 0, 0, left_out, by=np.float32(by))
        changed[..., spread_places((1500,), (60,))[0]] = stored[..., spread_places((1500,), (60,))[0]]
        assert compared(made, parse(text % "", OF_SIGNAL | {"t": changed})).state == state


def test_two_positions_are_too_few_to_be_normalized(compared):
    text = f"{SIGNAL} {{ a = Conv<strides=[30]>(x, k) n = InstanceNormalization(a, scale, scale) r = Relu(n) d = Conv(r, w1)"
    text += " m = GlobalAveragePool(d) y = Flatten(m) }"
    weights = OF_SIGNAL | {"k": random(16, 16, 30) / np.float32(20)}
    changed = weights | {"k": off(weights["k"], 3, 2)}
    assert compared(parse(text, weights), parse(text.replace("a =", "e =").replace("(a,", "(e,"), changed)).state == FAILED
