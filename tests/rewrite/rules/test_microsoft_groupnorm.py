"""microsoft-groupnorm: ONNX Runtime's group normalization with SiLU, which has no kernel on the CPU: proved in float64."""

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
from tests.rewrite.rules.norms import MICROSOFT, affine, norm, standardized, unknown_rank
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.rewrite.parts import data_channels
from trtnorm_cli.rewrite.rules import microsoft_groupnorm as rule

NAME = rule.RULE.name
NODE = "y = com.microsoft.GroupNorm <{}> (x, s, b)"


def gn(attributes: str = "groups=2, activation=1", shape: str = "2, 5, 3, 4", **more) -> onnx.ModelProto:
    return norm(NODE.format(attributes), affine(4), shape, domain=MICROSOFT, **more)


def by_definition(x: np.ndarray, groups: int, silu: bool, last: bool = True) -> np.ndarray:
    data = np.moveaxis(x, -1, 1) if last else x
    y = standardized(data.astype(np.float64).reshape(data.shape[0], groups, -1), (2,)).reshape(data.shape)
    y = y * affine(4)["s"].reshape(-1, 1, 1) + affine(4)["b"].reshape(-1, 1, 1)
    y = y / (1 + np.exp(-y)) if silu else y
    return np.moveaxis(y, 1, -1) if last else y


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("silu", [False, True])
@pytest.mark.parametrize("opset", [14, 17, 21])
def test_every_grouping(rewrite, groups, silu, opset):
    result = rewrite(gn(f"groups={groups}, activation={int(silu)}", opset=opset), rules=(rule.RULE,))
    assert result.rules == [NAME]
    assert ("Sigmoid" in operators(result.model)) == silu
    x = random(2, 5, 3, 4)
    assert relative_error(by_definition(x, groups, silu), evaluate(result.model, {"x": x})["y"]) < 1e-12


def test_channels_first(rewrite):
    result = rewrite(gn("groups=2, channels_last=0", "2, 4, 5, 3"), rules=(rule.RULE,))
    assert result.rules == [NAME]
    assert "Transpose" not in operators(result.model)
    x = random(2, 4, 5, 3)
    assert relative_error(by_definition(x, 2, False, last=False), evaluate(result.model, {"x": x})["y"]) < 1e-12


def test_half_precision_data_with_float32_parameters(rewrite):
    result = rewrite(gn(kind="float16"), rules=(rule.RULE,))
    assert result.rules == [NAME]
    assert operators(result.model)[0] == operators(result.model)[-1] == "Cast"


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.sampled_from([1, 2, 4]), st.booleans(), st.integers(1, 3), st.integers(1, 5), st.integers(0, 2**16))
def test_any_size(rewrite_once, groups, silu, batch, size, seed):
    model = gn(f"groups={groups}, activation={int(silu)}", f"{batch}, {size}, 2, 4")
    x = np.random.default_rng(seed).standard_normal((batch, size, 2, 4)).astype(np.float32)
    got = evaluate(rewrite_once(model, rule.RULE), {"x": x})["y"]
    assert relative_error(by_definition(x, groups, silu), got) < 1e-10


REFUSALS = [
    Refusal(
        data_channels.type_and_rank_are_known,
        unknown_rank(NODE.format("groups=2"), affine(4), domain=MICROSOFT),
        "type or rank of the data of norm is not known",
    ),
    Refusal(rule.data_has_four_axes, gn(shape="2, 5, 4"), "the data of norm has shape [2, 5, 4]"),
    Refusal(rule.groups_are_stated, gn("activation=1"), "norm has 0 groups for 4 channels"),
    Refusal(rule.groups_are_stated, gn("groups=3"), "norm has 3 groups for 4 channels"),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE, tolerant=True)


def test_a_second_pass_changes_nothing(rewrite):
    twice = rewrite(rewrite(gn()).model)
    assert twice.outcome.changes == []
