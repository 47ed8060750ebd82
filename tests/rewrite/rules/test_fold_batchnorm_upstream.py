"""fold-batchnorm-upstream: what takes a BatchNormalization, through what, every refusal, and the numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import numpy_helper

from tests.models import batchnorm, parse, random
from tests.oracle import worst_relative_error
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.refusals import Feeding, Refusal, shared_refusals
from trtnorm_cli.rewrite.rules import RULES
from trtnorm_cli.rewrite.rules import fold_batchnorm_upstream as rule

NAME = rule.RULE.name
BN = "y = BatchNormalization(c, gamma, beta, mu, var)"
FEEDING = Feeding("float[N, 2, 5, 5] x", "d = Conv(x, w) c = Identity(d)", 3, {"w": random(3, 2, 3, 3)})


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def model(x: str, before: str, channels: int, weights: dict[str, np.ndarray], *, opset: int = 17, outputs: str = "y"):
    """``before`` makes c from x; the BatchNormalization has ``channels`` channels."""
    declared = ", ".join(f"float[] {name}" for name in outputs.split())
    return parse(f"g ({x}) => ({declared}) {{ {before} {BN} }}", {**batchnorm(channels), **weights}, opset=opset)


IMAGE, TOKENS, ROWS = "float[N, 3, 6, 6] x", "float[N, 7, 4] x", "float[N, 4] x"
W4, W8, W16 = random(4, 3, 3, 3), random(8, 3, 1, 1), random(16, 3, 3, 3)
LINEAR, BIAS = random(4, 5), random(5)
MATRICES = {
    "MatMul": (ROWS, "c = MatMul(x, w)", 5, {"w": LINEAR}, "MatMul Add"),
    "MatMul and bias": (ROWS, "m = MatMul(x, w) c = Add(m, b)", 5, {"w": LINEAR, "b": BIAS}, "MatMul Add"),
    "bias and MatMul": (ROWS, "m = MatMul(x, w) c = Add(b, m)", 5, {"w": LINEAR, "b": BIAS}, "MatMul Add"),
    "MatMul and subtraction": (ROWS, "m = MatMul(x, w) c = Sub(m, b)", 5, {"w": LINEAR, "b": BIAS}, "MatMul Sub"),
    "subtraction from a constant": (ROWS, "m = MatMul(x, w) c = Sub(b, m)", 5, {"w": LINEAR, "b": BIAS}, "MatMul Sub"),
    "scalar bias": (ROWS, "m = MatMul(x, w) c = Add(m, b)", 5, {"w": LINEAR, "b": np.float32(2)}, "MatMul Add"),
    "constant on the left": ("float[N, 4, 7] x", "c = MatMul(w, x)", 5, {"w": random(5, 4)}, "MatMul Add"),
    "batched constant": ("float[2, 5, 3, 4] x", "c = MatMul(x, w)", 5, {"w": random(5, 4, 6)}, "MatMul Add"),
    "tokens transposed": (
        TOKENS,
        "m = MatMul(x, w) a = Add(m, b) c = Transpose<perm=[0, 2, 1]>(a)",
        5,
        {"w": LINEAR, "b": BIAS},
        "MatMul Add Transpose",
    ),
    "tokens flattened": (TOKENS, "m = MatMul(x, w) c = Flatten<axis=2>(m)", 5, {"w": LINEAR}, "MatMul Add Flatten"),
    "tokens reshaped": (TOKENS, "m = MatMul(x, w) c = Reshape(m, s)", 5, {"w": LINEAR, "s": i64(-1, 5)}, "MatMul Add Reshape"),
    "Gemm, transposed": (
        ROWS,
        "m = Gemm<transB=1, alpha=0.5, beta=2.0>(x, w, b) c = Unsqueeze(m, a)",
        5,
        {"w": random(5, 4), "b": random(1, 5), "a": i64(2)},
        "Gemm Unsqueeze",
    ),
}
LAYOUTS = {
    "Identity and Dropout": (IMAGE, "a = Conv(x, w) b = Identity(a) c = Dropout(b)", 4, {"w": W4}, "Conv Identity Dropout"),
    "channels last and back": (
        IMAGE,
        "a = Conv(x, w) b = Transpose<perm=[0, 2, 3, 1]>(a) c = Transpose<perm=[0, 3, 1, 2]>(b)",
        4,
        {"w": W4},
        "Conv Transpose Transpose",
    ),
    "one-dimensional data": (
        "float[N, 3, 9] x",
        "a = Unsqueeze(x, s) b = Conv(a, w) c = Squeeze(b, s)",
        4,
        {"w": random(4, 3, 1, 3), "s": i64(2)},
        "Unsqueeze Conv Squeeze",
    ),
    "DepthToSpace CRD": (
        IMAGE,
        'a = Conv(x, w) c = DepthToSpace<blocksize=2, mode="CRD">(a)',
        4,
        {"w": W16},
        "Conv DepthToSpace",
    ),
    "DepthToSpace DCR": (
        IMAGE,
        'a = Conv(x, w) c = DepthToSpace<blocksize=2, mode="DCR">(a)',
        4,
        {"w": W16},
        "Conv DepthToSpace",
    ),
    "PixelShuffle": (
        IMAGE,
        "a = Conv(x, w) b = Reshape(a, s) d = Transpose<perm=[0, 1, 4, 2, 5, 3]>(b) c = Reshape(d, r)",
        4,
        {"w": W16, "s": i64(0, 4, 2, 2, 4, 4), "r": i64(0, 4, 8, 8)},
        "Conv Reshape Transpose Reshape",
    ),
    "channel shuffle": (
        IMAGE,
        "a = Conv(x, w) b = Reshape(a, s) d = Transpose<perm=[0, 2, 1, 3, 4]>(b) c = Reshape(d, r)",
        8,
        {"w": W8, "s": i64(0, 2, 4, 6, 6), "r": i64(0, 8, 6, 6)},
        "Conv Reshape Transpose Reshape",
    ),
    "global pool, flattened": (
        IMAGE,
        "a = Conv(x, w) b = GlobalAveragePool(a) c = Flatten(b)",
        4,
        {"w": W4},
        "Conv GlobalAveragePool Flatten",
    ),
    "mean": (IMAGE, "a = Conv(x, w) c = ReduceMean<axes=[2, 3], keepdims=0>(a)", 4, {"w": W4}, "Conv ReduceMean"),
    "transposed convolution": (
        IMAGE,
        "a = ConvTranspose<group=3>(x, w) c = AveragePool<kernel_shape=[2, 2]>(a)",
        6,
        {"w": random(3, 2, 2, 2)},
        "ConvTranspose AveragePool",
    ),
    "sum of convolutions": (
        IMAGE,
        "a = Conv(x, w) b = Conv(x, v) c = Add(a, b)",
        4,
        {"w": W4, "v": random(4, 3, 3, 3, seed=1)},
        "Conv Conv Add",
    ),
    "difference": (
        "float[N, 3, 6, 6] x, float[N, 2, 6, 6] z",
        "a = Conv(x, w) b = Conv(z, v) c = Sub(a, b)",
        8,
        {"w": W8, "v": random(8, 2, 1, 1)},
        "Conv Conv Sub",
    ),
    "Concat": (
        "float[N, 3, 6, 6] x, float[N, 2, 6, 6] z",
        "a = Conv(x, w) b = Conv(z, v) c = Concat<axis=1>(a, b)",
        10,
        {"w": W8, "v": random(2, 2, 1, 1)},
        "Conv Conv Concat",
    ),
    "Concat with a constant": (
        "float[1, 3, 6, 6] x",
        "a = Conv(x, w) c = Concat<axis=1>(k, a)",
        10,
        {"w": W8, "k": random(1, 2, 6, 6)},
        "Conv Concat",
    ),
    "multiplied and added": (
        IMAGE,
        "a = Relu(x) b = Mul(a, k) c = Add(b, t)",
        3,
        {"k": random(3, 1, 1), "t": random(1, 3, 1, 1)},
        "Relu Mul Add",
    ),
    "BatchNormalization": (
        "float[N, 4, 6, 6] x",
        "a = Relu(x) b = BatchNormalization(a, g2, b2, m2, v2) c = Identity(b)",
        4,
        dict(zip(("g2", "b2", "m2", "v2"), batchnorm(4, seed=5).values(), strict=True)),
        "Relu BatchNormalization Identity",
    ),
}
CASES = {**MATRICES, **LAYOUTS}


@pytest.mark.parametrize("opset", [7, 9, 13, 14, 15])
def test_a_batch_normalization_of_every_opset_takes_another_one_in(rewrite, opset):
    source = model(*LAYOUTS["BatchNormalization"][:4], opset=opset)
    assert rewrite(source, rules=(rule.RULE,)).rules == [NAME]


@pytest.mark.parametrize(("x", "before", "channels", "weights", "after"), CASES.values(), ids=CASES)
def test_folds(rewrite, x, before, channels, weights, after):
    source = model(x, before, channels, weights)
    result = rewrite(source, rules=(rule.RULE,))
    assert result.rules == [NAME]
    assert result.operators == after.split()
    assert result.outcome.changes[0].check.float64_rel < 1e-6
    assert worst_relative_error(source, result.model) < 2e-6
    assert rewrite(result.model, rules=(rule.RULE,)).rules == []


def test_every_name_but_that_of_the_batchnorm_stays(rewrite):
    source = model(IMAGE, "[conv] a = Conv(x, w) [shuffle] c = DepthToSpace<blocksize=2>(a)", 4, {"w": W16})
    conv, shuffle = rewrite(source).model.graph.node
    assert (conv.name, shuffle.name, list(shuffle.output)) == ("conv", "shuffle", ["y"])
    # A tensor with other values has another name, so that no one compares the two.
    assert conv.output[0] not in ("a", "c")


@pytest.mark.parametrize("mode", ["CRD", "DCR"])
def test_each_parameter_is_repeated_for_its_sub_pixels(rewrite, mode):
    source = model(IMAGE, f'a = Conv(x, w) c = DepthToSpace<blocksize=2, mode="{mode}">(a)', 4, {"w": W16})
    result = rewrite(source)
    parameters = batchnorm(4)
    factor = parameters["gamma"] / np.sqrt(parameters["var"] + 1e-5)
    expected = np.repeat(factor, 4) if mode == "CRD" else np.tile(factor, 4)
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in result.model.graph.initializer}
    folded = stored[result.model.graph.node[0].input[1]]
    np.testing.assert_allclose(folded, W16 * expected.reshape(-1, 1, 1, 1), rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64], ids=lambda d: np.dtype(d).name)
def test_the_type_of_the_weight_is_kept(rewrite, dtype):
    onnx_type = {"float16": "float16", "bfloat16": "bfloat16", "float64": "double"}[np.dtype(dtype).name]
    weights = {"w": random(4, 5, dtype=dtype), **batchnorm(5, dtype)}
    text = f"g ({onnx_type}[N, 7, 4] x) => ({onnx_type}[] y) {{ m = MatMul(x, w) c = Flatten<axis=2>(m) {BN} }}"
    result = rewrite(parse(text, weights, opset=22))
    assert result.rules == [NAME]
    made = {tensor.data_type for tensor in result.model.graph.initializer}
    assert made == {numpy_helper.from_array(weights["w"]).data_type}


@pytest.mark.parametrize("opset", [7, 9, 11, 13, 15, 18, 22])
def test_every_opset_since_7(rewrite, opset):
    source = model(IMAGE, "a = Conv(x, w) b = Transpose(a) c = Transpose(b)", 4, {"w": W4}, opset=opset)
    result = rewrite(source)
    assert result.rules == [NAME]
    assert worst_relative_error(source, result.model) < 1e-6


def test_a_second_reader_of_the_shape_gets_the_new_tensor(rewrite):
    """Tokens as LeViT's exporters write them: flattened, normalized, and reshaped to the shape they had."""
    source = parse(
        "g (float[N, 7, 4] x) => (float[] z) { m = MatMul(x, w) s = Shape(m) c = Flatten<axis=2>(m)"
        f" {BN} z = Reshape(y, s) }}",
        {"w": LINEAR, **batchnorm(5)},
    )
    result = rewrite(source)
    assert result.rules == [NAME]
    assert result.operators == ["MatMul", "Add", "Shape", "Flatten", "Reshape"]
    assert result.model.graph.node[2].input[0] in [node.output[0] for node in result.model.graph.node[:2]]
    assert worst_relative_error(source, result.model) < 1e-6


