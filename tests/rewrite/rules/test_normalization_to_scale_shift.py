"""normalization-to-scale-shift: instances by a scale and a shift per channel, where builds decide."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import loaded, operators, random
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.norms import affine, difference, norm
from tests.rewrite.rules.refusals import Refusal
from tests.rewritings import rewrite as rewrite_model
from tests.tensorrt.builds import kernels
from trtnorm_cli.profile.rewriting import Implementations, RewriteSettings
from trtnorm_cli.rewrite.rules import normalization_to_scale_shift as rule

NAME = rule.RULE.name
MEASURED = RewriteSettings(measured=True)
STATISTICS = ["Reshape", "ReduceMean", "Sub", "Mul", "ReduceMean", "Add", "Sqrt"]
FORM = [*STATISTICS, "Div", "Mul", "Sub", "Reshape", "Mul", "Reshape", "Add"]
INSTANCE = "y = InstanceNormalization <epsilon=0.01> (x, s, b)"


def instance(shape: str = "N, 4, 45, 46", opset: int = 17, **rest) -> onnx.ModelProto:
    return norm(INSTANCE, shape=shape, opset=opset, **{"weights": affine(4), **rest})


@pytest.mark.parametrize("opset", [13, 17, 18, 21])
@pytest.mark.parametrize("shape", ["N, 4, 45, 46", "N, 4, H, W", "2, 4, 3, 30, 25"])
def test_large_instances(rewrite, shape, opset):
    sizes = {"N": 2, "H": 45, "W": 46}
    pins = {"x": tuple(sizes.get(size) or int(size) for size in shape.split(", "))}
    before = instance(shape, opset)
    result = rewrite(before, (rule.RULE,), pins, settings=MEASURED)
    assert result.rules == [NAME]
    assert sorted(operators(result.model)) == sorted(FORM)
    assert difference(before, result.model, pins) < 2e-6


def test_a_mean_beside_which_the_deviation_is_small_costs_no_more_digits_than_before(rewrite):
    before = instance(before="x = Add (a, c)", weights={**affine(4), "c": np.array(100, np.float32)})
    result = rewrite(before, (rule.RULE,), {"a": (1, 4, 45, 46)}, settings=MEASURED)
    assert result.rules == [NAME]
    assert difference(before, result.model, {"a": (1, 4, 45, 46)}) < 2e-4


REFUSALS = [
    Refusal(rule.data_is_float32, instance(kind="float16", weights=affine(4, dtype=np.float16)), "cast twice", MEASURED),
    Refusal(rule.instances_are_not_known_to_be_small, instance("N, 4, 5, 6"), "an instance has 30 values only", MEASURED),
    Refusal(rule.type_and_channels_are_known, instance("N, C, 45, 46"), "the number of channels of x is not known", MEASURED),
    Refusal(rule.parameters_are_per_channel, instance(weights=affine(3)), "s has shape [3] for 4 channels", MEASURED),
    Refusal(
        rule.no_plugin_is_wanted,
        instance(),
        "a plugin is to take its place",
        RewriteSettings(measured=True, instance_norm=Implementations("plugin")),
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE, tolerant=True)


@pytest.mark.parametrize(
    ("model", "settings"),
    [(instance(), RewriteSettings()), (instance("N, 4, 2100"), MEASURED)],
    ids=["unmeasured", "in rows"],
)
def test_says_nothing_about(rewrite, model, settings):
    result = rewrite(model, (rule.RULE,), settings=settings)
    assert result.outcome.changes == []
    assert not result.outcome.rejections


def test_a_residual_connection_keeps_the_data(rewrite):
    before = norm("z = InstanceNormalization(x, s, b) y = Add(z, x)", affine(4), "N, 4, 45, 46")
    result = rewrite(before, (rule.RULE,), {"x": (2, 4, 45, 46)}, settings=MEASURED)
    assert operators(result.model)[-1] == "Add"
    assert len(operators(result.model)) == len(FORM) + 1


def test_a_second_pass_changes_nothing(rewrite):
    pins = {"x": (2, 4, 45, 46)}
    once = rewrite(instance(), pins=pins, settings=MEASURED)
    assert once.rules == [NAME]
    assert rewrite(once.model, pins=pins, settings=MEASURED).outcome.changes == []


@pytest.mark.rtx
def test_kernels(tmp_path):
    before = norm(
        "y = InstanceNormalization (x, s, b) k = Relu(y) o = Conv <pads=[1, 1, 1, 1]> (k, w)",
        {**affine(64), "w": random(64, 64, 3, 3)},
        "1, 64, 128, 128",
        before="x = Conv <pads=[1, 1, 1, 1]> (a, w)",
    )
    before.graph.output[0].name = "o"
    rewritten = rewrite_model(loaded(before, tmp_path), settings=RewriteSettings(optimize="kernels")).model
    assert sorted(operators(rewritten)[1:-2]) == sorted(FORM)
    assert kernels(rewritten, tmp_path) <= kernels(before, tmp_path)
