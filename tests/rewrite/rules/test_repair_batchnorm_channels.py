"""repair-batchnorm-channels: every reading, what makes it certain, and refusals that name the way out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.models import batchnorm, operators, parse, random
from tests.numerics import relative_error
from tests.oracle import evaluate
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.checkpoint import Checkpoint
from trtnorm_cli.profile.rewriting import RewriteSettings
from trtnorm_cli.rewrite.parts import batchnorm as shared
from trtnorm_cli.rewrite.parts import channel_readings as readings
from trtnorm_cli.rewrite.parts import data_channels
from trtnorm_cli.rewrite.rules import repair_batchnorm_channels as rule

NAME = rule.RULE.name
NAMES = ("gamma", "beta", "mu", "var")
EPSILON = np.float64(np.float32(1e-5))
# What each channel of 8 takes from a shorter or longer vector, written out.
PICKS: dict[str, Callable[[int, int], int]] = {
    "repeat-per-group": lambda channel, count: channel // (8 // count),
    "tile": lambda channel, count: channel % count,
    "take-head": lambda channel, count: channel,
}


def bn(
    shape: str = "N, 8, 5, 6",
    count: int = 4,
    before: str = "",
    kind: str = "float",
    attributes: str = "",
    outputs: str = "y",
    opset: int = 17,
    **weights: np.ndarray,
) -> onnx.ModelProto:
    dtype = {"float": np.float32, "float16": np.float16, "double": np.float64}[kind]
    source = "a" if before else "x"
    graph = (
        f"g ({kind}[{shape}] {source}) => ({kind}[] y) "
        f"{{ {before} [bn] {outputs} = BatchNormalization {attributes}(x, gamma, beta, mu, var) }}"
    )
    return parse(graph, {**batchnorm(count, dtype), **weights}, opset=opset)


def reading(name: str) -> RewriteSettings:
    return RewriteSettings(mismatch={"bn": name})


def normalized(x: np.ndarray, weights: dict[str, np.ndarray], axis: int = 1) -> np.ndarray:
    along = [1] * x.ndim
    along[axis] = -1
    gamma, beta, mu, var = (weights[name].astype(np.float64).reshape(along) for name in NAMES)
    return (x.astype(np.float64) - mu) / np.sqrt(var + EPSILON) * gamma + beta


def picked(name: str, weights: dict[str, np.ndarray], channels: int = 8) -> dict[str, np.ndarray]:
    return {
        key: np.array([value[PICKS[name](c, value.size)] if value.size != channels else value[c] for c in range(channels)])
        for key, value in weights.items()
        if key in NAMES
    }


def error(model: onnx.ModelProto, x: np.ndarray, wanted: np.ndarray, name: str = "x") -> float:
    return relative_error(wanted, evaluate(model, {name: x})["y"])


@pytest.mark.parametrize(
    ("name", "count"), [("repeat-per-group", 4), ("repeat-per-group", 2), ("tile", 4), ("tile", 2), ("take-head", 20)]
)
@pytest.mark.parametrize(
    ("kind", "dtype", "limit"), [("float", np.float32, 1e-6), ("float16", np.float16, 1e-6), ("double", np.float64, 1e-12)]
)
def test_a_reading_that_the_profile_names(rewrite, name, count, kind, dtype, limit):
    model = bn(count=count, kind=kind)
    result = rewrite(model, (rule.RULE,), settings=reading(name), tolerant=True)
    assert result.rules == [NAME]
    (change,) = result.outcome.changes
    assert change.changes_meaning
    assert f"read as {name}" in change.warning
    assert change.warning.endswith("because the build profile says so")
    x = random(2, 8, 5, 6)
    assert error(result.model, x, normalized(x, picked(name, batchnorm(count, dtype)))) < limit


@pytest.mark.parametrize(
    ("shape", "sizes", "axis"), [("N, 8, 5, 4", (2, 8, 5, 4), 3), ("4, 8, 5, 6", (4, 8, 5, 6), 0), ("N, 8, 4", (2, 8, 4), 2)]
)
@pytest.mark.parametrize("asked", [True, False])
def test_another_axis(rewrite, shape, sizes, axis, asked):
    """The only axis that is as long as the parameters, named by the user or found."""
    model = bn(shape)
    result = rewrite(model, (rule.RULE,), {"x": sizes}, settings=reading(f"axis-{axis}") if asked else None, tolerant=True)
    assert result.rules == [NAME]
    assert operators(result.model) == ["Mul", "Add"]
    (change,) = result.outcome.changes
    assert change.changes_meaning == asked
    assert change.compared_with_reference
    x = random(*sizes)
    assert error(result.model, x, normalized(x, batchnorm(4), axis)) < 1e-6


def test_the_lost_batch_of_a_volume(rewrite):
    """16 channels of 64³ without a batch axis: TensorRT says that the count is 16 and 64 was expected."""
    model = bn("16, 64, 64, 64", 16)
    result = rewrite(model, (rule.RULE,), tolerant=True)
    assert result.rules == [NAME]
    assert "read as axis-0" in result.outcome.changes[0].warning
    assert "mismatch: {bn: repeat-per-group}" in result.outcome.changes[0].warning
    x = random(16, 64, 64, 64)
    assert error(result.model, x, normalized(x, batchnorm(16), 0)) < 1e-6


def test_channels_last(rewrite):
    result = rewrite(bn("N, 5, 6, 8", 8), (rule.RULE,), tolerant=True)
    assert result.rules == [NAME]
    x = random(2, 5, 6, 8)
    assert error(result.model, x, normalized(x, batchnorm(8), 3)) < 1e-6


def test_half_precision_along_another_axis(rewrite):
    result = rewrite(bn("N, 8, 5, 4", kind="float16"), (rule.RULE,), tolerant=True)
    assert operators(result.model) == ["Cast", "Mul", "Add", "Cast"]
    x = random(2, 8, 5, 4)
    assert error(result.model, x, normalized(x, batchnorm(4, np.float16), 3)) < 1e-6


def test_one_value_per_group_of_the_convolution(rewrite):
    model = bn("N, 4, 5, 6", before="x = Conv <group=4> (a, w)", w=random(8, 1, 1, 1))
    result = rewrite(model, (rule.RULE,), tolerant=True)
    assert result.rules == [NAME]
    assert "because the graph has 4 groups here" in result.outcome.changes[0].warning
    a = random(2, 4, 5, 6)
    x = a.astype(np.float64)[:, np.arange(8) // 2] * random(8, 1, 1, 1).reshape(8, 1, 1)
    assert error(result.model, a, normalized(x, picked("repeat-per-group", batchnorm(4))), "a") < 1e-6


def test_a_tail_that_repeats_the_head(rewrite):
    doubled = {name: np.tile(value, 2) for name, value in batchnorm(8).items()}
    result = rewrite(bn(count=16, **doubled), (rule.RULE,), tolerant=True)
    assert result.rules == [NAME]
    warning = result.outcome.changes[0].warning
    assert "read as take-head" in warning
    assert warning.endswith("because the rest repeats them bit for bit")
    x = random(2, 8, 5, 6)
    assert error(result.model, x, normalized(x, batchnorm(8))) < 1e-6


def test_one_parameter_of_four(rewrite):
    doubled = np.tile(batchnorm(8)["mu"], 2)
    result = rewrite(bn(count=8, mu=doubled), (rule.RULE,), tolerant=True)
    assert result.rules == [NAME]
    x = random(2, 8, 5, 6)
    assert error(result.model, x, normalized(x, batchnorm(8))) < 1e-6


def checkpoint(**tensors: np.ndarray) -> Checkpoint:
    return Checkpoint(Path("weights.pt"), {name: value.size for name, value in tensors.items()}, tensors.__getitem__)


def test_the_checkpoint_has_them(rewrite):
    right = batchnorm(8, np.float64, seed=3)
    settings = RewriteSettings(checkpoint=checkpoint(**right))
    result = rewrite(bn(), (rule.RULE,), settings=settings, tolerant=True)
    assert result.rules == [NAME]
    (change,) = result.outcome.changes
    assert change.changes_meaning
    assert "because weights.pt has them under their names" in change.warning
    x = random(2, 8, 5, 6)
    assert error(result.model, x, normalized(x, {name: value.astype(np.float32) for name, value in right.items()})) < 1e-6


def test_the_checkpoint_comes_before_what_the_file_suggests(rewrite):
    right = batchnorm(8, seed=3)
    model = bn("N, 8, 5, 4")
    result = rewrite(model, (rule.RULE,), settings=RewriteSettings(checkpoint=checkpoint(**right)), tolerant=True)
    x = random(2, 8, 5, 4)
    assert error(result.model, x, normalized(x, right)) < 1e-6


def test_a_checkpoint_with_other_sizes_does_not_help(rewrite):
    settings = RewriteSettings(checkpoint=checkpoint(**batchnorm(4)))
    result = rewrite(bn(), (rule.RULE,), settings=settings, tolerant=True)
    assert result.rules == []


SPOILT = np.array([1, np.nan, 1, 1], np.float32)
UNKNOWN = parse(
    "g (float[N, 4] a, int64[K] s) => (float[] y) { x = Reshape(a, s) [bn] y = BatchNormalization(x, gamma, beta, mu, var) }",
    batchnorm(4),
)
ALL = reading("repeat-per-group")
REFUSALS = [
    Refusal(shared.is_per_channel, bn(attributes="<spatial=0>", opset=7), "spatial=0", ALL),
    Refusal(data_channels.type_and_rank_are_known, UNKNOWN, "type or rank of the data of bn is not known", ALL),
    Refusal(readings.counts_do_not_fit, bn(count=8), "the parameters of bn fit", ALL),
    Refusal(readings.counts_do_not_fit, bn("N, C, 5, 6"), "or its channel count is not known", ALL),
    Refusal(
        readings.one_reading_is_certain,
        bn(),
        "nothing in the file says which reading is meant: scale, bias, mean and variance hold 4 values, but axis 1 of x "
        "[N, 8, 5, 6] has 8; the 8 come from the input x; no axis of x has 4",
    ),
    Refusal(readings.one_reading_is_certain, bn("N, 8, 4, 4"), "axis 2 and axis 3 of x has 4"),
    Refusal(
        readings.one_reading_is_certain,
        bn("N, 4, 4, 5", before="x = Conv <group=4> (a, w)", w=random(8, 1, 1, 1)),
        "several readings are supported by the file",
    ),
    Refusal(readings.one_reading_is_certain, bn(count=3), "no reading is possible"),
    Refusal(readings.one_reading_is_certain, bn(), "asks for take-head, which is not possible here", reading("take-head")),
    Refusal(readings.one_reading_is_certain, bn(), "asks for axis-2, which is not possible here", reading("axis-2")),
    Refusal(rule.values_are_finite, bn(gamma=SPOILT), "gamma is not finite", ALL),
    Refusal(rule.values_are_finite, bn(var=-np.ones(4, np.float32)), "variance + epsilon of bn is not positive", ALL),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE, tolerant=True)


@pytest.mark.parametrize("opset", [9, 17])
@pytest.mark.parametrize("name", ["repeat-per-group", "tile"])
def test_training_mode_stays(rewrite, opset, name):
    """Scale and bias are read as asked; the statistics are those of the batch all the same."""
    form = {"attributes": "<training_mode=1>", "outputs": "y, m, v"} if opset >= 14 else {"outputs": "y, m, v, sm, sv"}
    result = rewrite(bn("2, 8, 5, 6", opset=opset, **form), settings=reading(name), tolerant=True)
    assert result.rules == [NAME, "batchnorm-batch-statistics"]
    x = random(2, 8, 5, 6).astype(np.float64)
    statistics = {"mu": x.mean(axis=(0, 2, 3)), "var": x.var(axis=(0, 2, 3))}
    assert error(result.model, x, normalized(x, {**picked(name, batchnorm(4)), **statistics})) < 1e-6


def test_training_mode_is_never_along_another_axis(rewrite):
    model = bn("2, 8, 5, 4", attributes="<training_mode=1>", outputs="y, m, v")
    result = rewrite(model, (rule.RULE,), tolerant=True)
    assert "nothing in the file says which reading is meant" in result.reason(NAME)


def test_running_statistics_of_a_misfit_are_not_handed_out(rewrite):
    model = bn("2, 8, 5, 6", attributes="<training_mode=1>", outputs="y, m, v")
    model.graph.output.append(onnx.helper.make_tensor_value_info("m", 1, [4]))
    result = rewrite(model, (rule.RULE,), settings=ALL, tolerant=True)
    assert result.reason(NAME) == "m, a further output of bn, is used"


def test_a_channel_count_that_the_user_gives_counts(rewrite):
    result = rewrite(bn("N, C, 5, 6"), (rule.RULE,), {"x": (2, 8, 5, 6)}, settings=ALL, tolerant=True)
    assert result.rules == [NAME]


def test_a_second_pass_changes_nothing(rewrite):
    once = rewrite(bn(), (rule.RULE,), settings=ALL, tolerant=True)
    twice = rewrite(once.model, (rule.RULE,), settings=ALL, tolerant=True)
    assert twice.outcome.changes == []


def test_a_vector_has_no_axis_for_channels(rewrite):
    """ONNX takes it for a batch of one channel; its one axis is no place that the channels were moved to."""
    result = rewrite(bn("4", 4), (rule.RULE,), tolerant=True)
    assert result.rules == []
    assert "x [4] is a batch of one channel" in result.reason(NAME)