def test_a_reshape_by_a_shape_made_from_what_is_replaced(rewrite):
    source = parse(
        "g (float[N, 7, 4] x) => (float[] y) <float[?, 5] c> { m = MatMul(x, w) s = Shape(m)"
        " n = Gather<axis=0>(s, zero) o = Gather<axis=0>(s, one)"
        f" p = Mul(n, o) q = Concat<axis=0>(p, five) c = Reshape(m, q) {BN} }}",
        {"w": LINEAR, "zero": i64(0), "one": i64(1), "five": i64(5), **batchnorm(5)},
    )
    result = rewrite(source)
    assert result.rules == [NAME]
    assert worst_relative_error(source, result.model) < 1e-6


def test_the_other_part_of_a_split_stays_as_it_is(rewrite):
    source = model(IMAGE, "a = Conv(x, w) c, z = Split<axis=1>(a, s)", 5, {"w": W8, "s": i64(5, 3)}, outputs="y z")
    result = rewrite(source)
    assert result.rules == [NAME]
    assert result.operators == ["Conv", "Split"]
    assert list(result.model.graph.node[1].output) == ["y", "z"]
    assert worst_relative_error(source, result.model) < 1e-6


def test_a_part_of_a_split_that_nobody_reads_stays_a_part(rewrite):
    source = model(IMAGE, "a = Conv(x, w) c, z = Split<axis=1>(a, s)", 5, {"w": W8, "s": i64(5, 3)})
    result = rewrite(source)
    assert result.rules == [NAME]
    assert len(result.model.graph.node[1].output) == 2
    assert worst_relative_error(source, result.model) < 1e-6


