"""fold-batchnorm-conv: every accepted spelling, every refusal, and the numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import numpy_helper

from tests.models import batchnorm, parse, random
from tests.oracle import worst_relative_error
from tests.rewrite.rules.contract import assert_applies_in_branches, assert_refuses
from tests.rewrite.rules.refusals import Feeding, Refusal, shared_refusals
from trtnorm_cli.rewrite.rules import fold_batchnorm_conv as rule

NAME = rule.RULE.name
BN = "BatchNormalization(c, gamma, beta, mu, var)"
FEEDING = Feeding("float[N, 2, 5, 5] x", "c = Conv(x, w)", 3, {"w": random(3, 2, 3, 3)})


def conv_bn(attributes: str = "", *, channels: int = 4, weight: tuple[int, ...] = (4, 2, 3, 3), opset: int = 17, ir: int = 8):
    x = ", ".join(["N", str(weight[1]), *"7" * (len(weight) - 2)])
    return parse(
        f"g (float[{x}] x) => (float[] y) {{ c = Conv {attributes}(x, w, b) y = {BN} }}",
        {"w": random(*weight), "b": random(channels), **batchnorm(channels)},
        opset=opset,
        ir=ir,
    )


def as_constant_nodes(model):
    """The model with every initializer written as a Constant node."""
    nodes = [
        parse("g () => () {}").graph.node.add(op_type="Constant", output=[tensor.name]) for tensor in model.graph.initializer
    ]
    for node, tensor in zip(nodes, model.graph.initializer, strict=True):
        node.attribute.add(name="value", type=4).t.CopyFrom(tensor)
    kept = list(model.graph.node)
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.extend([*nodes, *kept])
    return model


def as_overridable_inputs(model):
    """The model with every initializer listed as a graph input too, as before IR version 4."""
    for tensor in model.graph.initializer:
        value = model.graph.input.add(name=tensor.name)
        value.type.tensor_type.elem_type = tensor.data_type
        for size in tensor.dims:
            value.type.tensor_type.shape.dim.add(dim_value=size)
    return model


def in_domain(model, domain):
    for node in model.graph.node:
        node.domain = domain
    if domain:
        model.opset_import.add(domain=domain, version=17)
        del model.opset_import[0]
    return model


def without_bias(spelling):
    weights = {"w": random(4, 2, 3, 3), **batchnorm(4)}
    return parse(f"g (float[N, 2, 7, 7] x) => (float[] y) {{ c = Conv({spelling}) y = {BN} }}", weights)


SPELLINGS = {
    "bias": conv_bn(),
    "no bias": without_bias("x, w"),
    "empty bias": without_bias('x, w, ""'),
    "Constant nodes": as_constant_nodes(conv_bn()),
    "initializers are inputs": as_overridable_inputs(conv_bn(ir=3)),
    "domain ai.onnx": in_domain(conv_bn(), "ai.onnx"),
    "training_mode=0 written out": parse(
        "g (float[N, 2, 7, 7] x) => (float[] y)"
        "{ c = Conv(x, w) y = BatchNormalization <training_mode=0>(c, gamma, beta, mu, var) }",
        {"w": random(4, 2, 3, 3), **batchnorm(4)},
    ),
    "spatial=1 of opset 7": parse(
        "g (float[N, 2, 7, 7] x) => (float[] y) { c = Conv(x, w) y = BatchNormalization <spatial=1>(c, gamma, beta, mu, var) }",
        {"w": random(4, 2, 3, 3), **batchnorm(4)},
        opset=7,
    ),
    "empty further outputs of opset 9": parse(
        "g (float[N, 2, 7, 7] x) => (float[] y)"
        '{ c = Conv(x, w) y, "", "", "", "" = BatchNormalization(c, gamma, beta, mu, var) }',
        {"w": random(4, 2, 3, 3), **batchnorm(4)},
        opset=9,
    ),
    "epsilon and momentum": parse(
        "g (float[N, 2, 7, 7] x) => (float[] y)"
        "{ c = Conv(x, w) y = BatchNormalization <epsilon=0.1, momentum=0.5>(c, gamma, beta, mu, var) }",
        {"w": random(4, 2, 3, 3), **batchnorm(4)},
    ),
    "one tensor for several parameters": parse(
        "g (float[N, 2, 7, 7] x) => (float[] y) { c = Conv(x, w, var) y = BatchNormalization(c, var, var, var, var) }",
        {"w": random(4, 2, 3, 3), "var": batchnorm(4)["var"]},
    ),
}
SHAPES = {
    "1-D": conv_bn("<pads=[1, 1], strides=[2]>", weight=(4, 2, 3)),
    "3-D": conv_bn("<pads=[1, 1, 1, 1, 1, 1]>", weight=(4, 2, 3, 3, 3)),
    "pointwise": conv_bn(weight=(4, 2, 1, 1)),
    "dilated": conv_bn("<dilations=[2, 3], pads=[2, 3, 2, 3]>"),
    "asymmetric pads and strides": conv_bn("<pads=[0, 1, 2, 0], strides=[2, 1]>"),
    "auto_pad": conv_bn('<auto_pad="SAME_UPPER", strides=[2, 2]>'),
    "two groups": parse(
        f"g (float[N, 6, 7, 7] x) => (float[] y) {{ c = Conv <group=2>(x, w, b) y = {BN} }}",
        {"w": random(4, 3, 3, 3), "b": random(4), **batchnorm(4)},
    ),
    "depthwise": parse(
        f"g (float[N, 4, 7, 7] x) => (float[] y) {{ c = Conv <group=4>(x, w) y = {BN} }}",
        {"w": random(4, 1, 3, 3), **batchnorm(4)},
    ),
    "depthwise with multiplier": parse(
        f"g (float[N, 3, 7, 7] x) => (float[] y) {{ c = Conv <group=3>(x, w) y = {BN} }}",
        {"w": random(6, 1, 3, 3), **batchnorm(6)},
    ),
}


@pytest.mark.parametrize("model", [*SPELLINGS.values(), *SHAPES.values()], ids=[*SPELLINGS, *SHAPES])
def test_folds(rewrite, model):
    result = rewrite(model)
    assert result.rules == [NAME]
    assert result.operators == ["Conv"]
    assert worst_relative_error(model, result.model) < 1e-6


@pytest.mark.parametrize("opset", [7, 8, 9, 11, 13, 14, 15, 18, 21, 22])
def test_every_opset_since_7(rewrite, opset):
    model = conv_bn(opset=opset)
    result = rewrite(model)
    assert result.rules == [NAME]
    assert worst_relative_error(model, result.model) < 1e-6


def test_opset_6_is_left_alone(rewrite):
    result = rewrite(conv_bn(opset=6))
    assert result.outcome.changes == []
    assert result.reason(NAME) == "the model is of opset 6, the rule starts at 7"


def test_attributes_and_names_are_kept(rewrite):
    model = conv_bn("<pads=[1, 1, 1, 1], dilations=[1, 1], strides=[1, 1], kernel_shape=[3, 3]>")
    model.graph.node[0].name, model.graph.node[1].name = "stem.conv", "stem.bn"
    (conv,) = rewrite(model).model.graph.node
    assert conv.name == "stem.conv"
    assert list(conv.output) == ["y"]
    assert conv.input[0] == "x"
    assert sorted(a.name for a in conv.attribute) == ["dilations", "kernel_shape", "pads", "strides"]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64], ids=lambda d: np.dtype(d).name)
def test_values_are_folded_in_float64_and_rounded_once(rewrite, dtype):
    onnx_type = {"float16": "float16", "bfloat16": "bfloat16", "float32": "float", "float64": "double"}[np.dtype(dtype).name]
    weights = {"w": random(4, 2, 3, 3, dtype=dtype), "b": random(4, dtype=dtype), **batchnorm(4, dtype)}
    model = parse(f"g ({onnx_type}[N, 2, 7, 7] x) => ({onnx_type}[] y) {{ c = Conv(x, w, b) y = {BN} }}", weights, opset=22)
    result = rewrite(model)
    assert result.rules == [NAME]
    w, b, gamma, beta, mu, var = (weights[k].astype(np.float64) for k in ("w", "b", "gamma", "beta", "mu", "var"))
    factor = gamma / np.sqrt(var + np.float64(np.float32(1e-5)))
    expected = [(w * factor[:, None, None, None]).astype(dtype), ((b - mu) * factor + beta).astype(dtype)]
    (conv,) = result.model.graph.node
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in result.model.graph.initializer}
    for name, value in zip(conv.input[1:], expected, strict=True):
        assert stored[name].dtype == np.dtype(dtype)
        # One unit in the last place: the order of operations in float64 is free.
        error = np.abs(stored[name].astype(np.float64) - value.astype(np.float64))
        assert np.all(error <= float(ml_dtypes.finfo(dtype).eps) * np.abs(value.astype(np.float64)))


def test_parameters_of_another_type_than_the_weight(rewrite):
    """Since opset 14 mean and variance, since 15 also scale and bias, may be float32 beside float16 data."""
    model = parse(
        f"g (float16[N, 2, 7, 7] x) => (float16[] y) {{ c = Conv(x, w) y = {BN} }}",
        {"w": random(4, 2, 3, 3, dtype=np.float16), **batchnorm(4), "var": np.full(4, 1e6, np.float32)},
        opset=15,
    )
    result = rewrite(model)
    assert result.rules == [NAME]
    assert {t.data_type for t in result.model.graph.initializer} == {10}
    assert worst_relative_error(model, result.model) < 2e-3


def test_a_channel_scaled_by_zero(rewrite):
    weights = {"w": random(4, 2, 3, 3), **batchnorm(4)}
    weights["gamma"][2] = 0
    model = parse(f"g (float[N, 2, 7, 7] x) => (float[] y) {{ c = Conv(x, w) y = {BN} }}", weights)
    result = rewrite(model)
    assert result.rules == [NAME]
    assert worst_relative_error(model, result.model) < 1e-6


REFUSALS = [
    *shared_refusals(FEEDING),
    *[
        Refusal(
            rule.weight_has_kernel_axes,
            Feeding("float[N, 2, 5, 5] x", "c = Conv(x, w)", 3, {"w": random(*shape)}).model(),
            f"the weight of Conv -> c has shape {list(shape)}",
        )
        for shape in [(), (3,), (3, 2)]
    ],
    Refusal(
        rule.parameters_match_output_channels,
        FEEDING.model(**batchnorm(5)),
        "BatchNormalization -> y has 5 values per parameter, but Conv -> c makes 3 channels",
    ),
    Refusal(
        rule.bias_is_a_vector,
        Feeding("float[N, 2, 5, 5] x", "c = Conv(x, w, b)", 3, {"w": random(3, 2, 3, 3), "b": random(1, 3)}).model(),
        "the bias of Conv -> c has shape [1, 3]",
    ),
    Refusal(
        rule.folded_values_are_representable,
        Feeding("float16[N, 2, 5, 5] x", "c = Conv(x, w)", 3, {"w": random(3, 2, 3, 3, dtype=np.float16)}).model(
            var=np.full(3, 1e-12, np.float32), gamma=np.full(3, 1e4, np.float32)
        ),
        "more than float16 holds",
    ),
    Refusal(
        rule.folded_values_are_representable,
        Feeding("float16[N, 2, 5, 5] x", "c = Conv(x, w)", 3, {"w": random(3, 2, 3, 3, dtype=np.float16)}).model(
            beta=np.array([0, 1e5, 0], np.float32)
        ),
        "the folded bias reaches 1e+05, more than float16 holds (6.55e+04)",
    ),
    Refusal(
        rule.folded_values_are_representable,
        Feeding("int8[N, 2, 5, 5] x", "c = Conv(x, w)", 3, {"w": np.ones((3, 2, 3, 3), np.int8)}).model(),
        "the weight of Conv -> c is int8, not a floating type",
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE)


NO_MATCH = {
    "weight of run time": (
        f"g (float[N, 2, 7, 7] x, float[4, 2, 3, 3] w) => (float[] y) {{ c = Conv(x, w) y = {BN} }}",
        "w, input 1 of Conv -> c, is computed at run time",
    ),
    "parameter of run time": (
        "g (float[N, 2, 7, 7] x, float[4] s) => (float[] y) { c = Conv(x, w) y = BatchNormalization(c, s, beta, mu, var) }",
        "s, input 1 of BatchNormalization -> y, is computed at run time",
    ),
    "something in between": (
        "g (float[N, 2, 7, 7] x) => (float[] y){ c = Conv(x, w) r = Relu(c) y = BatchNormalization(r, gamma, beta, mu, var) }",
        "BatchNormalization -> y is fed by Relu -> r, which is Relu, not Conv",
    ),
    "nothing before": (
        "g (float[N, 4, 7, 7] x) => (float[] y) { y = BatchNormalization(x, gamma, beta, mu, var) }",
        "BatchNormalization -> y is fed by x, an input of its graph, not by Conv",
    ),
    "the result is used elsewhere": (
        f"g (float[N, 2, 7, 7] x) => (float[] y, float[] r) {{ c = Conv(x, w) y = {BN} r = Relu(c) }}",
        "c is also used by Relu -> r",
    ),
    "the result is a graph output": (
        f"g (float[N, 2, 7, 7] x) => (float[] y, float[] c) {{ c = Conv(x, w) y = {BN} }}",
        "c is an output of the graph",
    ),
    "the result is used in a subgraph": (
        f"g (float[N, 2, 7, 7] x, bool t) => (float[] y, float[] r) {{ c = Conv(x, w) y = {BN}"
        " r = If (t) <then_branch = a () => (float[] d) { d = Relu(c) }, else_branch = b () => (float[] e) { e = Neg(c) }> }",
        "c is also used by Relu -> d",
    ),
    "the convolution is outside": (
        "g (float[N, 2, 7, 7] x, bool t) => (float[] r) { c = Conv(x, w) r = If (t) <"
        "then_branch = a () => (float[] d) { d = BatchNormalization(c, gamma, beta, mu, var) },"
        "else_branch = b () => (float[] e) { e = Neg(x) }> }",
        "Conv -> c belongs to an outer graph",
    ),
}


@pytest.mark.parametrize(("graph", "reason"), NO_MATCH.values(), ids=NO_MATCH)
def test_does_not_match(rewrite, graph, reason):
    weights = {"w": random(4, 2, 3, 3), **batchnorm(4)}
    model = parse(graph, {k: v for k, v in weights.items() if f"] {k})" not in graph})
    result = rewrite(model, rules=(rule.RULE,))
    assert result.outcome.changes == []
    assert result.reason(NAME) == reason
    assert result.model.graph == result.surgery.source.graph


def test_a_convolution_with_two_batchnorms_stays(rewrite):
    model = parse(
        "g (float[N, 2, 7, 7] x) => (float[] y, float[] z) { c = Conv(x, w)"
        " y = BatchNormalization(c, gamma, beta, mu, var) z = BatchNormalization(c, gamma2, beta2, mu2, var2) }",
        {"w": random(4, 2, 3, 3), **batchnorm(4), **batchnorm(4, seed=1, suffix="2")},
    )
    result = rewrite(model, rules=(rule.RULE,))
    assert result.outcome.changes == []
    assert sorted(r.reason for r in result.outcome.rejections) == [
        "c is also used by BatchNormalization -> y",
        "c is also used by BatchNormalization -> z",
    ]


def test_a_weight_shared_by_two_convolutions_is_not_changed_for_the_other(rewrite):
    model = parse(
        f"g (float[N, 2, 7, 7] x) => (float[] y, float[] z) {{ c = Conv(x, w, b) y = {BN} z = Conv(x, w, b) }}",
        {"w": random(4, 2, 3, 3), "b": random(4), **batchnorm(4)},
    )
    result = rewrite(model)
    assert result.rules == [NAME]
    assert {"w", "b"} < {t.name for t in result.model.graph.initializer}
    assert worst_relative_error(model, result.model) < 1e-6


def test_a_weight_shared_by_two_folded_convolutions(rewrite):
    """One convolution's weights used on several levels, each with its own BatchNormalization (EfficientDet's head)."""
    model = parse(
        "g (float[N, 2, 7, 7] x, float[N, 2, 4, 4] x2) => (float[] y, float[] z) {"
        " c = Conv(x, w) y = BatchNormalization(c, gamma, beta, mu, var)"
        " d = Conv(x2, w) z = BatchNormalization(d, gamma2, beta, mu2, var) }",
        {"w": random(4, 2, 3, 3), **batchnorm(4), **batchnorm(4, seed=1, suffix="2")},
    )
    result = rewrite(model)
    assert result.rules == [NAME, NAME]
    assert worst_relative_error(model, result.model) < 1e-6
    assert "w" not in {t.name for t in result.model.graph.initializer}


def test_the_input_keeps_its_other_consumers(rewrite):
    """A residual connection around the pair."""
    model = parse(
        f"g (float[N, 4, 7, 7] x) => (float[] r) {{ c = Conv <pads=[1, 1, 1, 1]>(x, w) y = {BN} r = Add(y, x) }}",
        {"w": random(4, 4, 3, 3), **batchnorm(4)},
    )
    result = rewrite(model)
    assert result.operators == ["Conv", "Add"]
    assert worst_relative_error(model, result.model) < 1e-6


@pytest.mark.parametrize("where", ["then", "else", "both"])
def test_inside_a_branch(rewrite, where):
    norm = {"then": ("d", "Neg(c2)"), "else": ("e", "Neg(c)"), "both": ("", "")}[where]
    then = "d = BatchNormalization(c, gamma, beta, mu, var)" if where != "else" else f"d = {norm[1]}"
    other = "e = BatchNormalization(c2, gamma, beta, mu, var)" if where != "then" else f"e = {norm[1]}"
    model = parse(
        "g (float[N, 2, 7, 7] x, bool t) => (float[] r) { r = If (t) <"
        f"then_branch = a () => (float[N, 4, 5, 5] d) {{ c = Conv(x, w) {then} }},"
        f"else_branch = b () => (float[N, 4, 5, 5] e) {{ c2 = Conv(x, w) {other} }}> }}",
        {"w": random(4, 2, 3, 3), **batchnorm(4)},
    )
    assert_applies_in_branches(rewrite, model, rule.RULE, times=2 if where == "both" else 1)


def test_in_a_loop_body(rewrite):
    model = parse(
        "g (float[2, 4, 7, 7] x, int64 n, bool t) => (float[2, 4, 7, 7] y) {"
        " y = Loop (n, t, x) <body = l (int64 i, bool go, float[2, 4, 7, 7] s) => (bool stay, float[2, 4, 7, 7] o) {"
        " stay = Identity(go) c = Conv <pads=[1, 1, 1, 1]>(s, w) o = BatchNormalization(c, gamma, beta, mu, var) }> }",
        {"w": random(4, 4, 3, 3) / 8, **batchnorm(4)},
    )
    result = rewrite(model)
    assert result.rules == [NAME]
    (loop,) = result.model.graph.node
    assert [n.op_type for n in loop.attribute[0].g.node] == ["Identity", "Conv"]


def test_a_second_pass_changes_nothing(rewrite):
    once = rewrite(conv_bn())
    twice = rewrite(once.model)
    assert twice.outcome.changes == []
    assert twice.outcome.rejections == ()


def test_the_file_is_the_same_every_time(rewrite):
    first, second = (rewrite(conv_bn()).model.SerializeToString(deterministic=True) for _ in range(2))
    assert first == second
