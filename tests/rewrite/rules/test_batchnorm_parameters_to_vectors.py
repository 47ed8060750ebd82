"""batchnorm-parameters-to-vectors: every shape that can mean one thing only becomes [C]; all others are refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.models import batchnorm, loaded, operators, parse, random
from tests.oracle import evaluate
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.refusals import Refusal
from tests.rewritings import rewrite as rewrite_model
from trtnorm_cli.rewrite.parts import batchnorm as shared
from trtnorm_cli.rewrite.parts import data_channels
from trtnorm_cli.rewrite.rules import batchnorm_parameters_to_vectors as rule

NAME = rule.RULE.name
NAMES = ("gamma", "beta", "mu", "var")


def bn(
    shape: str = "N, 4, 5, 6", attributes: str = "", opset: int = 17, outputs: str = "y", **weights: np.ndarray
) -> onnx.ModelProto:
    graph = (
        f"g (float[{shape}] x) => (float[] y) {{ [bn] {outputs} = BatchNormalization {attributes}(x, gamma, beta, mu, var) }}"
    )
    return parse(graph, {**batchnorm(4), **weights}, opset=opset)


def reshaped(*shape: int, names: tuple[str, ...] = NAMES) -> dict[str, np.ndarray]:
    return {name: batchnorm(4)[name].reshape(shape) for name in names}


def assert_like_vectors(result, shape: tuple[int, ...] = (2, 4, 5, 6), **weights: np.ndarray) -> None:
    """The rewritten model computes what the same node with vectors computes."""
    model = bn(", ".join(map(str, shape)), **weights)
    x = random(*shape)
    wanted, got = evaluate(model, {"x": x})["y"], evaluate(result.model, {"x": x})["y"]
    assert np.max(np.abs(wanted - got)) < 1e-12


@pytest.mark.parametrize("shape", [(1, 4, 1, 1), (4, 1, 1), (1, 4), (4, 1), (1, 1, 4)])
def test_shapes_with_one_long_axis(rewrite, shape):
    result = rewrite(bn(**reshaped(*shape)), (rule.RULE,), tolerant=True)
    assert result.rules == [NAME]
    assert operators(result.model) == ["BatchNormalization"]
    assert {tuple(t.dims) for t in result.model.graph.initializer} == {(4,)}
    assert result.outcome.changes[0].warning == ""
    assert_like_vectors(result)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (1, 1, 1, 1)])
def test_one_value_for_all_channels(rewrite, shape):
    single = {name: value.reshape(shape) for name, value in batchnorm(1).items()}
    result = rewrite(bn(**single), (rule.RULE,), tolerant=True)
    assert result.rules == [NAME]
    warning = result.outcome.changes[0].warning
    assert warning == "has one value for 4 channels in scale, bias, mean and variance; it is used for every channel"
    assert_like_vectors(result, **{name: np.repeat(value.reshape(-1), 4) for name, value in single.items()})


def test_some_of_them(rewrite):
    result = rewrite(bn(**reshaped(1, 4, 1, 1, names=("mu",)), var=np.array(2, np.float32)), (rule.RULE,), tolerant=True)
    assert result.rules == [NAME]
    assert "has one value for 4 channels in variance;" in result.outcome.changes[0].warning
    assert_like_vectors(result, var=np.full(4, 2, np.float32))


@pytest.mark.parametrize("sizes", [(3, 4), (2, 4, 7), (2, 4, 3, 5, 2)])
def test_every_rank(rewrite, sizes):
    result = rewrite(bn(", ".join(map(str, sizes)), **reshaped(1, 4, 1)), (rule.RULE,), tolerant=True)
    assert result.rules == [NAME]
    assert_like_vectors(result, sizes)


@pytest.mark.parametrize("opset", [9, 17])
def test_training_mode_stays(rewrite, opset):
    form = {"attributes": "<training_mode=1>", "outputs": "y, m, v"} if opset >= 14 else {"outputs": "y, m, v, sm, sv"}
    result = rewrite(bn("2, 4, 5, 6", opset=opset, **form, **reshaped(1, 4, 1, 1)), tolerant=True)
    assert result.rules == [NAME, "batchnorm-batch-statistics"]
    x = random(2, 4, 5, 6).astype(np.float64)
    mean, variance = x.mean(axis=(0, 2, 3), keepdims=True), x.var(axis=(0, 2, 3), keepdims=True)
    gamma, beta = (batchnorm(4)[name].reshape(4, 1, 1) for name in ("gamma", "beta"))
    wanted = (x - mean) / np.sqrt(variance + np.float64(np.float32(1e-5))) * gamma + beta
    assert np.max(np.abs(evaluate(result.model, {"x": x})["y"] - wanted)) < 1e-6


def test_the_type_stays(rewrite):
    halves = {name: value.astype(np.float64) for name, value in reshaped(4, 1, 1).items()}
    result = rewrite(bn(**halves), (rule.RULE,), tolerant=True)
    assert {numpy_helper.to_array(t).dtype for t in result.model.graph.initializer} == {np.dtype(np.float64)}


def test_the_result_folds_behind_several_such_nodes(tmp_path):
    """ONNX infers no shape behind such a node; the ones after it must be seen all the same."""
    steps = " ".join(
        f"c{i} = Conv(y{i}, w) [bn{i}] y{i + 1} = BatchNormalization(c{i}, gamma, beta, mu, var)" for i in range(3)
    )
    model = parse(f"g (float[N, 4, 9, 9] y0) => (float[] y3) {{ {steps} }}", {"w": random(4, 4, 3, 3), **reshaped(1, 4, 1, 1)})
    rewriting = rewrite_model(loaded(model, tmp_path))
    assert operators(rewriting.model) == ["Conv"] * 3
    assert [c.rule for c in rewriting.changes] == [NAME] * 3 + ["fold-batchnorm-conv"] * 3
    assert rewriting.meant is not None
    rewriting.require_all_checks_passed()


UNKNOWN = parse(
    "g (float[N, 4] a, int64[K] s) => (float[] y) { x = Reshape(a, s) [bn] y = BatchNormalization(x, gamma, beta, mu, var) }",
    reshaped(1, 4),
)
REFUSALS = [
    Refusal(rule.parameters_are_not_vectors, bn(), "the parameters of bn are vectors already"),
    Refusal(rule.parameters_are_not_vectors, bn("N, 1, 5, 6", **batchnorm(1)), "are vectors already"),
    Refusal(shared.is_per_channel, bn("N, 4, 1, 1", "<spatial=0>", 7, **reshaped(4, 1, 1)), "spatial=0"),
    Refusal(data_channels.type_and_rank_are_known, UNKNOWN, "type or rank of the data of bn is not known"),
    Refusal(rule.one_reading_is_possible, bn(**reshaped(2, 2)), "gamma has shape [2, 2]"),
    Refusal(rule.one_reading_is_possible, bn("N, 3, 5, 6", **reshaped(1, 4, 1, 1)), "has 3 channels"),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE, tolerant=True)


def test_the_channel_count_must_be_known(rewrite):
    result = rewrite(bn("N, C, 5, 6", **reshaped(1, 4)), (rule.RULE,))
    assert result.reason(NAME) == "the number of channels of the data of bn is not known"


def test_a_second_pass_changes_nothing(rewrite):
    twice = rewrite(rewrite(bn(**reshaped(1, 4)), (rule.RULE,), tolerant=True).model, (rule.RULE,))
    assert twice.outcome.changes == []
