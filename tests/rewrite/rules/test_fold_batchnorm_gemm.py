"""fold-batchnorm-gemm: every accepted spelling, every refusal, and the numbers."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from onnx import numpy_helper

from tests.models import batchnorm, parse, random
from tests.oracle import worst_relative_error
from tests.rewrite.rules.contract import assert_applies_in_branches, assert_refuses, inside_a_branch
from tests.rewrite.rules.refusals import Feeding, Refusal, shared_refusals
from trtnorm_cli.rewrite.rules import fold_batchnorm_gemm as rule

NAME = rule.RULE.name
BN = "BatchNormalization(c, gamma, beta, mu, var)"
ROWS, INNER, COLUMNS = 5, 3, 4
FEEDING = Feeding("float[N, 3] x", "c = Gemm(x, w)", 4, {"w": random(3, 4)})


def gemm_bn(trans_a=0, trans_b=0, alpha=1.0, beta=1.0, bias: tuple[int, ...] | None = (COLUMNS,), opset=17):
    x = f"{INNER}, {ROWS}" if trans_a else f"{ROWS}, {INNER}"
    weights = {"w": random(COLUMNS, INNER) if trans_b else random(INNER, COLUMNS), **batchnorm(COLUMNS)}
    if bias is not None:
        weights["b"] = random(*bias)
    attributes = f"<transA={trans_a}, transB={trans_b}, alpha={float(alpha)}, beta={float(beta)}>"
    gemm = f"Gemm {attributes}(x, w{'' if bias is None else ', b'})"
    return parse(f"g (float[{x}] x) => (float[{ROWS}, {COLUMNS}] y) {{ c = {gemm} y = {BN} }}", weights, opset=opset)


BIASES = [None, (), (1,), (COLUMNS,), (1, 1), (1, COLUMNS), (ROWS, 1), (ROWS, COLUMNS)]


@pytest.mark.parametrize("bias", BIASES, ids=str)
@pytest.mark.parametrize(("trans_a", "trans_b"), list(itertools.product((0, 1), repeat=2)))
def test_every_layout_and_bias(rewrite, trans_a, trans_b, bias):
    model = gemm_bn(trans_a, trans_b, alpha=0.5, beta=-2.0, bias=bias)
    result = rewrite(model)
    assert result.rules == [NAME]
    assert result.operators == ["Gemm"]
    assert worst_relative_error(model, result.model) < 1e-6


@pytest.mark.parametrize(("alpha", "beta"), [(1, 1), (0.25, 1), (1, 3), (-1, 0), (0, 1), (0, 0)])
def test_alpha_and_beta(rewrite, alpha, beta):
    model = gemm_bn(alpha=alpha, beta=beta, bias=(ROWS, COLUMNS))
    result = rewrite(model)
    assert result.rules == [NAME]
    # A constant column: with alpha 0 nothing else is left, and the error is that of one rounded constant.
    assert worst_relative_error(model, result.model) < 1e-6
    attributes = {a.name: a.f for a in result.model.graph.node[0].attribute if a.type == 1}
    assert attributes == {"alpha": alpha, "beta": 1.0}


@pytest.mark.parametrize("opset", [7, 9, 11, 13, 14, 15, 21])
def test_every_opset_since_7(rewrite, opset):
    model = gemm_bn(trans_b=1, opset=opset)
    result = rewrite(model)
    assert result.rules == [NAME]
    assert worst_relative_error(model, result.model) < 1e-6


def test_the_bias_stays_a_vector(rewrite):
    """One bias for a dynamic batch: nothing may depend on the number of rows."""
    model = parse(
        f"g (float[N, 3] x) => (float[N, 4] y) {{ c = Gemm <transB=1>(x, w, b) y = {BN} }}",
        {"w": random(4, 3), "b": random(4), **batchnorm(4)},
    )
    result = rewrite(model)
    shapes = sorted(tuple(t.dims) for t in result.model.graph.initializer)
    assert shapes == [(4,), (4, 3)]
    for rows in (1, 2, 7):
        assert worst_relative_error(model, result.model, {"x": (rows, 3)}) < 1e-6


def test_names_and_attributes_are_kept(rewrite):
    model = gemm_bn(trans_b=1)
    model.graph.node[0].name, model.graph.node[1].name = "fc", "bn"
    (gemm,) = rewrite(model).model.graph.node
    assert gemm.name == "fc"
    assert {a.name: a.i for a in gemm.attribute if a.type == 2} == {"transA": 0, "transB": 1}


@pytest.mark.parametrize(("dtype", "name", "limit"), [
    (np.float16, "float16", 5e-3), (ml_dtypes.bfloat16, "bfloat16", 4e-2), (np.float64, "double", 1e-13),
])  # fmt: skip
def test_other_types(rewrite, dtype, name, limit):
    weights = {"w": random(4, 3, dtype=dtype), "b": random(4, dtype=dtype), **batchnorm(4, dtype)}
    model = parse(f"g ({name}[N, 3] x) => ({name}[] y) {{ c = Gemm <transB=1>(x, w, b) y = {BN} }}", weights, opset=22)
    result = rewrite(model)
    assert result.rules == [NAME]
    stored = {numpy_helper.to_array(tensor).dtype for tensor in result.model.graph.initializer}
    assert stored == {np.dtype(dtype)}
    assert worst_relative_error(model, result.model, {"x": (9, 3)}) < limit


REFUSALS = [
    *shared_refusals(FEEDING),
    Refusal(
        rule.weight_is_a_matrix,
        Feeding("float[N, 3] x", "c = Gemm(x, w)", 4, {"w": random(3, 4, 1)}).model(),
        "the weight of Gemm -> c is float32 of shape [3, 4, 1]",
    ),
    Refusal(
        rule.weight_is_a_matrix,
        Feeding("int32[N, 3] x", "c = Gemm(x, w)", 4, {"w": np.ones((3, 4), np.int32)}).model(),
        "the weight of Gemm -> c is int32 of shape [3, 4]",
    ),
    Refusal(
        rule.parameters_match_columns,
        Feeding("float[N, 3] x", "c = Gemm(x, w)", 3, {"w": random(3, 4)}).model(),
        "BatchNormalization -> y has 3 values per parameter, but Gemm -> c makes 4 channels",
    ),
    Refusal(
        rule.parameters_match_columns,
        Feeding("float[N, 3] x", "c = Gemm <transB=1>(x, w)", 4, {"w": random(5, 3)}).model(),
        "BatchNormalization -> y has 4 values per parameter, but Gemm -> c makes 5 channels",
    ),
    Refusal(
        rule.folded_values_are_representable,
        Feeding("float16[N, 3] x", "c = Gemm(x, w)", 4, {"w": random(3, 4, dtype=np.float16)}).model(
            beta=np.full(4, -1e6, np.float32)
        ),
        "the folded bias reaches 1e+06, more than float16 holds",
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE)


@pytest.mark.parametrize(("signature", "rest", "reason"), [
    ("(float[N, 3] x, float[3, 4] v) => (float[] y)", f"c = Gemm(x, v) y = {BN}",
     "v, input 1 of Gemm -> c, is computed at run time"),
    ("(float[N, 3] x, float[4] v) => (float[] y)", f"c = Gemm(x, w, v) y = {BN}",
     "v, input 2 of Gemm -> c, is computed at run time"),
    ("(float[N, 3] x) => (float[] y, float[] r)", f"c = Gemm(x, w) y = {BN} r = Relu(c)", "c is also used by Relu -> r"),
    ("(float[N, 3] x) => (float[] y, float[] c)", f"c = Gemm(x, w) y = {BN}", "c is an output of the graph"),
    ("(float[N, 3] x) => (float[] y)", f"c = MatMul(x, w) y = {BN}",
     "BatchNormalization -> y is fed by MatMul -> c, which is MatMul, not Gemm"),
])  # fmt: skip
def test_does_not_match(rewrite, signature, rest, reason):
    model = parse(f"g {signature} {{ {rest} }}", {"w": random(3, 4), **batchnorm(4)})
    result = rewrite(model, rules=(rule.RULE,))
    assert result.outcome.changes == []
    assert result.reason(NAME) == reason


def test_a_shared_weight_is_not_changed_for_the_other(rewrite):
    model = parse(
        f"g (float[N, 3] x) => (float[] y, float[] z) {{ c = Gemm(x, w, b) y = {BN} z = Gemm(x, w, b) }}",
        {"w": random(3, 4), "b": random(4), **batchnorm(4)},
    )
    result = rewrite(model)
    assert result.rules == [NAME]
    assert worst_relative_error(model, result.model) < 1e-6


def test_inside_a_branch(rewrite):
    model = inside_a_branch(
        "float[N, 3]", "float[N, 4]", f"c = Gemm(x, w) y = {BN}", "e = Gemm(x, w)", {"w": random(3, 4), **batchnorm(4)}
    )
    assert_applies_in_branches(rewrite, model, rule.RULE)


def test_a_second_pass_changes_nothing(rewrite):
    twice = rewrite(rewrite(gemm_bn()).model)
    assert twice.outcome.changes == []
    assert twice.outcome.rejections == ()
