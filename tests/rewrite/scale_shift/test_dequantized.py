"""Weights behind DequantizeLinear take a BatchNormalization or a scale: every form, every refusal, and the numbers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.models import batchnorm, operators, parse, random
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.evaluate.ort_runner import OrtRunner
from trtnorm_cli.rewrite.rules import fold_batchnorm_upstream, fold_scale_shift_upstream

RULE = fold_batchnorm_upstream.RULE
IMAGE, ROWS = "float[2, 4, 6, 6] x", "float[3, 8] x"
CONV = "c = Conv<pads=[1, 1, 1, 1]>(x, w)"
INT8, INT4, FP8, FP4 = np.dtype(np.int8), *map(np.dtype, (ml_dtypes.int4, ml_dtypes.float8_e4m3fn, ml_dtypes.float4_e2m1fn))


def narrow(*shape: int, dtype: Any = INT8, seed: int = 0) -> np.ndarray:
    """Values of every size that the type has, the lowest integer left out as symmetric quantisation does."""
    rng = np.random.default_rng([seed, *shape])
    most = {INT8: 127, INT4: 7, FP8: 400, FP4: 6}[np.dtype(dtype)]
    values = rng.uniform(-most, most, shape)
    return (np.rint(values) if most in (127, 7) else values).astype(dtype)


def scales(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng([1, *shape]).uniform(0.001, 0.01, shape).astype(dtype)


def model(
    x: str, operator: str, channels: int, weights: dict[str, np.ndarray], attributes: str = "", opset: int = 21, **changed: Any
) -> onnx.ModelProto:
    """``operator`` makes c of x and of w, which is q dequantized; a BatchNormalization follows, some of its factors 0."""
    parameters = {**batchnorm(channels), **weights, **{n: v for n, v in changed.items() if v is not None}}
    tail = "" if "z" not in weights else ", z"
    source = "w = DequantizeLinear" + attributes + f"(q, s{tail})"
    if "f" in weights:
        source = f"q = QuantizeLinear{attributes}(f, s{tail}) {source}"
    body = f"{source} {operator} y = BatchNormalization(c, gamma, beta, mu, var)"
    return parse(f"g ({x}) => (float[] y) {{ {body} }}", parameters, opset=opset, ir=11 if opset > 21 else 10)


W = narrow(5, 4, 3, 3)
FORMS: dict[str, tuple[Any, ...]] = {
    "one scale": (IMAGE, CONV, 5, {"q": W, "s": scales()}),
    "one scale in a vector": (IMAGE, CONV, 5, {"q": W, "s": scales(1), "z": np.zeros(1, INT8)}),
    "by channel": (IMAGE, CONV, 5, {"q": W, "s": scales(5), "z": np.zeros(5, INT8)}, "<axis=0>"),
    "by channel, axis from the back": (IMAGE, CONV, 5, {"q": W, "s": scales(5)}, "<axis=-4>"),
    "with a bias": (IMAGE, "c = Conv(x, w, b)", 5, {"q": W, "s": scales(5), "b": random(5)}, "<axis=0>"),
    "groups": (IMAGE, "c = Conv<group=2>(x, w)", 6, {"q": narrow(6, 2, 3, 3), "s": scales(6)}, "<axis=0>"),
    "int4": (IMAGE, CONV, 5, {"q": narrow(5, 4, 3, 3, dtype=INT4), "s": scales()}),
    "float8": (IMAGE, CONV, 5, {"q": narrow(5, 4, 3, 3, dtype=FP8), "s": scales(), "z": np.zeros((), FP8)}),
    "float8 by channel": (IMAGE, CONV, 5, {"q": narrow(5, 4, 3, 3, dtype=FP8), "s": scales(5)}, "<axis=0>"),
    "blocks across channels": (IMAGE, CONV, 5, {"q": W, "s": scales(5, 2, 3, 3)}, "<axis=1, block_size=2>"),
    "quantized from floats": (
        IMAGE,
        CONV,
        5,
        {"f": random(5, 4, 3, 3) / 30, "s": scales(5), "z": np.zeros(5, INT8)},
        "<axis=0>",
    ),
    "transposed": (IMAGE, "c = ConvTranspose(x, w)", 5, {"q": narrow(4, 5, 3, 3), "s": scales(5)}, "<axis=1>"),
    "transposed, one scale": (IMAGE, "c = ConvTranspose(x, w)", 5, {"q": narrow(4, 5, 3, 3), "s": scales()}),
    "transposed by depth": (
        IMAGE,
        "c = ConvTranspose<group=4>(x, w)",
        4,
        {"q": narrow(4, 1, 3, 3), "s": scales(4)},
        "<axis=0>",
    ),
    "Gemm": (
        ROWS,
        "c = Gemm<alpha=0.5, beta=2.0>(x, w, b)",
        5,
        {"q": narrow(8, 5), "s": scales(5), "b": random(5)},
        "<axis=1>",
    ),
    "Gemm, transposed": (ROWS, "c = Gemm<transB=1>(x, w)", 5, {"q": narrow(5, 8), "s": scales()}),
    "MatMul": (ROWS, "c = MatMul(x, w)", 5, {"q": narrow(8, 5), "s": scales(5)}, "<axis=1>"),
    "MatMul and bias": (ROWS, "m = MatMul(x, w) c = Add(m, b)", 5, {"q": narrow(8, 5), "s": scales(), "b": random(5)}),
    "MatMul in blocks": (
        ROWS,
        "c = MatMul(x, w)",
        5,
        {"q": narrow(8, 5, dtype=INT4), "s": scales(2, 5)},
        "<axis=0, block_size=4>",
    ),
    "float4 in blocks": (
        ROWS,
        "c = MatMul(x, w)",
        6,
        {"q": narrow(8, 6, dtype=FP4), "s": scales(2, 6)},
        "<axis=0, block_size=4>",
        23,
    ),
    "blocks of one channel each": (
        ROWS,
        "c = MatMul(x, w)",
        4,
        {"q": narrow(8, 4), "s": scales(8, 4)},
        "<axis=1, block_size=1>",
    ),
    "further away": (
        IMAGE,
        "a = Conv(x, w) b = Identity(a) c = AveragePool<kernel_shape=[2, 2]>(b)",
        5,
        {"q": W, "s": scales()},
    ),
}


def constants(result: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in result.graph.initializer}


def dequantized(result: onnx.ModelProto) -> tuple[np.ndarray, np.ndarray]:
    """Values and scales of the only DequantizeLinear."""
    (node,) = [node for node in result.graph.node if node.op_type == "DequantizeLinear"]
    (first,) = [node for node in result.graph.node if node.op_type == "QuantizeLinear"] or [node]
    found = constants(result)
    return found[first.input[0]], found[node.input[1]]


# What TensorRT takes no convolution of becomes int8 or floats first.
REPAIRED = {"int4": ["symmetric-weights", RULE.name], "blocks across channels": ["symmetric-weights", "fold-batchnorm-conv"]}


@pytest.mark.parametrize("zeros", [False, True], ids=["", "some factors 0"])
@pytest.mark.parametrize("form", FORMS)
def test_a_batch_normalization_folds_into_the_scales(form, zeros, rewrite, runner: OrtRunner):
    source = model(*FORMS[form])
    if zeros:
        (gamma,) = [tensor for tensor in source.graph.initializer if tensor.name == "gamma"]
        gamma.CopyFrom(
            numpy_helper.from_array(np.where(np.arange(gamma.dims[0]) % 3 == 1, 0, constants(source)["gamma"]), "gamma")
        )
    result = rewrite(source)
    assert result.rules == REPAIRED.get(form, [RULE.name]), result.outcome.rejections
    assert "BatchNormalization" not in operators(result.model)
    if RULE.name in result.rules:
        values, scale = dequantized(result.model)
        assert np.all(scale > 0)
        assert values.dtype == (INT8 if form in REPAIRED else FORMS[form][3].get("q", FORMS[form][3].get("f")).dtype)
    onnx.checker.check_model(result.model, full_check=True)
    shape = [d.dim_value for d in source.graph.input[0].type.tensor_type.shape.dim]
    feeds = {"x": np.random.default_rng(3).normal(size=shape).astype(np.float32)}
    wanted, got = (evaluate_float64(one, feeds).outputs["y"] for one in (source, result.model))
    assert np.max(np.abs(got - wanted)) < 4e-7 * np.max(np.abs(wanted))
    if "float4" not in form:  # for which ONNX Runtime has no kernel
        run = runner.run(result.model, feeds)["y"]
        assert np.max(np.abs(run - wanted)) < 1e-5 * np.max(np.abs(wanted))
    assert rewrite(result.model).rules == []


def test_integers_change_only_where_a_factor_is_negative_or_zero(rewrite):
    gamma = np.array([1, -2, 0, 3, 4], np.float32)
    source = model(*FORMS["by channel"], gamma=gamma)
    values, scale = dequantized(rewrite(source).model)
    assert np.array_equal(values, W * np.sign(gamma).astype(np.int8).reshape(-1, 1, 1, 1))
    assert scale[2] == constants(source)["s"][2]


@pytest.mark.parametrize("q", ["W", "LOWEST"])
def test_a_channel_of_factor_zero_becomes_zero(rewrite, q):
    gamma = np.array([0, 1, 0, 3, 4], np.float32)
    source = model(IMAGE, CONV, 5, {"q": {"W": W, "LOWEST": LOWEST}[q], "s": scales()}, gamma=gamma)
    result = rewrite(source, rules=(RULE,))
    values, scale = dequantized(result.model)
    assert [bool(np.any(channel)) for channel in values] == [False, True, False, True, True]
    assert np.all(scale > 0)


def test_weights_of_positive_factors_stay_the_tensor_that_they_are(rewrite):
    source = model(*FORMS["one scale"], gamma=np.full(5, 2, np.float32))
    result = rewrite(source)
    assert "q" in constants(result.model)
    assert dequantized(result.model)[1].shape == (5,)


def test_one_factor_for_all_channels_leaves_a_single_scale(rewrite):
    same = {name: np.full(5, value, np.float32) for name, value in (("gamma", 3), ("beta", 0), ("mu", 0), ("var", 1))}
    result = rewrite(model(*FORMS["one scale"], **same))
    assert dequantized(result.model)[1].shape == ()
    assert [len(node.attribute) for node in result.model.graph.node if node.op_type == "DequantizeLinear"] == [0]


def test_a_multiplication_behind_the_convolution_folds_as_well(rewrite):
    source = parse(
        f"g ({IMAGE}) => (float[] y) {{ w = DequantizeLinear(q, s) {CONV} y = Mul(c, k) }}",
        {"q": W, "s": scales(), "k": random(5, 1, 1)},
        opset=21,
    )
    result = rewrite(source)
    assert result.rules == [fold_scale_shift_upstream.RULE.name]
    assert operators(result.model) == ["DequantizeLinear", "Conv"]


LOWEST = np.where(np.arange(W.size).reshape(W.shape) == 7, -128, W).astype(np.int8)
REFUSED: dict[str, tuple[onnx.ModelProto, str]] = {
    "the lowest integer changes its sign": (
        model(IMAGE, CONV, 5, {"q": LOWEST, "s": scales()}, gamma=-np.ones(5, np.float32)),
        "holds -128 in a channel that changes its sign",
    ),
    "scales along another axis": (
        model(IMAGE, CONV, 5, {"q": W, "s": scales(4)}, "<axis=1>"),
        "lie along axis 1, the channels along axis 0",
    ),
    "groups of a transposed convolution": (
        model(IMAGE, "c = ConvTranspose<group=2>(x, w)", 6, {"q": narrow(4, 3, 3, 3), "s": scales()}),
        "the factors differ along two",
    ),
    "blocks that hold several channels": (
        model(ROWS, "c = MatMul(x, w)", 6, {"q": narrow(8, 6), "s": scales(8, 2)}, "<axis=1, block_size=3>"),
        "a block of 3 elements",
    ),
    "one scale before opset 13": (model(IMAGE, CONV, 5, {"q": W, "s": scales()}, opset=12), "before opset 13"),
    "a zero point": (
        model(IMAGE, CONV, 5, {"q": W, "s": scales(), "z": np.array(3, np.int8)}),
        "a zero point that is not 0",
    ),
    "a zero point of what is quantized first": (
        parse(
            f"g ({IMAGE}) => (float[] y) {{ q = QuantizeLinear(f, s, o) w = DequantizeLinear(q, s) {CONV}"
            " y = BatchNormalization(c, gamma, beta, mu, var) }",
            {"f": random(5, 4, 3, 3), "s": scales(), "o": np.array(3, np.int8), **batchnorm(5)},
            opset=21,
        ),
        "QuantizeLinear -> q has a zero point that is not 0",
    ),
    "scales of another number than the channels": (
        model(IMAGE, CONV, 5, {"q": W, "s": scales(3)}, "<axis=0>"),
        "has 3 scales along an axis of 5",
    ),
    "a scale of zero": (model(IMAGE, CONV, 5, {"q": W, "s": np.float32(0)}), "not all positive"),
    "a scale that is not positive": (model(IMAGE, CONV, 5, {"q": W, "s": np.float32(-1)}), "not all positive"),
    "a scale that overflows": (
        model(IMAGE, CONV, 5, {"q": W, "s": np.float32(1e30)}, gamma=np.full(5, 1e20, np.float32)),
        "which float32 does not hold",
    ),
    "a scale that vanishes": (
        model(IMAGE, CONV, 5, {"q": W, "s": np.float32(1e-30)}, gamma=np.full(5, 1e-20, np.float32)),
        "which float32 does not hold",
    ),
    "quantisation between": (
        model(
            IMAGE,
            "a = Conv(x, w) d = QuantizeLinear(a, t, o) c = DequantizeLinear(d, t, o)",
            5,
            {"q": W, "s": scales(), "t": np.float32(0.1), "o": np.zeros((), INT8)},
        ),
        "is DequantizeLinear, which takes no scale and shift",
    ),
    "a weight that something else reads": (
        parse(
            f"g ({IMAGE}) => (float[] y, float[] v) {{ w = DequantizeLinear(q, s) {CONV} v = Relu(w)"
            " y = BatchNormalization(c, gamma, beta, mu, var) }",
            {"q": W, "s": scales(), **batchnorm(5)},
            opset=21,
        ),
        "w is also used by",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_folded_exactly_stays(case, rewrite):
    source, reason = REFUSED[case]
    result = rewrite(source, rules=(RULE,))
    assert result.outcome.changes == []
    assert reason in result.reason(RULE.name)


def test_a_quantized_activation_is_no_weight(rewrite):
    """Both sides of a MatMul through DequantizeLinear: only the constant one takes the scale."""
    source = parse(
        f"g ({ROWS}) => (float[] y) {{ d = QuantizeLinear(x, t, o) a = DequantizeLinear(d, t, o)"
        " w = DequantizeLinear(q, s) c = MatMul(a, w) y = BatchNormalization(c, gamma, beta, mu, var) }",
        {"q": narrow(8, 5), "s": scales(), "t": np.float32(0.1), "o": np.zeros((), INT8), **batchnorm(5)},
        opset=21,
    )
    result = rewrite(source)
    assert result.rules == [RULE.name]
    assert operators(result.model).count("QuantizeLinear") == 1
    assert constants(result.model)["t"] == np.float32(0.1)


@pytest.mark.parametrize(("form", "operator"), [("one scale", "DequantizeLinear"), ("quantized from floats", "QuantizeLinear")])
def test_an_operator_of_another_domain_makes_no_weight(rewrite, form, operator):
    source = model(*FORMS[form])
    source.graph.value_info.add().CopyFrom(onnx.helper.make_tensor_value_info("q", onnx.TensorProto.INT8, W.shape))
    source.graph.value_info.add().CopyFrom(onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, W.shape))
    (node,) = [node for node in source.graph.node if node.op_type == operator]
    node.domain = "com.example"
    source.opset_import.add(domain="com.example", version=1)
    result = rewrite(source, rules=(RULE,))
    assert result.outcome.changes == []
    assert result.reason(RULE.name) == "Conv -> c is Conv, which takes no scale and shift"
