"""What every rule in the table has to keep."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

import trtnorm_cli.rewrite.rules as table
from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.rewrite.pattern import Op
from trtnorm_cli.rewrite.rule import Rule
from trtnorm_cli.rewrite.rules import RULES, rule_named

FOLDER = Path(table.__file__).parent
LOOSEST = 1e-4
every_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)


def module_of(rule: Rule):
    return inspect.getmodule(rule.replacement)


def test_names_are_unique_and_spelled_alike():
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)
    for name in names:
        assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name)


def test_every_rule_file_is_in_the_table():
    """Nothing registers itself, so a forgotten entry would go unnoticed."""
    declaring = {path.stem for path in FOLDER.glob("*.py") if re.search(r"^RULE\b", path.read_text(), re.MULTILINE)}
    assert {module_of(rule).__name__.rpartition(".")[2] for rule in RULES} == declaring


@every_rule
def test_one_rule_one_file_named_after_it(rule):
    module = module_of(rule)
    assert module.RULE is rule
    assert module.__name__.rpartition(".")[2] == rule.name.replace("-", "_")


@every_rule
def test_docstring_has_algebra_and_source(rule):
    first, *_ = rule.doc.strip().splitlines()
    assert first.endswith(".")
    assert "=" in rule.doc, "the algebra is missing"
    assert re.search(r"^Source: .+\d{4}", rule.doc, re.MULTILINE), "the source is missing"


@every_rule
def test_preconditions_are_documented_as_a_sentence_that_is_true(rule):
    """``trtnorm rules show`` lists them after "Applied only when"."""
    assert rule.preconditions
    conditions = (*rule.preconditions, *rule.value_preconditions)
    assert len(set(conditions)) == len(conditions)
    for condition in (*rule.preconditions, *rule.value_preconditions, *([rule.extent] if rule.extent is not None else [])):
        sentence = " ".join((condition.__doc__ or "").split())
        assert sentence.endswith("."), condition.__name__
        assert sentence[0].islower(), f"{condition.__name__}: the sentence goes on after 'Applied only when'"
        assert len(sentence.split()) >= 5, f"{condition.__name__}: too short to say what holds"


@every_rule
def test_because_goes_on_after_the_word(rule):
    assert rule.because[0].islower() or rule.because.split()[0].isupper()
    assert not rule.because.endswith(".")


@every_rule
def test_tolerance_is_not_loose(rule):
    assert 0 < rule.tolerance <= LOOSEST


@every_rule
def test_rules_are_plain_data(rule):
    assert isinstance(rule.pattern, Op)
    assert rule.since_opset >= 1
    with pytest.raises(AttributeError):
        rule.name = "other"


@every_rule
def test_a_rule_knows_nothing_of_the_driver(rule):
    """Only the driver edits graphs: a rule's file imports neither it nor graphsurgeon."""
    tree = ast.parse(Path(module_of(rule).__file__).read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    edits = ("onnx_graphsurgeon", "trtnorm_cli.rewrite.driver", "trtnorm_cli.rewrite.editor")
    assert not {name for name in imported if name.startswith(edits)}


@every_rule
def test_has_a_test_file_that_covers_every_precondition(rule):
    tests = importlib.import_module(f"tests.rewrite.rules.test_{rule.name.replace('-', '_')}")
    covered = {case.precondition for case in tests.REFUSALS}
    assert covered == {*rule.preconditions, *rule.value_preconditions}
    assert hasattr(tests, "test_a_second_pass_changes_nothing")


@every_rule
def test_can_be_asked_for_by_name(rule):
    assert rule_named(rule.name) is rule


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(UsageProblem, match="no rule named 'fold-batchnorm-con'") as caught:
        rule_named("fold-batchnorm-con")
    assert "fold-batchnorm-conv" in caught.value.hint
