"""What the test files of the rules ask of a rule alike."""

from __future__ import annotations

import numpy as np
import onnx

from tests.models import parse
from tests.oracle import worst_relative_error
from tests.rewrite.conftest import Rewrite
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.rewrite.rule import Rule


def assert_refuses(rewrite: Rewrite, case: Refusal, rule: Rule, tolerant: bool = False) -> None:
    """``rule`` alone says the reason, and leaves the model as it is."""
    result = rewrite(case.model, rules=(rule,), settings=case.settings, tolerant=tolerant)
    assert result.outcome.changes == []
    assert case.reason in result.reason(rule.name)
    assert result.model.graph == result.surgery.source.graph


def inside_a_branch(x: str, y: str, body: str, other: str, weights: dict[str, np.ndarray]) -> onnx.ModelProto:
    """``body`` makes ``y`` in one branch of an If; ``other`` makes ``e``, of the same type, in the other one."""
    return parse(
        f"g ({x} x, bool t) => (float[] r) {{ r = If (t) <then_branch = a () => ({y} y) {{ {body} }},"
        f" else_branch = b () => ({y} e) {{ {other} }}> }}",
        weights,
    )


def assert_applies_in_branches(rewrite: Rewrite, model: onnx.ModelProto, rule: Rule, times: int = 1) -> None:
    """Whichever branch is taken, the model computes the same afterwards."""
    result = rewrite(model)
    assert result.rules == [rule.name] * times
    for seed in range(4):
        assert worst_relative_error(model, result.model, seed=seed) < 1e-6
