"""fold-scale-shift-upstream: constants per channel behind weights, every refusal, and the numbers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.models import parse, random
from tests.oracle import worst_relative_error
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.rewrite.rules import fold_scale_shift_upstream as rule
from trtnorm_cli.rewrite.scale_shift import weights as limits

NAME = rule.RULE.name
IMAGE, TOKENS = "float[N, 3, 6, 6] x", "float[N, 7, 4] x"
W, LINEAR = random(4, 3, 3, 3), random(4, 8)
PER_CHANNEL, SCALAR = random(4, 1, 1), np.float32(0.3)


def model(x: str, body: str, outputs: str = "y", opset: int = 17, **weights: np.ndarray):
    declared = ", ".join(f"float[] {name}" for name in outputs.split())
    return parse(f"g ({x}) => ({declared}) {{ {body} }}", weights, opset=opset)


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


FOLDS = {
    "no effect": (model(IMAGE, "c = Conv(x, w) d = Add(c, z) y = Mul(d, o)", w=W, z=np.float32(0), o=np.float32(1)), 2, "Conv"),
    "frozen BatchNormalization": (
        model(IMAGE, "c = Conv(x, w) d = Mul(c, s) y = Add(d, t)", w=W, s=PER_CHANNEL, t=random(1, 4, 1, 1)),
        2,
        "Conv",
    ),
    "operands turned": (
        model(IMAGE, "c = Conv(x, w, b) d = Mul(s, c) y = Add(t, d)", w=W, b=random(4), s=PER_CHANNEL, t=PER_CHANNEL),
        2,
        "Conv",
    ),
    "divided and subtracted": (
        model(IMAGE, "c = Conv(x, w) d = Div(c, s) y = Sub(d, t)", w=W, s=PER_CHANNEL + 4, t=PER_CHANNEL),
        2,
        "Conv",
    ),
    "subtracted from": (model(IMAGE, "c = Conv(x, w) y = Sub(t, c)", w=W, t=PER_CHANNEL), 1, "Conv"),
    "scalars": (model(IMAGE, "c = Conv(x, w) d = Mul(c, s) y = Add(d, s)", w=W, s=SCALAR), 2, "Conv"),
    "one element": (model(IMAGE, "c = Conv(x, w) y = Mul(c, s)", w=W, s=np.full((1, 1, 1, 1), 2, np.float32)), 1, "Conv"),
    "transposed convolution": (
        model(IMAGE, "c = ConvTranspose<group=3>(x, w) y = Mul(c, s)", w=random(3, 2, 2, 2), s=random(1, 6, 1, 1)),
        1,
        "ConvTranspose",
    ),
    "Gemm": (model("float[N, 4] x", "c = Gemm(x, w) y = Mul(c, s)", w=LINEAR, s=random(8)), 1, "Gemm"),
    "Gemm takes a bias": (model("float[N, 4] x", "c = Gemm<beta=2.0>(x, w) y = Add(c, s)", w=LINEAR, s=random(8)), 1, "Gemm"),
    "MatMul": (model(TOKENS, "c = MatMul(x, w) y = Mul(c, s)", w=LINEAR, s=random(8)), 1, "MatMul"),
    "MatMul and bias": (
        model(TOKENS, "m = MatMul(x, w) c = Add(m, b) d = Mul(c, s) y = Add(d, s)", w=LINEAR, b=random(8), s=random(8)),
        2,
        "MatMul Add",
    ),
    "attention scale": (
        model(
            TOKENS,
            "m = MatMul(x, w) c = Add(m, b) r = Reshape(c, h) t = Transpose<perm=[0, 2, 1, 3]>(r) y = Mul(t, s)",
            w=LINEAR,
            b=random(8),
            h=i64(0, 0, 2, 4),
            s=SCALAR,
        ),
        1,
        "MatMul Add Reshape Transpose",
    ),
    "positive scale behind Relu": (
        model(IMAGE, "c = Conv(x, w) r = Relu(c) y = Mul(r, s)", w=W, s=np.abs(PER_CHANNEL)),
        1,
        "Conv Relu",
    ),
    "halved sum of two": (
        model(
            "float[N, 4] x",
            "c = Gemm(x, w) d = Gemm(x, v) e = Add(c, d) y = Div(e, s)",
            w=LINEAR,
            v=random(4, 8, seed=1),
            s=np.float32(2),
        ),
        1,
        "Gemm Gemm Add",
    ),
    "scalars among themselves": (
        model("float[N] x", "a = Mul(x, s) r = Identity(a) y = Div(r, s)", s=SCALAR),
        1,
        "Mul Identity",
    ),
    "constants among themselves": (
        model(IMAGE, "r = Abs(x) a = Mul(r, s) b = Add(a, t) y = Mul(b, t)", s=random(3, 1, 1), t=random(3, 1, 1)),
        1,
        "Abs Mul Add",
    ),
    "behind a BatchNormalization": (
        model(
            "float[N, 4, 6, 6] x",
            "a = BatchNormalization(x, p, p, p, p) y = Mul(a, s)",
            p=np.full(4, 2, np.float32),
            s=PER_CHANNEL,
        ),
        1,
        "BatchNormalization",
    ),
}


@pytest.mark.parametrize(("source", "changes", "after"), FOLDS.values(), ids=FOLDS)
def test_folds(rewrite, source, changes, after):
    result = rewrite(source, rules=(rule.RULE,))
    assert result.rules == [NAME] * changes
    assert result.operators == after.split()
    assert worst_relative_error(source, result.model) < 2e-6


@pytest.mark.parametrize(
    ("x", "body", "after"),
    [
        (TOKENS, "y = Mul(c, o)", "MatMul Mul"),
        ("float[2, 7, 4] x", "y = Mul(c, o)", "MatMul"),
        ("float[2, 7, 4] x", "y = Add(c, z)", "MatMul Add"),
    ],
    ids=["open", "fixed", "a bias of zeros, which another rule takes"],
)
def test_what_has_no_effect_behind_a_product(rewrite, x, body, after):
    source = model(x, f"c = MatMul(x, w) {body}", w=LINEAR, o=np.ones(8, np.float32), z=np.zeros(8, np.float32))
    assert rewrite(source, rules=(rule.RULE,)).operators == after.split()


@pytest.mark.parametrize("opset", [7, 9, 13, 22])
def test_every_opset_since_7(rewrite, opset):
    source = model(IMAGE, "c = Conv(x, w) d = Mul(c, s) y = Add(d, s)", opset=opset, w=W, s=PER_CHANNEL)
    assert rewrite(source).operators == ["Conv"]


REFUSALS = [
    Refusal(
        rule.constant_is_per_channel,
        model(IMAGE, "c = Conv(x, w) y = Mul(c, s)", w=W, s=random(4, 4, 1)),
        "the constant of Mul -> y has shape [4, 4, 1], not one value per channel",
    ),
    Refusal(
        rule.constant_is_per_channel,
        model(IMAGE, "c = Conv(x, w) y = Add(c, s)", w=W, s=np.array([[[1]], [[np.nan]], [[1]], [[1]]], np.float32)),
        "the constant of Add -> y is not finite",
    ),
    Refusal(
        rule.constant_is_per_channel,
        model(IMAGE, "c = Conv(x, w) y = Div(c, s)", w=W, s=np.zeros(1, np.float32)),
        "Div -> y divides by zero",
    ),
    Refusal(
        rule.constant_is_per_channel,
        model("float[N, 4, 1, 1] x", "c = Identity(x) y = Add(c, s)", s=random(5, 1)),
        "it is not known that the data has as many",
    ),
    Refusal(
        rule.constant_is_per_channel,
        model("float[N, 4] x", "c = Identity(x) y = Add(c, s)", s=random(5, 1, 4)),
        "the constant of Add -> y has shape [5, 1, 4]",
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE)


OUT_OF_REACH = {
    "used elsewhere": (
        model(IMAGE, "c = Conv(x, w) y = Mul(c, s) z = Neg(c)", "y z", w=W, s=PER_CHANNEL),
        "c is also used by Neg -> z",
    ),
    "a residual connection": (
        model(
            "float[N, 4, 6, 6] x",
            "c = Conv<pads=[1, 1, 1, 1]>(x, w) d = Add(c, x) y = Mul(d, s)",
            w=random(4, 4, 3, 3),
            s=SCALAR,
        ),
        None,
    ),
    "the scale of a column": (
        model(IMAGE, "c = Conv(x, w) y = Mul(c, s)", w=W, s=random(4)),
        "scale and shift differ along axis 3 at Conv -> c, whose channels are on axis 1",
    ),
    "negative scale behind Relu": (
        model(IMAGE, "c = Conv(x, w) r = Relu(c) d = Identity(r) y = Mul(d, s)", w=W, s=-np.abs(PER_CHANNEL)),
        None,
    ),
    "shift behind Relu": (model(IMAGE, "c = Conv(x, w) r = Relu(c) y = Add(r, s)", w=W, s=PER_CHANNEL), None),
    "nothing with weights": (model(IMAGE, "c = Identity(x) y = Mul(c, s)", s=SCALAR), None),
    "the addition behind a product": (model(TOKENS, "m = MatMul(x, w) y = Add(m, s)", w=LINEAR, s=random(8)), None),
    "the shift behind a scale": (model(IMAGE, "a = Mul(x, s) y = Add(a, s)", s=SCALAR), None),
    "no effect": (model(IMAGE, "c = Abs(x) d = Neg(c) y = Mul(d, s)", s=np.ones(1, np.float32)), None),
    "no constant": (model(f"{IMAGE}, float[1] s", "c = Conv(x, w) y = Mul(c, s)", w=W), None),
    "constant over data": (model(IMAGE, "c = Conv(x, w) y = Div(s, c)", w=W, s=SCALAR), None),
}


@pytest.mark.parametrize(("source", "reason"), OUT_OF_REACH.values(), ids=OUT_OF_REACH)
def test_what_is_out_of_reach(rewrite, source, reason):
    """Where there are no weights to fold into, nothing is said: it is no normalization that somebody looks for."""
    result = rewrite(source, rules=(rule.RULE,))
    assert result.outcome.changes == []
    assert [r.reason for r in result.outcome.rejections] == ([] if reason is None else [reason])


def test_a_large_weight_of_others_is_not_stored_twice(rewrite, monkeypatch):
    """The logits of tied embeddings are scaled; a copy of the embedding would cost more than the multiplication."""
    source = model(
        "int64[N] i, float[N, 8] x",
        "e = Gather(w, i) t = Add(e, e) c = MatMul(x, w) y = Mul(c, s)",
        "y t",
        w=random(8, 16),
        s=SCALAR,
    )
    assert rewrite(source, rules=(rule.RULE,)).rules == [NAME]
    monkeypatch.setattr(limits, "_LARGE_COPY", 100)
    result = rewrite(source, rules=(rule.RULE,))
    assert result.reason(NAME) == "w (0 MiB) is used elsewhere too and would have to be stored twice"


def test_a_second_pass_changes_nothing(rewrite):
    source = model(IMAGE, "c = Conv(x, w) d = Mul(c, s) r = Relu(d) e = Mul(r, s) y = Add(e, s)", w=W, s=PER_CHANNEL)
    once = rewrite(source)
    assert once.rules
    assert rewrite(once.model).outcome.changes == []


def test_the_data_keeps_its_other_readers(rewrite):
    source = model(
        "float[N, 4, 6, 6] x",
        "c = Conv<pads=[1, 1, 1, 1]>(x, w) d = Mul(c, s) y = Add(d, x)",
        w=random(4, 4, 3, 3),
        s=PER_CHANNEL,
    )
    result = rewrite(source, rules=(rule.RULE,))
    assert result.operators == ["Conv", "Add"]
    assert worst_relative_error(source, result.model) < 1e-6


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_rounded_once(rewrite, dtype):
    import ml_dtypes

    kind = np.float16 if dtype == "float16" else ml_dtypes.bfloat16
    weights = {"w": W.astype(kind), "s": PER_CHANNEL.astype(kind), "t": PER_CHANNEL.astype(kind)}
    text = f"g ({dtype}[N, 3, 6, 6] x) => ({dtype}[] y) {{ c = Conv(x, w) d = Mul(c, s) y = Add(d, t) }}"
    source = parse(text, weights, opset=22)
    result = rewrite(source)
    assert result.operators == ["Conv"]
    assert worst_relative_error(source, result.model) < 4 * float(ml_dtypes.finfo(kind).eps)


def test_a_constant_passes_more_operators_than_python_nests_calls(rewrite):
    links = 400
    passed = " ".join(f"r{i + 1} = Relu(r{i})" for i in range(links))
    source = model(IMAGE, f"r0 = Conv(x, w) {passed} y = Mul(r{links}, s)", w=W, s=np.abs(PER_CHANNEL) + 1)
    result = rewrite(source, rules=(rule.RULE,))
    assert result.rules == [NAME]
    assert result.operators == ["Conv", *["Relu"] * links]


CHANNELS = random(8) + 2
ROWS = "float[N, 8, 4] x"
OTHERS = {"k": random(5, 8, 1), "k0": random(5), "k1": random(5, 1) + 2, "halves": np.array([4, 4])}


@pytest.mark.parametrize(
    ("body", "outputs", "in_passing"),
    [
        ("m = MatMul(x, w) b = Add(m, s) c = Mul(b, s) y = Add(c, t)", "y", True),
        ("m = MatMul(x, w) b = Add(m, s) c = Div(b, s) y = Add(t, c)", "y", True),
        ("m = MatMul(x, w) c = Mul(m, one) k = Softmax(c) y = MatMul(k, c)", "y", False),
        ("m = MatMul(x, w) c = Mul(m, one) k = Softmax(c) y = MatMul(k, t)", "y", True),
        ("m = MatMul(x, w) c = Mul(m, s) k = Softmax(c) y = MatMul(k, t)", "y", False),
        ("c = Conv(x, k) d = Mul(c, one) v = Transpose<perm=[0, 2, 1]>(d) y = Softmax(v)", "y", False),
        ("m = MatMul(x, w) c = Mul(m, one) v = Transpose<perm=[0, 2, 1]>(c) y = MatMul(v, t)", "y", True),
        ("m = MatMul(x, w) c = Mul(m, one) y = MatMul(c, t)", "y", True),
        ("m = MatMul(x, w) c = Mul(m, one) y = MatMul(t, c)", "y", True),
        ("m = MatMul(x, w) c = Mul(m, s) y = MatMul(c, t)", "y", False),
        ("m = MatMul(x, w) c = Div(m, one) y = MatMul(c, t)", "y", False),
        ("m = MatMul(x, w) c = Mul(m, s) y = Softmax(c)", "y", False),
        ("m = MatMul(x, w) c = Mul(m, s) y = Add(c, t)", "y c", False),
        ("m = MatMul(x, w) b = Add(m, s) y = Div(b, one)", "y", True),
        ("m = MatMul(x, w) r = Relu(m) y = Mul(r, one)", "y", False),
        ("m = MatMul(x, w) c = Mul(m, s) v = Transpose<perm=[0, 2, 1]>(c) y = Add(v, t)", "y", True),
        ("m = MatMul(x, w) c = Mul(m, s) v = Transpose<perm=[0, 2, 1]>(c) y = MatMul(v, t)", "y", False),
        ("m = MatMul(x, w) c = Mul(m, one) z = Shape(c) y = MatMul(c, t)", "y z", True),
        ("c = Conv(x, k) d = Mul(c, k1) y = Relu(d)", "y", True),
        ("c = Conv(x, k) d = Add(c, k1) y = Relu(d)", "y", True),
        ("c = Conv(x, k) d = Mul(c, k1) y = Transpose<perm=[0, 2, 1]>(d)", "y", False),
        ("c = Conv(x, k) d = Add(k1, c) y = Transpose<perm=[0, 2, 1]>(d)", "y", True),
        ("c = Conv(x, k, k0) d = Add(c, k1) y = Transpose<perm=[0, 2, 1]>(d)", "y", False),
        ("c = Conv(x, k, k0) d = Add(c, k1) y = Relu(d)", "y", True),
        ("c = Conv(x, k) y = Mul(c, k1)", "y", False),
        ("a = Div(x, one) b = Mul(a, one) y = Transpose<perm=[0, 2, 1]>(b)", "y", True),
        ("a = Div(x, one) p, q = Split<axis=1>(a, halves) b = Mul(p, one) y = Concat<axis=1>(b, q)", "y", True),
        ("a = Div(x, one) p = Transpose<perm=[0, 2, 1]>(a) b = Mul(p, one) y = Relu(b)", "y", False),
    ],
    ids=[
        *("a branch", "divided", "two readers", "one number before a softmax", "a vector before one"),
        *(
            "transposed before one",
            "one number transposed before a product",
            "one number before a product",
            "its other operand",
            "a vector before one",
        ),
        *("divided before one", "another reader", "a reader and a result", "a result", "a result of an activation"),
        *("a branch that is transposed", "transposed before a product", "its shape is read too", "a scale behind a Conv"),
        *("a shift behind a Conv", "moved behind a Conv", "a Conv's bias", "a second bias that is moved", "a second bias"),
        *("a Conv's result", "arithmetic"),
        *("arithmetic with a part of it", "arithmetic that is transposed"),
    ],
)
def test_a_scale_that_a_neighbour_makes_in_passing(rewrite, body, outputs, in_passing):
    source = model(f"{ROWS}, float[N, 8, 8] t", body, outputs, w=LINEAR, s=CHANNELS, one=np.float32(2), **OTHERS)
    found = [change.in_passing for change in rewrite(source, rules=(rule.RULE,)).outcome.changes]
    assert found[-1:] == [in_passing]
