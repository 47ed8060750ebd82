"""batchnorm-to-inference: only on request, with the running statistics, and never silently."""

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
from trtnorm_cli.rewrite.rules import batchnorm_to_inference as rule

NAME = rule.RULE.name
EVAL = RewriteSettings(training_mode="eval")


def bn(
    kind: str = "float",
    shape: str = "N, 4, 5, 6",
    attributes: str = "training_mode=1",
    outputs: str = "y, rm, rv",
    graph_outputs: str = "float[] y",
    opset: int = 17,
    **weights: np.ndarray,
) -> onnx.ModelProto:
    dtype = {"float": np.float32, "float16": np.float16, "double": np.float64}[kind]
    graph = (
        f"g ({kind}[{shape}] x) => ({graph_outputs}) "
        f"{{ [bn] {outputs} = BatchNormalization <{attributes}> (x, gamma, beta, mu, var) }}"
    )
    return parse(graph, {**batchnorm(4, dtype), **weights}, opset=opset)


def expected(x: np.ndarray, weights: dict[str, np.ndarray]) -> np.ndarray:
    along = (-1, *[1] * (x.ndim - 2))
    gamma, beta, mu, var = (weights[name].astype(np.float64).reshape(along) for name in ("gamma", "beta", "mu", "var"))
    return (x - mu) / np.sqrt(var + np.float64(np.float32(1e-5))) * gamma + beta


@pytest.mark.parametrize("opset", [14, 15, 17, 21])
@pytest.mark.parametrize(
    ("shape", "sizes"), [("N, 4", (3, 4)), ("N, 4, H, W", (2, 4, 5, 6)), ("2, 4, 3, 2, 5", (2, 4, 3, 2, 5))]
)
def test_the_running_statistics_are_used(rewrite, opset, shape, sizes):
    result = rewrite(bn(shape=shape, opset=opset), (rule.RULE,), {"x": sizes}, settings=EVAL)
    assert result.rules == [NAME]
    (node,) = result.model.graph.node
    assert (node.op_type, node.name, list(node.output)) == ("BatchNormalization", "bn", ["y"])
    assert [a.name for a in node.attribute] == []
    x = random(*sizes)
    (got,) = ReferenceEvaluator(result.model).run(None, {"x": x})
    assert np.max(np.abs(got - expected(x, batchnorm(4)))) < 2e-6


@pytest.mark.parametrize("opset", [7, 9, 13])
def test_old_opsets_lose_the_outputs_that_mean_training(rewrite, opset):
    result = rewrite(bn(attributes="epsilon=1e-5", outputs="y, a, b, c, d", opset=opset), (rule.RULE,), settings=EVAL)
    assert result.rules == [NAME]
    assert [list(node.output) for node in result.model.graph.node] == [["y"]]


@pytest.mark.parametrize("kind", ["float16", "double"])
def test_other_types(rewrite, kind):
    result = rewrite(bn(kind, graph_outputs=f"{kind}[] y"), (rule.RULE,), settings=EVAL)
    assert result.rules == [NAME]


def test_running_statistics_that_are_used_are_passed_on(rewrite):
    outputs = "float[] y, float[4] rm, float[4] rv"
    result = rewrite(bn(graph_outputs=outputs), (rule.RULE,), settings=EVAL)
    assert operators(result.model) == ["BatchNormalization", "Identity", "Identity"]
    y, mean, variance = ReferenceEvaluator(result.model).run(None, {"x": random(2, 4, 5, 6)})
    np.testing.assert_array_equal(mean, batchnorm(4)["mu"])
    np.testing.assert_array_equal(variance, batchnorm(4)["var"])
    assert y.shape == (2, 4, 5, 6)


def test_what_is_left_folds_into_the_convolution(rewrite):
    model = parse(
        "g (float[N, 3, 8, 8] x) => (float[] y) { c = Conv(x, w)"
        " [bn] y, m, v = BatchNormalization <training_mode=1> (c, gamma, beta, mu, var) }",
        {"w": random(4, 3, 3, 3), **batchnorm(4)},
    )
    result = rewrite(model, settings=EVAL)
    assert result.rules == [NAME, "fold-batchnorm-conv"]
    assert operators(result.model) == ["Conv"]


def test_the_change_is_marked_and_says_so(rewrite):
    (change,) = rewrite(bn(), (rule.RULE,), settings=EVAL).outcome.changes
    assert change.changes_meaning
    assert change.compared_with_reference
    assert change.warning == (
        "uses its running statistics, because the build profile says training_mode: eval; the file has training_mode=1"
    )


def test_untouched_statistics_are_called_out(rewrite):
    initial = {"mu": np.zeros(4, np.float32), "var": np.ones(4, np.float32)}
    (change,) = rewrite(bn(**initial), (rule.RULE,), settings=EVAL).outcome.changes
    assert "initial values (mean 0, variance 1), which is hardly what is wanted" in change.warning


RUNTIME = parse(
    "g (float[N, 4, 5, 6] x, float[4] m, float[4] v) => (float[] y)"
    " { [bn] y, a, b = BatchNormalization <training_mode=1> (x, gamma, beta, m, v) }",
    {name: value for name, value in batchnorm(4).items() if name in ("gamma", "beta")},
)
UNKNOWN_RANK = parse(
    "g (float[N, 4] a, int64[K] s) => (float[] y) { x = Reshape(a, s)"
    " [bn] y, m, v = BatchNormalization <training_mode=1> (x, gamma, beta, mu, var) }",
    batchnorm(4),
)
PER_ELEMENT = {name: np.ones((4, 5, 6), np.float32) for name in ("gamma", "beta", "mu", "var")}
FIVE = "y, a, b, c, d"

REFUSALS = [
    Refusal(training.is_training, bn(attributes="epsilon=1e-5", outputs="y"), "bn is not in training mode", EVAL),
    Refusal(rule.the_profile_asks_for_it, bn(), "the build profile says training_mode: as-written"),
    Refusal(rule.the_profile_asks_for_it, bn(), "training_mode: refuse", RewriteSettings(training_mode="refuse")),
    Refusal(shared.is_per_channel, bn(attributes="spatial=0", outputs=FIVE, opset=7, **PER_ELEMENT), "spatial=0", EVAL),
    Refusal(
        rule.only_running_statistics_are_used,
        bn(attributes="epsilon=1e-5", outputs=FIVE, graph_outputs="float[] y, float[4] c", opset=9),
        "c, a statistic of the batch made by bn, is used",
        EVAL,
    ),
    Refusal(data_channels.type_and_rank_are_known, UNKNOWN_RANK, "type or rank of the data of bn is not known", EVAL),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE, tolerant=True)


def test_statistics_of_run_time_are_no_running_statistics(rewrite):
    result = rewrite(RUNTIME, (rule.RULE,), settings=EVAL)
    assert result.outcome.changes == []
    assert result.reason(NAME) == "m, input 3 of bn, is computed at run time"


def test_a_second_pass_changes_nothing(rewrite):
    twice = rewrite(rewrite(bn(), (rule.RULE,), settings=EVAL).model, (rule.RULE,), settings=EVAL)
    assert twice.outcome.changes == []
