"""fold-batchnorm-conv-transpose: every accepted spelling, every refusal, and the numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.models import batchnorm, parse, random
from tests.oracle import worst_relative_error
from tests.rewrite.rules.contract import assert_applies_in_branches, assert_refuses, inside_a_branch
from tests.rewrite.rules.refusals import Feeding, Refusal, shared_refusals
from trtnorm_cli.rewrite.rules import fold_batchnorm_conv_transpose as rule

NAME = rule.RULE.name
BN = "BatchNormalization(c, gamma, beta, mu, var)"
FEEDING = Feeding("float[N, 2, 5, 5] x", "c = ConvTranspose(x, w)", 3, {"w": random(2, 3, 3, 3)})


def deconv_bn(attributes: str = "", *, weight=(3, 4, 3, 3), groups=1, bias=True, opset=17):
    channels = weight[1] * groups
    x = ", ".join(["N", str(weight[0]), *"5" * (len(weight) - 2)])
    weights = {"w": random(*weight), **batchnorm(channels), **({"b": random(channels)} if bias else {})}
    deconv = f"ConvTranspose {attributes}(x, w{', b' if bias else ''})"
    return parse(f"g (float[{x}] x) => (float[] y) {{ c = {deconv} y = {BN} }}", weights, opset=opset)


SPELLINGS = {
    "bias": deconv_bn(),
    "no bias": deconv_bn(bias=False),
    "empty bias": parse(
        f'g (float[N, 3, 5, 5] x) => (float[] y) {{ c = ConvTranspose(x, w, "") y = {BN} }}',
        {"w": random(3, 4, 3, 3), **batchnorm(4)},
    ),
    "1-D": deconv_bn("<strides=[2]>", weight=(3, 4, 3)),
    "3-D": deconv_bn("<strides=[2, 1, 2]>", weight=(3, 4, 2, 2, 2)),
    "pads and output_padding": deconv_bn("<pads=[1, 0, 1, 2], strides=[3, 2], output_padding=[2, 1]>"),
    "dilated": deconv_bn("<dilations=[2, 3], strides=[2, 1]>"),
    "two groups": deconv_bn("<group=2>", weight=(4, 3, 3, 3), groups=2),
    "two groups, more rows than columns": deconv_bn("<group=2, strides=[2, 2]>", weight=(6, 2, 3, 3), groups=2),
    "three groups with output_padding": deconv_bn(
        "<group=3, strides=[2, 2], output_padding=[1, 1], pads=[1, 1, 1, 1]>", weight=(6, 4, 3, 3), groups=3
    ),
    "depthwise": deconv_bn("<group=4, strides=[2, 2]>", weight=(4, 1, 4, 4), groups=4),
    "depthwise with multiplier": deconv_bn("<group=3>", weight=(3, 2, 2, 2), groups=3, bias=False),
    "grouped 1-D": deconv_bn("<group=2, strides=[2], output_padding=[1]>", weight=(4, 3, 3), groups=2),
}


@pytest.mark.parametrize("model", SPELLINGS.values(), ids=SPELLINGS)
def test_folds(rewrite, model):
    result = rewrite(model)
    assert result.rules == [NAME]
    assert result.operators == ["ConvTranspose"]
    assert worst_relative_error(model, result.model) < 1e-6


@pytest.mark.parametrize("attribute", ["output_shape=[9, 11]", 'auto_pad="SAME_UPPER"', 'auto_pad="SAME_LOWER"'])
def test_attributes_of_the_output_size_are_kept(rewrite, attribute):
    """The check runs these in ONNX Runtime; the attribute itself must reach the result."""
    model = deconv_bn(f"<strides=[2, 2], {attribute}>")
    result = rewrite(model)
    assert result.rules == [NAME]
    (deconv,) = result.model.graph.node
    assert deconv.attribute[1] == model.graph.node[0].attribute[1]


@pytest.mark.parametrize("opset", [7, 10, 11, 14, 15, 18, 21, 22])
def test_every_opset_since_7(rewrite, opset):
    model = deconv_bn("<group=2>", weight=(4, 3, 3, 3), groups=2, opset=opset)
    result = rewrite(model)
    assert result.rules == [NAME]
    assert worst_relative_error(model, result.model) < 1e-6


@pytest.mark.parametrize(("dtype", "name", "limit"), [
    (np.float16, "float16", 5e-3), (ml_dtypes.bfloat16, "bfloat16", 4e-2), (np.float64, "double", 1e-13),
])  # fmt: skip
def test_other_types(rewrite, dtype, name, limit):
    weights = {"w": random(4, 3, 3, 3, dtype=dtype), "b": random(6, dtype=dtype), **batchnorm(6, dtype)}
    graph = f"g ({name}[N, 4, 5, 5] x) => ({name}[] y) {{ c = ConvTranspose <group=2>(x, w, b) y = {BN} }}"
    model = parse(graph, weights, opset=22)
    result = rewrite(model)
    assert result.rules == [NAME]
    assert {t.data_type for t in result.model.graph.initializer} == {model.graph.initializer[0].data_type}
    assert worst_relative_error(model, result.model) < limit


REFUSALS = [
    *shared_refusals(FEEDING),
    *[
        Refusal(
            rule.weight_has_kernel_axes,
            Feeding("float[N, 2, 5, 5] x", "c = ConvTranspose(x, w)", 3, {"w": random(*shape)}).model(),
            f"the weight of ConvTranspose -> c has shape {list(shape)}",
        )
        for shape in [(), (3,), (3, 2)]
    ],
    Refusal(
        rule.groups_divide_input_channels,
        Feeding("float[N, 5, 5, 5] x", "c = ConvTranspose <group=2>(x, w)", 6, {"w": random(5, 3, 3, 3)}).model(),
        "ConvTranspose -> c has 5 input channels in 2 groups",
    ),
    Refusal(
        rule.parameters_match_output_channels,
        Feeding("float[N, 4, 5, 5] x", "c = ConvTranspose <group=2>(x, w)", 3, {"w": random(4, 3, 3, 3)}).model(),
        "BatchNormalization -> y has 3 values per parameter, but ConvTranspose -> c makes 6 channels",
    ),
    Refusal(
        rule.bias_is_a_vector,
        Feeding("float[N, 2, 5, 5] x", "c = ConvTranspose(x, w, b)", 3, {"w": random(2, 3, 3, 3), "b": random(4)}).model(),
        "the bias of ConvTranspose -> c has shape [4], not [3]",
    ),
    Refusal(
        rule.folded_values_are_representable,
        Feeding("float16[N, 2, 5, 5] x", "c = ConvTranspose(x, w)", 3, {"w": random(2, 3, 3, 3, dtype=np.float16)}).model(
            var=np.full(3, 1e-12, np.float32), gamma=np.full(3, 1e4, np.float32)
        ),
        "the folded weight reaches",
    ),
    Refusal(
        rule.folded_values_are_representable,
        Feeding("int8[N, 2, 5, 5] x", "c = ConvTranspose(x, w)", 3, {"w": np.ones((2, 3, 3, 3), np.int8)}).model(),
        "the weight of ConvTranspose -> c is int8, not a floating type",
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE)


@pytest.mark.parametrize(("rest", "reason"), [
    ("c = ConvTranspose(x, w) r = Relu(c) y = BatchNormalization(c, gamma, beta, mu, var)", "c is also used by Relu -> r"),
    ("c = ConvTranspose(x, w) r = Neg(c) y = BatchNormalization(r, gamma, beta, mu, var)",
     "BatchNormalization -> y is fed by Neg -> r, which is Neg, not ConvTranspose"),
])  # fmt: skip
def test_does_not_match(rewrite, rest, reason):
    graph = f"g (float[N, 3, 5, 5] x) => (float[] y, float[] r) {{ {rest} }}"
    result = rewrite(parse(graph, {"w": random(3, 4, 3, 3), **batchnorm(4)}), rules=(rule.RULE,))
    assert result.outcome.changes == []
    assert result.reason(NAME) == reason


def test_an_output_in_the_middle_is_kept(rewrite):
    model = parse(
        f"g (float[N, 3, 5, 5] x) => (float[] y, float[] c) {{ c = ConvTranspose(x, w) y = {BN} }}",
        {"w": random(3, 4, 3, 3), **batchnorm(4)},
    )
    result = rewrite(model, rules=(rule.RULE,))
    assert result.outcome.changes == []
    assert result.reason(NAME) == "c is an output of the graph"


def test_a_shared_weight_is_not_changed_for_the_other(rewrite):
    model = parse(
        f"g (float[N, 3, 5, 5] x) => (float[] y, float[] z) {{ c = ConvTranspose(x, w) y = {BN} z = ConvTranspose(x, w) }}",
        {"w": random(3, 4, 3, 3), **batchnorm(4)},
    )
    result = rewrite(model)
    assert result.rules == [NAME]
    assert worst_relative_error(model, result.model) < 1e-6


def test_inside_a_branch(rewrite):
    model = inside_a_branch(
        "float[N, 3, 5, 5]",
        "float[N, 4, 7, 7]",
        f"c = ConvTranspose(x, w) y = {BN}",
        "e = ConvTranspose(x, w)",
        {"w": random(3, 4, 3, 3), **batchnorm(4)},
    )
    assert_applies_in_branches(rewrite, model, rule.RULE)


def test_a_second_pass_changes_nothing(rewrite):
    twice = rewrite(rewrite(deconv_bn("<group=2>", weight=(4, 3, 3, 3), groups=2)).model)
    assert twice.outcome.changes == []
    assert twice.outcome.rejections == ()
