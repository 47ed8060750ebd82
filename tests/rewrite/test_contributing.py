"""The rule that CONTRIBUTING.md shows is a rule that works."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from tests.models import parse
from trtnorm_cli.rewrite.rule import Rule

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"


@pytest.fixture
def rule(monkeypatch: pytest.MonkeyPatch) -> Rule:
    (source,) = re.findall(r"<!-- tested: the rule below -->\n```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    module = types.ModuleType("rule_of_the_contributing_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(source, str(PAGE), "exec"), module.__dict__)
    return module.RULE


def test_it_applies_and_is_idempotent(rule, rewrite):
    model = parse("g (float[N, 3] x) => (float[N, 3] y) { a = Dropout(x, ratio) y = Neg(a) }", {"ratio": np.float32(0.5)})
    result = rewrite(model, (rule,))
    assert (result.rules, result.operators) == (["remove-dropout"], ["Identity", "Neg"])
    assert result.outcome.changes[0].check.max_abs == 0
    assert rewrite(result.model, (rule,)).rules == []


def test_its_precondition_refuses_training(rule, rewrite):
    weights = {"ratio": np.float32(0.5), "training": np.bool_(True)}
    model = parse("g (float[N, 3] x) => (float[N, 3] y) { y = Dropout(x, ratio, training) }", weights)
    assert "training_mode=True" in rewrite(model, (rule,)).reason("remove-dropout")


def test_it_describes_itself(rule):
    assert rule.doc.startswith("Remove a Dropout that drops nothing.")
    assert all(precondition.__doc__ for precondition in rule.preconditions)
