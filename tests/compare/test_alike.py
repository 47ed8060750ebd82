"""A network that is the model, product by product, is held to it without its values; any other one as ever."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import numpy as np
import onnx
import pytest

from tests.compare.planted import defects, network
from tests.compare.test_lockstep import findings
from tests.compare.test_verdict import deep
from tests.models import parse, random, saved
from trtnorm_cli.compare import alike, comparer
from trtnorm_cli.compare.alike import same_products
from trtnorm_cli.compare.comparison import compare
from trtnorm_cli.compare.participants import OnnxParticipant, onnx_participant
from trtnorm_cli.compare.result import FAILED, PASSED, Comparison, Options, Trial
from trtnorm_cli.evaluate.float64 import FreeValues, OtherProduct, SameProducts, free_values
from trtnorm_cli.evaluate.float64.free_values import LargeProduct
from trtnorm_cli.evaluate.float64.kernels import KERNELS
from trtnorm_cli.evaluate.float64.kernels.call import Call
from trtnorm_cli.profile.fit import fit
from trtnorm_cli.profile.load import parse_profile
from trtnorm_cli.profile.model import Tolerance
from trtnorm_cli.profile.model_input import inputs_of
from trtnorm_cli.profile.prove import prove

X = {"x": random(64, 32)}


@pytest.fixture
def made(tmp_path, monkeypatch, runs):
    """Compares a model with a candidate that should be the same, however small its products are."""
    monkeypatch.setattr(free_values, "LEAST_MULTIPLY_ADDS", 0)

    def participant(model: onnx.ModelProto, label: str) -> OnnxParticipant:
        return replace(onnx_participant(saved(model, tmp_path / f"{label}.onnx"), label), shares_tensors=True)

    def run(reference, candidate, feeds=None, *, is_unchanged: bool = True, **options) -> Comparison:
        runs.clear()
        pair = participant(reference, "m"), participant(candidate, "candidate")
        trials = [Trial("at", feeds or X), Trial("further", {name: 2 * value for name, value in (feeds or X).items()})]
        return compare(pair[0], pair[1:], trials, Options(is_unchanged=is_unchanged, float64_trials=1, **options))

    return run


def is_evaluated(found: Comparison) -> bool:
    """True where the model was evaluated with its own values."""
    return found.candidates[0].verdicts[0].reference_error is not None


def test_no_product_of_an_equal_model_is_computed(made, runs):
    found = made(deep(), deep())
    assert (found.state, found.notes, found.trials) == (PASSED, [], ["at", "further"])
    assert runs["products"] == 0
    assert found.float64["MatMul"] == free_values.DESCRIPTION
    assert not is_evaluated(found)
    (report,) = found.candidates
    assert [verdict.exact for verdict in report.verdicts] == [0.0, None]
    assert report.depth == dict.fromkeys(made(deep(), deep(), is_unchanged=False).candidates[0].depth, 0.0)


@pytest.mark.parametrize("scale", [1.00001, 1.01])
def test_a_channel_that_is_off_is_found_where_it_is(made, scale):
    """The first product that differs ends it, and all is evaluated."""
    found = made(deep(), deep(scale))
    assert found.state == FAILED
    assert found.candidates[0].inner is not None
    assert findings(found) == findings(made(deep(), deep(scale), is_unchanged=False))


def test_what_was_evaluated_in_vain_is_not_held(made, monkeypatch):
    held = []

    class Values(FreeValues):
        def __init__(self, *given, **named):
            super().__init__(*given, **named)
            held.append(weakref.ref(self))

    monkeypatch.setattr(alike, "FreeValues", Values)
    evaluated = alike.found_alike

    def asked(*given):
        found = evaluated(*given)
        assert [one() for one in held] == [None]
        return found

    monkeypatch.setattr(comparer, "found_alike", asked)
    gc.disable()
    try:
        assert made(deep(), deep(1.01)).state == FAILED
    finally:
        gc.enable()


@pytest.mark.parametrize("defect", defects("block1"))
def test_planted_defects_are_found_as_ever(made, defect):
    damaged, feeds = network(3), {"image": random(1, 3, 12, 12)}
    defects("block1")[defect](damaged)
    found = made(network(3), damaged, feeds)
    assert repr(findings(found)) == repr(findings(made(network(3), damaged, feeds, is_unchanged=False)))
    assert is_evaluated(found)
    assert made(network(3), network(3), feeds).state == PASSED


NORMALIZED = "n = LayerNormalization <epsilon = 1e-5> (p, s)"
IN_PIECES = """m = ReduceMean <axes = [1]> (p) c = Sub(p, m) cc = Mul(c, c) a = ReduceMean <axes = [1]> (cc) ae = Add(a, e)
  d = Sqrt(ae) u = Div(c, d) n = Mul(u, s)"""


def test_what_is_written_otherwise_is_evaluated_in_both(made, runs):
    def model(normalized: str, last: str) -> onnx.ModelProto:
        body = f"p = MatMul(x, w) {normalized} q = MatMul(n, w) r = Relu(q) {last}"
        weights = {"w": random(32, 32), "v": random(32, 8), "b": random(8), "s": random(32), "e": np.array(1e-5, np.float32)}
        return parse(f"g (float[N, 32] x) => (float[N, 8] y) {{ {body} }}", weights, opset=17)

    found = made(model(NORMALIZED, "y = Gemm(r, v, b)"), model(IN_PIECES, "g = MatMul(r, v) y = Add(g, b)"))
    assert found.state == PASSED
    assert not is_evaluated(found)
    assert found.candidates[0].verdicts[0].exact < 1e-12
    assert runs["products"] == 1, "that of what the other model has as a Gemm"


@pytest.mark.parametrize(
    ("one", "other", "state"),
    [
        ("s = Sqrt(p) y = Add(s, q)", "s = Sqrt(p) y = Add(s, q)", PASSED),
        ("y = Sub(p, q)", "y = Sub(q, p)", FAILED),
        ("y = Add(p, q)", "y = Add(q, p)", PASSED),
    ],
    ids=["any values are no numbers there", "the products change places", "and may"],
)
def test_where_any_values_tell_nothing_its_own_do(made, one, other, state):
    body = "g (float[N, 32] x) => (float[N, 32] y) {{ p = MatMul(x, w) q = MatMul(x, v) {} }}"
    weights = {"w": np.abs(random(32, 32)), "v": random(32, 32, seed=1)}
    models = (parse(body.format(text), weights) for text in (one, other))
    found = made(*models, {"x": np.abs(random(4, 32))})
    assert found.state == state
    assert is_evaluated(found) == (one != "y = Add(p, q)")


def test_where_there_is_no_room_for_what_follows_all_is_evaluated(made, monkeypatch):
    monkeypatch.setattr(free_values, "MOST_BYTES", X["x"].size * 8 - 1)
    found = made(deep(), deep())
    assert (found.state, found.notes) == (PASSED, [])
    assert is_evaluated(found)


W, V, B = random(32, 32), random(32, 32, seed=1), random(32, seed=2)
ONE_CHANNEL = np.where(np.arange(32) == 3, np.float32(1.0001), np.float32(1))


def number(value: float) -> np.ndarray:
    return np.array(value, np.float32)


# A graph, the constants of a model and, of its candidate, those that are others.
SMALL: dict[str, tuple[str, dict[str, np.ndarray], dict[str, np.ndarray]]] = {
    "a bias": (
        "p = MatMul(x, w) y = Add(p, b)",
        {"w": W / 560, "b": B / 100},
        {"b": B / 100 * np.float32(1.00001)},
    ),
    "a channel of a bias": (
        "p = MatMul(x, w) y = Add(p, b)",
        {"w": W / 5600, "b": B / 1000},
        {"b": B / 1000 * ONE_CHANNEL},
    ),
    "products that cancel": (
        "p = MatMul(x, w) q = MatMul(x, v) d = Sub(p, q) y = Add(d, b)",
        {"w": W, "v": W + V / 1000, "b": B / 200},
        {"b": B / 200 * ONE_CHANNEL},
    ),
    "scaled up": (
        "p = MatMul(x, w) a = Add(p, b) y = Div(a, s)",
        {"w": W / 5600, "b": B / 1000, "s": number(1e-3)},
        {"b": B / 1000 * ONE_CHANNEL},
    ),
    "an epsilon": (
        "p = MatMul(x, w) m = ReduceMean <axes = [1]> (p) c = Sub(p, m) s = Mul(c, c) v = ReduceMean <axes = [1]> (s) "
        "a = Add(v, e) d = Sqrt(a) y = Div(c, d)",
        {"w": W / 50, "e": number(1e-6)},
        {"e": number(1.1e-6)},
    ),
    "cut off": (
        "p = MatMul(x, w) c = Clip(p, l, h) q = MatMul(c, v) y = Softmax(q)",
        {"w": W, "v": V / 10, "l": number(0), "h": number(6)},
        {"h": number(6.0001)},
    ),
    "far from zero": (
        "p = MatMul(x, w) a = Add(p, l) r = Relu(a) y = Mul(r, s)",
        {"w": 20 * W, "l": number(-50), "s": B},
        {"s": B * np.float32(1.00003)},
    ),
    "by value": (
        "p = MatMul(x, w) c = Greater(p, l) y = Where(c, s, p)",
        {"w": W, "l": number(8), "s": number(8)},
        {"s": number(8.0003)},
    ),
    "through half precision": (
        "p = MatMul(x, w) h = Cast <to = 10> (p) c = Cast <to = 1> (h) y = Mul(c, s)",
        {"w": W, "s": number(1)},
        {"s": number(1.0019)},
    ),
    "through steps": (
        "p = MatMul(x, w) q = QuantizeLinear(p, l, o) d = DequantizeLinear(q, l, o) y = Mul(d, s)",
        {"w": 100 * W, "l": number(10), "o": np.array(0, np.uint8), "s": number(1)},
        {"s": number(1.01)},
    ),
}


@pytest.mark.parametrize(("graph", "weights", "others"), SMALL.values(), ids=SMALL)
def test_what_is_small_beside_any_values_is_found_as_ever(made, graph, weights, others):
    reference, candidate = (
        parse(f"g (float[N, 32] x) => (float[N, 32] y) {{ {graph} }}", {**weights, **own}, opset=17) for own in ({}, others)
    )
    feeds = {"x": random(256, 32)}
    found, plain = (made(reference, candidate, feeds, is_unchanged=one) for one in (True, False))
    assert repr(findings(found)) == repr(findings(plain))
    assert plain.state == FAILED


@pytest.mark.parametrize("offset", [50, 100])
def test_a_run_that_is_further_off_than_the_model_is_evaluated_for(made, offset):
    """The variance as the difference of two means is the same function, and loses digits as it runs."""
    body = "g (float[N, 32] x) => (float[N, 1] y) {{ p = MatMul(x, w) a = Add(p, o) m = ReduceMean <axes = [1]> (a) {} }}"
    plain = "c = Sub(a, m) s = Mul(c, c) y = ReduceMean <axes = [1]> (s)"
    other = "s = Mul(a, a) q = ReduceMean <axes = [1]> (s) t = Mul(m, m) y = Sub(q, t)"
    pair = [parse(body.format(text), {"w": W / 8, "o": number(offset)}, opset=17) for text in (plain, other)]
    assert repr(findings(made(*pair))) == repr(findings(made(*pair, is_unchanged=False)))


def test_a_model_in_which_values_decide_is_evaluated(made):
    body = """g (float[N, 32] x) => (float[N, 32] y) { p = MatMul(x, w) m = ReduceMean <keepdims = 0> (p) c = Greater(m, zero)
      y = If(c) <then_branch = a () => (float[N, 32] t) { t = Mul(p, s) },
                 else_branch = b () => (float[N, 32] e) { e = Identity(p) }> }"""
    found = made(*(parse(body, {"w": W, "s": number(2), "zero": number(0)}, opset=17) for _ in range(2)))
    assert found.state == PASSED
    assert is_evaluated(found)


def test_what_tolerances_are_given_for_is_evaluated(made):
    found = made(deep(), deep(), tolerances={"": Tolerance(atol=1e-3)})
    assert found.state == PASSED
    assert is_evaluated(found)


def test_products_that_may_be_the_same():
    def graph(body: str) -> onnx.GraphProto:
        weights = {"w": random(4, 4, 3, 3), "m": random(4, 4), "b": random(4)}
        return parse(f"g (float[N, 4, 9, 9] x) => (float y) {{ {body} }}", weights).graph

    plain = graph("c = Conv <pads = [1, 1, 1, 1]> (x, w) d = Conv(c, w, b) p = MatMul(d, m) q = MatMul(p, m) y = Relu(q)")
    assert same_products(plain, plain) == {"c", "d", "p", "q"}
    other = graph('c = Conv <auto_pad = "SAME_UPPER"> (x, w) d = Conv(c, w) p = Relu(d) q = MatMul(p, m) y = Relu(q)')
    assert same_products(plain, other) == {"c", "q"}
    assert same_products(other, plain) == {"q"}, "how much it pads is not said"
    turned = graph("c = Conv(x, w) n = Transpose(m) p = MatMul(c, n) k = Unsqueeze(m, one) q = MatMul(p, k) y = Relu(q)")
    assert same_products(plain, turned) == {"c", "q"}, "what is made of a stored value is another one, but for its shape"


def calls():
    rng = np.random.default_rng(0)
    for _ in range(60):
        rank, group = int(rng.integers(1, 4)), int(rng.integers(1, 3))
        pick = lambda low, high, count=rank: [int(one) for one in rng.integers(low, high, count)]  # noqa: E731
        attributes = {"group": group, "strides": pick(1, 3), "dilations": pick(1, 3), "pads": pick(0, 3, 2 * rank)}
        x, weight = random(int(rng.integers(1, 3)), 2 * group, *pick(7, 10)), random(3 * group, 2, *pick(1, 4))
        yield Call("Conv", 17, (x.astype(np.float64), weight), attributes, ("c",))
    for a, b in [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 1, 3, 4), (6, 4, 5)), ((1, 4), (7, 4, 1))]:
        yield Call("MatMul", 17, (random(*a).astype(np.float64), random(*b)), {}, ("p",))


def test_free_values_have_the_shapes_of_results(monkeypatch):
    monkeypatch.setattr(free_values, "LEAST_MULTIPLY_ADDS", 0)
    values, learnt = FreeValues(frozenset("cp"), seed=0), []
    for call in calls():
        found = values.of(call, lambda results: learnt.extend(results) is None)
        (computed,) = KERNELS[call.op_type](call)
        assert found is learnt[-1]
        assert (found.shape, found.dtype) == (np.shape(computed), computed.dtype)
        assert not found.flags.writeable
    assert len({one.__array_interface__["data"][0] for one in learnt}) == len(learnt)
    assert values.given == {"c", "p"}


def test_what_gets_no_free_values_is_computed():
    product = Call("MatMul", 17, (np.ones((200, 100)), np.ones((100, 100))), {}, ("p",))
    values = FreeValues({"p"}, seed=0)
    assert values.of(replace(product, outputs=("q",)), lambda _: True) is None, "nobody else has it"
    assert values.of(replace(product, inputs=(np.ones((2, 100)), np.ones((100, 100)))), lambda _: True) is None, "it is small"
    assert values.of(replace(product, inputs=(np.ones((200, 100)), np.ones(100))), lambda _: True) is None, "it is a vector's"
    assert values.of(product, lambda _: False) is None, "it would not be known again"
    big = np.broadcast_to(np.ones(1), (1 << 18, 8)), np.broadcast_to(np.ones(1), (8, 100))
    with pytest.raises(LargeProduct):
        values.of(replace(product, inputs=big), lambda _: True)
    SameProducts(values).of(product, lambda _: True)
    assert values.of(product, lambda _: True) is not None
    others = SameProducts(values)
    with pytest.raises(OtherProduct):
        others.of(product, lambda _: True)
    assert others.are_refuted


def test_a_product_that_is_stated_to_be_large_is_not_tried(made, monkeypatch):
    """The reference need not be evaluated up to it for that."""
    monkeypatch.setattr(free_values, "MOST_BYTES", 64 * 32 * 8 - 1)
    candidate = deep()
    stated = onnx.helper.make_tensor_value_info(candidate.graph.node[0].output[0], onnx.TensorProto.FLOAT, (64, 32))
    assert candidate.graph.node[0].op_type == "MatMul"
    candidate.graph.value_info.append(stated)
    monkeypatch.setattr(alike, "FreeValues", lambda *given, **named: pytest.fail("it was tried"))
    found = made(deep(), candidate)
    assert (found.state, is_evaluated(found)) == (PASSED, True)


@pytest.mark.parametrize(
    ("profile", "large"),
    [("{min: 2, opt: 4, max: 4}", False), ("{min: 4, opt: 4, max: 8}", True)],
    ids=["at the largest sizes alone", "at the smallest"],
)
def test_a_product_is_large_where_it_is_so_at_the_smallest_sizes(monkeypatch, profile: str, large: bool):
    monkeypatch.setattr(free_values, "MOST_BYTES", 3 * 5 * 8)
    model = parse("g (float[N, 4] x) => (float[N, 5] y) { p = MatMul(x, w) y = Relu(p) }", {"w": random(4, 5)})
    inputs, given = inputs_of(model), parse_profile(f"dims: {{N: {profile}}}\n", "cfg.yaml")
    assert alike.has_large_product(model, prove(model, inputs, given, fit(given, inputs))) == large