def test_both_parts_of_a_split(rewrite):
    source = parse(
        f"g ({IMAGE}) => (float[] y, float[] z) {{ a = Conv(x, w) c, d = Split<axis=1>(a, s) {BN}"
        " z = BatchNormalization(d, gamma2, beta2, mu2, var2) }",
        {"w": W8, "s": i64(5, 3), **batchnorm(5), **batchnorm(3, suffix="2")},
    )
    result = rewrite(source)
    assert result.rules == [NAME, NAME]
    assert result.operators == ["Conv", "Split"]
    assert worst_relative_error(source, result.model) < 1e-6


SLICES = "a = Conv(x, w) c = Slice(a, o, k, i) d = Slice(a, {start}, e, i) z = Relu(d)"


def test_a_slice_of_other_channels_stays_as_it_is(rewrite):
    weights = {"w": W8, "o": i64(0), "k": i64(5), "e": i64(8), "i": i64(1)}
    source = model(IMAGE, SLICES.format(start="k"), 5, weights, outputs="y z")
    result = rewrite(source)
    assert result.rules == [NAME]
    assert result.operators == ["Conv", "Slice", "Slice", "Relu"]
    assert worst_relative_error(source, result.model) < 1e-6


def test_a_slice_of_the_same_channels_is_in_the_way(rewrite):
    weights = {"w": W8, "o": i64(0), "k": i64(5), "e": i64(8), "i": i64(1)}
    result = rewrite(model(IMAGE, SLICES.format(start="o"), 5, weights, outputs="y z"), rules=(rule.RULE,))
    assert result.reason(NAME) == "a is also used by Slice -> d"


