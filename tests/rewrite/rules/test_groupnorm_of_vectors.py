"""groupnorm-of-vectors: data of two axes, in every opset, with parameters per group and per channel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models import operators, random
from tests.numerics import relative_error
from tests.oracle import evaluate
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.norms import affine, norm, standardized, unknown_rank
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.rewrite.parts import data_channels, group_parameters
from trtnorm_cli.rewrite.rules import groupnorm_of_vectors as rule

NAME = rule.RULE.name


def gn(groups: int = 4, channels: int = 8, shape: str = "", opset: int = 21, length: int | None = None, **more):
    node = f"y = GroupNormalization <num_groups={groups}> (x, s, b)"
    count = length or (groups if opset < 21 else channels)
    return norm(node, more.pop("weights", affine(count)), shape or f"N, {channels}", opset=opset, **more)


def by_definition(x: np.ndarray, groups: int, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    batch, channels = x.shape
    y = standardized(x.astype(np.float64).reshape(batch, groups, -1), (2,)).reshape(batch, channels)
    return y * np.repeat(scale, channels // scale.size) + np.repeat(bias, channels // bias.size)


@pytest.mark.parametrize("opset", [18, 20, 21, 23])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_every_opset(rewrite, opset, groups):
    result = rewrite(gn(groups, opset=opset), pins={"x": (3, 8)})
    assert result.rules == [NAME]
    assert operators(result.model)[0] == "Reshape"
    assert operators(result.model)[-3:] == ["Reshape", "Mul", "Add"]
    weights, x = affine(groups if opset < 21 else 8), random(3, 8)
    wanted = by_definition(x, groups, weights["s"], weights["b"])
    assert relative_error(wanted, evaluate(result.model, {"x": x})["y"]) < 1e-12


@pytest.mark.parametrize("opset", [18, 21])
def test_parameters_of_run_time(rewrite, opset):
    count = 4 if opset < 21 else 8
    model = gn(opset=opset, shape="2, 8", inputs=f", float[{count}] s, float[{count}] b")
    result = rewrite(model, rules=(rule.RULE,))
    assert result.rules == [NAME]
    feeds = {"x": random(2, 8), **affine(count)}
    assert relative_error(by_definition(feeds["x"], 4, feeds["s"], feeds["b"]), evaluate(result.model, feeds)["y"]) < 1e-12


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_half_precision(rewrite, kind):
    assert rewrite(gn(kind=kind), pins={"x": (2, 8)}).rules == [NAME]


def test_groups_of_two_where_onnxruntime_cancels(rewrite):
    """Its variance is the mean of squares less the square of the mean; the change is as exact as can be, and passes."""
    check = rewrite(gn(shape="2, 8")).outcome.changes[0].check
    assert check.float64_rel < 1e-6
    assert check.passed


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(2, 5), st.booleans(), st.integers(0, 2**16))
def test_any_grouping(rewrite_once, batch, groups, per_group, newer, seed):
    rng = np.random.default_rng(seed)
    channels, opset = groups * per_group, 21 if newer else 18
    weights = affine(channels if newer else groups)
    model = gn(groups, channels, f"{batch}, {channels}", opset, weights=weights)
    x = (rng.standard_normal((batch, channels)) * 3 + 1).astype(np.float32)
    got = evaluate_float64(rewrite_once(model, rule.RULE), {"x": x}).outputs["y"]
    assert relative_error(by_definition(x, groups, weights["s"], weights["b"]), got) < 1e-10


REFUSALS = [
    Refusal(
        data_channels.type_and_rank_are_known,
        unknown_rank("y = GroupNormalization <num_groups=2> (x, s, b)", affine(8), 21),
        "type or rank of the data of norm is not known",
    ),
    Refusal(rule.there_are_no_positions, gn(shape="N, 8, 5"), "the data of norm has shape ['N', 8, 5]"),
    Refusal(rule.there_are_no_positions, gn(shape="N, C"), "the data of norm has shape ['N', 'C']"),
    Refusal(group_parameters.groups_divide_channels, gn(3), "norm has 3 groups for 8 channels"),
    Refusal(group_parameters.parameters_are_vectors, gn(length=3), "s has 3 values, norm wants 8"),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE, tolerant=True)


def test_a_second_pass_changes_nothing(rewrite):
    twice = rewrite(rewrite(gn(), pins={"x": (2, 8)}).model, pins={"x": (2, 8)})
    assert twice.outcome.changes == []
