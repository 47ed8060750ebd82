"""repair-normalization-channels: the readings of a BatchNormalization for instance and group normalizations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.models import operators, random
from tests.numerics import relative_error
from tests.oracle import evaluate
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.norms import affine, norm, standardized, unknown_rank
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.checkpoint import Checkpoint
from trtnorm_cli.profile.rewriting import RewriteSettings
from trtnorm_cli.rewrite.parts import channel_readings as readings
from trtnorm_cli.rewrite.parts import data_channels, group_parameters
from trtnorm_cli.rewrite.rules import repair_normalization_channels as rule

NAME = rule.RULE.name
IN, GN = "y = InstanceNormalization(x, s, b)", "y = GroupNormalization <num_groups={}> (x, s, b)"
# What each channel of 8 takes from a shorter or longer vector, written out.
PICKS: dict[str, Callable[[int, int], int]] = {
    "repeat-per-group": lambda channel, count: channel // (8 // count),
    "tile": lambda channel, count: channel % count,
    "take-head": lambda channel, count: channel,
}


def misfitting(
    count: int = 4,
    node: str = IN,
    shape: str = "2, 8, 5, 6",
    opset: int = 21,
    weights: dict[str, np.ndarray] | None = None,
    **more,
) -> onnx.ModelProto:
    return norm(node, affine(count) if weights is None else weights, shape, opset=opset, **more)


def reading(name: str) -> RewriteSettings:
    return RewriteSettings(mismatch={"norm": name})


def by_definition(x: np.ndarray, scale: np.ndarray, bias: np.ndarray, groups: int | None = None) -> np.ndarray:
    grouped = x.astype(np.float64).reshape(x.shape[0], groups or x.shape[1], -1)
    along = (-1, *[1] * (x.ndim - 2))
    return standardized(grouped, (2,)).reshape(x.shape) * scale.reshape(along) + bias.reshape(along)


def picked(name: str, weights: dict[str, np.ndarray], channels: int = 8) -> tuple[np.ndarray, np.ndarray]:
    return tuple(np.array([weights[n][PICKS[name](c, weights[n].size)] for c in range(channels)]) for n in ("s", "b"))


@pytest.mark.parametrize(("name", "count"), [("repeat-per-group", 4), ("tile", 2), ("take-head", 20)])
@pytest.mark.parametrize(("node", "groups"), [(IN, None), (GN.format(8), 8), (GN.format(1), 1)])
def test_a_reading_that_the_profile_names(rewrite, name, count, node, groups):
    result = rewrite(misfitting(count, node), (rule.RULE,), settings=reading(name), tolerant=True)
    assert result.rules == [NAME]
    (change,) = result.outcome.changes
    assert change.changes_meaning
    assert change.warning.endswith("because the build profile says so")
    x = random(2, 8, 5, 6)
    wanted = by_definition(x, *picked(name, affine(count)), groups)
    assert relative_error(wanted, evaluate(result.model, {"x": x})["y"]) < 1e-6


def test_one_value_stands_for_all_channels(rewrite):
    result = rewrite(misfitting(1), (rule.RULE,), tolerant=True)
    assert result.rules == [NAME]
    assert "read as expand" in result.outcome.changes[0].warning


@pytest.mark.parametrize("groups", [2, 4])
def test_one_value_per_group_since_opset_21(rewrite, groups):
    result = rewrite(misfitting(groups, GN.format(groups)), (rule.RULE,), tolerant=True)
    assert result.rules == [NAME]
    assert f"read as repeat-per-group (each value stands for {8 // groups}" in result.outcome.changes[0].warning
    x, weights = random(2, 8, 5, 6), affine(groups)
    wanted = by_definition(x, *picked("repeat-per-group", weights), groups)
    assert relative_error(wanted, evaluate(result.model, {"x": x})["y"]) < 1e-6


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("opset", [18, 20])
def test_one_value_per_channel_before_opset_21(rewrite, groups, opset):
    result = rewrite(misfitting(8, GN.format(groups), opset=opset), (rule.RULE,), tolerant=True)
    assert result.rules == [NAME]
    assert operators(result.model) == ["GroupNormalization", "Mul", "Add"]
    assert "read as per-channel" in result.outcome.changes[0].warning
    x, weights = random(2, 8, 5, 6), affine(8)
    wanted = by_definition(x, weights["s"].astype(np.float64), weights["b"].astype(np.float64), groups)
    assert relative_error(wanted, evaluate(result.model, {"x": x})["y"]) < 1e-6


@pytest.mark.parametrize(("name", "count"), [("tile", 2), ("take-head", 20)])
def test_a_reading_of_values_per_group_before_opset_21(rewrite, name, count):
    result = rewrite(misfitting(count, GN.format(4), opset=18), (rule.RULE,), settings=reading(name), tolerant=True)
    assert result.rules == [NAME]
    weights = affine(count)
    scale, bias = (np.repeat([weights[n][PICKS[name](group, count)] for group in range(4)], 2) for n in ("s", "b"))
    x = random(2, 8, 5, 6)
    assert relative_error(by_definition(x, scale, bias, 4), evaluate(result.model, {"x": x})["y"]) < 1e-6


def test_ones_for_every_channel_before_opset_21_are_no_repetition_of_the_first_ones(rewrite):
    """Parameters as they are initialized would repeat their head bit for bit."""
    weights = {"s": np.ones(8, np.float32), "b": np.zeros(8, np.float32)}
    result = rewrite(misfitting(node=GN.format(4), opset=18, weights=weights), (rule.RULE,), tolerant=True)
    assert "read as per-channel" in result.outcome.changes[0].warning


def test_channels_last(rewrite):
    result = rewrite(misfitting(16, shape="2, 5, 6, 16"), (rule.RULE,), tolerant=True)
    assert result.rules == [NAME]
    assert operators(result.model) == ["Transpose", "InstanceNormalization", "Transpose"]
    x, weights = random(2, 5, 6, 16), affine(16)
    wanted = standardized(x.astype(np.float64), (1, 2)) * weights["s"] + weights["b"]
    assert relative_error(wanted, evaluate(result.model, {"x": x})["y"]) < 1e-6


def test_a_checkpoint_has_the_right_ones(rewrite):
    right = affine(8)
    checkpoint = Checkpoint(Path("w.safetensors"), dict.fromkeys(right, 8), right.__getitem__)
    result = rewrite(misfitting(), (rule.RULE,), settings=RewriteSettings(checkpoint=checkpoint), tolerant=True)
    assert result.rules == [NAME]
    x = random(2, 8, 5, 6)
    wanted = by_definition(x, right["s"].astype(np.float64), right["b"].astype(np.float64))
    assert relative_error(wanted, evaluate(result.model, {"x": x})["y"]) < 1e-6


@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([1, 2, 4]), st.integers(2, 4), st.booleans(), st.integers(0, 2**16))
def test_any_grouping_whose_parameters_are_of_the_other_opset(rewrite, groups, per_group, newer, seed):
    channels = groups * per_group
    rng = np.random.default_rng(seed)
    count = groups if newer else channels
    weights = {n: rng.standard_normal(count).astype(np.float32) for n in ("s", "b")}
    shape = (2, channels, 3, 2)
    node, opset = GN.format(groups), 21 if newer else 18
    model = misfitting(node=node, shape=", ".join(map(str, shape)), opset=opset, weights=weights)
    result = rewrite(model, (rule.RULE,), tolerant=True)
    assert result.rules == [NAME]
    x = rng.standard_normal(shape).astype(np.float32)
    scale, bias = (np.repeat(weights[n].astype(np.float64), channels // count) for n in ("s", "b"))
    assert relative_error(by_definition(x, scale, bias, groups), evaluate(result.model, {"x": x})["y"]) < 1e-5


SPOILT = {"s": np.array([1, np.nan, 1, 1], np.float32), "b": affine(4)["b"]}
TILE = RewriteSettings(mismatch={"norm": "tile"})
REFUSALS = [
    Refusal(
        data_channels.type_and_rank_are_known, unknown_rank(IN, affine(3)), "type or rank of the data of norm is not known"
    ),
    Refusal(group_parameters.groups_divide_channels, misfitting(node=GN.format(3)), "norm has 3 groups for 8 channels"),
    Refusal(readings.counts_do_not_fit, misfitting(8), "the parameters of norm fit"),
    Refusal(readings.counts_do_not_fit, misfitting(8, GN.format(4)), "the parameters of norm fit"),
    Refusal(
        readings.one_reading_is_certain,
        misfitting(),
        "nothing in the file says which reading is meant: scale and bias hold 4 values, but axis 1 of x [2, 8, 5, 6] has 8",
    ),
    Refusal(readings.one_reading_is_certain, misfitting(4, GN.format(2)), "nothing in the file says which reading is meant"),
    Refusal(readings.one_reading_is_certain, misfitting(3), "no reading is possible"),
    Refusal(rule.values_are_finite, misfitting(weights=SPOILT), "s is not finite", TILE),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE, tolerant=True)


def test_a_second_pass_changes_nothing(rewrite):
    twice = rewrite(rewrite(misfitting(1), tolerant=True).model)
    assert twice.outcome.changes == []
