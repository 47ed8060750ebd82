"""batchnorm-batch-statistics: training mode as it is written, every output, and the numbers."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from tests.models import batchnorm, operators, parse, random
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.profile.rewriting import RewriteSettings
from trtnorm_cli.rewrite.parts import batchnorm as shared
from trtnorm_cli.rewrite.parts import data_channels, training
from trtnorm_cli.rewrite.rules import batchnorm_batch_statistics as rule

NAME = rule.RULE.name
REDUCTIONS = ["ReduceMean", "Sub", "Mul", "ReduceMean", "Add", "Sqrt", "Div", "Mul", "Add"]
EPSILON = np.float64(np.float32(1e-5))


def bn(
    shape: str = "N, 4, 5, 6",
    attributes: str = "training_mode=1, momentum=0.7",
    outputs: str = "y, rm, rv",
    graph_outputs: str = "float[] y",
    opset: int = 17,
    kind: str = "float",
    parameters: str = "gamma, beta, mu, var",
    inputs: str = "",
    **weights: np.ndarray,
) -> onnx.ModelProto:
    graph = (
        f"g ({kind}[{shape}] x{inputs}) => ({graph_outputs}) "
        f"{{ [bn] {outputs} = BatchNormalization <{attributes}> (x, {parameters}) }}"
    )
    return parse(graph, {**batchnorm(4), **weights}, opset=opset)


def expected(x: np.ndarray, weights: dict[str, np.ndarray], keep: float = 0.7) -> dict[str, np.ndarray]:
    """Algorithm 1 of Ioffe & Szegedy, and running statistics as ONNX defines them, in float64."""
    x = x.astype(np.float64)
    axes = tuple(axis for axis in range(x.ndim) if axis != 1)
    mean, variance = x.mean(axis=axes), ((x - x.mean(axis=axes, keepdims=True)) ** 2).mean(axis=axes)
    gamma, beta, mu, var = (weights[name].astype(np.float64) for name in ("gamma", "beta", "mu", "var"))

    def along(v: np.ndarray) -> np.ndarray:
        return v.reshape(-1, *[1] * (x.ndim - 2))

    y = (x - along(mean)) / along(np.sqrt(variance + EPSILON)) * along(gamma) + along(beta)
    keep = float(np.float32(keep))
    return {"y": y, "rm": mu * keep + mean * (1 - keep), "rv": var * keep + variance * (1 - keep), "sm": mean}


def run(model: onnx.ModelProto, x: np.ndarray, **feeds: np.ndarray) -> dict[str, np.ndarray]:
    values = ReferenceEvaluator(model).run(None, {"x": x, **feeds})
    return dict(zip((output.name for output in model.graph.output), values, strict=True))


def assert_close(got: np.ndarray, wanted: np.ndarray, limit: float = 2e-6) -> None:
    assert got.shape == wanted.shape
    assert np.max(np.abs(got - wanted)) <= limit * np.max(np.abs(wanted))


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [("N, 4", (9, 4)), ("N, 4, 7", (3, 4, 7)), ("N, 4, H, W", (3, 4, 5, 6)), ("2, 4, 3, 2, 5", (2, 4, 3, 2, 5))],
)
def test_every_rank(rewrite, shape, sizes):
    model = bn(shape)
    result = rewrite(model, pins={"x": sizes})
    assert result.rules == [NAME]
    assert operators(result.model) == REDUCTIONS
    x = random(*sizes)
    assert_close(run(result.model, x)["y"], expected(x, batchnorm(4))["y"])


@pytest.mark.parametrize(
    ("opset", "attributes", "outputs"),
    [
        (7, "momentum=0.7", "y, rm, rv, sm, sv"),
        (9, "momentum=0.7", "y, rm, rv, sm, sv"),
        (13, "momentum=0.7", "y, rm"),
        (14, "training_mode=1, momentum=0.7", "y, rm, rv"),
        (18, "training_mode=1, momentum=0.7", "y, rm, rv"),
        (21, "training_mode=1, momentum=0.7", "y"),
    ],
)
def test_every_opset(rewrite, opset, attributes, outputs):
    result = rewrite(bn(opset=opset, attributes=attributes, outputs=outputs))
    assert result.rules == [NAME]
    assert operators(result.model) == REDUCTIONS
    x = random(2, 4, 5, 6)
    assert_close(run(result.model, x)["y"], expected(x, batchnorm(4))["y"])


@pytest.mark.parametrize("used", [["rm"], ["rv"], ["rm", "rv"]])
def test_running_statistics_that_are_used(rewrite, used):
    outputs = ", ".join(["float[] y", *(f"float[4] {name}" for name in used)])
    result = rewrite(bn(graph_outputs=outputs))
    assert result.rules == [NAME]
    assert "BatchNormalization" not in operators(result.model)
    x = random(2, 4, 5, 6)
    got, wanted = run(result.model, x), expected(x, batchnorm(4))
    assert got.keys() == {"y", *used}
    for name, value in got.items():
        assert_close(value, wanted[name])


def test_the_mean_of_the_batch_in_opset_9(rewrite):
    used = "float[] y, float[4] sm, float[4] rv"
    result = rewrite(bn(opset=9, attributes="momentum=0.7", outputs="y, rm, rv, sm, sv", graph_outputs=used))
    assert result.rules == [NAME]
    x = random(2, 4, 5, 6)
    got, wanted = run(result.model, x), expected(x, batchnorm(4))
    for name in ("y", "sm", "rv"):
        assert_close(got[name], wanted[name])


def test_running_statistics_keep_their_type(rewrite):
    """Half data with float32 statistics, which is legal since opset 15."""
    half = {name: batchnorm(4)[name].astype(np.float16) for name in ("gamma", "beta")}
    result = rewrite(bn(kind="float16", graph_outputs="float16[] y, float[4] rm, float[4] rv", **half))
    assert result.rules == [NAME]
    assert operators(result.model)[0] == "Cast"
    x = random(2, 4, 5, 6, dtype=np.float16)
    got, wanted = run(result.model, x), expected(x, {**batchnorm(4), **half})
    assert (got["y"].dtype, got["rm"].dtype) == (np.float16, np.float32)
    assert_close(got["rm"], wanted["rm"])
    assert_close(got["y"].astype(np.float64), wanted["y"], 2e-3)


def test_a_batch_of_one_is_one_instance_normalization(rewrite):
    result = rewrite(bn("1, 4, 5, 6"))
    assert result.rules == [NAME]
    assert operators(result.model) == ["InstanceNormalization"]
    x = random(1, 4, 5, 6)
    assert_close(run(result.model, x)["y"], expected(x, batchnorm(4))["y"])


@pytest.mark.parametrize("shape", ["1, 4, 1, 1", "1, 4", "1, 4, H, W", "2, 4, 5, 6"])
def test_no_instance_normalization_where_it_is_not_the_same_or_could_be_one_element(rewrite, shape):
    result = rewrite(bn(shape), pins={"x": tuple(int(s) if s.isdigit() else 3 for s in shape.split(", "))})
    assert result.rules == [NAME]
    assert operators(result.model) == REDUCTIONS


def test_no_instance_normalization_in_float64(rewrite):
    """ONNX Runtime has no kernel for it."""
    double = {name: value.astype(np.float64) for name, value in batchnorm(4).items()}
    result = rewrite(bn("1, 4, 5, 6", kind="double", graph_outputs="double[] y", **double))
    assert result.rules == [NAME]
    assert operators(result.model) == REDUCTIONS


def test_running_statistics_of_a_batch_of_one(rewrite):
    result = rewrite(bn("1, 4, 5, 6", graph_outputs="float[] y, float[4] rm"))
    assert "InstanceNormalization" not in operators(result.model)
    x = random(1, 4, 5, 6)
    assert_close(run(result.model, x)["rm"], expected(x, batchnorm(4))["rm"])


def test_scale_and_bias_of_run_time(rewrite):
    result = rewrite(bn(parameters="g, b, mu, var", inputs=", float[4] g, float[4] b"))
    assert result.rules == [NAME]
    x, g, b = random(2, 4, 5, 6), random(4, seed=1), random(4, seed=2)
    assert_close(run(result.model, x, g=g, b=b)["y"], expected(x, {**batchnorm(4), "gamma": g, "beta": b})["y"])


def test_the_warning_says_cause_and_way_out(rewrite):
    (change,) = rewrite(bn()).outcome.changes
    assert "exported without model.eval()" in change.warning
    assert change.warning.splitlines()[-1] == "training_mode: eval"
    assert "training_mode=1" in change.warning
    assert not change.changes_meaning


def test_the_warning_of_old_opsets_names_the_outputs(rewrite):
    (change,) = rewrite(bn(opset=9, attributes="momentum=0.9", outputs="y, rm, rv, sm, sv")).outcome.changes
    assert "5 outputs, which is training mode before opset 14" in change.warning


NOT_TRACKED = parse(
    "g (float[2, 4, 5, 6] x) => (float[] y) {"
    " m = ReduceMean <axes=[0, 2, 3], keepdims=0> (x) k = ReduceMean <axes=[0, 2, 3]> (x) d = Sub(x, k) q = Mul(d, d)"
    " v = ReduceMean <axes=[0, 2, 3], keepdims=0> (q)"
    " [bn] y, rm, rv = BatchNormalization <training_mode=1> (x, gamma, beta, m, v) }",
    {name: value for name, value in batchnorm(4).items() if name in ("gamma", "beta")},
)


@pytest.mark.parametrize("policy", ["as-written", "eval", "refuse"])
def test_without_running_statistics_the_batch_is_meant_whatever_the_policy(rewrite, policy):
    """``track_running_stats=False``: there is nothing else to use, and nothing to warn of."""
    result = rewrite(NOT_TRACKED, settings=RewriteSettings(training_mode=policy))
    assert result.rules == [NAME]
    assert result.outcome.changes[0].warning == ""
    assert operators(result.model) == REDUCTIONS
    x = random(2, 4, 5, 6)
    assert_close(run(result.model, x)["y"], expected(x, batchnorm(4))["y"])


UNKNOWN_RANK = parse(
    "g (float[N, 4] a, int64[K] s) => (float[] y) { x = Reshape(a, s)"
    " [bn] y, m, v = BatchNormalization <training_mode=1> (x, gamma, beta, mu, var) }",
    batchnorm(4),
)
PER_ELEMENT = {name: np.ones((4, 5, 6), np.float32) for name in ("gamma", "beta", "mu", "var")}
FIVE = "y, a, b, c, sv"

REFUSALS = [
    Refusal(training.is_training, bn(attributes="epsilon=0.001", outputs="y"), "bn is not in training mode"),
    *(
        Refusal(
            rule.the_batch_is_meant, bn(), f"the build profile says training_mode: {mode}", RewriteSettings(training_mode=mode)
        )
        for mode in ("eval", "refuse")
    ),
    Refusal(shared.is_per_channel, bn(opset=7, attributes="spatial=0", outputs=FIVE, **PER_ELEMENT), "bn has spatial=0"),
    Refusal(data_channels.type_and_rank_are_known, UNKNOWN_RANK, "type or rank of the data of bn is not known"),
    Refusal(
        rule.scale_and_bias_fit,
        bn(gamma=np.ones(3, np.float32)),
        "gamma has 3 values, but the data of bn has 4 channels",
    ),
    Refusal(rule.scale_and_bias_fit, bn(beta=np.ones((1, 4), np.float32)), "beta has shape [1, 4], not one axis"),
    Refusal(
        rule.saved_variance_is_not_used,
        bn(opset=9, attributes="momentum=0.7", outputs=FIVE, graph_outputs="float[] y, float[4] sv"),
        "sv, the saved variance of bn, is used",
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE, tolerant=True)


def test_a_residual_keeps_the_data(rewrite):
    model = parse(
        "g (float[2, 4, 5, 6] a) => (float[] z, float[] x) { x = Relu(a)"
        " [bn] y, m, v = BatchNormalization <training_mode=1> (x, gamma, beta, mu, var) z = Add(y, x) }",
        batchnorm(4),
    )
    result = rewrite(model)
    assert result.rules == [NAME]
    a = random(2, 4, 5, 6)
    got = dict(zip("zx", ReferenceEvaluator(result.model).run(None, {"a": a}), strict=True))
    assert_close(got["z"], expected(np.maximum(a, 0), batchnorm(4))["y"] + np.maximum(a, 0))


def test_a_second_pass_changes_nothing(rewrite):
    twice = rewrite(rewrite(bn()).model)
    assert twice.outcome.changes == []
    assert twice.outcome.rejections == ()
