"""mean-variance-normalization: half precision in float32, and the default axes only where they exist."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models import operators, random
from tests.numerics import relative_error
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.norms import norm, unknown_rank
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.rewrite.parts import data_channels
from trtnorm_cli.rewrite.rules import mean_variance_normalization as rule

NAME = rule.RULE.name


def mvn(axes: str = "", shape: str = "2, 4, 5, 6", kind: str = "float16", opset: int = 17) -> onnx.ModelProto:
    return norm(f"y = MeanVarianceNormalization {axes}(x)", None, shape, kind, opset)


def by_definition(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    x = x.astype(np.float64)
    return (x - x.mean(axes, keepdims=True)) / (x.std(axes, keepdims=True) + 1e-9)


@pytest.mark.parametrize("opset", [9, 13, 21])
@pytest.mark.parametrize(
    ("axes", "taken"), [("", (0, 2, 3)), ("<axes=[2, 3]> ", (2, 3)), ("<axes=[1]> ", (1,)), ("<axes=[-1]> ", (3,))]
)
def test_half_precision(rewrite, opset, axes, taken):
    result = rewrite(mvn(axes, opset=opset))
    assert result.rules == [NAME]
    assert operators(result.model) == ["Cast", "MeanVarianceNormalization", "Cast"]
    x = random(2, 4, 5, 6, dtype=np.float16)
    assert relative_error(by_definition(x, taken), evaluate_float64(result.model, {"x": x}).outputs["y"]) < 1e-12


def test_bfloat16(rewrite):
    assert rewrite(mvn(kind="bfloat16")).rules == [NAME]


@pytest.mark.parametrize(("shape", "axes"), [("2, 4, 7", [0, 2]), ("2, 4", [0])])
def test_default_axes_that_the_data_does_not_have(rewrite, shape, axes):
    """ONNX Runtime is asked as well: it runs three axes so."""
    result = rewrite(mvn(shape=shape, kind="float"))
    assert result.rules == [NAME]
    (node,) = result.model.graph.node
    assert onnx.helper.get_attribute_value(node.attribute[0]) == axes


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.sets(st.integers(0, 3), min_size=1), st.floats(0.1, 20), st.floats(-5, 5), st.integers(0, 2**16))
def test_any_axes(rewrite_once, axes, spread, offset, seed):
    model = mvn(f"<axes={sorted(axes)}> ")
    x = (np.random.default_rng(seed).standard_normal((2, 4, 5, 6)) * spread + offset).astype(np.float16)
    got = evaluate_float64(rewrite_once(model, rule.RULE), {"x": x}).outputs["y"]
    assert relative_error(by_definition(x, tuple(sorted(axes))), got) < 1e-12


REFUSALS = [
    Refusal(
        data_channels.type_and_rank_are_known, unknown_rank("y = MeanVarianceNormalization(x)", {}), "type or rank of the data"
    ),
    Refusal(rule.tensorrt_does_not_take_it, mvn(kind="float"), "norm has data and axes that TensorRT takes"),
    Refusal(rule.tensorrt_does_not_take_it, mvn("<axes=[0, 2]> ", "2, 4, 7", "float"), "norm has data and axes that TensorRT"),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE, tolerant=True)


@pytest.mark.parametrize("model", [mvn(), mvn(shape="2, 4, 7", kind="float")], ids=["half", "axes"])
def test_a_second_pass_changes_nothing(rewrite, model):
    twice = rewrite(rewrite(model).model)
    assert twice.outcome.changes == []
