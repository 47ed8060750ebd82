"""How far forth a scale and shift goes, and how operators that read it take it into their weights."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import parse, random
from tests.oracle import worst_relative_error
from tests.rewrite.scale_shift.test_upstream import i64, of_another_domain, only
from trtnorm_cli.rewrite.rules.fold_batchnorm_downstream import RULE

NORM = "y = BatchNormalization<epsilon=0.0>(x, gamma, beta, mu, var)"
IMAGE, ROWS, SEQUENCE = "float[N, 4, 6, 6] x", "float[N, 4] x", "float[N, 4, 7] x"
STEPS = "t = Transpose<perm=[2, 0, 1]>(y)"
W, SMALL, LINEAR, BIAS = random(5, 4, 3, 3), random(4, 5, 1, 1), random(4, 5), random(5)
BOTH = only(gamma=(2, -3, 4, 0.5), beta=(1, 2, -3, 4))
SCALED, SHIFTED = only(gamma=(2, -3, 4, 0.5)), only(beta=(1, 2, -3, 4))
FIRST_TWO = only(gamma=(2, -3, 1, 1), beta=(1, 2, 0, 0))
LSTM = {"w": random(1, 12, 4), "r": random(1, 12, 3), "b": random(1, 24)}


def model(x: str, behind: str, outputs: str = "z", opset: int = 17, **weights: np.ndarray) -> onnx.ModelProto:
    declared = ", ".join(f"float[] {name}" for name in outputs.split())
    return parse(f"g ({x}) => ({declared}) {{ {NORM} {behind} }}", {**BOTH, **weights}, opset=opset)


FOLDS = {
    "a part that is neither scaled nor shifted": (
        model(
            IMAGE,
            "a, b = Split<axis=1>(y, s) z = Conv(a, w) u = Softmax(b)",
            "z u",
            w=random(5, 2, 3, 3),
            s=i64(2, 2),
            **FIRST_TWO,
        ),
        "Split Conv Softmax",
    ),
    "an operator that drops nothing": (model(IMAGE, "a, mask = Dropout(y) z = Conv(a, w)", w=W), "Dropout Conv"),
    "no scale": (model(IMAGE, "z = Conv(y, w)", w=W, **SHIFTED), "Conv"),
    "no shift": (model(IMAGE, "z = Conv(y, w)", w=W, **SCALED), "Conv"),
    "no shift at a transposed convolution": (
        model(IMAGE, "z = ConvTranspose(y, w)", w=SMALL, **SCALED),
        "ConvTranspose",
    ),
    "no shift at a Gemm": (model(ROWS, "z = Gemm(y, w)", w=LINEAR, **SCALED), "Gemm"),
    "no shift at a Gemm with a row of biases": (
        model(ROWS, "z = Gemm<beta=0.5>(y, w, b)", w=LINEAR, b=random(1, 5), **SCALED),
        "Gemm",
    ),
    "a Gemm with a row of biases": (model(ROWS, "z = Gemm<beta=0.5>(y, w, b)", w=LINEAR, b=random(1, 5)), "Gemm"),
    "a Gemm with one bias": (model(ROWS, "z = Gemm(y, w, b)", w=LINEAR, b=random(1)), "Gemm"),
    "a transposed convolution of one element": (
        model(IMAGE, "z = ConvTranspose(y, w, b)", w=SMALL, b=BIAS),
        "ConvTranspose",
    ),
    "a transposed convolution of one element in groups": (
        model(IMAGE, "z = ConvTranspose<group=2>(y, w, b)", w=random(4, 3, 1, 1), b=random(6)),
        "ConvTranspose",
    ),
    "no shift at a product": (model(ROWS, "z = MatMul(y, w)", w=LINEAR, **SCALED), "MatMul"),
    "no shift at a product with a bias": (
        model(ROWS, "m = MatMul(y, w) z = Add(m, b)", w=LINEAR, b=BIAS, **SCALED),
        "MatMul Add",
    ),
    "a product that is multiplied": (model(ROWS, "m = MatMul(y, w) z = Mul(m, b)", w=LINEAR, b=BIAS), "MatMul Add Mul"),
    "a product that is an output": (
        model(ROWS, "m = MatMul(y, w) z = Add(m, b)", "z m", w=LINEAR, b=BIAS),
        "MatMul Add Add",
    ),
    "a product that two read": (
        model(ROWS, "m = MatMul(y, w) z = Add(m, b) u = Sub(m, b)", "z u", w=LINEAR, b=BIAS),
        "MatMul Add Add Sub",
    ),
    "a product added to one of run time": (
        model(f"{ROWS}, float[N, 5] q", "m = MatMul(y, w) z = Add(m, q)", w=LINEAR),
        "MatMul Add Add",
    ),
    "a bias that adds an axis": (model(ROWS, "m = MatMul(y, w) z = Add(m, b)", w=LINEAR, b=random(2, 1, 5)), "MatMul Add"),
    "one bias for all": (model(ROWS, "m = MatMul(y, w) z = Add(b, m)", w=LINEAR, b=random()), "MatMul Add"),
    "a batch of matrices on the left": (model("float[2, 4, 7] x", "z = MatMul(w, y)", w=random(2, 5, 4)), "MatMul Add"),
    "a batch of square matrices and a bias": (
        model(
            "float[2, 4, 7] x",
            "t = Transpose<perm=[0, 2, 1]>(y) m = MatMul(t, w) z = Add(m, b)",
            w=random(2, 4, 4),
            b=random(4),
        ),
        "Transpose MatMul Add",
    ),
    "no shift at two products": (
        model(ROWS, "z = MatMul(y, w) u = MatMul(y, w)", "z u", w=LINEAR, **SCALED),
        "MatMul MatMul",
    ),
    "groups that are scaled and shifted alike": (
        model(IMAGE, "z = Conv<group=2>(y, w)", w=random(6, 2, 3, 3), **only(gamma=(2, 3, 2, 3), beta=(1, 2, 1, 2))),
        "Conv",
    ),
    "a recurrence with a bias of run time": (
        model(
            f"{SEQUENCE}, float[1, 24] b",
            f"{STEPS} z = LSTM<hidden_size=3>(t, w, r, b)",
            w=LSTM["w"],
            r=LSTM["r"],
            **SCALED,
        ),
        "Transpose LSTM",
    ),
    "a recurrence of which something reads the end": (
        model(SEQUENCE, f'{STEPS} "", h = LSTM<hidden_size=3>(t, w, r, b) z = Neg(h)', **LSTM),
        "Transpose LSTM Neg",
    ),
}


@pytest.mark.parametrize(("source", "after"), FOLDS.values(), ids=FOLDS)
def test_folds(rewrite, source, after):
    result = rewrite(source, rules=(RULE,))
    assert result.operators == after.split(), result.outcome.rejections
    assert worst_relative_error(source, result.model) < 2e-6


@pytest.mark.parametrize("name", [name for name in FOLDS if name.startswith("no shift") and "bias" not in name])
def test_a_scale_alone_adds_no_bias(rewrite, name):
    assert len(rewrite(FOLDS[name][0], rules=(RULE,)).model.graph.node[-1].input) == 2


def test_an_added_bias_has_no_more_axes_than_it_needs(rewrite):
    made = rewrite(model(ROWS, "z = MatMul(y, w)", w=LINEAR), rules=(RULE,)).model.graph
    assert [list(tensor.dims) for tensor in made.initializer if tensor.name == made.node[1].input[1]] == [[5]]


def test_a_recurrence_gets_a_bias_and_no_further_input(rewrite):
    source = model(SEQUENCE, f"{STEPS} z = LSTM<hidden_size=3>(t, w, r)", w=LSTM["w"], r=LSTM["r"])
    assert len(rewrite(source, rules=(RULE,)).model.graph.node[1].input) == 4


def test_what_goes_is_listed_in_the_order_of_execution(rewrite):
    (change,) = rewrite(model(IMAGE, "[n1] a = Neg(y) [n2] b = Identity(a) [n3] z = Conv(b, w)", w=W)).outcome.changes
    assert change.removed == ("BatchNormalization -> y", "n1", "n2", "n3")


PAIRED = f"g ({IMAGE}, float[N, 4, 6, 6] q) => (float[] z) <float[N, 4, 6, 6] a> {{ {NORM} BODY }}"
REFUSED: dict[str, tuple[onnx.ModelProto, str]] = {
    "the last node": (model(IMAGE, "", "y"), "y is an output of the graph"),
    "another domain": (
        of_another_domain(parse(PAIRED.replace("BODY", "a = Relu(y) z = Conv(a, w)"), {"w": W, **SCALED}), "Relu"),
        "Relu -> a is com.example.Relu, which takes no scale and shift",
    ),
    "a slope": (
        parse(PAIRED.replace("BODY", "a = PRelu(q, y) z = Conv(a, w)"), {"w": W, **BOTH}),
        "PRelu -> a is PRelu, which takes no scale and shift",
    ),
    "a mask that something reads": (
        model(IMAGE, "a, mask = Dropout(y) z = Conv(a, w) u = Cast<to=1>(mask)", "z u", w=W),
        "a further output of Dropout -> a is used",
    ),
    "a mask that is an output": (
        parse(f"g ({IMAGE}) => (float[] z, bool[] mask) {{ {NORM} a, mask = Dropout(y) z = Conv(a, w) }}", {"w": W, **BOTH}),
        "a further output of Dropout -> a is used",
    ),
    "a product of a vector": (
        model("float[1, 4] x", "v = Squeeze(y, u) z = MatMul(v, w)", w=LINEAR, u=i64(0)),
        "MatMul -> z multiplies with a vector",
    ),
    "padding along one axis": (
        model(IMAGE, 'z = Conv<auto_pad="SAME_UPPER">(y, w)', w=random(5, 4, 3, 1)),
        "Conv -> z pads with zeros",
    ),
    "a transposed convolution that is no point": (
        model(IMAGE, "z = ConvTranspose(y, w)", w=random(4, 5, 2, 1)),
        "does not reach all of its output alike",
    ),
    "no groups at all": (
        parse(f"g ({IMAGE}) => (float[N, 5, 4, 4] z) {{ {NORM} z = Conv<group=0>(y, w) }}", {"w": W, **BOTH}),
        "Conv -> z has 5 output channels in 0 groups",
    ),
    "a bias of run time": (
        model(f"{SEQUENCE}, float[1, 24] b", f"{STEPS} z = LSTM<hidden_size=3>(t, w, r, b)", w=LSTM["w"], r=LSTM["r"]),
        "b, input 3 of LSTM -> z, is computed at run time",
    ),
    "padding of a transposed convolution": (
        model(IMAGE, "z = ConvTranspose<pads=[0, 0, 0, 1]>(y, w)", w=SMALL),
        "does not reach all of its output alike",
    ),
    "strides of a transposed convolution": (
        model(IMAGE, "z = ConvTranspose<strides=[1, 2]>(y, w)", w=SMALL),
        "does not reach all of its output alike",
    ),
    "more padding of a transposed convolution": (
        model(IMAGE, "z = ConvTranspose<strides=[1, 1], dilations=[2, 2], output_padding=[0, 1]>(y, w)", w=SMALL),
        "does not reach all of its output alike",
    ),
    "a stated size of a transposed convolution": (
        model(IMAGE, "z = ConvTranspose<output_shape=[8, 8]>(y, w)", w=SMALL),
        "does not reach all of its output alike",
    ),
}


@pytest.mark.parametrize(("source", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_stays_as_it_is(rewrite, source, reason):
    result = rewrite(source, rules=(RULE,))
    assert result.outcome.changes == []
    assert reason in result.reason(RULE.name)
    assert result.model.graph == result.surgery.source.graph


LARGE, ONE = np.float16(6e4), np.float16(1)
HALF = {
    "Conv": ("float16[2, 4, 3, 3] x", "z = Conv(y, w)", (5, 4, 1, 1)),
    "ConvTranspose": ("float16[2, 4, 3, 3] x", "z = ConvTranspose(y, w)", (4, 5, 1, 1)),
    "Gemm": ("float16[2, 4] x", "z = Gemm(y, w)", (4, 5)),
    "MatMul": ("float16[2, 4] x", "z = MatMul(y, w)", (4, 5)),
    "product from the left": ("float16[2, 4, 3] x", "z = MatMul(w, y)", (5, 4)),
    "RNN": ("float16[2, 4, 3] x", f"{STEPS} z = RNN<hidden_size=5>(t, w, r)", (1, 5, 4)),
}


def half(case: str, weight: float, parameters: dict[str, np.ndarray], body: str = "", **more: np.ndarray) -> onnx.ModelProto:
    x, behind, shape = HALF[case]
    weights = {"w": np.full(shape, weight, np.float16), **more, **parameters}
    if case == "RNN":
        weights["r"] = np.zeros((1, 5, 5), np.float16)
    return parse(f"g ({x}) => (float16[] z) {{ {NORM} {body or behind} }}", weights)


@pytest.mark.parametrize("case", HALF)
def test_a_weight_beyond_half_precision_is_refused(rewrite, case):
    assert rewrite(half(case, 2e4, only(gamma=(1, 2, 3, 3))), rules=(RULE,)).rules == [RULE.name]
    result = rewrite(half(case, 2e4, only(gamma=(1, 2, 3, 4))), rules=(RULE,))
    assert result.outcome.changes == []
    assert "the folded weight of" in result.reason(RULE.name)


@pytest.mark.parametrize("case", HALF)
def test_a_bias_beyond_half_precision_is_refused(rewrite, case):
    """Of four weights of 1, the largest shift counts for each."""
    assert rewrite(half(case, 1, only(beta=(1e4, 1e4, 1.5e4, 1e4))), rules=(RULE,)).rules == [RULE.name]
    result = rewrite(half(case, 1, only(beta=(1e4, 1e4, 1.7e4, 1e4))), rules=(RULE,))
    assert result.outcome.changes == []
    assert "the folded bias of" in result.reason(RULE.name)


@pytest.mark.parametrize(
    ("body", "bias", "fits"),
    [
        ("z = Gemm<alpha=0.5>(y, w)", None, True),
        ("z = Gemm<alpha=-2.0>(y, w)", None, False),
        ("z = Gemm(y, w, b)", 2e4, True),
        ("z = Gemm(y, w, b)", -3e4, False),
        ("z = Gemm<beta=2.0>(y, w, b)", 2e4, False),
    ],
)
def test_what_a_gemm_adds_counts_for_its_bias(rewrite, body, bias, fits):
    more = {} if bias is None else {"b": np.full(5, bias, np.float16)}
    shift = 1e4 if bias is not None or "-2.0" in body else 3e4
    result = rewrite(half("Gemm", 1, only(beta=(shift,) * 4), body, **more), rules=(RULE,))
    assert (result.rules == [RULE.name]) == fits
    if not fits:
        assert "the folded bias of Gemm" in result.reason(RULE.name)
