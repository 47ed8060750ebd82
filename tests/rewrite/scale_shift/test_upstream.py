"""How far back a scale and shift goes: who else reads a tensor, what may be left to a new node, and what is refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import batchnorm, parse, random
from tests.oracle import worst_relative_error
from trtnorm_cli.rewrite.rules import fold_batchnorm_upstream, fold_scale_shift_upstream

RULE, SCALE_SHIFT = fold_batchnorm_upstream.RULE, fold_scale_shift_upstream.RULE
NORM = "y = BatchNormalization<epsilon=0.0>(c, gamma, beta, mu, var)"
IMAGE, PAIR = "float[N, 3, 6, 6] x", "float[N, 3, 6, 6] x, float[N, 2, 6, 6] z"
W, LINEAR = random(4, 3, 1, 1), random(4, 5)


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def only(**changed: tuple[float, ...]) -> dict[str, np.ndarray]:
    """Parameters of y = x but for what is ``changed``."""
    size = len(next(iter(changed.values())))
    plain = {"gamma": 1, "beta": 0, "mu": 0, "var": 1}
    return {name: np.float32(changed.get(name, (value,) * size)) for name, value in plain.items()}


def model(x: str, before: str, channels: int, outputs: str = "y", opset: int = 17, **weights: np.ndarray) -> onnx.ModelProto:
    declared = ", ".join(f"float[] {name}" for name in outputs.split())
    return parse(f"g ({x}) => ({declared}) {{ {before} {NORM} }}", {**batchnorm(channels), **weights}, opset=opset)


ALIKE = only(gamma=(2,) * 6, beta=(1,) * 6)
HALVES = {"o": i64(0), "k": i64(2), "e": i64(4), "i": i64(1)}
LEFT_OVER = {
    "a branch several operators long": (
        model(PAIR, "a = Conv(x, w) r = Relu(z) b = Identity(r) c = Concat<axis=1>(a, b)", 6, w=W),
        "BatchNormalization Concat Conv Identity Relu",
    ),
    "a branch of rows": (
        model("float[N, 4] x, float[N, 2] z", "a = Gemm(x, w) b = Relu(z) c = Concat<axis=1>(a, b)", 7, w=LINEAR),
        "BatchNormalization Concat Gemm Relu",
    ),
    "a branch that is an output": (
        model(PAIR, "a = Conv(x, w) b = Conv(z, v) c = Concat<axis=1>(a, b)", 6, "y a", w=W, v=random(2, 2, 1, 1)),
        "BatchNormalization Concat Conv Conv",
    ),
    "what the other branch reads": (
        model(IMAGE, "a = Conv(x, w) c = Concat<axis=1>(a, x)", 7, w=W),
        "BatchNormalization Concat Conv",
    ),
    "what both branches have twice": (
        model(
            IMAGE,
            "a = Conv(x, w) r = Relu(x) c = Concat<axis=1>(r, a, r)",
            10,
            w=W,
            **only(gamma=(*(2, 3, 4) * 2, 1, *(2, 3, 4))),
        ),
        "BatchNormalization Concat Conv Relu",
    ),
    "what another branch is made of": (
        model(IMAGE, "a = Conv(x, w) b = Conv(a, v) c = Concat<axis=1>(a, b)", 6, w=W, v=random(2, 4, 1, 1)),
        "BatchNormalization Concat Conv Conv",
    ),
}


@pytest.mark.parametrize(("source", "after"), LEFT_OVER.values(), ids=LEFT_OVER)
def test_one_branch_is_left_to_a_new_node(rewrite, source, after):
    result = rewrite(source, rules=(RULE,))
    assert sorted(result.operators) == after.split()
    assert result.operators.index("BatchNormalization") < result.operators.index("Concat")
    assert worst_relative_error(source, result.model) < 2e-6


FOLDS = {
    "one tensor added to itself": (
        model(IMAGE, "a = Conv(x, w) c = Add(a, a)", 4, w=W, **only(gamma=(2, 3, 4, 5))),
        "Conv Add",
    ),
    "one tensor twice in a row, scaled alike": (
        model(IMAGE, "a = Conv(x, w) c = Concat<axis=1>(a, a)", 8, w=W, **only(gamma=(2, 3, 4, 5) * 2, beta=(1, 2, 3, 4) * 2)),
        "Conv Concat",
    ),
    "its number of elements is read": (
        model(IMAGE, "a = Conv(x, w) n = Size(a) c = Identity(a) z = Cast<to=1>(n)", 4, "y z", w=W),
        "Conv Size Identity Cast",
    ),
    "a Gather of other channels reads it": (
        model(IMAGE, "a = Conv(x, w) c = Slice(a, o, k, i) z = Gather<axis=1>(a, j)", 2, "y z", w=W, j=i64(3, 2), **HALVES),
        "Conv Slice Gather",
    ),
    "a Split whose parts are scaled and not": (
        model(IMAGE, "a = Conv(x, w) p, q = Split<axis=1>(a, s) c = Identity(p) z = Abs(q)", 2, "y z", w=W, s=i64(2, 2)),
        "Conv Split Identity Abs",
    ),
    "Dropout whose mask has a name that nobody reads": (
        model(IMAGE, "a = Conv(x, w) c, mask = Dropout(a)", 4, w=W),
        "Conv Dropout",
    ),
    "one value for all channels of a constant": (
        model("float[1, 3, 6, 6] x", "a = Conv(x, w) c = Concat<axis=1>(k, a)", 6, w=W, k=random(1, 2, 6, 6)),
        "Conv Concat",
    ),
    "a Gemm with a bias": (
        model("float[N, 4] x", "a = Gemm(x, w, b) c = Identity(a)", 5, w=LINEAR, b=random(5)),
        "Gemm Identity",
    ),
    "a Gemm with a bias for all": (
        model("float[N, 4] x", "a = Gemm<beta=0.5>(x, w, b) c = Identity(a)", 5, w=LINEAR, b=random(1)),
        "Gemm Identity",
    ),
    "a Gemm with a row of biases": (
        model("float[N, 4] x", "a = Gemm(x, w, b) c = Identity(a)", 5, w=LINEAR, b=random(1, 5)),
        "Gemm Identity",
    ),
    "no shift": (model(IMAGE, "a = Conv(x, w) c = Identity(a)", 4, w=W, **only(gamma=(2, 3, 4, -5))), "Conv Identity"),
    "no scale": (model(IMAGE, "a = Conv(x, w) c = Identity(a)", 4, w=W, **only(beta=(2, 3, 0, -5))), "Conv Identity"),
    "no shift of a product": (
        model("float[N, 4] x", "a = MatMul(x, w) c = Identity(a)", 5, w=LINEAR, **only(gamma=(2, 3, 4, 5, -6))),
        "MatMul Identity",
    ),
    "no scale of a product": (
        model("float[N, 4] x", "a = MatMul(x, w) c = Identity(a)", 5, w=LINEAR, **only(beta=(2, 3, 4, 5, -6))),
        "MatMul Add Identity",
    ),
    "no scale of a sum": (
        model("float[N, 4] x", "r = Abs(x) a = Add(r, b) c = Identity(a)", 4, b=random(4), **only(beta=(2, 3, 4, 5))),
        "Abs Add Identity",
    ),
}


@pytest.mark.parametrize(("source", "after"), FOLDS.values(), ids=FOLDS)
def test_folds(rewrite, source, after):
    result = rewrite(source, rules=(RULE,))
    assert result.operators == after.split(), result.outcome.rejections
    assert worst_relative_error(source, result.model) < 2e-6


@pytest.mark.parametrize("name", ["no shift", "no scale"])
def test_a_bias_is_added_only_where_there_is_a_shift(rewrite, name):
    conv = rewrite(FOLDS[name][0], rules=(RULE,)).model.graph.node[0]
    assert len(conv.input) == (2 if name == "no shift" else 3)


def test_an_output_that_nobody_reads_goes(rewrite):
    dropout = rewrite(FOLDS["Dropout whose mask has a name that nobody reads"][0], rules=(RULE,)).model.graph.node[1]
    assert len(dropout.output) == 1


def test_an_added_bias_has_no_more_axes_than_it_needs(rewrite):
    source = model("float[N, 7, 4] x", "a = MatMul(x, w) c = Transpose<perm=[0, 2, 1]>(a)", 5, w=LINEAR)
    result = rewrite(source, rules=(RULE,)).model
    assert [list(t.dims) for t in result.graph.initializer if t.name == result.graph.node[1].input[1]] == [[5]]


def test_what_goes_is_listed_in_the_order_of_execution(rewrite):
    (change,) = rewrite(
        model(IMAGE, "[n1] a = Conv(x, w) [n2] b = Identity(a) [n3] c = Neg(b)", 4, w=W), rules=(RULE,)
    ).outcome.changes
    assert change.removed == ("n1", "n2", "n3", "BatchNormalization -> y")


OUTER = (
    f"g ({IMAGE}, bool t) => (float[] r) {{ a = Conv(x, w) r = If (t) <then_branch = f () => (float[] y) {{ THEN }},"
    " else_branch = h () => (float[] e) { e = Neg(a) }> }"
)
OTHER_SLICE = (
    f"g ({IMAGE}, bool t) => (float[] y, float[] r) {{ a = Conv(x, w) c = Slice(a, o, k, i) {NORM} r = If (t) <then_branch ="
    " f () => (float[] d) { d = Slice(a, k, e, i) }, else_branch = h () => (float[] e2) { e2 = Neg(t2) }> }"
)
STATED = (
    f"g ({PAIR}) => (float[] y) <float[N, 6, 6, 6] c, KIND> {{ a = Conv(x, w) b = Odd(z) c = Concat<axis=1>(a, b) {NORM} }}"
)


def of_another_domain(source: onnx.ModelProto, operator: str) -> onnx.ModelProto:
    for node in source.graph.node:
        if node.op_type == operator:
            node.domain = "com.example"
    source.opset_import.add(domain="com.example", version=1)
    return source


def with_odd_type(kind: str, dtype: int | None = None) -> onnx.ModelProto:
    """A branch of an operator that nobody knows, whose result the file states."""
    source = parse(STATED.replace(", KIND", f", {kind}" if kind else ""), {"w": W, **ALIKE})
    if dtype is not None:
        source.graph.value_info[1].type.tensor_type.elem_type = dtype
    return of_another_domain(source, "Odd")


REFUSED: dict[str, tuple[onnx.ModelProto, str]] = {
    "one tensor twice in a row, with other scales": (
        model(IMAGE, "a = Conv(x, w) c = Concat<axis=1>(a, a)", 8, w=W, **only(gamma=(2, 3, 4, 5, 6, 7, 8, 9))),
        "a is also used by Concat -> c",
    ),
    "one tensor twice in a row, with other shifts": (
        model(IMAGE, "a = Conv(x, w) c = Concat<axis=1>(a, a)", 8, w=W, **only(beta=(2, 3, 4, 5, 6, 7, 8, 9))),
        "a is also used by Concat -> c",
    ),
    "one tensor added to itself and shifted": (
        model(IMAGE, "a = Conv(x, w) c = Add(a, a)", 4, w=W, **only(gamma=(2, 3, 4, 5), beta=(1, 2, 3, 4))),
        "a is also used by Add -> c",
    ),
    "a branch twice in a row, with other scales": (
        model(IMAGE, "a = Conv(x, w) r = Relu(x) c = Concat<axis=1>(r, a, r)", 10, w=W, **only(gamma=tuple(range(2, 12)))),
        "r would have to be scaled and shifted in several ways",
    ),
    "halves that change places": (
        model(IMAGE, "a = Conv(x, w) p = Slice(a, o, k, i) q = Slice(a, k, e, i) c = Concat<axis=1>(q, p)", 4, w=W, **HALVES),
        "a is also used by Slice -> ",
    ),
    "a slice of another domain": (
        of_another_domain(
            parse(
                f"g ({IMAGE}) => (float[] y, float[N, 2, 6, 6] z) <float[N, 2, 6, 6] d>"
                f" {{ a = Conv(x, w) c = Gather<axis=1>(a, j) d = Slice(a, k, e, i) z = Relu(d) {NORM} }}",
                {"w": W, "j": i64(0, 1), **HALVES, **batchnorm(2)},
            ),
            "Slice",
        ),
        "a is also used by Slice -> d",
    ),
    "a slice in a branch": (
        parse(OTHER_SLICE.replace("Neg(t2)", "Slice(a, k, e, i)"), {"w": W, **HALVES, **batchnorm(2)}),
        "a is also used by Slice -> ",
    ),
    "two branches of an outer graph": (
        parse(OUTER.replace("THEN", f"i = Abs(x) b = Relu(i) c = Concat<axis=1>(a, b) {NORM}"), {"w": W, **batchnorm(7)}),
        "a shift does not go through Relu -> b, which is Relu; Conv -> a belongs to an outer graph",
    ),
    "the statistics of a normalization": (
        model(
            "float[N, 4, 6, 6] x",
            "a, m, v = BatchNormalization<training_mode=1>(x, var, var, var, var) c = Unsqueeze(m, u)",
            4,
            u=i64(0),
        ),
        "a further output of BatchNormalization -> a is used",
    ),
    "a mask that something reads": (
        model(IMAGE, "a = Conv(x, w) c, mask = Dropout(a) z = Cast<to=1>(mask)", 4, "y z", w=W),
        "a further output of Dropout -> c is used",
    ),
    "a mask that is an output": (
        parse(
            f"g ({IMAGE}) => (float[] y, bool[] mask) {{ a = Conv(x, w) c, mask = Dropout(a) {NORM} }}",
            {"w": W, **batchnorm(4)},
        ),
        "a further output of Dropout -> c is used",
    ),
    "only constants": (model("float[N, 4] q", "c = Identity(k)", 4, k=random(1, 4, 3)), "nothing before it has weights"),
    "a constant and a branch that is left over": (
        model("float[1, 2, 6, 6] z", "b = Relu(z) c = Concat<axis=1>(k, b)", 4, k=random(1, 2, 6, 6)),
        "a shift does not go through Relu -> b, which is Relu",
    ),
    "an addition and a branch that is left over": (
        model("float[N, 4] x, float[N, 2] z", "a = MatMul(x, w) b = Relu(z) c = Concat<axis=1>(a, b)", 7, w=LINEAR),
        "2 operators would have to be added",
    ),
    "a branch along another axis": (
        model(
            "float[N, 3, 6, 6] x, float[N, 6, 6, 2] z",
            "d = Conv(x, w) a = Transpose<perm=[0, 2, 3, 1]>(d) b = Relu(z) e = Concat<axis=3>(a, b)"
            " c = Transpose<perm=[0, 3, 1, 2]>(e)",
            6,
            w=W,
        ),
        "a shift does not go through Relu -> b",
    ),
    "a branch that is a vector": (
        model(
            "float[1, 4] x, float[2] z",
            "d = Gemm(x, w) a = Squeeze(d, u) b = Relu(z) e = Concat<axis=0>(a, b) c = Unsqueeze(e, u)",
            7,
            w=LINEAR,
            u=i64(0),
            **only(gamma=(2,) * 7, beta=(1,) * 7),
        ),
        "a shift does not go through Relu -> b",
    ),
    "a branch of an unknown number of channels": (
        model(
            "float[N, 3, 6] x, float[N, K, 6] z", "a = Conv(x, w) b = Relu(z) c = Concat<axis=2>(a, b)", 4, w=random(4, 3, 1)
        ),
        "a shift does not go through Relu -> b",
    ),
    "a branch that would leave its type": (
        parse(
            "g (float16[N, 3, 6, 6] x, float16[N, 2, 6, 6] z) => (float16[] y)"
            f" {{ a = Conv(x, w) b = Relu(z) c = Concat<axis=1>(a, b) {NORM} }}",
            {"w": W.astype(np.float16), **only(gamma=(1, 1, 1, 1, 1e5, 1), beta=(1,) * 6)},
        ),
        "a shift does not go through Relu -> b",
    ),
    "a constant that would leave its type": (
        parse(
            f"g (float16[1, 3, 6, 6] x) => (float16[] y) {{ a = Conv(x, w) c = Concat<axis=1>(k, a) {NORM} }}",
            {
                "w": W.astype(np.float16),
                "k": np.full((1, 2, 6, 6), 3e4, np.float16),
                **only(gamma=(4, 4, 1, 2, 3, 4), beta=(1,) * 6),
            },
        ),
        "k is a constant that cannot be scaled",
    ),
    "a branch of unknown type": (with_odd_type(""), "which takes no scale and shift"),
    "a branch of unknown rank": (with_odd_type("float[] b"), "which takes no scale and shift"),
    "a branch of unknown elements": (with_odd_type("float[N, 2, 6, 6] b", 0), "which takes no scale and shift"),
    "a product with rows of its own scale": (
        model("float[N, 5, 7, 4] x", "a = MatMul(x, w) c = Identity(a)", 5, w=random(4, 6)),
        "do not fit the weight [4, 6] of MatMul",
    ),
    "a product with one matrix for all rows": (
        model("float[N, 5, 7, 4] x", "a = MatMul(x, w) c = Identity(a)", 5, w=random(1, 4, 6)),
        "do not fit the weight [1, 4, 6] of MatMul",
    ),
    "a product of a vector": (
        model("float[4] x", "a = MatMul(x, w) c = Unsqueeze(a, u)", 5, w=LINEAR, u=i64(0)),
        "MatMul -> a multiplies with a vector",
    ),
    "no groups at all": (
        parse(
            f"g (float[N, 4, 5, 5] x) => (float[] y) <float[N, 4, 7, 7] c>"
            f" {{ d = ConvTranspose<group=0>(x, w) c = Identity(d) {NORM} }}",
            {"w": random(4, 2, 3, 3), **batchnorm(4)},
        ),
        "ConvTranspose -> d has 4 input channels in 0 groups",
    ),
    "a sum with an unknown number of channels": (
        model("float[N, C, 6] x", "r = Abs(x) a = Add(r, k) c = Identity(a)", 4, k=random(1), **only(beta=(1, 2, 3, 4))),
        "do not fit what Add -> a makes",
    ),
    "a product with an unknown number of channels": (
        model("float[N, C, 6] x", "r = Abs(x) a = Mul(r, k) c = Identity(a)", 4, k=random(1), **only(gamma=(1, 2, 3, 4))),
        "do not fit what Mul -> a makes",
    ),
    "a shift behind a product of elements": (
        model("float[N, 4, 6] x", "r = Abs(x) a = Mul(r, k) c = Identity(a)", 4, k=random(4, 1)),
        "Mul -> a is Mul: it takes a scale, but no shift",
    ),
}


@pytest.mark.parametrize(("source", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_stays_as_it_is(rewrite, source, reason):
    result = rewrite(source, rules=(RULE,))
    assert result.outcome.changes == []
    assert reason in [rejection.reason for rejection in result.outcome.rejections][-1]
    assert result.model.graph == result.surgery.source.graph


def test_a_scale_and_shift_is_not_left_to_a_new_normalization(rewrite):
    source = parse(
        f"g ({PAIR}) => (float[] y) {{ b = Relu(z) a = Conv(x, w) c = Concat<axis=1>(a, b) y = Mul(c, k) }}",
        {"w": W, "k": np.full(1, -2, np.float32)},
    )
    result = rewrite(source, rules=(SCALE_SHIFT,))
    assert result.outcome.changes == []
    assert "a scale is negative (-2)" in result.reason(SCALE_SHIFT.name)
