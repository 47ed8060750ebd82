"""skip-simplified-layernorm: ONNX Runtime's sum and root-mean-square normalization, in two."""

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
from tests.rewrite.rules.norms import MICROSOFT, affine, norm, unknown_rank
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.rewrite.parts import data_channels, skip_sum
from trtnorm_cli.rewrite.rules import skip_simplified_layernorm as rule

NAME = rule.RULE.name
EPSILON = float(np.float32(1e-6))
NODE = "com.microsoft.SkipSimplifiedLayerNormalization <epsilon=0.000001> ({})"
WEIGHTS = {**affine(6), "k": random(5, 6, seed=3), "e": random(6, seed=4)}


def skip(inputs: str = "x, k, s", outputs: str = "y", declared: str = "", shape: str = "2, 5, 6", **more) -> onnx.ModelProto:
    weights = more.pop("weights", WEIGHTS)
    return norm(f"{outputs} = {NODE.format(inputs)}", weights, shape, outputs=declared, domain=MICROSOFT, **more)


def by_definition(x: np.ndarray, biased: bool) -> tuple[np.ndarray, np.ndarray]:
    total = x.astype(np.float64) + WEIGHTS["k"] + (WEIGHTS["e"] if biased else 0)
    return total / np.sqrt((total**2).mean(-1, keepdims=True) + EPSILON) * WEIGHTS["s"], total


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("opset", [13, 17, 23])
def test_both_forms_with_the_sum(rewrite, biased, opset):
    inputs = "x, k, s, e" if biased else "x, k, s"
    result = rewrite(skip(inputs, 'y, "", "", q', ", float[2, 5, 6] q", opset=opset), rules=(rule.RULE,))
    assert result.rules == [NAME]
    x = random(2, 5, 6)
    got = evaluate(result.model, {"x": x})
    for name, wanted in zip(("y", "q"), by_definition(x, biased), strict=True):
        assert relative_error(wanted, got[name]) < 1e-12


def test_half_precision(rewrite):
    weights = {name: value.astype(np.float16) for name, value in WEIGHTS.items()}
    result = rewrite(skip(kind="float16", weights=weights), rules=(rule.RULE,))
    assert result.rules == [NAME]
    assert operators(result.model)[-1] == "Cast"


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.booleans(), st.floats(0.01, 100), st.integers(0, 2**16))
def test_any_data(rewrite_once, biased, spread, seed):
    x = (np.random.default_rng(seed).standard_normal((2, 5, 6)) * spread).astype(np.float32)
    model = rewrite_once(skip("x, k, s, e" if biased else "x, k, s"), rule.RULE)
    assert relative_error(by_definition(x, biased)[0], evaluate(model, {"x": x})["y"]) < 1e-10


REFUSALS = [
    Refusal(
        data_channels.type_and_rank_are_known,
        unknown_rank(f"y = {NODE.format('x, x, s')}", affine(6), domain=MICROSOFT),
        "type or rank of the data of norm is not known",
    ),
    Refusal(
        skip_sum.statistics_are_not_used, skip(outputs='y, "", d', declared=", float[] d"), "d, a statistic of norm, is used"
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE, tolerant=True)


def test_a_second_pass_changes_nothing(rewrite):
    twice = rewrite(rewrite(skip()).model)
    assert twice.outcome.changes == []
