"""fold-batchnorm-constant: normalized constants become constants, in either mode, to the last digit of their type."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.models import batchnorm, loaded, operators, parse, random
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.refusals import Refusal
from tests.rewritings import rewrite as rewrite_model
from trtnorm_cli.rewrite.parts import batchnorm as shared
from trtnorm_cli.rewrite.rules import fold_batchnorm_constant as rule

NAME = rule.RULE.name
EPSILON = np.float64(np.float32(1e-5))


def bn(
    shape: tuple[int, ...] = (3, 4, 5),
    dtype: type = np.float32,
    attributes: str = "",
    outputs: str = "y",
    graph_outputs: str = "float[] z",
    opset: int = 17,
    **weights: np.ndarray,
) -> onnx.ModelProto:
    graph = (
        f"g (float[1] x) => ({graph_outputs}) {{ [bn] {outputs} = BatchNormalization {attributes}(k, gamma, beta, mu, var)"
        " f = Cast <to=1> (y) z = Add(x, f) }"
    )
    return parse(graph, {"k": random(*shape, dtype=dtype), **batchnorm(4, dtype), **weights}, opset=opset)


def normalized(k: np.ndarray, mean: np.ndarray, variance: np.ndarray, weights: dict[str, np.ndarray]) -> np.ndarray:
    along = (-1, *[1] * (k.ndim - 2))
    mean, variance, gamma, beta = (
        v.astype(np.float64).reshape(along) for v in (mean, variance, weights["gamma"], weights["beta"])
    )
    return (k.astype(np.float64) - mean) / np.sqrt(variance + EPSILON) * gamma + beta


def constants(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    return {node.output[0]: stored[node.input[0]] for node in model.graph.node if node.op_type == "Identity"}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("shape", [(3, 4), (1, 4, 27), (2, 4, 3, 5)])
def test_inference(rewrite, dtype, shape):
    result = rewrite(bn(shape, dtype))
    assert result.rules == [NAME]
    (value,) = constants(result.model).values()
    weights = batchnorm(4, dtype)
    wanted = normalized(random(*shape, dtype=dtype), weights["mu"], weights["var"], weights)
    assert value.dtype == dtype
    np.testing.assert_array_equal(value, wanted.astype(dtype))


@pytest.mark.parametrize("opset", [14, 17, 21])
@pytest.mark.parametrize("shape", [(1, 4, 27), (3, 4), (2, 4, 3, 5)])
def test_training_mode_uses_the_statistics_of_the_constant(rewrite, shape, opset):
    result = rewrite(bn(shape, attributes="<training_mode=1>", outputs="y, m, v", opset=opset))
    assert result.rules == [NAME]
    k = random(*shape).astype(np.float64)
    axes = tuple(axis for axis in range(k.ndim) if axis != 1)
    wanted = normalized(k, k.mean(axis=axes), k.var(axis=axes), batchnorm(4))
    np.testing.assert_array_equal(constants(result.model)["y"], wanted.astype(np.float32))


def test_running_statistics_that_are_used(rewrite):
    model = bn(
        (1, 4, 27), attributes="<training_mode=1, momentum=0.7>", outputs="y, m, v", graph_outputs="float[] z, float[4] v"
    )
    result = rewrite(model)
    assert result.rules == [NAME]
    keep = float(np.float32(0.7))
    variance = random(1, 4, 27).astype(np.float64).var(axis=(0, 2))
    wanted = batchnorm(4)["var"].astype(np.float64) * keep + variance * (1 - keep)
    np.testing.assert_array_equal(constants(result.model)["v"], wanted.astype(np.float32))
    assert "m" not in constants(result.model)


def test_bfloat16(rewrite):
    result = rewrite(bn(dtype=ml_dtypes.bfloat16))
    assert result.rules == [NAME]
    assert constants(result.model)["y"].dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize("outputs", ["n, m, v", "n"])
def test_a_standardised_weight_as_torchscript_writes_it(tmp_path, outputs):
    """A BatchNormalization in training mode over the reshaped weight: one convolution is left, and no question is asked.

    Scale and variance are one tensor, into which ONNX Runtime writes while it runs.
    """
    weights = {
        "k": random(1, 4, 27),
        "s": np.array([4, 3, 3, 3]),
        "g": np.full(4, 0.7, np.float32),
        "b": np.zeros(4, np.float32),
    }
    model = parse(
        f"g (float[N, 3, 8, 8] x) => (float[] y) {{ [bn] {outputs} = BatchNormalization <training_mode=1>"
        " (k, g, b, b, g) w = Reshape(n, s) y = Conv(x, w) }",
        weights,
    )
    rewriting = rewrite_model(loaded(model, tmp_path))
    assert [change.rule for change in rewriting.changes] == [NAME]
    assert operators(rewriting.model) == ["Conv"]
    assert rewriting.warnings == ()
    k = weights["k"].astype(np.float64)
    standard = (k - k.mean(axis=2, keepdims=True)) / np.sqrt(k.var(axis=2, keepdims=True) + EPSILON)
    wanted = (standard * np.float32(0.7)).reshape(4, 3, 3, 3)
    (weight,) = (numpy_helper.to_array(t) for t in rewriting.model.graph.initializer)
    np.testing.assert_allclose(weight, wanted, rtol=1e-6, atol=1e-7)
    x = random(2, 3, 8, 8)
    (got,) = ReferenceEvaluator(rewriting.model).run(None, {"x": x})
    assert got.shape == (2, 4, 6, 6)


SPOILT = np.array([1, np.inf, 1, 1], np.float32)
REFUSALS = [
    Refusal(
        shared.is_per_channel,
        bn(
            (2, 4, 3),
            attributes="<spatial=0>",
            opset=7,
            **{n: np.ones((4, 3), np.float32) for n in ("gamma", "beta", "mu", "var")},
        ),
        "spatial=0",
    ),
    Refusal(shared.parameters_agree, bn(mu=np.zeros(3, np.float32)), "mean [3]"),
    Refusal(shared.parameters_are_finite, bn(beta=SPOILT), "beta (bias) is not finite in channel 1 (inf)"),
    Refusal(rule.parameters_fit_the_data, bn((3, 5, 2)), "bn has 4 values per parameter for data of shape [3, 5, 2]"),
    Refusal(rule.parameters_fit_the_data, bn((4,)), "for data of shape [4]"),
    Refusal(rule.variance_is_positive, bn(var=np.array([1, 1, -1, 1], np.float32)), "is not positive in channel 2"),
    Refusal(rule.result_is_finite, bn(gamma=np.full(4, 3e38, np.float32)), "more than float32 holds"),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE, tolerant=True)


def test_the_variance_of_training_mode_is_not_the_stored_one(rewrite):
    result = rewrite(bn(attributes="<training_mode=1>", outputs="y, m, v", var=np.full(4, -1, np.float32)))
    assert result.rules == [NAME]


def test_data_of_run_time_are_left_alone(rewrite):
    model = parse("g (float[3, 4, 5] x) => (float[] y) { y = BatchNormalization(x, gamma, beta, mu, var) }", batchnorm(4))
    assert rewrite(model, (rule.RULE,)).reason(NAME) == "x, input 0 of BatchNormalization -> y, is computed at run time"


def test_a_second_pass_changes_nothing(rewrite):
    twice = rewrite(rewrite(bn()).model)
    assert twice.outcome.changes == []


def test_each_constant_is_worked_out_once(rewrite, monkeypatch):
    """It is asked for before the change and in it, and may be a large weight."""
    worked_out: list[str] = []
    real = rule._in_float64
    monkeypatch.setattr(rule, "_in_float64", lambda m: worked_out.append(m.output.name) or real(m))
    two = parse(
        "g (float[1] x) => (float[] z) { y = BatchNormalization(k, gamma, beta, mu, var)"
        " v = BatchNormalization(l, gamma, beta, mu, var) a = Add(y, v) z = Add(x, a) }",
        {"k": random(3, 4, 5), "l": random(3, 4, 5, seed=1), **batchnorm(4)},
        opset=17,
    )
    assert rewrite(two).rules == [NAME, NAME]
    assert sorted(worked_out) == ["v", "y"]


def test_branches_may_name_their_constants_alike(rewrite):
    """Each keeps its own value: a name is that of one branch."""
    norms = [f"y = BatchNormalization({weight}, gamma, beta, mu, var)" for weight in "kl"]
    text = (
        "g (bool c, float[1] x) => (float[] z) {"
        f" r = If (c) <then_branch = a () => (float[3,4,5] y) {{ {norms[0]} }},"
        f" else_branch = b () => (float[3,4,5] y) {{ {norms[1]} }}> z = Add(x, r) }}"
    )
    model = parse(text, {"k": random(3, 4, 5), "l": random(3, 4, 5, seed=1), **batchnorm(4)}, opset=17)
    result = rewrite(model)
    assert result.rules == [NAME, NAME]
    assert not result.outcome.failed
