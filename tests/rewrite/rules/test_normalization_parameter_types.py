"""normalization-parameter-types: data and parameters of different types are normalized in the wider one."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models import operators, random
from tests.numerics import relative_error
from tests.oracle import evaluate
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.norms import affine, difference, norm, unknown_rank
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.rewrite.parts import data_channels
from trtnorm_cli.rewrite.rules import normalization_parameter_types as rule

NAME = rule.RULE.name
TYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float": np.float32, "double": np.float64}
NODES = {
    "InstanceNormalization": ("y = InstanceNormalization(x, s, b)", 4, "2, 4, 5, 6"),
    "GroupNormalization": ("y = GroupNormalization <num_groups=2> (x, s, b)", 4, "2, 4, 5, 6"),
    "LayerNormalization": ("y = LayerNormalization(x, s, b)", 6, "2, 4, 5, 6"),
    "without a bias": ("y = LayerNormalization(x, s)", 6, "2, 4, 5, 6"),
}


def mixed(operator: str = "InstanceNormalization", data: str = "float16", parameters: str = "float", **more) -> onnx.ModelProto:
    node, length, shape = NODES[operator]
    weights = more.pop("weights", affine(length, dtype=TYPES[parameters]))
    return norm(node, weights, more.pop("shape", shape), data, more.pop("opset", 22), **more)


@pytest.mark.parametrize(("data", "parameters"), [p for p in itertools.product(TYPES, TYPES) if p[0] != p[1]])
@pytest.mark.parametrize("operator", NODES)
def test_every_pair_of_types(rewrite, operator, data, parameters):
    model = mixed(operator, data, parameters)
    result = rewrite(model, (rule.RULE,))
    assert result.rules == [NAME]
    half = data in ("float16", "bfloat16")
    name = operator if operator in NODES and " " not in operator else "LayerNormalization"
    assert operators(result.model) == (["Cast", name, "Cast"] if half else [name])
    typed = onnx.shape_inference.infer_shapes(result.model, check_type=True, strict_mode=True)
    assert typed.graph.output[0].type.tensor_type.elem_type == model.graph.input[0].type.tensor_type.elem_type
    assert difference(model, result.model) < 1e-6


def test_only_one_of_both_is_of_another_type(rewrite):
    weights = {"s": affine(4)["s"], "b": affine(4)["b"].astype(np.float16)}
    assert rewrite(mixed(weights=weights)).rules == [NAME]


def test_parameters_beyond_the_range_of_the_data_are_not_lost(rewrite):
    weights = {"s": np.full(4, 1e6, np.float32), "b": np.full(4, 1e-9, np.float32)}
    model = mixed(weights=weights)
    result = rewrite(model)
    x = (random(2, 4, 5, 6) * 1e-4).astype(np.float16)
    wanted, got = (evaluate_float64(m, {"x": x}).outputs["y"] for m in (model, result.model))
    assert np.isfinite(got).all()
    assert relative_error(wanted, got) < 1e-12


def test_parameters_of_run_time(rewrite):
    model = mixed(inputs=", float[4] s, float[4] b")
    result = rewrite(model)
    assert result.rules == [NAME]
    feeds = {"x": random(2, 4, 5, 6, dtype=np.float16), **affine(4)}
    assert relative_error(evaluate(model, feeds)["y"], evaluate(result.model, feeds)["y"]) < 1e-6


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.sampled_from(sorted(NODES)), st.sampled_from(["float16", "bfloat16"]), st.floats(1e-6, 1e6), st.integers(0, 2**16))
def test_any_scale(rewrite_once, operator, data, size, seed):
    rng = np.random.default_rng(seed)
    _, length, _ = NODES[operator]
    weights = {name: (rng.standard_normal(length) * size).astype(np.float32) for name in ("s", "b")}
    model = mixed(operator, data, weights=weights)
    feeds = {"x": rng.standard_normal((2, 4, 5, 6)).astype(TYPES[data])}
    wanted, got = (evaluate_float64(m, feeds).outputs["y"] for m in (model, rewrite_once(model, rule.RULE)))
    assert relative_error(wanted, got) < 1e-12


REFUSALS = [
    Refusal(
        data_channels.type_and_rank_are_known,
        unknown_rank("y = InstanceNormalization(x, s, b)", affine(4)),
        "type or rank of the data of norm is not known",
    ),
    Refusal(rule.parameters_are_of_another_type, mixed(data="float"), "norm has data and parameters of one type"),
    Refusal(
        rule.parameters_are_representable,
        mixed(data="float", parameters="double", weights={"s": np.full(4, 1e300), "b": np.zeros(4)}),
        "s reaches 1e+300, more than float32 holds",
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE, tolerant=True)


def test_a_second_pass_changes_nothing(rewrite):
    twice = rewrite(rewrite(mixed()).model)
    assert twice.outcome.changes == []