def test_one_branch_of_a_concat_may_be_left_over(rewrite):
    source = model(
        "float[N, 3, 6, 6] x, float[N, 2, 6, 6] z", "a = Conv(x, w) b = Relu(z) c = Concat<axis=1>(a, b)", 10, {"w": W8}
    )
    result = rewrite(source, rules=(rule.RULE,))
    assert result.operators == ["Conv", "Relu", "BatchNormalization", "Concat"]
    assert worst_relative_error(source, result.model) < 1e-6
    assert rewrite(source).operators == ["Conv", "Relu", "Mul", "Add", "Concat"]


def test_two_branches_left_over_are_too_many(rewrite):
    result = rewrite(
        model(
            "float[N, 3, 6, 6] x, float[N, 2, 6, 6] z",
            "a = Conv(x, w) b = Relu(z) d = Abs(x) c = Concat<axis=1>(a, b, d)",
            13,
            {"w": W8},
        ),
        rules=(rule.RULE,),
    )
    assert (
        result.reason(NAME)
        == "Abs -> d is Abs, which takes no scale and shift; a shift does not go through Relu -> b, which is Relu"
    )


def test_shared_weights_are_copied(rewrite):
    source = parse(
        f"g ({IMAGE}) => (float[] y, float[] z) {{ a = Conv(x, w, b) c = Identity(a) {BN} z = Conv(x, w, b) }}",
        {"w": W4, "b": random(4), **batchnorm(4)},
    )
    result = rewrite(source)
    assert {"w", "b"} < {tensor.name for tensor in result.model.graph.initializer}
    assert worst_relative_error(source, result.model) < 1e-6


