"""Data that fits: what the uses of an input in a model say of its values."""

from __future__ import annotations

import time

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

from tests.models import parse, random
from trtnorm_cli.evaluate.data.drawing import draw, fitting_feeds
from trtnorm_cli.evaluate.data.input_ranges import InputRanges
from trtnorm_cli.evaluate.data.shape_points import ShapePoint
from trtnorm_cli.profile.model import Integers
from trtnorm_cli.shapes.propagate import propagate

TABLE = {"words": random(300, 4)}


def domains(model, **shapes):
    return InputRanges(model).at(shapes)


def span(domain):
    assert domain.values is not None
    return domain.values.low, domain.values.high


def values(model, name, seed=0, **shapes):
    ranges = InputRanges(model)
    domain = ranges.at(shapes)[name]
    return draw(ranges.inputs[name], shapes[name], None, np.random.default_rng(seed), domain)


def runs(model, **shapes):
    """Run the model in ONNX Runtime on the drawn data of five seeds."""
    ranges = InputRanges(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for seed in range(5):
        feeds, _, _ = fitting_feeds(ranges, [ShapePoint("p", shapes)], {}, seed)
        outputs = session.run(None, dict(feeds[0]))
    return outputs


def test_the_whole_vocabulary():
    model = parse("g (int64[N, T] ids) => (float[N, T, 4] y) { y = Gather(words, ids) }", TABLE)
    found = domains(model, ids=(2, 7))["ids"]
    assert found.text == "integers 0 to 299 (index of words)"
    drawn = values(model, "ids", ids=(50, 40))
    assert drawn.min() == 0
    assert drawn.max() == 299
    runs(model, ids=(50, 40))


@pytest.mark.parametrize(("body", "low", "high"), [
    ("y = Gather(words, i)", 0, 299),
    ("a = Cast <to = 6> (i) y = Gather(words, a)", 0, 299),
    ("s = Constant <value_ints = [-1]> () a = Reshape(i, s) y = Gather(words, a)", 0, 299),
    ("s = Constant <value_ints = [1]> () a = Unsqueeze(i, s) b = Squeeze(a, s) y = Gather(words, b)", 0, 299),
    ("a = Transpose(i) b = Identity(a) y = Gather(words, b)", 0, 299),
    ("s = Constant <value_ints = [3, 5]> () a = Expand(i, s) y = Gather(words, a)", 0, 299),
    ("a = Concat <axis = 0> (i, i) y = Gather(words, a)", 0, 299),
    ("c = Constant <value_int = 10> () a = Sub(i, c) y = Gather(words, a)", 10, 309),
    ("c = Constant <value_int = 10> () a = Add(i, c) y = Gather(words, a)", 0, 289),
    ("c = Constant <value_int = 9> () a = Sub(c, i) y = Gather(words, a)", 0, 9),
    ("c = Constant <value_int = 3> () a = Mul(i, c) y = Gather(words, a)", 0, 99),
    ("c = Constant <value_int = 2> () a = Div(i, c) y = Gather(words, a)", 0, 599),
    ("c = Constant <value_ints = [0, 100, 200, 290, 20]> () a = Add(i, c) y = Gather(words, a)", 0, 9),
    ("c = Constant <value_int = 0> () d = Constant <value_int = 99> () a = Clip(i, c, d) y = Gather(words, a)", 0, 99),
    ("c = Constant <value_int = 50> () a = Mod(i, c) y = Gather(words, a)", 0, 99),
    ("c = Constant <value_int = 50> () a = Min(i, c) y = Gather(words, a)", 0, 50),
    ("c = Constant <value_int = 7> () d = Equal(i, c) a = Where(d, c, i) y = Gather(words, a)", 0, 299),
    ("y = Gather(words, i) z = Gather <axis = 1> (words, i)", 0, 3),
    ("c = Constant <value_ints = [1]> () a = Unsqueeze(i, c) y = GatherElements <axis = 1> (words, a)", 0, 3),
    ("c = Constant <value_ints = [0]> () a = Constant <value_ints = [1]> () b = Reshape(i, a) y = Slice(words, c, b)", 1, 300),
    ("c = Constant <value_int = 12> () v = Constant <value_floats = [0.0, 1.0]> () y = OneHot(i, c, v)", 0, 11),
])  # fmt: skip
def test_followed_through(body, low, high):
    model = parse(f"g (int64[N] i) => (float y) {{ {body} }}", TABLE)
    assert span(domains(model, i=(5,))["i"]) == (low, high)


def test_negative_indices_that_are_wrapped_are_not_drawn():
    body = """z = Constant <value_int = 0> () n = Constant <value_int = 300> () c = Less(i, z) a = Add(i, n)
        w = Where(c, a, i) y = Gather(words, w)"""
    model = parse(f"g (int64[N] i) => (float[N, 4] y) {{ {body} }}", TABLE)
    assert domains(model, i=(5,))["i"].text == "integers 0 to 299 (index of words)"


def test_a_choice_written_as_a_sum_of_products():
    """tf2onnx writes a Where of integers so."""
    body = """z = Constant <value_int = 0> () n = Constant <value_int = 300> () c = Less(i, z) d = Not(c) a = Add(i, n)
        f = Cast <to = 7> (c) g = Cast <to = 7> (d) p = Mul(f, a) q = Mul(i, g) w = Add(p, q) y = Gather(words, w)"""
    model = parse(f"g (int64[N] i) => (float[N, 4] y) {{ {body} }}", TABLE)
    assert domains(model, i=(5,))["i"].text == "integers 0 to 299 (index of words)"


def test_two_tables_that_share_the_numbers():
    body = """z = Constant <value_int = 0> () n = Constant <value_int = 300> () c = Less(i, n) a = Where(c, i, z)
        s = Sub(i, n) d = Not(c) b = Where(d, s, z) y = Gather(words, a) w = Gather(more, b)"""
    model = parse(f"g (int64[N] i) => (float[N, 4] y, float[N, 4] w) {{ {body} }}", {**TABLE, "more": random(50, 4)})
    assert span(domains(model, i=(5,))["i"]) == (0, 349)
    runs(model, i=(500,))


def test_an_intersection_of_several_uses_and_one_that_is_empty():
    both = parse(
        "g (int64[N] i) => (float[N, 4] y, float[N, 4] w) { y = Gather(words, i) w = Gather(more, i) }",
        {**TABLE, "more": random(50, 4)},
    )
    assert span(domains(both, i=(5,))["i"]) == (0, 49)
    body = "c = Constant <value_int = 1000> () a = Sub(i, c) y = Gather(words, i) w = Gather(words, a)"
    none = parse(f"g (int64[N] i) => (float[N, 4] y, float[N, 4] w) {{ {body} }}", TABLE)
    found = domains(none, i=(5,))["i"]
    assert "no value fits all uses of the input i" in (found.note or "")


def test_sizes_of_the_shape_at_hand():
    model = parse("g (float[N, T] x, int64[K] i) => (float[N, K] y) { a = Relu(x) y = Gather <axis = 1> (a, i) }")
    ranges = InputRanges(model)
    assert span(ranges.at({"x": (2, 9), "i": (3,)})["i"]) == (0, 8)
    assert span(ranges.at({"x": (2, 20), "i": (3,)})["i"]) == (0, 19)
    feeds, chosen, _ = fitting_feeds(
        ranges, [ShapePoint("p min", {"x": (2, 9), "i": (3,)}), ShapePoint("p max", {"x": (2, 20), "i": (3,)})], {}, 0
    )
    assert chosen["i"] == "integers 0 to 8 (index of a) at p min; integers 0 to 19 (index of a) at p max"
    assert [feed["i"].shape for feed in feeds] == [(3,), (3,)]


def test_positions_beside_a_past():
    """The offset is computed from the sizes of another input."""
    body = """one = Constant <value_int = 1> () s = Shape(past) p = Gather(s, one) i = Add(pos, p) y = Gather(words, i)"""
    model = parse(f"g (float[N, P, 4] past, int64[N, T] pos) => (float[N, T, 4] y) {{ {body} }}", TABLE)
    assert span(domains(model, past=(2, 100, 4), pos=(2, 5))["pos"]) == (0, 199)


def test_flattened_indices():
    """Row number times row length plus position."""
    body = """one = Constant <value_int = 1> () zero = Constant <value_int = 0> () s = Shape(x) n = Gather(s, zero)
        t = Gather(s, one) r = Range(zero, n, one) m = Mul(r, t) i = Add(m, pos) f = Constant <value_ints = [-1]> ()
        flat = Reshape(x, f) y = Gather(flat, i)"""
    model = parse(f"g (float[N, T] x, int64[N] pos) => (float[N] y) {{ {body} }}")
    assert span(domains(model, x=(3, 7), pos=(3,))["pos"]) == (0, 6)
    runs(model, x=(3, 7), pos=(3,))


def test_each_component_has_its_axis():
    model = parse("g (float[A, B] x, int64[K, 2] i) => (float[K] y) { y = GatherND(x, i) }")
    drawn = values(model, "i", x=(2, 50), i=(400, 2))
    assert drawn[:, 0].max() == 1
    assert 40 < drawn[:, 1].max() < 50
    body = """a = Constant <value_ints = [1]> () c = Unsqueeze(r, a) d = Unsqueeze(s, a) i = Concat <axis = 1> (c, d)
        y = GatherND(x, i)"""
    model = parse(f"g (float[A, B] x, int64[K] r, int64[K] s) => (float[K] y) {{ {body} }}")
    found = domains(model, x=(2, 50), r=(9,), s=(9,))
    assert (span(found["r"]), span(found["s"])) == ((0, 1), (0, 49))


def test_updates_do_not_meet():
    """What two updates of one element give is not defined."""
    body = "a = Constant <value_ints = [1]> () j = Unsqueeze(i, a) y = ScatterND(x, j, u)"
    model = parse(f"g (float[T, 4] x, int64[K] i, float[K, 4] u) => (float[T, 4] y) {{ {body} }}")
    for seed in range(5):
        drawn = values(model, "i", seed, x=(8, 4), i=(8,), u=(8, 4))
        assert sorted(drawn) == list(range(8))


def test_into_subgraphs():
    branches = """y = If (c) <then_branch = t () => (float[N, 4] a) { a = Gather(words, i) },
        else_branch = e () => (float[N, 4] b) { five = Constant <value_int = -5> () j = Add(i, five) b = Gather(words, j) }>"""
    model = parse(f"g (bool c, int64[N] i) => (float[N, 4] y) {{ {branches} }}", TABLE)
    found = domains(model, c=(), i=(9,))
    assert span(found["i"]) == (5, 299)
    assert found["c"].choices == (0, 1)
    made = (
        "k = If (c) <then_branch = t () => (int64[N] a) { a = Identity(i) }, else_branch = e () => (int64[N] b) { b = Neg(i) }>"
    )
    model = parse(f"g (bool c, int64[N] i) => (float[N, 4] y) {{ {made} y = Gather(words, k) }}", TABLE)
    runs(model, c=(), i=(9,))


def test_into_loops():
    loop = """n = Constant <value_int = 3> () t = Cast <to = 9> (n)
        last, y = Loop (n, t, i) <body = b (int64 k, bool go, int64[N] j) => (bool on, int64[N] same, float[N, 4] row)
        { on = Identity(go) same = Identity(j) row = Gather(words, j) }>"""
    model = parse(f"g (int64[N] i) => (int64[N] last, float[M, N, 4] y) {{ {loop} }}", TABLE)
    assert span(domains(model, i=(9,))["i"]) == (0, 299)


def test_into_functions():
    text = """<ir_version: 8, opset_import: ["" : 17, "mine" : 1]>
        g (int64[N] i, float[V, 4] words) => (float[N, 4] y) { y = mine.embed(words, i) }
        <domain: "mine", opset_import: ["" : 17]> embed (w, k) => (o) { a = Identity(k) o = Gather(w, a) }"""
    model = onnx.parser.parse_model(text)
    assert span(domains(model, i=(9,), words=(40, 4))["i"]) == (0, 39)


@pytest.mark.parametrize("operator", ["Less(r, l)", "Greater(l, r)", "GreaterOrEqual(r, l)", "LessOrEqual(l, r)"])
def test_lengths_lie_within_their_axis(operator):
    body = f"""s = Shape(x) one = Constant <value_int = 1> () zero = Constant <value_int = 0> () t = Gather(s, one)
        r = Range(zero, t, one) a = Constant <value_ints = [1]> () l = Unsqueeze(length, a) c = {operator}
        f = Cast <to = 1> (c) y = Mul(x, f)"""
    model = parse(f"g (float[N, T] x, int64[N] length) => (float[N, T] y) {{ {body} }}")
    found = domains(model, x=(3, 9), length=(3,))["length"]
    assert span(found) == (1, 9)
    assert values(model, "length", x=(3, 9), length=(3,))[0] == 9


def test_lengths_of_recurrent_operators():
    weights = {"w": random(1, 9, 4), "r": random(1, 9, 3), "b": random(1, 18)}
    model = parse(
        "g (float[T, N, 4] x, int32[N] k) => (float[T, 1, N, 3] y) { y = GRU <hidden_size = 3> (x, w, r, b, k) }",
        weights,
    )
    assert span(domains(model, x=(9, 2, 4), k=(2,))["k"]) == (1, 9)
    runs(model, x=(9, 2, 4), k=(2,))


def test_lengths_as_floating_point_numbers():
    body = """s = Shape(x) one = Constant <value_int = 1> () zero = Constant <value_int = 0> () t = Gather(s, one)
        r = Range(zero, t, one) g = Cast <to = 1> (r) f = Cast <to = 1> (t) {scaled} a = Constant <value_ints = [1]> ()
        l = Unsqueeze(k, a) c = Less(g, l) h = Cast <to = 1> (c) y = Mul(x, h)"""
    head = "g (float[N, T] x, float[N] length) => (float[N, T] y)"
    whole = parse(f"{head} {{ {body.format(scaled='k = Identity(length)')} }}")
    drawn = values(whole, "length", x=(50, 9), length=(50,))
    assert set(drawn) == set(range(1, 10))
    relative = parse(f"{head} {{ {body.format(scaled='m = Mul(length, f) k = Round(m)')} }}")
    drawn = values(relative, "length", x=(50, 9), length=(50,))
    assert 1 / 9 <= drawn.min() < drawn.max() <= 1


def test_a_floating_point_number_that_is_made_an_index():
    model = parse("g (float[N] x) => (float[N, 4] y) { i = Cast <to = 7> (x) y = Gather(words, i) }", TABLE)
    drawn = values(model, "x", x=(1000,))
    assert drawn.dtype == np.float32
    assert drawn.min() >= 0
    assert 290 < drawn.max() <= 299
    runs(model, x=(1000,))


@pytest.mark.parametrize(("body", "shown"), [
    ("f = Cast <to = 1> (m) i = Sub(one, f) p = Mul(i, big) a = Add(s, p) y = Softmax(a)", 1),
    ("f = Cast <to = 1> (m) i = Sub(f, one) n = Neg(big) p = Mul(i, n) a = Add(s, p) y = Softmax(a)", 1),
    ("f = Cast <to = 1> (m) p = Mul(f, big) a = Add(s, p) y = Softmax(a)", 0),
    ("c = Cast <to = 9> (m) a = Where(c, s, big) y = Softmax(a)", 1),
    ("c = Cast <to = 9> (m) a = Where(c, big, s) y = Softmax(a)", 0),
    ("c = Equal(m, none) a = Where(c, big, s) y = Softmax(a)", 1),
    ("c = Cast <to = 9> (m) d = Not(c) a = Where(d, big, s) y = Softmax(a)", 1),
    ("f = Cast <to = 1> (m) q = Relu(s) y = Mul(q, f)", 1),
])  # fmt: skip
def test_masks_hide_no_row(body, shown):
    constants = """one = Constant <value_float = 1.0> () big = Constant <value_float = -10000.0> ()
        none = Constant <value_int = 0> ()"""
    model = parse(f"g (int64[N, T] m, float[N, T] s) => (float[N, T] y) {{ {constants} {body} }}")
    drawn = values(model, "m", m=(200, 3), s=(200, 3))
    assert set(np.unique(drawn)) == {0, 1}
    assert (drawn[:, 0] == shown).all()
    assert 0.3 < drawn[:, 1:].mean() < 0.7


def test_boolean_masks():
    model = parse("g (bool[N, T] m, float[N, T] s) => (float[N, T] y) { f = Cast <to = 1> (m) y = Mul(s, f) }")
    assert values(model, "m", m=(200, 3), s=(200, 3))[:, 0].all()
    turned = parse("g (bool[N, T] m, float[N, T] s) => (float[N, T] y) { n = Not(m) f = Cast <to = 1> (n) y = Mul(s, f) }")
    assert not values(turned, "m", m=(200, 3), s=(200, 3))[:, 0].any()
    low = "big = Constant <value_float = -1e9> () a = Where(m, big, s) y = Softmax(a)"
    model = parse(f"g (bool[N, T] m, float[N, T] s) => (float[N, T] y) {{ {low} }}")
    assert not values(model, "m", m=(200, 3), s=(200, 3))[:, 0].any()
    column = parse("g (bool[N, T, 1] m, float[N, T, 1] s) => (float[N, T, 1] y) { f = Cast <to = 1> (m) y = Mul(s, f) }")
    drawn = values(column, "m", m=(50, 6, 1), s=(50, 6, 1))
    assert drawn[:, 0].all()
    assert not drawn.all()


@pytest.mark.parametrize(("body", "hidden"), [
    ("c = Equal(i, k) a = Where(c, big, s)", {5}), ("d = Equal(i, k) c = Not(d) a = Where(c, s, big)", {5}),
    ("c = Less(i, k) a = Where(c, big, s)", {0, 1, 2, 3, 4}),
    ("d = Equal(i, k) c = Not(d) f = Cast <to = 1> (c) r = Relu(s) a = Mul(r, f)", {5}),
])  # fmt: skip
def test_padding_is_not_all_there_is(body, hidden):
    """Models make a mask of the words themselves; a row of padding alone is nothing but NaN."""
    constants = "k = Constant <value_int = 5> () big = Constant <value_float = -1e9> ()"
    graph = f"{constants} e = Gather(words, i) {body} y = Softmax(a)"
    words = {"words": random(8, 4)}
    model = parse(f"g (int64[N, T] i, float[N, T] s) => (float[N, T] y, float[N, T, 4] e) {{ {graph} }}", words)
    drawn = values(model, "i", i=(500, 2), s=(500, 2))
    assert not hidden & set(drawn[:, 0])
    assert set(drawn[:, 1]) == set(range(8))
    assert not hidden & set(values(model, "i", i=(1, 1), s=(1, 1)).reshape(-1))


def test_positions_that_a_mask_counts():
    """RoBERTa counts the tokens that are not padding, GPT-2 the places of the mask."""
    body = """one = Constant <value_int = 1> () c = CumSum(mask, one) p = Sub(c, one) e = Gather(words, p)
        f = Cast <to = 1> (mask) big = Constant <value_float = -10000.0> () u = Constant <value_float = 1.0> ()
        i = Sub(u, f) h = Mul(i, big) a = Constant <value_ints = [2]> () k = Unsqueeze(h, a) y = Add(e, k)"""
    model = parse(f"g (int64[N, T] mask) => (float[N, T, 4] y) {{ {body} }}", TABLE)
    assert domains(model, mask=(2, 8))["mask"].kind == "mask"
    runs(model, mask=(2, 8))


def test_a_rate_is_one_of_the_rates_that_are_known():
    body = """k = Constant <value_int = 16000> () c = Equal(sr, k)
        y = If (c) <then_branch = t () => (float[N] a) { a = Relu(x) }, else_branch = e () => (float[N] b)
        { l = Constant <value_int = 8000> () d = Equal(sr, l) f = Cast <to = 1> (d) b = Mul(x, f) }>"""
    model = parse(f"g (int64 sr, float[N] x) => (float[N] y) {{ {body} }}")
    assert domains(model, sr=(), x=(4,))["sr"].choices == (8000, 16000)


@pytest.mark.parametrize(("body", "low", "high"), [
    ("y = Log(x)", 0, np.inf), ("y = Sqrt(x)", 0, np.inf), ("e = Constant <value_float = 0.5> () y = Pow(x, e)", 0, np.inf),
    ("y = Acos(x)", -1, 1), ("e = Constant <value_float = 2.0> () y = Pow(x, e)", -np.inf, np.inf),
    ("e = Constant <value_float = 1.0> () a = Add(x, e) y = Log(a)", -1, np.inf), ("y = Relu(x)", -np.inf, np.inf),
])  # fmt: skip
def test_domains_of_floating_point_numbers(body, low, high):
    model = parse(f"g (float[N] x) => (float[N] y) {{ {body} }}")
    drawn = values(model, "x", x=(2000,))
    assert low <= drawn.min()
    assert drawn.max() <= high
    assert np.isfinite(runs(model, x=(2000,))[0]).all()
    assert (drawn.min() < -1) == (low == -np.inf)


def test_whole_numbers_are_not_divided_by_zero():
    model = parse("g (int64[N] x, int64[N] by) => (int64[N] y) { y = Div(x, by) }")
    assert values(model, "by", x=(100,), by=(100,)).min() >= 1


def test_sums_of_sums_are_followed_once():
    """Each doubling has two ways back to where it comes from."""
    steps = " ".join(f"d{k + 1} = Add(d{k}, d{k})" for k in range(40))
    body = f"o = Shape(x) t = NonZero(o) d0 = Cast <to = 7> (t) {steps} i = Add(k, d40)"
    model = parse(f"g (float[N, T] x, int64[N] k) => (float[N, 4] y) {{ {body} y = Gather(words, i) }}", TABLE)
    start = time.process_time()
    assert "k" in domains(model, x=(2, 3), k=(4,))
    assert time.process_time() - start < 2


def test_numbers_below_zero_where_nothing_else_fits():
    body = "c = Constant <value_int = 400> () a = Add(i, c) y = Gather(words, a)"
    model = parse(f"g (int64[N] i) => (float[N, 4] y) {{ {body} }}", TABLE)
    assert span(domains(model, i=(3,))["i"]) == (-400, -101)


def test_pixels():
    weights = {"w": random(2, 3, 3, 3)}
    model = parse("g (uint8[N, 3, H, W] x) => (float[N, 2, P, Q] y) { f = Cast <to = 1> (x) y = Conv(f, w) }", weights)
    assert span(domains(model, x=(1, 3, 8, 8))["x"]) == (0, 255)


def test_integers_without_a_known_use_are_small():
    model = parse("g (int64[N] x) => (int64[N] y) { y = Neg(x) }")
    assert span(domains(model, x=(3,))["x"]) == (0, 3)


def test_the_profile_has_the_last_word():
    model = parse("g (int64[N] i, int64[1] k) => (float[N, 4] y, int64[1] z) { y = Gather(words, i) z = Neg(k) }", TABLE)
    point = ShapePoint("p", {"i": (50,), "k": (1,)}, {"k": (7,)})
    feeds, chosen, _ = fitting_feeds(InputRanges(model), [point], {"i": Integers(distribution="integers", low=2, below=5)}, 0)
    assert set(feeds[0]["i"]) == {2, 3, 4}
    assert chosen == {"i": "integers with low 2, below 5 (the profile's data)", "k": "7 (the profile's values)"}


def test_the_same_seed_name_and_shape_give_the_same_values():
    alone = parse("g (int64[N] i) => (float[N, 4] y) { y = Gather(words, i) }", TABLE)
    beside = parse("g (float[N] a, int64[N] i) => (float[N, 4] y) { y = Gather(words, i) }", TABLE)
    one, _, _ = fitting_feeds(InputRanges(alone), [ShapePoint("p", {"i": (9,)})], {}, 3)
    other, _, _ = fitting_feeds(InputRanges(beside), [ShapePoint("q", {"a": (4,), "i": (9,)})], {}, 3)
    np.testing.assert_array_equal(one[0]["i"], other[0]["i"])


def test_large_graphs_are_quick():
    nodes = [onnx.helper.make_node("Add", [f"t{i}", "w"], [f"t{i + 1}"]) for i in range(20_000)]
    model = parse("g (int64[N] i, float[N, 4] u) => (float[N, 4] z) { e = Gather(words, i) t0 = Mul(e, u) }", TABLE)
    model.graph.initializer.append(onnx.numpy_helper.from_array(random(4), "w"))
    model.graph.node.extend(nodes)
    tensors, seconds = propagate(model).tensors, []
    for _ in range(3):
        start = time.process_time()
        found = InputRanges(model, tensors).at({"i": (3,), "u": (3, 4)})
        seconds.append(time.process_time() - start)
    assert span(found["i"]) == (0, 299)
    assert min(seconds) < 0.2
