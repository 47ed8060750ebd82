"""normalization-of-one-element: the bias and nothing else, at every rank and type, and with a dynamic batch."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models import operators, parse, random
from tests.oracle import evaluate
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.norms import affine, norm, unknown_rank
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.rewrite.parts import data_channels, group_parameters
from trtnorm_cli.rewrite.rules import normalization_of_one_element as rule

NAME = rule.RULE.name
IN = "y = InstanceNormalization {}(x, s, b)"
GN = "y = GroupNormalization <num_groups={}> (x, s, b)"


def one(node: str = IN.format(""), weights: dict[str, np.ndarray] | None = None, shape: str = "N, 4, 1, 1", **more):
    return norm(node, affine(4) if weights is None else weights, shape, **more)


@pytest.mark.parametrize("shape", ["N, 4, 1", "N, 4, 1, 1", "2, 4, 1, 1, 1", "N, C, 1, 1"])
@pytest.mark.parametrize("opset", [7, 13, 22])
def test_an_instance_normalization_is_its_bias(rewrite, shape, opset):
    sizes = tuple(int(s) if s.isdigit() else {"N": 3, "C": 4}[s] for s in shape.split(", "))
    result = rewrite(one(shape=shape, opset=opset), pins={"x": sizes})
    assert result.rules == [NAME]
    assert operators(result.model) == ["Mul", "Add"]
    got = evaluate(result.model, {"x": random(*sizes)})["y"]
    assert (got == np.broadcast_to(affine(4)["b"].astype(np.float64).reshape(-1, *[1] * (len(sizes) - 2)), sizes)).all()


@pytest.mark.parametrize(("groups", "shape"), [(4, "N, 4, 1, 1"), (4, "N, 4"), (1, "N, 1, 1, 1")])
@pytest.mark.parametrize("opset", [18, 21])
def test_a_group_normalization_with_a_group_for_each_channel(rewrite, groups, shape, opset):
    weights = affine(groups)
    sizes = tuple(int(s) if s.isdigit() else 3 for s in shape.split(", "))
    result = rewrite(one(GN.format(groups), weights, shape, opset=opset), pins={"x": sizes})
    assert result.rules == [NAME]
    got = evaluate(result.model, {"x": random(*sizes)})["y"]
    assert (got == weights["b"].astype(np.float64).reshape(-1, *[1] * (len(sizes) - 2))).all()


@pytest.mark.parametrize("epsilon", ["1e-12", "1e-8", "1.0"])
def test_an_epsilon_at_which_onnxruntime_has_no_digits_left(rewrite, epsilon):
    """It computes x · γ/√ε and takes it away again."""
    assert rewrite(one(IN.format(f"<epsilon={float(epsilon):.12f}> ")), pins={"x": (2, 4, 1, 1)}).rules == [NAME]


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_half_precision_data_with_float32_parameters(rewrite, kind):
    result = rewrite(one(kind=kind, opset=22), pins={"x": (2, 4, 1, 1)})
    assert result.rules == [NAME]
    typed = onnx.shape_inference.infer_shapes(result.model, check_type=True, strict_mode=True)
    assert typed.graph.output[0].type.tensor_type.elem_type == result.source.graph.input[0].type.tensor_type.elem_type


def test_behind_a_global_pooling_and_with_parameters_of_run_time(rewrite):
    model = parse(
        "g (float[N, 4, H, W] a, float[4] s, float[4] b) => (float[N, 4, 1, 1] y)"
        " { x = GlobalAveragePool(a) y = InstanceNormalization(x, s, b) }"
    )
    result = rewrite(model, pins={"a": (2, 4, 5, 6), "s": (4,), "b": (4,)})
    assert result.rules == [NAME]
    feeds = {"a": random(3, 4, 5, 6), "s": random(4), "b": random(4, seed=1)}
    assert (evaluate(result.model, feeds)["y"] == feeds["b"].astype(np.float64).reshape(1, 4, 1, 1)).all()


def test_what_is_not_a_number_stays_so(rewrite):
    result = rewrite(one(), pins={"x": (2, 4, 1, 1)})
    x = random(2, 4, 1, 1)
    x[0, 1], x[1, 2] = np.nan, np.inf
    got = evaluate_float64(result.model, {"x": x}).outputs["y"]
    assert np.argwhere(np.isnan(got)).tolist() == [[0, 1, 0, 0], [1, 2, 0, 0]]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(1, 3), st.integers(1, 6), st.integers(1, 3), st.integers(0, 2**16))
def test_any_shape(rewrite_once, batch, channels, positions, seed):
    rng = np.random.default_rng(seed)
    weights = {"s": rng.standard_normal(channels).astype(np.float32), "b": rng.standard_normal(channels).astype(np.float32)}
    shape = (batch, channels, *[1] * positions)
    model = norm(IN.format(""), weights, ", ".join(map(str, shape)))
    feeds = {"x": (rng.standard_normal(shape) * 100).astype(np.float32)}
    wanted = evaluate_float64(model, feeds).outputs["y"]
    assert np.abs(wanted - evaluate_float64(rewrite_once(model, rule.RULE), feeds).outputs["y"]).max() < 1e-12


REFUSALS = [
    Refusal(
        data_channels.type_and_rank_are_known, unknown_rank(IN.format(""), affine(4)), "type or rank of the data of norm is not"
    ),
    Refusal(rule.groups_have_one_element, one(shape="N, 4, 1, W"), "norm normalizes over more than one element"),
    Refusal(rule.groups_have_one_element, one(shape="N, 4, 2, 1"), "norm normalizes over more than one element"),
    Refusal(rule.groups_have_one_element, one(shape="N, 4"), "norm normalizes over more than one element"),
    Refusal(rule.groups_have_one_element, one(GN.format(2), opset=21), "norm normalizes over more than one element"),
    Refusal(rule.groups_have_one_element, one(GN.format(4), shape="N, C, 1, 1", opset=21), "normalizes over more than one"),
    Refusal(rule.epsilon_is_positive, one(IN.format("<epsilon=0.0> ")), "norm has epsilon=0"),
    Refusal(group_parameters.parameters_are_vectors, one(weights=affine(3)), "s has 3 values, norm wants 4"),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE, tolerant=True)


def test_a_second_pass_changes_nothing(rewrite):
    twice = rewrite(rewrite(one(), pins={"x": (2, 4, 1, 1)}).model, pins={"x": (2, 4, 1, 1)})
    assert twice.outcome.changes == []
