"""A rewriting is done over again without the changes that had to be undone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

from tests.models import parse
from tests.rewrite.test_driver import broken, text, verdict
from trtnorm_cli.onnx_model.shapes import declared_types
from trtnorm_cli.onnx_model.surgery import open_model
from trtnorm_cli.profile.rewriting import RewriteSettings
from trtnorm_cli.rewrite.editor import Editor
from trtnorm_cli.rewrite.pattern import Var, op
from trtnorm_cli.rewrite.rule import NewConstant, NewNode, Rule, Undone
from trtnorm_cli.rewrite.steady import apply_steadily
from trtnorm_cli.rewrite.undoing import undone_warning


def swapped(new: str):
    def replacement(m) -> NewNode:
        return NewNode(new, (m.tensor("x"),), role=new.lower())

    return replacement


def rule(old: str, new: str, optional: bool = False, name: str = "") -> Rule:
    """A made-up rule: operator ``old`` becomes ``new``."""
    pattern = op(old, Var("x"), name="node")
    made = Rule(name or f"{old}-{new}".lower(), pattern, (), swapped(new), "test")
    return replace(made, optional=lambda m: True) if optional else made


def steadily(graph: str, *rules: Rule, prove=lambda m, r: verdict(True)):
    model = onnx.shape_inference.infer_shapes(parse(graph))
    surgery, outcome = apply_steadily(lambda: open_model(model, None), rules, declared_types(model), prove, RewriteSettings())
    return outcome, text(surgery.close())


def fails(*names: str):
    return lambda match, realised: verdict(match.rule.name not in names, "differs")


CHAIN = "g (float[4] a) => (float[4] y) { b = Relu(a) y = Neg(b) }"


def test_what_fails_leaves_no_trace():
    """The rule behind the one that fails finds the graph as the first rule would have left it untouched."""
    outcome, made = steadily(
        CHAIN, rule("Relu", "Abs", optional=True), rule("Neg", "Exp", optional=True), prove=fails("relu-abs")
    )
    assert made == ["b = Relu(a)", "y = Exp(b)"]
    assert [(u.rule, u.node, u.reason) for u in outcome.undone] == [("relu-abs", "Relu -> b", "differs")]
    assert [change.rule for change in outcome.changes] == ["neg-exp"]


def test_another_rule_takes_the_place_of_one_that_is_needed_and_fails():
    outcome, made = steadily(CHAIN, rule("Relu", "Abs"), rule("Relu", "Sin"), prove=fails("relu-abs"))
    assert made == ["b = Sin(a)", "y = Neg(b)"]
    assert outcome.failed == []
    assert [u.rule for u in outcome.undone] == ["relu-abs"]


def test_a_needed_change_that_builds_upon_an_optional_one_is_planned_again_without_it():
    """Abs, which the optional rule made, cannot become Sin rightly; Relu itself can."""
    rules = (rule("Relu", "Abs", optional=True), rule("Abs", "Sin"), rule("Relu", "Cos"))
    outcome, made = steadily(CHAIN, *rules, prove=fails("abs-sin"))
    assert made == ["b = Cos(a)", "y = Neg(b)"]
    assert outcome.failed == []
    (undone,) = outcome.undone
    assert (undone.rule, undone.node) == ("relu-abs", "Relu -> b")
    assert "without it abs-sin at" in undone.reason


def test_a_needed_change_that_an_optional_one_elsewhere_spoils():
    """The check fails for something that the optional change did in front; nothing says so."""

    def prove(match, realised):
        spoilt = match.rule.name == "neg-exp" and match.node("node").inputs[0].inputs[0].op == "Abs"
        return verdict(not spoilt, "differs")

    outcome, made = steadily(CHAIN, rule("Relu", "Abs", optional=True), rule("Neg", "Exp"), prove=prove)
    assert made == ["b = Relu(a)", "y = Exp(b)"]
    assert (outcome.failed, [u.rule for u in outcome.undone]) == ([], ["relu-abs"])


def test_what_is_needed_and_fails_without_optional_changes_too_is_a_failure():
    outcome, _ = steadily(CHAIN, rule("Relu", "Abs", optional=True), rule("Neg", "Exp"), prove=fails("neg-exp"))
    assert [change.rule for change in outcome.failed] == ["neg-exp"]


@pytest.mark.parametrize("count", [1, 20])
def test_a_graph_that_is_left_half_edited_is_opened_anew(monkeypatch, count):
    remember = Editor._remember

    def half(self, realised):
        if realised.nodes[0].op == "Abs":
            broken(None)
        remember(self, realised)

    monkeypatch.setattr(Editor, "_remember", half)
    relus = " ".join(f"r{i} = Relu(a)" for i in range(count))
    ends = ", ".join(f"float[4] r{i}" for i in range(count))
    outcome, made = steadily(
        f"g (float[4] a) => ({ends}, float[4] y) {{ {relus} y = Neg(a) }}",
        rule("Relu", "Abs", optional=True),
        rule("Neg", "Exp"),
    )
    assert made == [*(f"r{i} = Relu(a)" for i in range(count)), "y = Exp(a)"]
    assert len(outcome.undone) == count


def test_rounds_end_where_names_change_each_time():
    """Each round undoes a change at a tensor of another name: the last round's model is taken as it is."""
    numbers = iter(range(100))

    def renamed(m) -> NewNode:
        number = next(numbers)
        inner = NewNode("Abs", (m.tensor("x"),), role=f"fresh{number}")
        return NewNode("Mul", (inner, NewConstant("two", np.float32([2]))), role="double")

    needed = Rule("relu-mul", op("Relu", Var("x"), name="node"), (), renamed, "test")
    outcome, made = steadily(CHAIN, needed, rule("Abs", "Sin", optional=True), prove=fails("abs-sin"))
    assert [line.split(" = ")[1].split("(")[0] for line in made] == ["Abs", "Mul", "Neg"]
    assert {u.rule for u in outcome.undone} == {"abs-sin"}


@pytest.mark.parametrize(
    ("provable", "advice"), [(True, "please report this"), (False, "a build profile with sizes that the model takes may allow")]
)
def test_a_report_is_asked_for_where_something_went_wrong(provable, advice):
    """That nothing could be evaluated at sizes which nobody gave is no defect, and frightens nobody."""
    assert advice in undone_warning([Undone("rule", "Conv c", "because", "y", provable)])
