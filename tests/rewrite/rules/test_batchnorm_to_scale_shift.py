"""batchnorm-to-scale-shift: every accepted spelling, every refusal, and the numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import numpy_helper

from tests.models import batchnorm, parse, random
from tests.oracle import worst_relative_error
from tests.rewrite.rules.contract import assert_applies_in_branches, assert_refuses, inside_a_branch
from tests.rewrite.rules.refusals import Feeding, Refusal, shared_refusals
from trtnorm_cli.profile.rewriting import RewriteSettings
from trtnorm_cli.rewrite.rules import batchnorm_to_scale_shift as rule

NAME = rule.RULE.name
BN = "BatchNormalization(x, gamma, beta, mu, var)"
FEEDING = Feeding("float[N, 3, 5, 5] x", "c = Relu(x)", 3)


def bn(shape: str = "N, 4, H, W", type_name: str = "float", dtype=np.float32, opset=17, attributes=""):
    graph = (
        f"g ({type_name}[{shape}] x) => ({type_name}[] y) {{ y = BatchNormalization {attributes}(x, gamma, beta, mu, var) }}"
    )
    return parse(graph, batchnorm(4, dtype), opset=opset)


@pytest.mark.parametrize("shape", ["N, 4", "5, 4, 7", "N, 4, H, W", "N, 4, 3, 5, 2", "N, 4, 2, 1, 3, 2", "N, C, 6, 6"])
def test_every_rank(rewrite, shape):
    model = bn(shape)
    pins = {"x": tuple(4 if d == "C" else int(d) if d.isdigit() else 3 for d in shape.split(", "))}
    result = rewrite(model, pins=pins)
    assert result.rules == [NAME]
    assert result.operators == ["Mul", "Add"]
    rank = len(shape.split(", "))
    assert [tuple(t.dims) for t in result.model.graph.initializer] == [(4, *[1] * (rank - 2))] * 2
    assert worst_relative_error(model, result.model, pins) < 1e-6


@pytest.mark.parametrize("opset", [7, 8, 9, 11, 13, 14, 15, 18, 21])
def test_every_opset_since_7(rewrite, opset):
    model = bn(opset=opset)
    result = rewrite(model)
    assert result.rules == [NAME]
    assert worst_relative_error(model, result.model) < 1e-6


@pytest.mark.parametrize(
    ("opset", "attributes"), [(7, "<spatial=1>"), (14, "<training_mode=0>"), (9, "<epsilon=0.5, momentum=0.1>")]
)
def test_attributes(rewrite, opset, attributes):
    model = bn(opset=opset, attributes=attributes)
    result = rewrite(model)
    assert result.rules == [NAME]
    assert worst_relative_error(model, result.model) < 1e-6


@pytest.mark.parametrize(("dtype", "name", "limit"), [(np.float16, "float16", 1e-6), (ml_dtypes.bfloat16, "bfloat16", 1e-6)])
def test_half_precision_runs_in_float32(rewrite, dtype, name, limit):
    model = bn(type_name=name, dtype=dtype)
    result = rewrite(model)
    assert result.rules == [NAME]
    assert result.operators == ["Cast", "Mul", "Add", "Cast"]
    assert {numpy_helper.to_array(t).dtype for t in result.model.graph.initializer} == {np.dtype(np.float32)}
    assert worst_relative_error(model, result.model) < limit
    assert result.model.graph.node[-1].attribute[0].i == model.graph.input[0].type.tensor_type.elem_type


def test_half_data_with_parameters_beyond_its_range(rewrite):
    """TensorRT itself rounds these parameters to float16, and the output becomes zero."""
    model = parse(
        "g (float16[N, 4, H, W] x) => (float16[] y) { y = BatchNormalization(x, gamma, beta, mu, var) }",
        {**batchnorm(4), "var": np.full(4, 1e6, np.float32), "gamma": np.full(4, 1e3, np.float32)},
    )
    result = rewrite(model, rules=(rule.RULE,))
    assert result.rules == [NAME]
    assert worst_relative_error(model, result.model) < 1e-6


def test_float64(rewrite):
    model = bn(type_name="double", dtype=np.float64)
    result = rewrite(model)
    assert result.rules == [NAME]
    assert result.operators == ["Mul", "Add"]
    assert worst_relative_error(model, result.model) < 1e-14


def test_names(rewrite):
    model = bn()
    model.graph.node[0].name = "block.0/bn"
    result = rewrite(model)
    assert [node.name for node in result.model.graph.node] == ["block.0/bn/mul", "block.0/bn/add"]
    assert [t.name for t in result.model.graph.initializer] == ["block.0/bn/scale", "block.0/bn/shift"]


def test_names_that_exist_already_are_not_taken(rewrite):
    model = parse(
        "g (float[N, 4, 5, 5] x) => (float[] y, float[] z) {"
        ' [bn] y = BatchNormalization(x, gamma, beta, mu, var) [bn_more] z = Mul(x, "bn/scale") }',
        {**batchnorm(4), "bn/scale": random(1)},
    )
    result = rewrite(model)
    assert result.rules == [NAME]
    names = [t.name for t in result.model.graph.initializer]
    assert sorted(names) == ["bn/scale", "bn/scale_2", "bn/shift"]
    assert worst_relative_error(model, result.model) < 1e-6


REFUSALS = [
    *shared_refusals(FEEDING),
    Refusal(
        rule.data_has_channels,
        Feeding("float[N] x", "c = Relu(x)", 3).model(),
        "the data of BatchNormalization -> y has no channel axis",
    ),
    Refusal(
        rule.gains_something,
        FEEDING.model(),
        "TensorRT takes it as it is, and nothing absorbs it",
        RewriteSettings(optimize="auto", last_resorts=False),
    ),
    Refusal(
        rule.parameters_match_channels,
        Feeding("float[N, 64, 5, 5] x", "c = Relu(x)", 16).model(),
        "BatchNormalization -> y has 16 values per parameter, but Relu -> c makes 64 channels",
    ),
    Refusal(
        rule.parameters_match_channels,
        FEEDING.model(
            gamma=np.ones(1, np.float32), beta=np.ones(1, np.float32), mu=np.ones(1, np.float32), var=np.ones(1, np.float32)
        ),
        "BatchNormalization -> y has 1 values per parameter, but Relu -> c makes 3 channels",
    ),
    Refusal(
        rule.scale_and_shift_are_representable,
        FEEDING.model(gamma=np.full(3, 1e38, np.float32), var=np.full(3, 1e-12, np.float32)),
        "the scale reaches 3.16e+40, more than float32 holds",
    ),
    Refusal(
        rule.scale_and_shift_are_representable,
        FEEDING.model(mu=np.full(3, -3e38, np.float32), gamma=np.full(3, 3, np.float32), var=np.ones(3, np.float32)),
        "the shift reaches 9e+38, more than float32 holds",
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE)


def test_unknown_rank(rewrite):
    model = parse(
        f"g (float[N, 4, 5, 5] x, int64[K] s) => (float[] y) {{ r = Reshape(x, s) y = {BN.replace('(x', '(r')} }}", batchnorm(4)
    )
    result = rewrite(model)
    assert result.outcome.changes == []
    assert result.reason(NAME) == "the rank of r is not known"


def test_unknown_type(rewrite):
    model = parse(f"g (float[N, 4, 5, 5] x) => (float[] y) {{ r = Odd(x) y = {BN.replace('(x', '(r')} }}", batchnorm(4))
    model.graph.node[0].domain = "somewhere.else"
    model.opset_import.add(domain="somewhere.else", version=1)
    value = model.graph.value_info.add(name="r")
    for size in (2, 4, 5, 5):
        value.type.tensor_type.shape.dim.add(dim_value=size)
    result = rewrite(model)
    assert result.outcome.changes == []
    assert result.reason(NAME) == "the type of the data of BatchNormalization -> y is not known"


def test_other_consumers_of_the_data_keep_it(rewrite):
    """Pre-activation blocks: the data goes on beside the normalization, and is a graph output as well."""
    model = parse(f"g (float[N, 4, 5, 5] a) => (float[] z, float[] x) {{ x = Relu(a) y = {BN} z = Add(y, x) }}", batchnorm(4))
    result = rewrite(model)
    assert result.rules == [NAME]
    assert result.operators == ["Relu", "Mul", "Add", "Add"]
    assert worst_relative_error(model, result.model) < 1e-6


def test_a_convolution_whose_result_is_used_elsewhere(rewrite):
    model = parse(
        f"g (float[N, 2, 7, 7] a) => (float[] y, float[] r) {{ x = Conv(a, w) r = Relu(x) y = {BN} }}",
        {"w": random(4, 2, 3, 3), **batchnorm(4)},
    )
    result = rewrite(model)
    assert result.rules == [NAME]
    assert result.operators == ["Conv", "Relu", "Mul", "Add"]
    assert worst_relative_error(model, result.model) < 1e-6


def test_shared_parameters(rewrite):
    model = parse(
        "g (float[N, 4, 5, 5] x) => (float[] z) { y = BatchNormalization(x, gamma, beta, mu, var)"
        " z = BatchNormalization(y, gamma, beta, mu, var) }",
        batchnorm(4),
    )
    result = rewrite(model, rules=(rule.RULE,))
    assert result.rules == [NAME, NAME]
    assert not {"gamma", "beta", "mu", "var"} & {t.name for t in result.model.graph.initializer}
    assert worst_relative_error(model, result.model) < 1e-6


def test_inside_a_branch(rewrite):
    model = inside_a_branch("float[N, 4, 5, 5]", "float[N, 4, 5, 5]", f"y = {BN}", "e = Mul(x, x)", batchnorm(4))
    assert_applies_in_branches(rewrite, model, rule.RULE)


def test_a_normalized_constant(rewrite):
    """The data is a constant, so that there is nothing to feed."""
    model = parse(
        "g (float[N, 4, 5, 5] x) => (float[] z) { k = Constant <value = float[1, 4, 1, 1] {1, 2, 3, 4}>()"
        " y = BatchNormalization(k, gamma, beta, mu, var) z = Add(x, y) }",
        batchnorm(4),
    )
    result = rewrite(model)
    assert result.outcome.failed == result.outcome.undone == []
    assert worst_relative_error(model, result.model) < 1e-6


@pytest.mark.parametrize(
    ("type_name", "dtype", "shape", "rules"),
    [
        ("float", np.float32, "N, 4, H, W", []),
        ("float", np.float32, "N, 4, 3, 5, 2", []),
        ("float", np.float32, "N, 4", [NAME]),
        ("float", np.float32, "N, 4, 7", [NAME]),
        ("float16", np.float16, "N, 4, H, W", [NAME]),
    ],
)
def test_without_last_resorts_images_and_volumes_of_float32_keep_theirs(rewrite, type_name, dtype, shape, rules):
    model = bn(shape, type_name=type_name, dtype=dtype)
    result = rewrite(model, settings=RewriteSettings(optimize="auto", last_resorts=False))
    assert result.rules == rules
    assert rules or result.reason(NAME) == "TensorRT takes it as it is, and nothing absorbs it"


def test_without_last_resorts_others_are_folded_as_before(rewrite):
    model = parse(
        f"g (float[N, 2, 7, 7] x0) => (float[] z) {{ x = Conv(x0, w) y = {BN} a = Relu(y)"
        " z = BatchNormalization(a, gamma, beta, mu, var) }",
        {"w": random(4, 2, 3, 3), **batchnorm(4)},
    )
    result = rewrite(model, settings=RewriteSettings(optimize="auto", last_resorts=False))
    assert result.rules == ["fold-batchnorm-conv"]
    assert result.operators == ["Conv", "Relu", "BatchNormalization"]


def test_a_second_pass_changes_nothing(rewrite):
    twice = rewrite(rewrite(bn()).model)
    assert twice.outcome.changes == []
    assert twice.outcome.rejections == ()
