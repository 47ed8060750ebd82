"""simplified-layernorm: ONNX Runtime's root-mean-square normalization in ONNX's own operators."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models import operators, random
from tests.numerics import relative_error
from tests.oracle import evaluate
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.norms import affine, norm, unknown_rank
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.rewrite.parts import data_channels
from trtnorm_cli.rewrite.rules import simplified_layernorm as rule

NAME = rule.RULE.name
EPSILON = float(np.float32(1e-6))
NODE = "SimplifiedLayerNormalization <axis={}, epsilon=0.000001> (x, s)"


def simplified(axis: int = -1, outputs: str = "y", declared: str = "", shape: str = "2, 5, 6", **more) -> onnx.ModelProto:
    return norm(f"{outputs} = {NODE.format(axis)}", more.pop("weights", affine(6)), shape, outputs=declared, **more)


def by_definition(x: np.ndarray, axis: int, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x = x.astype(np.float64)
    inverse = 1 / np.sqrt((x**2).mean(tuple(range(axis % x.ndim, x.ndim)), keepdims=True) + EPSILON)
    return x * inverse * scale, inverse


@pytest.mark.parametrize("axis", [-1, -2, 1])
@pytest.mark.parametrize("opset", [11, 17, 22])
def test_in_elementary_operators(rewrite, axis, opset):
    result = rewrite(simplified(axis, opset=opset), rules=(rule.RULE,))
    assert result.rules == [NAME]
    assert operators(result.model) == ["Mul", "ReduceMean", "Add", "Sqrt", "Reciprocal", "Mul", "Mul"]
    x = random(2, 5, 6)
    assert relative_error(by_definition(x, axis, affine(6)["s"])[0], evaluate(result.model, {"x": x})["y"]) < 1e-12


def test_since_opset_23_there_is_an_operator(rewrite):
    result = rewrite(simplified(opset=23), rules=(rule.RULE,))
    assert result.rules == [NAME]
    assert operators(result.model) == ["RMSNormalization"]
    x = random(2, 5, 6)
    got = evaluate_float64(result.model, {"x": x}).outputs["y"]
    assert relative_error(by_definition(x, -1, affine(6)["s"])[0], got) < 1e-12


@pytest.mark.parametrize("opset", [17, 23])
def test_the_deviation_is_used(rewrite, opset):
    result = rewrite(simplified(outputs="y, d", declared=", float[] d", opset=opset), rules=(rule.RULE,))
    assert result.rules == [NAME]
    x = random(2, 5, 6)
    got = evaluate(result.model, {"x": x})
    for name, wanted in zip(("y", "d"), by_definition(x, -1, affine(6)["s"]), strict=True):
        assert relative_error(wanted, got[name]) < 1e-12


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_half_precision_data_with_a_float32_scale_give_float32(rewrite, kind):
    """As in ONNX, where the result is of the type of the scale."""
    model = norm(f"n = {NODE.format(-1)} y = Cast <to=1> (n)", affine(6), "2, 5, 6", kind)
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    result = rewrite(model, rules=(rule.RULE,))
    assert result.rules == [NAME]
    assert operators(result.model)[0] == "Cast"
    assert operators(result.model)[-2:] == ["Mul", "Cast"]


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 3), st.integers(0, 2**16))
def test_any_shape_and_axis(rewrite_once, shape, axis, seed):
    axis %= len(shape)
    weights = affine(*shape[axis:])
    model = norm(f"y = {NODE.format(axis)}", weights, ", ".join(map(str, shape)))
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    assert (
        relative_error(by_definition(x, axis, weights["s"])[0], evaluate(rewrite_once(model, rule.RULE), {"x": x})["y"]) < 1e-10
    )


REFUSALS = [
    Refusal(
        data_channels.type_and_rank_are_known,
        unknown_rank(f"y = {NODE.format(-1)}", affine(6)),
        "type or rank of the data of norm is not known",
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE, tolerant=True)


def test_a_second_pass_changes_nothing(rewrite):
    twice = rewrite(rewrite(simplified()).model)
    assert twice.outcome.changes == []
