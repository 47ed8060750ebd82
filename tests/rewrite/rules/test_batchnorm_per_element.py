"""batchnorm-per-element: spatial=0 of opset 7 and 8, and data with one axis."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import batchnorm, operators, parse
from tests.numerics import relative_error
from tests.oracle import FLOATS, feeds_for
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.rewrite.parts import batchnorm as shared
from trtnorm_cli.rewrite.parts import data_channels
from trtnorm_cli.rewrite.rules import batchnorm_per_element as rule

NAME = rule.RULE.name
NAMES = ("gamma", "beta", "mu", "var")


def parameters(shape: tuple[int, ...], dtype: type = np.float32) -> dict[str, np.ndarray]:
    count = int(np.prod(shape, dtype=int))
    return {name: value.reshape(shape) for name, value in batchnorm(count, dtype).items()}


def bn(
    shape: str = "N, 4, 3, 2", sample: tuple[int, ...] = (4, 3, 2), opset: int = 7, spatial: str = "spatial=0, ",
    kind: str = "float", outputs: str = "y", **weights: np.ndarray,
) -> onnx.ModelProto:  # fmt: skip
    dtype = {"float": np.float32, "float16": np.float16, "double": np.float64}[kind]
    graph = (
        f"g ({kind}[{shape}] x) => ({kind}[] y) "
        f"{{ [bn] {outputs} = BatchNormalization <{spatial}epsilon=0.001> (x, gamma, beta, mu, var) }}"
    )
    return parse(graph, {**parameters(sample, dtype), **weights}, opset=opset)


def worst(model: onnx.ModelProto, after: onnx.ModelProto, sample: tuple[int, ...], pins: dict[str, tuple[int, ...]]) -> float:
    """Relative to the largest value of y = (x − μ)/√(σ²+ε)·γ + β, element by element."""
    from tests.oracle import evaluate

    assert {t.data_type for t in after.graph.initializer} <= set(FLOATS)
    x = feeds_for(model, pins)["x"].astype(np.float64)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(model.graph.input[0].type.tensor_type.elem_type)
    gamma, beta, mu, var = (parameters(sample, dtype)[name].astype(np.float64) for name in NAMES)
    wanted = (x - mu) / np.sqrt(var + np.float64(np.float32(0.001))) * gamma + beta
    got = evaluate(after, {"x": x})["y"]
    return relative_error(wanted, got)


@pytest.mark.parametrize("opset", [7, 8])
@pytest.mark.parametrize(("shape", "sample"), [("N, 4", (4,)), ("N, 4, 3", (4, 3)), ("N, 4, 3, 2", (4, 3, 2))])
def test_a_value_for_each_element(rewrite, opset, shape, sample):
    model = bn(shape, sample, opset)
    result = rewrite(model, (rule.RULE,))
    assert result.rules == [NAME]
    assert operators(result.model) == ["Mul", "Add"]
    assert worst(model, result.model, sample, {"x": (2, *sample)}) < 1e-6


@pytest.mark.parametrize(("kind", "limit"), [("float16", 1e-6), ("double", 1e-14)])
def test_other_types(rewrite, kind, limit):
    model = bn(kind=kind)
    result = rewrite(model, (rule.RULE,))
    assert result.rules == [NAME]
    assert worst(model, result.model, (4, 3, 2), {"x": (2, 4, 3, 2)}) < limit


@pytest.mark.parametrize("opset", [9, 14, 17])
@pytest.mark.parametrize("shape", ["N", "5"])
def test_a_vector_is_a_batch_of_one_channel(rewrite, opset, shape):
    model = bn(shape, (1,), opset, spatial="")
    result = rewrite(model, pins={"x": (5,)})
    assert result.rules == [NAME]
    assert operators(result.model) == ["Mul", "Add"]
    assert worst(model, result.model, (1,), {"x": (5,)}) < 1e-6


SPOILT = parameters((4, 3, 2))["gamma"].copy()
SPOILT[1, 2, 0] = np.nan
REFUSALS = [
    Refusal(
        data_channels.type_and_rank_are_known,
        parse(
            "g (float[N, 4] a, int64[K] s) => (float[] y)"
            " { x = Reshape(a, s) [bn] y = BatchNormalization <spatial=0> (x, gamma, beta, mu, var) }",
            batchnorm(4),
            opset=7,
        ),
        "type or rank of the data of bn is not known",
    ),
    Refusal(rule.is_per_element, bn("N, 4, 3", (4,), 9, spatial=""), "bn has one value per channel"),
    Refusal(shared.is_inference, bn(outputs="y, a, b, c, d"), "has 5 outputs"),
    Refusal(rule.parameters_fit_the_data, bn("N, 4, 3, 5"), "have the shape [4, 3, 2], a sample of its data [4, 3, 5]"),
    Refusal(rule.parameters_fit_the_data, bn(mu=np.zeros((4, 3), np.float32)), "[4, 3] and [4, 3, 2]"),
    Refusal(shared.parameters_are_finite, bn(gamma=SPOILT), "gamma (scale) is not finite in channel 10 (nan)"),
    Refusal(shared.variance_is_positive, bn(var=np.full((4, 3, 2), -1, np.float32)), "is not positive"),
    Refusal(
        rule.scale_and_shift_are_representable,
        bn(gamma=np.full((4, 3, 2), 1e38, np.float32), var=np.full((4, 3, 2), 1e-9, np.float32)),
        "more than float32 holds",
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE, tolerant=True)


def test_a_second_pass_changes_nothing(rewrite):
    twice = rewrite(rewrite(bn()).model)
    assert twice.outcome.changes == []
