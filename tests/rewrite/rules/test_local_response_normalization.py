"""local-response-normalization: every window, rank and opset as sums of slices."""

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
from trtnorm_cli.profile.rewriting import RewriteSettings
from trtnorm_cli.rewrite.parts import data_channels
from trtnorm_cli.rewrite.rules import local_response_normalization as rule

NAME = rule.RULE.name


def lrn(
    size: int = 4, alpha: float = 0.02, beta: float = 0.6, bias: float = 1.5, shape: str = "2, 6, 5, 3", **more
) -> onnx.ModelProto:
    attributes = f"<size={size}, alpha={alpha:.9f}, beta={beta:.9f}, bias={bias:.9f}>"
    return norm(f"y = LRN {attributes} (x)", None, shape, **more)


def by_definition(x: np.ndarray, size: int, alpha: float, beta: float, bias: float) -> np.ndarray:
    """Channel by channel, as the specification has it."""
    x, channels = x.astype(np.float64), x.shape[1]
    out = np.empty_like(x)
    for c in range(channels):
        first, last = max(0, c - (size - 1) // 2), min(channels - 1, c + size // 2)
        total = (x[:, first : last + 1] ** 2).sum(axis=1)
        out[:, c] = x[:, c] / (bias + alpha / size * total) ** beta
    return out


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 9, 16, 17])
@pytest.mark.parametrize("opset", [7, 9, 10, 13, 18])
def test_every_window_and_opset(rewrite, size, opset):
    result = rewrite(lrn(size, opset=opset))
    assert result.rules == [NAME]
    assert operators(result.model).count("Slice") == (size if size > 1 else 0)
    x = random(2, 6, 5, 3)
    wanted = by_definition(x, size, 0.02, 0.6, 1.5)
    assert relative_error(wanted, evaluate_float64(result.model, {"x": x}).outputs["y"]) < 1e-6


@pytest.mark.parametrize("shape", ["2, 6", "2, 6, 7", "2, 6, 2, 3, 2", "N, 6, H, W", "2, C, 5, 3"])
def test_every_rank_and_dynamic_shapes(rewrite, shape):
    sizes = tuple(int(s) if s.isdigit() else {"N": 2, "C": 6}.get(s, 3) for s in shape.split(", "))
    result = rewrite(lrn(shape=shape), pins={"x": sizes})
    assert result.rules == [NAME]
    x = random(*sizes)
    got = evaluate_float64(result.model, {"x": x}).outputs["y"]
    assert relative_error(by_definition(x, 4, 0.02, 0.6, 1.5), got) < 1e-6


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_half_precision_is_computed_in_float32(rewrite, kind):
    result = rewrite(lrn(5, kind=kind))
    assert result.rules == [NAME]
    assert operators(result.model)[0] == operators(result.model)[-1] == "Cast"


def test_what_tensorrt_takes_may_stay(rewrite):
    never = RewriteSettings(optimize="never")
    assert rewrite(lrn(5), settings=never).rules == []
    for other in (lrn(4), lrn(17), lrn(5, bias=0), lrn(5, beta=0.005), lrn(5, shape="2, 6, 7"), lrn(5, shape="2, 6, 2, 3, 2")):
        assert rewrite(other, settings=never).rules == [NAME]


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(1, 12), st.integers(1, 9), st.floats(1e-4, 2), st.floats(0, 2), st.floats(0.1, 3), st.integers(0, 2**16))
def test_any_attributes(rewrite_once, size, channels, alpha, beta, bias, seed):
    model = lrn(size, alpha, beta, bias, f"2, {channels}, 3, 2")
    x = np.random.default_rng(seed).standard_normal((2, channels, 3, 2)).astype(np.float32)
    alpha, beta, bias = (float(np.float32(f"{value:.9f}")) for value in (alpha, beta, bias))
    got = evaluate_float64(rewrite_once(model, rule.RULE), {"x": x}).outputs["y"]
    assert relative_error(by_definition(x, size, alpha, beta, bias), got) < 1e-6


REFUSALS = [
    Refusal(
        data_channels.type_and_rank_are_known, unknown_rank("y = LRN <size=3> (x)", {}), "type or rank of the data of norm"
    ),
    Refusal(rule.data_has_channels, lrn(shape="6"), "the data of norm has no channels"),
    Refusal(rule.window_is_positive, lrn(0), "norm has size=0"),
    Refusal(rule.window_is_positive, lrn(500), "norm has size=500"),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE, tolerant=True)


def test_a_second_pass_changes_nothing(rewrite):
    twice = rewrite(rewrite(lrn()).model)
    assert twice.outcome.changes == []
