"""skip-layernorm: ONNX Runtime's sum and layer normalization, in two."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models import operators, random
from tests.numerics import relative_error
from tests.oracle import evaluate
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.norms import MICROSOFT, affine, norm, standardized, unknown_rank
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.rewrite.parts import data_channels, skip_sum
from trtnorm_cli.rewrite.rules import skip_layernorm as rule

NAME = rule.RULE.name
EPSILON = float(np.float32(1e-5))
NODE = "com.microsoft.SkipLayerNormalization <epsilon=0.00001> ({})"
WEIGHTS = {**affine(6), "k": random(5, 6, seed=3), "e": random(6, seed=4)}
# Inputs, and whether they are a shift and a bias of the sum.
FORMS = {"x, k, s": (False, False), "x, k, s, b": (True, False), "x, k, s, b, e": (True, True), 'x, k, s, "", e': (False, True)}


def skip(inputs: str = "x, k, s, b", outputs: str = "y", shape: str = "2, 5, 6", **more) -> onnx.ModelProto:
    return norm(f"{outputs} = {NODE.format(inputs)}", more.pop("weights", WEIGHTS), shape, domain=MICROSOFT, **more)


def by_definition(x: np.ndarray, skip: np.ndarray, shifted: bool, biased: bool) -> tuple[np.ndarray, np.ndarray]:
    total = x.astype(np.float64) + skip + (WEIGHTS["e"] if biased else 0)
    return standardized(total, (-1,), EPSILON) * WEIGHTS["s"] + (WEIGHTS["b"] if shifted else 0), total


@pytest.mark.parametrize("inputs", FORMS)
@pytest.mark.parametrize("opset", [13, 17, 21])
def test_every_form(rewrite, inputs, opset):
    result = rewrite(skip(inputs, opset=opset), rules=(rule.RULE,))
    assert result.rules == [NAME]
    assert ("LayerNormalization" in operators(result.model)) == (opset >= 17)
    x = random(2, 5, 6)
    wanted, _ = by_definition(x, WEIGHTS["k"], *FORMS[inputs])
    assert relative_error(wanted, evaluate_float64(result.model, {"x": x}).outputs["y"]) < 1e-12


def test_the_sum_is_used(rewrite):
    model = norm(
        f'y, "", "", q = {NODE.format("x, k, s, b, e")}', WEIGHTS, "2, 5, 6", outputs=", float[2, 5, 6] q", domain=MICROSOFT
    )
    result = rewrite(model, rules=(rule.RULE,))
    assert result.rules == [NAME]
    x = random(2, 5, 6)
    got = evaluate_float64(result.model, {"x": x}).outputs
    for name, wanted in zip(("y", "q"), by_definition(x, WEIGHTS["k"], True, True), strict=True):
        assert relative_error(wanted, got[name]) < 1e-12


def test_a_skip_of_run_time_and_a_dynamic_batch(rewrite):
    model = norm(f"y = {NODE.format('x, x, s, b')}", WEIGHTS, "N, 5, 6", domain=MICROSOFT)
    result = rewrite(model, rules=(rule.RULE,), pins={"x": (2, 5, 6)})
    assert result.rules == [NAME]
    x = random(3, 5, 6)
    assert relative_error(by_definition(x, x, True, False)[0], evaluate(result.model, {"x": x})["y"]) < 1e-6


def test_half_precision(rewrite):
    weights = {name: value.astype(np.float16) for name, value in WEIGHTS.items()}
    result = rewrite(skip(kind="float16", weights=weights), rules=(rule.RULE,))
    assert result.rules == [NAME]
    assert operators(result.model)[-1] == "Cast"


def test_the_shapes_behind_it_are_known(rewrite):
    typed = onnx.shape_inference.infer_shapes(rewrite(skip(), rules=(rule.RULE,)).model)
    assert [d.dim_value for d in typed.graph.output[0].type.tensor_type.shape.dim] == [2, 5, 6]


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.sampled_from(sorted(FORMS)), st.floats(0.01, 100), st.floats(-50, 50), st.integers(0, 2**16))
def test_any_data(rewrite_once, inputs, spread, offset, seed):
    x = (np.random.default_rng(seed).standard_normal((2, 5, 6)) * spread + offset).astype(np.float32)
    got = evaluate_float64(rewrite_once(skip(inputs), rule.RULE), {"x": x}).outputs["y"]
    assert relative_error(by_definition(x, WEIGHTS["k"], *FORMS[inputs])[0], got) < 1e-9


REFUSALS = [
    Refusal(
        data_channels.type_and_rank_are_known,
        unknown_rank(f"y = {NODE.format('x, x, s, b')}", affine(6), domain=MICROSOFT),
        "type or rank of the data of norm is not known",
    ),
    Refusal(
        skip_sum.statistics_are_not_used,
        norm(f"y, m = {NODE.format('x, k, s, b')}", WEIGHTS, "2, 5, 6", outputs=", float[] m", domain=MICROSOFT),
        "m, a statistic of norm, is used",
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE, tolerant=True)


def test_a_second_pass_changes_nothing(rewrite):
    twice = rewrite(rewrite(skip()).model)
    assert twice.outcome.changes == []
