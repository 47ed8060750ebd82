"""lp-normalization: bfloat16 data are normalized in float32; zero vectors stay zero."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models import operators, random
from tests.numerics import relative_error
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.norms import norm
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.rewrite.rules import lp_normalization as rule

NAME = rule.RULE.name


def lp(attributes: str = "", kind: str = "bfloat16", opset: int = 22) -> onnx.ModelProto:
    return norm(f"y = LpNormalization {attributes}(x)", None, "2, 4, 5, 6", kind, opset)


def by_definition(x: np.ndarray, axis: int, order: int) -> np.ndarray:
    length = np.linalg.norm(x.astype(np.float64), order, axis, keepdims=True)
    return np.divide(x, length, out=np.zeros(x.shape), where=length != 0)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_every_axis_and_order(rewrite, order, axis):
    result = rewrite(lp(f"<p={order}, axis={axis}> "))
    assert result.rules == [NAME]
    assert operators(result.model) == ["Cast", "LpNormalization", "Cast"]
    x = random(2, 4, 5, 6, dtype=ml_dtypes.bfloat16)
    assert relative_error(by_definition(x, axis, order), evaluate_float64(result.model, {"x": x}).outputs["y"]) < 1e-12


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.sampled_from([1, 2]), st.integers(-4, 3), st.integers(0, 2**16))
def test_any_data_with_zero_vectors(rewrite_once, order, axis, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((2, 4, 5, 6)).astype(ml_dtypes.bfloat16)
    np.moveaxis(x, axis, -1)[rng.random((2, 4, 5, 6)).argmax() % 2] = 0
    got = evaluate_float64(rewrite_once(lp(f"<p={order}, axis={axis}> "), rule.RULE), {"x": x}).outputs["y"]
    assert relative_error(by_definition(x, axis, order), got) < 1e-12


REFUSALS = [
    Refusal(rule.data_are_bfloat16, lp(kind="float16"), "norm has data that are not bfloat16"),
    Refusal(rule.order_is_one_or_two, lp("<p=3> "), "norm has p=3"),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE, tolerant=True)


def test_a_second_pass_changes_nothing(rewrite):
    twice = rewrite(rewrite(lp()).model)
    assert twice.outcome.changes == []
