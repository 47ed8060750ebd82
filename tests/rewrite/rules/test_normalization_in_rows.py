"""normalization-in-rows: instances and groups along rows, where builds decide."""

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
from trtnorm_cli.rewrite.rules import normalization_in_rows as rule

NAME = rule.RULE.name
MEASURED = RewriteSettings(measured=True)
PINS = {"x": (2, 4, 5, 6)}
ROWS = ["Reshape", "ReduceMean", "Sub", "Mul", "ReduceMean", "Add", "Sqrt", "Div", "Reshape", "Mul", "Add"]
INSTANCE, GROUP = "y = InstanceNormalization(x, s, b)", "y = GroupNormalization <num_groups=2> (x, s, b)"


def instance(shape: str = "N, 4, 5, 6", node: str = INSTANCE, **rest) -> onnx.ModelProto:
    rest = {"weights": affine(4), **rest}
    return norm(node, shape=shape, opset=21 if "Group" in node else 17, **rest)


@pytest.mark.parametrize("node", [INSTANCE, GROUP])
def test_small_rows(rewrite, node):
    before = instance(node=node)
    result = rewrite(before, (rule.RULE,), PINS, settings=MEASURED)
    assert result.rules == [NAME]
    assert operators(result.model) == ROWS
    assert difference(before, result.model, PINS) < 2e-6


@pytest.mark.parametrize("node", [INSTANCE, GROUP])
def test_rows_of_unknown_length(rewrite, node):
    before = instance("N, 4, H, W", node)
    result = rewrite(before, (rule.RULE,), PINS, settings=MEASURED)
    assert operators(result.model) == [*ROWS[:8], "Shape", *ROWS[8:]]
    assert difference(before, result.model, PINS) < 2e-6


@pytest.mark.parametrize("shape", ["N, 4, 7", "N, 4, 2, 3, 5"])
def test_other_ranks(rewrite, shape):
    sizes = {"x": tuple(2 if size == "N" else int(size) for size in shape.split(", "))}
    before = instance(shape)
    result = rewrite(before, (rule.RULE,), sizes, settings=MEASURED)
    assert operators(result.model) == ROWS
    assert difference(before, result.model, sizes) < 2e-6


def test_large_data_of_fixed_sizes(rewrite):
    """The replacement holds to these sizes, so that no smaller data prove it."""
    sizes = {"x": (1, 512, 3199)}
    result = rewrite(instance("1, 512, 3199", weights=affine(512)), (rule.RULE,), sizes, settings=MEASURED)
    assert result.rules == [NAME]


def test_half_precision_is_computed_in_float32(rewrite):
    before = instance(kind="float16", weights=affine(4, dtype=np.float16))
    result = rewrite(before, (rule.RULE,), PINS, settings=MEASURED)
    assert operators(result.model) == ["Reshape", "Cast", *ROWS[1:8], "Cast", *ROWS[8:]]


@pytest.mark.parametrize(
    ("node", "optimize", "changed"),
    [
        (INSTANCE, "always", []),
        (INSTANCE, "never", []),
        (INSTANCE, "kernels", [NAME]),
        (GROUP, "always", [NAME]),
        (GROUP, "never", []),
    ],
)
def test_what_is_known_and_what_builds_decide(tmp_path, node, optimize, changed):
    rewriting = rewrite_model(loaded(instance(node=node), tmp_path), settings=RewriteSettings(optimize=optimize))
    assert [change.rule for change in rewriting.changes] == changed


REFUSALS = [
    Refusal(rule.fewer_kernels_are_known_or_measured, instance(), "builds find out", RewriteSettings()),
    Refusal(rule.fewer_kernels_are_known_or_measured, instance("N, 4, H, W", GROUP), "builds find out", RewriteSettings()),
    Refusal(
        rule.no_plugin_is_wanted,
        instance(),
        "a plugin is to take its place",
        RewriteSettings(measured=True, instance_norm=Implementations("plugin")),
    ),
    Refusal(rule.type_and_channels_are_known, instance("N, C, 5, 6"), "the number of channels of x is not known", MEASURED),
    Refusal(
        rule.type_and_channels_are_known,
        instance(kind="double", weights=affine(4, dtype=np.float64)),
        "the type of x is not one",
        MEASURED,
    ),
    Refusal(rule.parameters_are_per_channel, instance(weights=affine(3)), "s has shape [3] for 4 channels", MEASURED),
    Refusal(
        rule.parameters_are_per_channel,
        instance(node="y = GroupNormalization <num_groups=3> (x, s, b)"),
        "3 groups do not divide 4 channels",
        MEASURED,
    ),
    Refusal(rule.rows_are_not_known_to_be_long, instance("N, 4, 128, 128"), "a row would have 16384 values", MEASURED),
    Refusal(rule.rows_are_not_known_to_be_long, instance("N, 4, 1, 1"), "a row would have 1 values", MEASURED),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE, tolerant=True)


def test_a_residual_connection_keeps_the_data(rewrite):
    before = instance(node="z = InstanceNormalization(x, s, b) y = Add(z, x)")
    result = rewrite(before, (rule.RULE,), PINS, settings=MEASURED)
    assert operators(result.model) == [*ROWS, "Add"]


def test_a_second_pass_changes_nothing(rewrite):
    once = rewrite(instance(), pins=PINS, settings=MEASURED)
    assert once.rules == [NAME]
    assert rewrite(once.model, pins=PINS, settings=MEASURED).outcome.changes == []


@pytest.mark.rtx
def test_kernels(tmp_path):
    before = norm(
        INSTANCE + " k = Relu(y) o = Conv <pads=[1, 1, 1, 1]> (k, w)",
        {**affine(64), "w": random(64, 64, 3, 3)},
        "2, 64, 28, 28",
        before="x = Conv <pads=[1, 1, 1, 1]> (a, w)",
    )
    before.graph.output[0].name = "o"
    rewritten = rewrite_model(loaded(before, tmp_path), settings=RewriteSettings(optimize="kernels")).model
    assert (kernels(before, tmp_path), kernels(rewritten, tmp_path)) == (7, 5)
