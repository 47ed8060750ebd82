"""log-softmax: what is far below the largest value keeps its logarithm."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models import operators, parse, random
from tests.numerics import relative_error
from tests.oracle import worst_relative_error
from tests.rewrite.rules.contract import assert_applies_in_branches, assert_refuses, inside_a_branch
from tests.rewrite.rules.norms import norm, unknown_rank
from tests.rewrite.rules.refusals import Refusal
from tests.tensorrt.network.harness import Bench, run_onnx
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.rewrite.parts import data_channels
from trtnorm_cli.rewrite.rules import log_softmax as rule

NAME = rule.RULE.name
WRITTEN = ["ReduceMax", "Sub", "Exp", "ReduceSum", "Log", "Sub"]


def model(attributes: str = "", shape: str = "N, 4, 5, 6", kind: str = "float", opset: int = 17) -> onnx.ModelProto:
    return norm(f"y = LogSoftmax {attributes}(x)", None, shape, kind, opset)


def by_definition(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    shifted = x.astype(np.float64) - x.max(axes, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axes, keepdims=True))


@pytest.mark.parametrize("opset", [7, 11, 13, 18])
@pytest.mark.parametrize("attributes", ["", "<axis=0> ", "<axis=1> ", "<axis=2> ", "<axis=3> ", "<axis=-1> ", "<axis=-3> "])
def test_every_axis_and_opset(rewrite, opset, attributes):
    if opset == 7 and "-" in attributes:
        pytest.skip("axes from the end came with opset 11")
    made = model(attributes, opset=opset)
    result = rewrite(made)
    assert result.rules == [NAME]
    assert operators(result.model) == WRITTEN
    x = random(2, 4, 5, 6)
    wanted, got = (evaluate_float64(each, {"x": x}).outputs["y"] for each in (made, result.model))
    assert relative_error(wanted, got) < 1e-12
    np.testing.assert_allclose(run_onnx(made, {"x": x})["y"], wanted, rtol=1e-5)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_half_precision_is_computed_in_float32(rewrite, kind):
    result = rewrite(model("<axis=1> ", kind=kind, opset=21))
    assert result.rules == [NAME]
    assert operators(result.model) == ["Cast", *WRITTEN, "Cast"]


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.integers(-4, 3), st.floats(0.1, 500), st.floats(-500, 500), st.integers(0, 2**16))
def test_any_data(rewrite_once, axis, spread, offset, seed):
    x = (random(2, 4, 5, 6, seed=seed) * spread + offset).astype(np.float32)
    got = evaluate_float64(rewrite_once(model(f"<axis={axis}> "), rule.RULE), {"x": x}).outputs["y"]
    assert relative_error(by_definition(x, (axis,)), got) < 1e-12


def test_nothing_is_let_through_by_minus_infinity(rewrite_once):
    """As masked logits have it: the others keep their values."""
    x = random(2, 4, 5, 6)
    x[:, 1] = -np.inf
    with np.errstate(all="ignore"):
        got = evaluate_float64(rewrite_once(model("<axis=1> "), rule.RULE), {"x": x}).outputs["y"]
    assert np.all(got[:, 1] == -np.inf)
    kept = [0, 2, 3]
    np.testing.assert_allclose(got[:, kept], by_definition(x[:, kept], (1,)), rtol=1e-12)


def test_in_branches(rewrite):
    body = "y = LogSoftmax(x)"
    assert_applies_in_branches(rewrite, inside_a_branch("float[2, 3]", "float[2, 3]", body, "e = Exp(x)", {}), rule.RULE)


def test_several_in_a_row(rewrite):
    made = parse("g (float[N, 7] x) => (float[N, 7] y) { a = LogSoftmax(x) y = LogSoftmax<axis=0>(a) }")
    result = rewrite(made)
    assert result.rules == [NAME, NAME]
    assert worst_relative_error(made, result.model) < 1e-6


def test_a_second_pass_changes_nothing(rewrite):
    assert rewrite(rewrite(model()).model).outcome.changes == []


@pytest.mark.rtx
def test_tensorrt_loses_what_is_far_below_the_largest(rewrite):
    """The head of a model of street lights gives values down to -240, which TensorRT has as -inf."""
    made = model("<axis=1> ", "2, 3")
    x = np.array([[0, -120, -240], [1, 2, 3]], np.float32)
    as_it_is, rewritten = (run_onnx(Bench().parse(each), {"x": x})["y"] for each in (made, rewrite(made).model))
    assert np.isneginf(as_it_is[0, 1:]).all()
    np.testing.assert_allclose(rewritten, by_definition(x, (1,)), rtol=1e-6)


REFUSALS = [
    Refusal(data_channels.type_and_rank_are_known, unknown_rank("y = LogSoftmax(x)", {}), "is not known"),
    Refusal(rule.axis_has_values, model("<axis=4> "), "norm has axis 4 of 4"),
    Refusal(rule.axis_has_values, model("<axis=1> ", "2, 0, 3"), "norm is over nothing"),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE, tolerant=True)
