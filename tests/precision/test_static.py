"""What stays float32 whatever the data, and the record of why."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

from tests.models import parse, random
from tests.precision.typing_cases import run
from trtnorm_cli.errors import ProfileError
from trtnorm_cli.onnx_model.infer import checker_objection
from trtnorm_cli.onnx_model.shapes import declared_types
from trtnorm_cli.onnx_model.surgery import open_model
from trtnorm_cli.precision.convert import Typed, convert
from trtnorm_cli.precision.fragile_constants import _TENSOR_ERROR, FragileConstants, _relative
from trtnorm_cli.precision.low_constants import Constants, in_type
from trtnorm_cli.precision.low_types import BF16, FP16, LowType
from trtnorm_cli.precision.plan import TypePlan
from trtnorm_cli.precision.static import Asked, static_kept
from trtnorm_cli.precision.units import Unit, units
from trtnorm_cli.records.precision import Kept
from trtnorm_cli.rewrite.norms.record import composite_norms

_W = {"w": random(8, 8) * 0.1}


def _parts(model: onnx.ModelProto) -> list[Unit]:
    types = declared_types(model)
    return units(model, types, composite_norms(open_model(model, None), types))


def _kept(
    graph: str,
    weights: Mapping[str, np.ndarray] | None = None,
    low: LowType = FP16,
    opset: int = 18,
    asked: Asked | None = None,
) -> dict[str, Kept]:
    model = onnx.shape_inference.infer_shapes(parse(graph, dict(weights or {}), opset=opset))
    return static_kept(model, None, declared_types(model), _parts(model), low, asked)


def _typed(graph: str, weights: Mapping[str, np.ndarray] | None = None, low: LowType = FP16, opset: int = 18) -> Typed:
    model = onnx.shape_inference.infer_shapes(parse(graph, dict(weights or {}), opset=opset))
    types, parts = declared_types(model), _parts(model)
    done = convert(model, None, TypePlan(low, static_kept(model, None, types, parts, low)), parts, types)
    assert checker_objection(done.model, full_check=True) is None, onnx.printer.to_text(done.model)
    return done


def _asked(nodes: tuple[str, ...] = (), operators: tuple[str, ...] = ()) -> Asked:
    return SimpleNamespace(nodes=nodes, operators=operators)


_TWO = (
    'g (float[2, 8] x) => (float[2, 8] y) { ["enc/one"] a = MatMul(x, w) ["enc/two"] b = Tanh(a) ["dec/one"] y = MatMul(b, w) }'
)


def test_the_user_may_keep_nodes_by_pattern_and_by_operator() -> None:
    assert set(_kept(_TWO, _W, asked=_asked(nodes=("enc/*",)))) == {"a", "b"}
    assert set(_kept(_TWO, _W, asked=_asked(nodes=("dec/one", "b")))) == {"b", "y"}
    found = _kept(_TWO, _W, asked=_asked(operators=("MatMul",)))
    assert {one.cause for one in found.values()} == {"asked"}
    assert set(found) == {"a", "y"}


@pytest.mark.parametrize(
    ("asked", "meant"), [(_asked(nodes=("enc/tow",)), "enc/two"), (_asked(operators=("Matmul",)), "MatMul")]
)
def test_a_pattern_that_fits_nothing_is_refused_with_the_nearest_name(asked: Asked, meant: str) -> None:
    with pytest.raises(ProfileError) as refused:
        _kept(_TWO, _W, asked=asked)
    assert f"did you mean {meant!r}" in refused.value.summary


@pytest.mark.parametrize(("low", "operator"), [(BF16, "Mish"), (BF16, "HardSwish"), (FP16, "Celu"), (BF16, "Celu")])
def test_operators_that_are_not_built_in_the_type_stay_float32(low: LowType, operator: str) -> None:
    graph = f"g (float[2, 8] x) => (float[2, 8] y) {{ a = MatMul(x, w) b = {operator}(a) y = MatMul(b, w) }}"
    assert {key: one.cause for key, one in _kept(graph, _W, low).items()} == {"b": "type"}
    _typed(graph, _W, low)


def test_a_normalization_in_pieces_stays_float32_and_one_node_does_not() -> None:
    pieces = """
    g (float[2, 8] x) => (float[2, 8] y) {
        a = MatMul(x, w)
        q = Mul(a, a)
        v = ReduceMean(q, axes)
        e = Add(v, eps)
        r = Sqrt(e)
        n = Div(a, r)
        y = MatMul(n, w)
    }
    """
    weights = {**_W, "axes": np.array([-1]), "eps": np.float32(1e-2)}
    assert {key: one.cause for key, one in _kept(pieces, weights).items()} == dict.fromkeys("qvern", "norm")
    node = "g (float[2, 8] x) => (float[2, 8] y) { a = MatMul(x, w) n = LayerNormalization(a, s) y = MatMul(n, w) }"
    assert _kept(node, {**_W, "s": random(8)}) == {}


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (np.float32([1e5]), "beyond 6.55e+04"),
        (np.float32([[1e5, 1], [2, 3]]), "beyond 6.55e+04"),
        (np.float32(3e-9), "would be 0"),
        (random(8, 8) * 1e-8, "costs"),
        (np.float32([1, 2049, 7]), "integers go to 2049"),
    ],
)
def test_constants_that_half_does_not_hold_stay_float32(value: np.ndarray, what: str) -> None:
    graph = "g (float[N, M] x) => (float[A, B] y) { y = Mul(x, c) }"
    found = _kept(graph, {"c": value})
    assert found["y"].cause == "constant"
    assert what in found["y"].reason
    assert found["y"].tensor == "c"
    assert _kept(graph, {"c": value}, BF16) == {} or (value == np.rint(value)).all()


@pytest.mark.parametrize(
    "value", [np.float32([0]), np.float32([65504]), random(8, 8), np.float32([np.inf, 1]), np.float32(1e-4)]
)
def test_constants_that_half_holds_do_not_keep_a_node(value: np.ndarray) -> None:
    assert _kept("g (float[N, M] x) => (float[A, B] y) { y = Mul(x, c) }", {"c": value}) == {}


def test_what_bounds_nothing_may_be_beyond_the_type() -> None:
    graph = "g (float[8] x) => (float[8] y) { y = Clip(x, low, high) }"
    assert _kept(graph, {"low": np.float32(0), "high": np.float32(3.4e38)}) == {}


def test_a_guard_keeps_the_sum_before_it_and_the_division_behind_it() -> None:
    graph = """
    g (float[2, 8] x) => (float[2, 8] y) {
        a = MatMul(x, w)
        l = ReduceL1(a, axes)
        g = Max(l, eps)
        b = Tanh(a)
        d = Div(b, g)
        y = MatMul(d, w)
    }
    """
    found = _kept(graph, {**_W, "axes": np.array([1]), "eps": np.float32(1e-12)})
    assert found.keys() == {"l", "g", "d"}
    assert "1e-12" in found["d"].reason


def test_a_batch_normalization_keeps_float32_where_its_scale_does_not_survive() -> None:
    graph = "g (float[1, 4, 2, 2] x) => (float[1, 4, 2, 2] y) { y = BatchNormalization(x, s, b, m, v) }"
    ordinary = {"s": random(4), "b": random(4), "m": random(4), "v": random(4) ** 2 + 0.1}
    assert _kept(graph, ordinary) == {}
    assert _kept(graph, {**ordinary, "v": np.float32([1e6, 1, 1, 1])})["y"].value == 1e6
    assert _kept(graph, {**ordinary, "v": np.float32([1e-9] * 4), "s": np.float32([1] * 4)}) == {}
    small = graph.replace("BatchNormalization(", "BatchNormalization<epsilon = 0.000000001>(")
    assert _kept(small, {**ordinary, "v": np.float32([3e-9] * 4)})["y"].cause == "constant"


def test_a_channel_that_is_flushed_matters_in_front_of_its_own_normalization() -> None:
    weight = random(4, 4, 1, 1)
    weight[2] *= 1e-8
    graph = "g (float[1, 4, 6, 6] x) => (float[1, 4, 6, 6] y) { a = Conv(x, w) y = InstanceNormalization(a, s, s) }"
    weights = {"w": weight, "s": random(4)}
    assert "output channel 2" in _kept(graph, weights)["a"].reason
    assert _kept(graph.replace("InstanceNormalization(a, s, s)", "Relu(a)"), weights) == {}


def test_small_weights_matter_where_a_normalization_brings_their_result_to_full_size() -> None:
    graph = "g (float[2, 8] x) => (float[2, 8] y) { a = MatMul(x, w) b = Tanh(a) y = LayerNormalization(b, s) }"
    weights = {"w": random(8, 8) * 1e-8, "s": random(8)}
    assert _kept(graph, weights)["a"].cause == "constant"
    residual = "g (float[2, 8] x) => (float[2, 8] y) { a = MatMul(x, w) b = Add(a, x) y = LayerNormalization(b, s) }"
    assert _kept(residual, weights) == {}


def test_small_numbers_that_are_added_do_not_keep_a_node() -> None:
    weights = {"c": random(2, 8) * 1e-7, "one": np.float32(1e-12)}
    assert _kept("g (float[2, 8] x) => (float[2, 8] y) { y = Add(x, c) }", weights) == {}
    assert set(_kept("g (float[2, 8] x) => (float[2, 8] y) { y = Add(x, one) }", weights)) == {"y"}
    assert set(_kept("g (float[2, 8] x) => (float[2, 8] y) { y = Mul(x, c) }", weights)) == {"y"}


_ATTENTION = """
g (float[1, 4, 8] q, float[1, 8, 6] k, float[1, 6, 8] v, float[1, 1, 6] m) => (float[1, 4, 8] y) {
    s = MatMul(q, k)
    i = Sub(one, m)
    p = Mul(i, low)
    a = Add(s, p)
    b = Softmax<axis = -1>(a)
    y = MatMul(b, v)
}
"""


@pytest.mark.parametrize("low", [FP16, BF16])
@pytest.mark.parametrize("hidden", [-3.4028235e38, -65504.0, -1e4])
def test_a_masked_softmax_is_computed_in_float32(low: LowType, hidden: float) -> None:
    weights = {"one": np.float32(1), "low": np.float32(hidden)}
    found = _kept(_ATTENTION, weights, low)
    assert {key: one.cause for key, one in found.items()} == dict.fromkeys("ipab", "mask")
    done = _typed(_ATTENTION, weights, low)
    assert [onnx.numpy_helper.to_array(tensor).dtype for tensor in done.model.graph.initializer] == [np.float32] * 2


@pytest.mark.parametrize("masked", [[0, 1, 1, 0, 0, 1], [0] * 6])
def test_rows_that_are_masked_throughout_are_what_float32_gives(masked: list[int]) -> None:
    weights = {"one": np.float32(1), "low": np.float32(-3.4028235e38)}
    done = _typed(_ATTENTION, weights)
    feeds = {"q": random(1, 4, 8) * 8, "k": random(1, 8, 6), "v": random(1, 6, 8), "m": np.float32(masked).reshape(1, 1, 6)}
    assert np.abs(feeds["q"] @ feeds["k"]).max() > 30
    expected, found = run(parse(_ATTENTION, weights, opset=18), feeds)[0], run(done.model, feeds)[0]
    assert np.linalg.norm(found - expected) < 2e-2 * np.linalg.norm(expected)


_WHERE = """
g (float[1, 4, 6] s, bool[1, 4, 6] c, float[1, 6, 8] v) => (float[1, 4, 8] y) {
    e = Exp(s)
    a = Where(c, e, low)
    b = Softmax<axis = -1>(a)
    y = MatMul(b, v)
}
"""


def test_infinite_masks_become_finite_unless_the_model_looks_for_nan() -> None:
    done = _typed(_WHERE, {"low": np.float32(-np.inf)})
    (replaced,) = done.masks
    assert (replaced.tensor, replaced.before, replaced.after) == ("low", -np.inf, float(np.finfo(np.float32).min))
    feeds = {"s": random(1, 4, 6), "c": np.zeros((1, 4, 6), bool), "v": random(1, 6, 8)}
    assert np.isfinite(run(done.model, feeds)[0]).all()
    safe = _WHERE.replace("y = MatMul(b, v)", "n = IsNaN(b) d = Where(n, zero, b) y = MatMul(d, v)")
    left = _typed(safe, {"low": np.float32(-np.inf), "zero": np.float32(0)})
    assert left.masks == ()
    assert not run(left.model, feeds)[0].any()


def test_a_softmax_without_a_mask_is_low() -> None:
    graph = "g (float[1, 4, 6] s, float[1, 6, 8] v) => (float[1, 4, 8] y) { b = Softmax<axis = -1>(s) y = MatMul(b, v) }"
    assert _kept(graph) == {}


def test_arguments_of_sines_are_computed_in_float32() -> None:
    graph = """
    g (int64[1, 5] i, float[1, 5, 8] x) => (float[1, 5, 8] y) {
        f = Cast<to = 1>(i)
        u = Unsqueeze(f, last)
        a = MatMul(u, rates)
        c = Cos(a)
        s = MatMul(x, w)
        y = Mul(s, c)
    }
    """
    found = _kept(graph, {**_W, "rates": random(1, 8), "last": np.array([2])})
    assert {key: one.cause for key, one in found.items()} == dict.fromkeys("fuac", "range")
    siren = "g (float[2, 8] x) => (float[2, 8] y) { a = MatMul(x, w) b = Mul(a, c) y = Sin(b) }"
    assert set(_kept(siren, {**_W, "c": np.float32(30)})) == {"b", "y"}


def test_what_integers_are_made_of_is_computed_in_float32() -> None:
    graph = """
    g (float[2, 8] x) => (float[2, 8] z, float[2] t) {
        a = MatMul(x, w)
        b = Mul(a, a)
        c = Floor(b)
        i = Cast<to = 7>(c)
        k = Mul(i, i)
        z = Cast<to = 1>(k)
        t = ReduceMax<keepdims = 0>(b, axes)
    }
    """
    assert set(_kept(graph, {**_W, "axes": np.array([1])})) == {"c"}


def test_the_float32_of_a_half_model_is_its_authors() -> None:
    graph = """
    g (float16[2, 8] x) => (float16[2, 8] y) {
        a = MatMul(x, w)
        b = Cast<to = 1>(a)
        c = Softmax(b)
        d = Cast<to = 10>(c)
        y = MatMul(d, w)
    }
    """
    weights = {"w": random(8, 8).astype(np.float16)}
    assert {key: one.cause for key, one in _kept(graph, weights).items()} == {"c": "author"}
    half = "g (float16[2, 8] x) => (float[2, 8] y) { a = MatMul(x, w) b = Cast<to = 1>(a) y = Softmax(b) }"
    assert _kept(half, weights) == {}


def test_a_lone_product_that_must_be_float32_is_bounded_so_that_it_stays_so() -> None:
    graph = "g (float[2, 8] x) => (float[2, 8] y) { a = MatMul(x, v) b = MatMul(a, w) y = MatMul(b, v) }"
    done = _typed(graph, {"w": random(8, 8) * 1e5, "v": random(8, 8)})
    assert [node.op_type for node in done.model.graph.node] == [
        "Cast",
        "MatMul",
        "Cast",
        "MatMul",
        "Clip",
        "Cast",
        "MatMul",
        "Cast",
    ]
    assert [island.is_undone for island in done.islands] == [True]
    run(done.model, {"x": random(2, 8)})


@pytest.mark.parametrize("opset", [9, 11, 12, 13, 17])
def test_old_opsets_are_raised_for_bfloat16(opset: int) -> None:
    reduce = "r = ReduceMean<axes = [1], keepdims = 1>(h)"
    split = "h, k = Split<axis = 0, split = [1, 1]>(c)" if opset < 13 else "h, k = Split<axis = 0>(c, halves)"
    graph = f"""
    g (float[2, 8] x) => (float[1, 8] y) {{
        a = MatMul(x, w)
        c = Softmax<axis = 1>(a)
        {split}
        {reduce}
        y = Add(k, r)
    }}
    """
    weights = {**_W, **({} if opset < 13 else {"halves": np.array([1, 1])})}
    done = _typed(graph, weights, BF16, opset)
    assert done.model.opset_import[0].version == 22
    assert [one for one in done.kept if one.cause == "type"] == []


@pytest.mark.parametrize("low", [FP16, BF16], ids=lambda low: low.name)
def test_what_is_told_without_rounding_is_what_rounding_tells(low: LowType) -> None:
    """Weights of all sizes, and such as are small or zero for the most part."""
    rng, told = np.random.default_rng(0), 0
    model = parse("g (float[1] x) => (float[1] y) { y = Relu (x) }")
    fragile = FragileConstants(model, Constants(model, None), (), low)
    for _ in range(1000):
        size = 10.0 ** (rng.uniform(-9, 4) + rng.standard_normal(rng.integers(1, 500)) * rng.integers(0, 3))
        value = (rng.standard_normal(len(size)) * size * (rng.random(len(size)) < rng.choice([0.1, 1.0]))).astype(np.float32)
        if fragile._is_ordinary(value):
            told += 1
            assert _relative(value, in_type(value, low)) <= _TENSOR_ERROR * low.half_ulp
    assert told > 300
