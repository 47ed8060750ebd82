"""normalization-parameters-to-vectors: shapes that broadcasting would read in one way only."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.numerics import relative_error
from tests.oracle import evaluate
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.norms import affine, norm, standardized, unknown_rank
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.rewrite.parts import data_channels, group_parameters
from trtnorm_cli.rewrite.rules import normalization_parameters_to_vectors as rule

NAME = rule.RULE.name
IN, GN = "y = InstanceNormalization(x, s, b)", "y = GroupNormalization <num_groups={}> (x, s, b)"


def shaped(*shape: int, node: str = IN, data: str = "2, 4, 5, 6", opset: int = 21) -> onnx.ModelProto:
    return norm(node, affine(*shape), data, opset=opset)


@pytest.mark.parametrize("shape", [(1, 4, 1, 1), (4, 1, 1), (1, 4), (4, 1), (1, 1, 4), (), (1, 1)])
@pytest.mark.parametrize("operator", ["instance", "group", "group of opset 18"])
def test_every_shape(rewrite, shape, operator):
    older = operator == "group of opset 18"
    node = IN if operator == "instance" else GN.format(4 if older else 2)
    result = rewrite(shaped(*shape, node=node, opset=18 if older else 21), rules=(rule.RULE,), tolerant=True)
    assert result.rules == [NAME]
    (left,) = result.model.graph.node
    stored = {t.name: list(t.dims) for t in result.model.graph.initializer}
    assert [stored[name] for name in left.input[1:]] == [[4], [4]]
    (change,) = result.outcome.changes
    assert change.compared_with_reference
    assert bool(change.warning) == (np.prod(shape, dtype=int) == 1)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.permutations([4, 1, 1, 1]), st.integers(2, 4), st.integers(0, 2**16))
def test_any_place_of_the_values(rewrite_once, shape, length, seed):
    weights = affine(*[s for s in shape[:length] if s > 1] or [1])
    weights = {name: value.reshape(shape[:length] if 4 in shape[:length] else (1,) * length) for name, value in weights.items()}
    model = norm(IN, weights, "2, 4, 5, 6")
    x = np.random.default_rng(seed).standard_normal((2, 4, 5, 6)).astype(np.float32)
    scale, bias = (np.broadcast_to(weights[n].reshape(-1), (4,)).astype(np.float64).reshape(-1, 1, 1) for n in ("s", "b"))
    got = evaluate(rewrite_once(model, rule.RULE), {"x": x})["y"]
    assert relative_error(standardized(x.astype(np.float64), (2, 3)) * scale + bias, got) < 1e-10


REFUSALS = [
    Refusal(data_channels.type_and_rank_are_known, unknown_rank(IN, affine(1, 4)), "type or rank of the data of norm is not"),
    Refusal(rule.parameters_are_not_vectors, shaped(4), "the parameters of norm are vectors already"),
    Refusal(group_parameters.groups_divide_channels, shaped(1, 4, node=GN.format(3)), "norm has 3 groups for 4 channels"),
    Refusal(rule.one_reading_is_possible, shaped(2, 2), "s (scale) has shape [2, 2], norm wants 4 values"),
    Refusal(rule.one_reading_is_possible, shaped(1, 3), "s (scale) has shape [1, 3], norm wants 4 values"),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE, tolerant=True)


def test_a_second_pass_changes_nothing(rewrite):
    model = norm(IN, affine(1, 4), "2, 4, 5, 6")
    twice = rewrite(rewrite(model, tolerant=True).model)
    assert twice.outcome.changes == []