def test_in_a_branch(rewrite):
    then = f"a () => (float[] y) {{ d = Conv(x, w) c = Identity(d) {BN} }}"
    source = parse(
        f"g ({IMAGE}, bool t) => (float[] r) {{ r = If (t) <then_branch = {then},"
        " else_branch = b () => (float[] e) { e = Conv(x, w) }> }",
        {"w": W4, **batchnorm(4)},
    )
    result = rewrite(source, rules=(rule.RULE,))
    assert result.rules == [NAME]
    for seed in range(4):
        assert worst_relative_error(source, result.model, seed=seed) < 1e-6


def test_weights_of_an_outer_graph_stay_as_they_are(rewrite):
    then = f"a () => (float[] y) {{ c = Identity(d) {BN} }}"
    source = parse(
        f"g ({IMAGE}, bool t) => (float[] r) {{ d = Conv(x, w) r = If (t) <then_branch = {then},"
        " else_branch = b () => (float[] e) { e = Neg(x) }> }",
        {"w": W4, **batchnorm(4)},
    )
    result = rewrite(source, rules=(rule.RULE,))
    assert result.reason(NAME) == "Conv -> d belongs to an outer graph"


REFUSALS = [
    *shared_refusals(FEEDING),
    Refusal(
        rule.data_has_channels,
        model("float[4] x", "d = MatMul(x, w) c = Identity(d)", 5, {"w": LINEAR}),
        "the data of c has no channel axis",
    ),
    Refusal(
        rule.data_has_channels,
        FEEDING.model(**batchnorm(5)),
        "BatchNormalization -> y has 5 values per parameter, but c makes 3 channels",
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE)


HALF = {"w": random(3, 2, 3, 3, dtype=np.float16)}
OUT_OF_REACH = {
    "nothing before": (model("float[N, 4, 5, 5] c", "", 4, {}), "c is an input of its graph"),
    "no weights": (model(IMAGE, "a = Abs(x) c = Identity(a)", 3, {}), "Abs -> a is Abs, which takes no scale and shift"),
    "a rectifier": (
        model(IMAGE, "a = Conv(x, w) c = Relu(a)", 4, {"w": W4}),
        "a shift does not go through Relu -> c, which is Relu",
    ),
    "weight of run time": (
        model(f"{IMAGE}, float[4, 3, 3, 3] w", "a = Conv(x, w) c = Identity(a)", 4, {}),
        "Conv -> a is Conv, which takes no scale and shift",
    ),
    "bias of run time": (
        model(f"{IMAGE}, float[4] b", "a = Conv(x, w, b) c = Identity(a)", 4, {"w": W4}),
        "b, input 2 of Conv -> a, is computed at run time",
    ),
    "used elsewhere": (
        model(IMAGE, "a = Conv(x, w) z = Abs(a) c = Identity(a)", 4, {"w": W4}, outputs="y z"),
        "a is also used by Abs -> z",
    ),
    "a graph output": (
        model(IMAGE, "a = Conv(x, w) c = Identity(a)", 4, {"w": W4}, outputs="y a"),
        "a is an output of the graph",
    ),
    "residual": (
        model("float[N, 4, 6, 6] x", "a = Conv<pads=[1, 1, 1, 1]>(x, w) c = Add(a, x)", 4, {"w": random(4, 4, 3, 3)}),
        "x is an input of its graph",
    ),
    "the channels are the rows": (
        model("float[N, 5, 4] x", "c = MatMul(x, w)", 5, {"w": random(4, 6)}),
        "scale and shift differ along axis 1 of what MatMul -> c makes, along which its weight is summed",
    ),
    "vector": (
        model("float[N, 5, 4] x", "d = MatMul(x, w) c = Unsqueeze(d, a)", 5, {"w": random(4), "a": i64(2)}),
        "multiplies with a vector",
    ),
    "another domain": (
        parse(
            f"g ({IMAGE}) => (float[] y) <float[N, 4, 4, 4] c> {{ a = Conv(x, w) c = Identity(a) {BN} }}",
            {"w": W4, **batchnorm(4)},
        ),
        "Identity -> c is com.example.Identity, which takes no scale and shift",
    ),
    "overflow": (
        parse(
            f"g (float16[N, 2, 5, 5] x) => (float16[] y) {{ d = Conv(x, w) c = Identity(d) {BN} }}",
            {**HALF, **batchnorm(3), "var": np.full(3, 1e-12, np.float32), "gamma": np.full(3, 1e4, np.float32)},
        ),
        "the folded weight of Conv -> d reaches",
    ),
    "bias overflow": (
        parse(
            f"g (float16[N, 2, 5, 5] x) => (float16[] y) {{ d = Conv(x, w) c = Identity(d) {BN} }}",
            {**HALF, **batchnorm(3), "beta": np.array([0, 1e5, 0], np.float32)},
        ),
        "the folded bias of Conv -> d reaches 1e+05, more than float16 holds",
    ),
    "underflow": (
        parse(
            f"g (float16[N, 2, 5, 5] x) => (float16[] y) {{ d = Conv(x, w) c = Identity(d) {BN} }}",
            {**HALF, **batchnorm(3), "gamma": np.full(3, 1e-6, np.float32)},
        ),
        "too small for float16",
    ),
    "a type that is not floating": (
        model("int8[N, 2, 5, 5] x", "d = Conv(x, w) c = Identity(d)", 3, {"w": np.ones((3, 2, 3, 3), np.int8)}),
        "input 1 of Conv -> d is int8, not a floating type",
    ),
    "a bias that is no vector": (
        model("float[N, 2, 5, 5] x", "d = Conv(x, w, b) c = Identity(d)", 3, {"w": random(3, 2, 3, 3), "b": random(1, 3)}),
        "the bias of Conv -> d has shape [1, 3], not [3]",
    ),
    "groups that do not divide": (
        parse(
            "g (float[N, 3, 5, 5] x) => (float[] y) <float[N, 4, 7, 7] c>"
            f"{{ d = ConvTranspose<group=2>(x, w) c = Identity(d) {BN} }}",
            {"w": random(3, 2, 3, 3), **batchnorm(4)},
        ),
        "ConvTranspose -> d has 3 input channels in 2 groups",
    ),
    "the normalization of what a training one makes": (
        model("float[N, 4, 6, 6] x", "c, m2, v2 = BatchNormalization<training_mode=1>(x, var, var, var, var)", 4, {}),
        "BatchNormalization -> c is in training mode",
    ),
    "several additions": (
        model(TOKENS, "m = MatMul(x, w) n = MatMul(x, v) c = Concat<axis=1>(m, n)", 14, {"w": LINEAR, "v": LINEAR}),
        "along which its weight is summed",
    ),
}
OUT_OF_REACH["another domain"][0].graph.node[1].domain = "com.example"
OUT_OF_REACH["another domain"][0].opset_import.add(domain="com.example", version=1)


@pytest.mark.parametrize(("source", "reason"), OUT_OF_REACH.values(), ids=OUT_OF_REACH)
def test_what_is_out_of_reach(rewrite, source, reason):
    result = rewrite(source, rules=(rule.RULE,))
    assert result.outcome.changes == []
    assert reason in [rejection.reason for rejection in result.outcome.rejections][-1]
    assert result.model.graph == result.surgery.source.graph


def test_never_more_nodes(rewrite):
    """Two products without a bias would need two additions for one BatchNormalization."""
    source = model(
        "float[N, 4] x, float[N, 3] z",
        "m = MatMul(x, w) n = MatMul(z, v) c = Concat<axis=1>(m, n)",
        9,
        {"w": LINEAR, "v": random(3, 4)},
    )
    result = rewrite(source, rules=(rule.RULE,))
    assert result.reason(NAME) == "2 operators would have to be added"


def test_a_second_pass_changes_nothing(rewrite):
    source = model(IMAGE, "a = Conv(x, w) b = Relu(x) d = Concat<axis=1>(a, b) c = Identity(d)", 11, {"w": W8})
    once = rewrite(source, rules=RULES)
    assert rewrite(once.model, rules=RULES).outcome.changes == []


def test_the_input_keeps_its_other_readers(rewrite):
    """A residual connection around everything that is replaced."""
    source = parse(
        f"g (float[N, 4, 7, 7] x) => (float[] r) {{ d = Conv<pads=[1, 1, 1, 1]>(x, w) c = Identity(d) {BN} r = Add(y, x) }}",
        {"w": random(4, 4, 3, 3), **batchnorm(4)},
    )
    result = rewrite(source, rules=(rule.RULE,))
    assert result.operators == ["Conv", "Identity", "Add"]
    assert worst_relative_error(source, result.model) < 1e-6


def test_planning_scales_no_weights(rewrite, monkeypatch):
    """Weights are folded once, when the change is made."""
    from trtnorm_cli.rewrite.scale_shift import weights

    folded = []
    monkeypatch.setattr(
        weights, "scaled", lambda *args: folded.append(1) or np.asarray(args[0] * args[1]).astype(args[0].dtype)
    )
    rewrite(model(IMAGE, "a = Conv(x, w) c = Identity(a)", 4, {"w": W4}))
    assert folded == [1]


def test_shapes_that_contradict_the_graph_are_a_reason(rewrite):
    """Exporters state wrong shapes now and then."""
    from trtnorm_cli.onnx_model.shapes import declared_types
    from trtnorm_cli.onnx_model.surgery import open_model
    from trtnorm_cli.rewrite import driver

    source = parse(
        f"g ({IMAGE}) => (float[] y) <float[N, 4] c> {{ a = Conv(x, w) c = Transpose<perm=[0, 1, 2, 3]>(a) {BN} }}",
        {"w": W4, **batchnorm(4)},
    )
    (rejection,) = driver.plan(open_model(source, None), (rule.RULE,), declared_types(source)).rejections
    assert rejection.reason.startswith("the stated shapes around Transpose -> c do not fit it: ")
