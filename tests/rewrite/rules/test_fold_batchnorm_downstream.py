"""fold-batchnorm-downstream: what takes a BatchNormalization before it, behind what, every refusal, and the numbers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.models import batchnorm, parse, random
from tests.oracle import worst_relative_error
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.refusals import Feeding, Refusal, shared_refusals
from trtnorm_cli.rewrite.rules import RULES
from trtnorm_cli.rewrite.rules import fold_batchnorm_downstream as rule

NAME = rule.RULE.name
IMAGE = "float[N, 4, 6, 6] x"
W = random(5, 4, 3, 3)


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def model(x: str, behind: str, channels: int = 4, outputs: str = "z", opset: int = 17, **weights: np.ndarray):
    """A BatchNormalization of x, which writes y, and what is ``behind`` it."""
    declared = ", ".join(f"float[] {name}" for name in outputs.split())
    norm = "y = BatchNormalization(x, gamma, beta, mu, var)"
    return parse(f"g ({x}) => ({declared}) {{ {norm} {behind} }}", {**batchnorm(channels), **weights}, opset=opset)


SEQUENCE = "float[N, 4, 7] x"
STEPS = "t = Transpose<perm=[2, 0, 1]>(y)"
UNSHIFTED = {"beta": np.zeros(4, np.float32), "mu": np.zeros(4, np.float32)}
FOLDS = {
    "Conv": (model(IMAGE, "z = Conv(y, w)", w=W), "Conv"),
    "Conv with a bias": (model(IMAGE, "z = Conv<strides=[2, 2], dilations=[2, 1]>(y, w, b)", w=W, b=random(5)), "Conv"),
    "VALID": (model(IMAGE, 'z = Conv<auto_pad="VALID">(y, w)', w=W), "Conv"),
    "grouped": (model(IMAGE, "z = Conv<group=2>(y, w, b)", w=random(6, 2, 3, 3), b=random(6)), "Conv"),
    "depthwise": (model(IMAGE, "z = Conv<group=4>(y, w)", w=random(8, 1, 3, 3)), "Conv"),
    "one-dimensional": (model("float[N, 4, 9] x", "z = Conv(y, w)", w=random(5, 4, 3)), "Conv"),
    "three-dimensional": (model("float[N, 4, 4, 4, 4] x", "z = Conv(y, w)", w=random(5, 4, 2, 2, 2)), "Conv"),
    "SAME around one element": (
        model(IMAGE, 'z = Conv<auto_pad="SAME_UPPER", strides=[2, 2]>(y, w)', w=random(5, 4, 1, 1)),
        "Conv",
    ),
    "padded, without a shift": (model(IMAGE, "z = Conv<pads=[1, 1, 1, 1]>(y, w)", w=W, **UNSHIFTED), "Conv"),
    "padded before by Pad, without a shift": (
        model(IMAGE, "p = Pad(y, s) z = Conv(p, w)", w=W, s=i64(0, 0, 1, 1, 0, 0, 1, 1), **UNSHIFTED),
        "Pad Conv",
    ),
    "padded with what is there": (
        model(IMAGE, 'p = Pad<mode="reflect">(y, s) z = Conv(p, w)', w=W, s=i64(0, 0, 1, 1, 0, 0, 1, 1)),
        "Pad Conv",
    ),
    "ConvTranspose, without a shift": (
        model(IMAGE, "z = ConvTranspose<group=2>(y, w)", w=random(4, 3, 3, 3), **UNSHIFTED),
        "ConvTranspose",
    ),
    "ConvTranspose of one element": (
        model(IMAGE, "z = ConvTranspose<group=2>(y, w, b)", w=random(4, 3, 1, 1), b=random(6)),
        "ConvTranspose",
    ),
    "Gemm": (model("float[N, 4] x", "z = Gemm<alpha=0.5, beta=2.0>(y, w, b)", w=random(4, 5), b=random(5)), "Gemm"),
    "Gemm without a bias": (model("float[N, 4] x", "z = Gemm<transB=1>(y, w)", w=random(5, 4)), "Gemm"),
    "Gemm of a transposed": (
        model("float[5, 3] x", "z = Gemm<transA=1>(t, w) ".replace("z", "t = Transpose(y) z", 1), 3, w=random(3, 5)),
        "Transpose Gemm",
    ),
    "MatMul": (model("float[N, 4] x", "z = MatMul(y, w)", w=random(4, 5)), "MatMul Add"),
    "MatMul and bias": (model("float[N, 4] x", "m = MatMul(y, w) z = Add(b, m)", w=random(4, 5), b=random(5)), "MatMul Add"),
    "batched MatMul": (
        model("float[2, 4, 7] x", "t = Transpose<perm=[0, 2, 1]>(y) z = MatMul(t, w)", w=random(2, 4, 5)),
        "Transpose MatMul Add",
    ),
    "constant on the left": (model("float[N, 4, 7] x", "z = MatMul(w, y)", w=random(5, 4)), "MatMul Add"),
    "Flatten and Gemm": (
        model("float[N, 4, 3, 2] x", "f = Flatten(y) z = Gemm<transB=1>(f, w, b)", w=random(5, 24), b=random(5)),
        "Flatten Gemm",
    ),
    "Dropout, Reshape and MatMul": (
        model("float[N, 4, 3, 2] x", "d = Dropout(y) f = Reshape(d, s) z = MatMul(f, w)", w=random(24, 5), s=i64(0, 24)),
        "Dropout Reshape MatMul Add",
    ),
    "LSTM, both directions": (
        model(
            SEQUENCE,
            f'{STEPS} z, u = LSTM<hidden_size=3, direction="bidirectional">(t, w, r, b)',
            outputs="z u",
            w=random(2, 12, 4),
            r=random(2, 12, 3),
            b=random(2, 24),
        ),
        "Transpose LSTM",
    ),
    "GRU without a bias": (
        model(
            SEQUENCE,
            f'{STEPS} "", z = GRU<hidden_size=3, linear_before_reset=1>(t, w, r)',
            w=random(1, 9, 4),
            r=random(1, 9, 3),
        ),
        "Transpose GRU",
    ),
    "average": (model(IMAGE, "a = GlobalAveragePool(y) z = Conv(a, w)", w=random(5, 4, 1, 1)), "GlobalAveragePool Conv"),
    "several that read it": (
        model(IMAGE, "z = Conv(y, w) u = Conv(y, v)", outputs="z u", w=W, v=random(3, 4, 1, 1)),
        "Conv Conv",
    ),
    "queries, keys and values": (
        model(
            "float[N, 4, 7] x",
            "t = Transpose<perm=[0, 2, 1]>(y) m = MatMul(t, w) z = Add(m, b) n = MatMul(t, v) u = Add(n, b) o = Relu(u)",
            outputs="z o",
            w=random(4, 5),
            v=random(4, 5, seed=1),
            b=random(5),
        ),
        "Transpose MatMul Add MatMul Add Relu",
    ),
    "beside a branch in a Concat": (
        model(IMAGE + ", float[N, 2, 6, 6] q", "c = Concat<axis=1>(q, y) z = Conv(c, w)", w=random(5, 6, 3, 3)),
        "Concat Conv",
    ),
    "a batch of matrices, of which each row gets its own factor": (
        model(
            "float[2, 4, 7] x",
            "t = Transpose<perm=[0, 2, 1]>(y) z = MatMul(t, w)",
            w=random(2, 4, 5) * np.float32([[1e37], [1], [1], [1]]),
            gamma=np.float32([1, 100, 1, 1]),
            var=np.float32([1, 1, 1, 1]),
            **UNSHIFTED,
        ),
        "Transpose MatMul",
    ),
    "a part that nobody reads": (
        model(IMAGE, "a, b = Split<axis=1>(y, s) z = Conv(a, w)", w=random(5, 2, 3, 3), s=i64(2, 2)),
        "Split Conv",
    ),
    "a part that others read": (
        model(
            IMAGE, "a, b = Split<axis=1>(y, s) z = Conv(a, w) u = Conv(b, w)", outputs="z u", w=random(5, 2, 3, 3), s=i64(2, 2)
        ),
        "Split Conv Conv",
    ),
}


@pytest.mark.parametrize(("source", "after"), FOLDS.values(), ids=FOLDS)
def test_folds(rewrite, source, after):
    result = rewrite(source, rules=(rule.RULE,))
    assert result.rules == [NAME]
    assert result.operators == after.split()
    assert worst_relative_error(source, result.model) < 2e-6
    assert rewrite(result.model, rules=(rule.RULE,)).rules == []


@pytest.mark.parametrize("opset", [7, 9, 13, 22])
def test_every_opset_since_7(rewrite, opset):
    source = model(IMAGE, "z = Conv(y, w)", opset=opset, w=W)
    result = rewrite(source)
    assert result.operators == ["Conv"]
    assert worst_relative_error(source, result.model) < 1e-6


def test_the_change_is_reported_at_the_batchnorm(rewrite):
    (change,) = rewrite(model(IMAGE, "[conv] z = Conv(y, w)", w=W)).outcome.changes
    assert (change.node, change.added) == ("BatchNormalization -> y", ("conv",))
    assert set(change.removed) == {"BatchNormalization -> y", "conv"}


def test_outputs_that_are_left_out_stay_so(rewrite):
    result = rewrite(FOLDS["GRU without a bias"][0])
    assert list(result.model.graph.node[1].output) == ["", "z"]


def test_a_second_reader_of_the_shape_reads_the_data(rewrite):
    source = model(IMAGE, "s = Shape(y) c = Conv<pads=[1, 1, 1, 1]>(y, w) z = Reshape(c, s)", w=random(4, 4, 3, 3), **UNSHIFTED)
    result = rewrite(source, rules=(rule.RULE,))
    assert result.rules == [NAME]
    assert list(result.model.graph.node[0].input) == ["x"]
    assert worst_relative_error(source, result.model) < 1e-6


def test_before_comes_first(rewrite):
    source = parse(
        "g (float[N, 3, 6, 6] x) => (float[] z)"
        "{ c = Conv(x, v) y = BatchNormalization(c, gamma, beta, mu, var) z = Conv(y, w) }",
        {"v": random(4, 3, 1, 1), "w": W, **batchnorm(4)},
    )
    assert rewrite(source).rules == ["fold-batchnorm-conv"]


FEEDING = Feeding("float[N, 3, 5, 5] c", "", 3)


def with_weights(refusals: list[Refusal]) -> list[Refusal]:
    """The models with a convolution behind the BatchNormalization."""
    for case in refusals:
        case.model.graph.node.add(op_type="Conv", input=["y", "behind"], output=["z"])
        case.model.graph.output[0].name = "z"
        extra = parse("g () => () {}", {"behind": random(2, 3, 3, 3)})
        case.model.graph.initializer.extend(extra.graph.initializer)
    return refusals


REFUSALS = [
    *with_weights(shared_refusals(FEEDING)),
    Refusal(
        rule.data_has_channels, model("float[4] x", "z = MatMul(w, y)", w=random(5, 4)), "the data of x has no channel axis"
    ),
    Refusal(
        rule.data_has_channels,
        model(IMAGE, "z = Conv(y, w)", 5, w=random(3, 4, 3, 3)),
        "BatchNormalization -> y has 5 values per parameter, but x makes 4 channels",
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE)


OUT_OF_REACH = {
    "padded with zeros": (
        model(
            IMAGE, "z = Conv<pads=[0, 1, 0, 0]>(y, w)", w=W, beta=np.array([0, 0, 2, 0], np.float32), mu=np.zeros(4, np.float32)
        ),
        "Conv -> z pads with zeros, and the shift is not zero (channel 2: 2): the border would need",
    ),
    "SAME": (model(IMAGE, 'z = Conv<auto_pad="SAME_LOWER">(y, w)', w=W), "Conv -> z pads with zeros"),
    "padded by Pad": (
        model(IMAGE, "p = Pad(y, s) z = Conv(p, w)", w=W, s=i64(0, 0, 1, 1, 0, 0, 1, 1)),
        "Pad -> p pads with 0, which the scale and shift",
    ),
    "ConvTranspose": (model(IMAGE, "z = ConvTranspose(y, w)", w=random(4, 3, 3, 3)), "does not reach all of its output alike"),
    "graph output": (model(IMAGE, "z = Conv(y, w)", outputs="z y", w=W), "y is an output of the graph"),
    "one of two cannot": (
        model(IMAGE, "z = Conv(y, w) u = Relu(y)", outputs="z u", w=W),
        "a shift does not go through Relu -> u, which is Relu",
    ),
    "residual": (
        model(IMAGE, "c = Conv(y, w) z = Add(c, y)", w=random(4, 4, 1, 1)),
        "adds another tensor, which has not the same scale",
    ),
    "unknown operator": (model(IMAGE, "z = Softmax(y)"), "Softmax -> z is Softmax, which takes no scale and shift"),
    "weight of run time": (model(IMAGE + ", float[5, 4, 3, 3] w", "z = Conv(y, w)"), "is Conv, which takes no scale and shift"),
    "it is the weight": (
        model("float[5, 4, 3, 3] x, float[1, 4, 9, 9] q", "z = Conv(q, y)"),
        "Conv -> z is Conv, which takes no scale and shift",
    ),
    "the rows of a product": (
        model("float[N, 4, 7] x", "z = MatMul(y, w)", w=random(7, 5)),
        "scale and shift differ along axis 1 at MatMul -> z",
    ),
    "too many additions": (
        model("float[N, 4] x", "z = MatMul(y, w) u = MatMul(y, w)", outputs="z u", w=random(4, 5)),
        "2 operators would have to be added",
    ),
    "nobody reads it": (model(IMAGE, "z = Neg(x)"), "nobody reads the values of y"),
    "a plane of unknown size": (
        model("float[N, 4, H, W] x", "f = Flatten(y) z = Gemm(f, w)", w=random(36, 5)),
        "Flatten -> f mixes channels with axes of unknown size",
    ),
    "a subgraph reads it": (
        parse(
            "g (float[N, 4, 6, 6] x, bool t) => (float[] z) { y = BatchNormalization(x, p, p, p, p) z = If (t) <"
            "then_branch = a () => (float[] d) { d = Conv(y, w) }, else_branch = b () => (float[] e) { e = Conv(x, w) }> }",
            {"w": W, "p": np.full(4, 2, np.float32)},
        ),
        "y is also used by Conv -> d in another graph",
    ),
}


@pytest.mark.parametrize(("source", "reason"), OUT_OF_REACH.values(), ids=OUT_OF_REACH)
def test_what_is_out_of_reach(rewrite, source, reason):
    result = rewrite(source, rules=(rule.RULE,))
    assert result.outcome.changes == []
    assert reason in result.reason(NAME)
    assert result.model.graph == result.surgery.source.graph


def test_half_precision_bias_beyond_its_range(rewrite):
    weights = {"w": random(5, 4, 3, 3, dtype=np.float16), **batchnorm(4, np.float16), "beta": np.full(4, 6e4, np.float16)}
    text = "g (float16[N, 4, 6, 6] x) => (float16[] z) { y = BatchNormalization(x, gamma, beta, mu, var) z = Conv(y, w) }"
    result = rewrite(parse(text, weights), rules=(rule.RULE,))
    assert "the folded bias of Conv -> z reaches" in result.reason(NAME)


def test_a_second_pass_changes_nothing(rewrite):
    once = rewrite(model(IMAGE, "z = Conv(y, w) u = Conv<pads=[1, 1, 1, 1]>(y, w)", outputs="z u", w=W), rules=RULES)
    assert once.operators == ["Mul", "Add", "Conv", "Conv"]
    assert rewrite(once.model, rules=RULES).outcome.changes == []


def test_the_last_resort_says_why_nothing_else_fits(rewrite):
    (change,) = rewrite(model(IMAGE, "z = Conv<pads=[1, 1, 1, 1]>(y, w)", w=W)).outcome.changes
    assert change.rule == "batchnorm-to-scale-shift"
    reasons = dict(reason.split(": ", 1) for reason in change.refused)
    assert reasons["fold-batchnorm-upstream"] == "x is an input of its graph"
    assert reasons[NAME].startswith("Conv -> z pads with zeros, and the shift is not zero (channel 0: ")


def test_the_data_keeps_its_other_readers(rewrite):
    """A residual connection around the pair."""
    source = model(IMAGE, "c = Conv(y, w) z = Add(c, x)", w=random(4, 4, 1, 1))
    result = rewrite(source, rules=(rule.RULE,))
    assert result.operators == ["Conv", "Add"]
    assert worst_relative_error(source, result.model) < 1e-6


def test_a_batchnorm_passes_more_operators_than_python_nests_calls(rewrite):
    links = 400
    turned = " ".join(f"t{i + 1} = Transpose<perm=[0, 1, 3, 2]>(t{i})" for i in range(1, links))
    source = model(IMAGE, f"t1 = Transpose<perm=[0, 1, 3, 2]>(y) {turned} z = Conv(t{links}, w)", w=W)
    result = rewrite(source, rules=(rule.RULE,))
    assert result.rules == [NAME]
    assert result.operators == [*["Transpose"] * links, "Conv"]
