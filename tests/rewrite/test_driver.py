"""The driver: what it takes, what it refuses on behalf of every rule, and how it edits."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import onnx
import pytest

from tests.models import parse, random
from trtnorm_cli.onnx_model.shapes import declared_types
from trtnorm_cli.onnx_model.stored import file_part
from trtnorm_cli.onnx_model.surgery import open_model
from trtnorm_cli.rewrite import driver
from trtnorm_cli.rewrite.editor import Editor
from trtnorm_cli.rewrite.pattern import Const, Var, op, optional
from trtnorm_cli.rewrite.rule import Check, NewConstant, NewNode, Rejection, Rule, Undone, Unprovable

WEIGHTS = {"w": random(4), "v": random(4)}


def verdict(passed: bool, reason: str = "") -> Check:
    return Check(0.0, 0.0, 1e-5, 0.0, 1e-6, 0, {}, "nothing", passed, reason)


def agree(match, realised) -> Check:
    return verdict(True)


def double_of(m) -> NewNode:
    return NewNode("Mul", (m.tensor("x"), NewConstant("two", np.float32([2]))), role="double")


# x + x·w, a made-up pattern of two nodes with one tensor entering twice.
FUSE = Rule("fuse", op("Add", Var("x"), op("Mul", Var("x2"), Const("w"), name="mul"), name="add"), (), double_of, "test")
RELU = Rule("relu", op("Relu", Var("x"), name="relu"), (), double_of, "test")
EITHER_SUM = Rule("sum", op("Add", Var("x"), Var("y"), name="add"), (), double_of, "test")


def opened(graph: str, opset: int = 17):
    return open_model(onnx.shape_inference.infer_shapes(parse(graph, WEIGHTS, opset=opset)), None)


def planned(graph: str, *rules: Rule, opset: int = 17) -> driver.RewritePlan:
    surgery = opened(graph, opset)
    return driver.plan(surgery, rules, declared_types(surgery.source))


def applied(graph: str, *rules: Rule, prove=agree):
    surgery = opened(graph)
    outcome = driver.apply(surgery, rules, declared_types(surgery.source), prove)
    return outcome, surgery.close()


def text(model: onnx.ModelProto) -> list[str]:
    return [f"{', '.join(n.output)} = {n.op_type}({', '.join(n.input)})" for n in model.graph.node]


ADD_MUL = "g (float[4] a) => (float[4] y) { m = Mul(a, w) y = Add(a, m) }"


def test_planning_edits_nothing():
    surgery = opened(ADD_MUL)
    before = surgery.close().SerializeToString(deterministic=True)
    found = driver.plan(surgery, (FUSE,), declared_types(surgery.source))
    assert [match.rule.name for match in found.matches] == ["fuse"]
    assert surgery.close().SerializeToString(deterministic=True) == before


def test_the_first_rule_that_fits_takes_the_node():
    for rules, taken in (((FUSE, EITHER_SUM), "fuse"), ((EITHER_SUM, FUSE), "sum")):
        found = planned(ADD_MUL, *rules)
        assert [match.rule.name for match in found.matches] == [taken]
        assert found.rejections == ()


def test_matches_do_not_overlap():
    """m is inside both patterns: the second Add has to wait, and then finds another graph."""
    graph = "g (float[4] a) => (float[4] y) { m = Mul(a, w) n = Relu(m) y = Add(n, n) }"
    both = Rule("both", op("Add", Var("x"), op("Relu", Var("z"), name="relu"), name="add"), (), double_of, "test")
    found = planned(graph, RELU, both)
    assert [match.rule.name for match in found.matches] == ["relu"]


def test_what_a_taken_node_feeds_waits_for_the_next_plan():
    graph = "g (float[4] a) => (float[4] y) { r = Relu(a) y = Relu(r) }"
    found = planned(graph, RELU)
    assert [match.output.name for match in found.matches] == ["r"]
    assert found.rejections == (Rejection("relu", "Relu -> y", "what feeds it changes first, then it is tried again"),)
    outcome, result = applied(graph, RELU)
    assert [change.node for change in outcome.changes] == ["Relu -> r", "Relu -> y"]
    assert outcome.rejections == ()
    assert [node.op_type for node in result.graph.node] == ["Mul", "Mul"]


@pytest.mark.parametrize(("graph", "reason"), [
    ("(float[4] a) => (float[4] y, float[4] m) { m = Mul(a, w) y = Add(a, m) }", "m is an output of the graph"),
    ("(float[4] a) => (float[4] y, float[4] r) { m = Mul(a, w) y = Add(a, m) r = Relu(m) }", "m is also used by Relu -> r"),
    ("(float[4] a, bool c) => (float[4] r) { m = Mul(a, w) r = If (c) <then_branch = t () => (float[4] y)"
     " { y = Add(a, m) }, else_branch = e () => (float[4] z) { z = Abs(a) }> }", "Mul -> m belongs to an outer graph"),
    ("(float[4] a, bool c) => (float[4] y, float[4] r) { m = Mul(a, w) y = Add(a, m) r = If (c) <then_branch = t ()"
     " => (float[4] z) { z = Abs(m) }, else_branch = e () => (float[4] q) { q = Abs(a) }> }", "m is also used by Abs -> z"),
    ("(float[4] a, bool c) => (float[4] y, float[4] r) { m = Mul(a, w) y = Add(a, m) r = If (c) <then_branch = t ()"
     " => (float[4] m) { }, else_branch = e () => (float[4] q) { q = Abs(a) }> }", "m is an output of the graph"),
])  # fmt: skip
def test_inner_tensors_that_somebody_else_uses(graph, reason):
    found = planned(f"g {graph}", FUSE)
    assert found.matches == ()
    assert [r.reason for r in found.rejections] == [reason]


def test_a_further_output_of_the_root_that_is_used():
    pattern = op("Dropout", Var("x"), optional(Const("ratio")), name="dropout")
    rule = Rule("dropout", pattern, (), double_of, "test")
    used = planned("g (float[4] a) => (float[4] y, bool[4] k) { y, k = Dropout(a) }", rule)
    assert [r.reason for r in used.rejections] == ["k, a further output of Dropout -> y, is used"]
    unused = planned("g (float[4] a) => (float[4] y) { y, k = Dropout(a) }", rule)
    assert len(unused.matches) == 1


def refusing(rule: Rule) -> Rule:
    return replace(rule, value_preconditions=(lambda m: "the values say no",))


def test_where_values_speak_against_a_rule_another_may_take_the_node():
    outcome, _ = applied(ADD_MUL, refusing(FUSE), EITHER_SUM)
    assert [change.rule for change in outcome.changes] == ["sum"]
    assert (outcome.rejections, outcome.undone) == ((), [])


@pytest.mark.parametrize("optional", [None, lambda m: True])
def test_a_refusal_because_of_values_is_told_as_others_are(optional):
    rule, graph = replace(refusing(RELU), optional=optional), "g (float[4] a) => (float[4] y) { y = Relu(a) }"
    outcome, result = applied(graph, rule)
    assert outcome.rejections == planned(graph, rule).rejections == (Rejection("relu", "Relu -> y", "the values say no"),)
    assert outcome.changes == outcome.failed == outcome.undone == []
    assert text(result) == ["y = Relu(a)"]


def test_an_optional_change_whose_values_cannot_be_asked_is_undone():
    def breaks(m):
        raise ValueError("no such thing")

    rule = replace(RELU, value_preconditions=(breaks,), optional=lambda m: True)
    outcome, _ = applied("g (float[4] a) => (float[4] y) { y = Relu(a) }", rule)
    assert ["no such thing" in undone.reason for undone in outcome.undone] == [True]


def test_opset_and_rank_are_asked_before_the_rule():
    never = replace(RELU, preconditions=(lambda m: pytest.fail("the rule was asked"),), since_opset=18)
    assert planned("g (float[4] a) => (float[4] y) { y = Relu(a) }", never).rejections[0].reason == (
        "the model is of opset 17, the rule starts at 18"
    )
    ranked = replace(never, since_opset=7, needs_rank_of=("x",))
    graph = "g (float[4] a, int64[K] s) => (float[] y) { r = Reshape(a, s) y = Relu(r) }"
    assert planned(graph, ranked).rejections[0].reason == "the rank of r is not known"


def test_preconditions_are_asked_in_order_until_one_refuses():
    asked = []

    def first(m):
        asked.append("first")

    def second(m):
        asked.append("second")
        return "no"

    def third(m):
        asked.append("third")

    found = planned("g (float[4] a) => (float[4] y) { y = Relu(a) }", replace(RELU, preconditions=(first, second, third)))
    assert asked == ["first", "second"]
    assert found.rejections == (Rejection("relu", "Relu -> y", "no"),)


def test_a_node_of_another_operator_is_not_worth_a_refusal():
    assert planned("g (float[4] a) => (float[4] y) { y = Abs(a) }", RELU) == driver.RewritePlan((), ())


def test_a_replacement_takes_the_place_and_the_output():
    outcome, result = applied("g (float[4] a) => (float[4] z) { m = Mul(a, w) y = Add(a, m) z = Abs(y) }", FUSE)
    (change,) = outcome.changes
    assert (change.removed, change.added) == (("Mul -> m", "Add -> y"), ("Add -> y/double",))
    assert text(result) == ["y = Mul(a, Add -> y/two)", "z = Abs(y)"]
    assert [t.name for t in result.graph.initializer] == ["Add -> y/two"]
    onnx.checker.check_model(result, full_check=True)


def test_nodes_stay_in_topological_order():
    """What the replacement takes is made right before the root, long after the first matched node."""
    graph = "g (float[4] a) => (float[4] y) { m = Mul(a, w) b = Abs(a) c = Neg(b) y = Add(c, m) }"
    _, result = applied(graph, FUSE)
    onnx.checker.check_model(result, full_check=True)
    assert text(result) == ["b = Abs(a)", "c = Neg(b)", "y = Mul(c, Add -> y/two)"]


def test_dead_feeders_go_and_live_ones_stay():
    graph = (
        "g (float[4] a) => (float[4] y, float[4] z)"
        "{ k = Constant <value_float=3.0>() p = Abs(a) q = Neg(p) s = Exp(a) z = Sin(s)"
        " c = Add(q, s) m = Mul(c, k) y = Add(a, m) }"
    )
    _, result = applied(graph, FUSE)
    assert text(result) == ["s = Exp(a)", "z = Sin(s)", "y = Mul(a, Add -> y/two)"]


def test_a_feeder_that_a_subgraph_reads_stays():
    graph = (
        "g (float[4] a, bool t) => (float[4] y, float[4] r) { b = Abs(a) m = Mul(b, w) y = Add(a, m)"
        " r = If (t) <then_branch = g1 () => (float[4] p) { p = Neg(b) }, else_branch = g2 () => (float[4] q) { q = Neg(a) }> }"
    )
    _, result = applied(graph, FUSE)
    assert [node.op_type for node in result.graph.node] == ["Abs", "Mul", "If"]
    onnx.checker.check_model(result, full_check=True)


def test_a_failed_check_leaves_the_graph_and_is_not_repeated():
    asked = []

    def disagree(match, realised):
        asked.append(match.output.name)
        return verdict(match.output.name == "y", "differs")

    graph = "g (float[4] a) => (float[4] y, float[4] z) { y = Relu(a) z = Relu(a) }"
    outcome, result = applied(graph, RELU, prove=disagree)
    assert asked == ["y", "z"]
    assert [change.node for change in outcome.changes] == ["Relu -> y"]
    assert [(change.node, change.check.reason) for change in outcome.failed] == [("Relu -> z", "differs")]
    assert text(result) == ["y = Mul(a, Relu -> y/two)", "z = Relu(a)"]


@pytest.mark.parametrize("prove", [lambda match, realised: verdict(False, "no"), agree])
def test_a_large_constant_is_kept_on_the_disk_only_where_its_change_is_made(prove):
    large = random(1 << 19)
    rule = replace(RELU, replacement=lambda m: NewNode("Mul", (m.tensor("x"), NewConstant("large", large))))
    surgery = opened("g (float[N, 524288] a) => (float[N, 524288] y) { y = Relu(a) }")
    outcome = driver.apply(surgery, (rule,), declared_types(surgery.source), prove)
    kept = surgery.shelf.put(WEIGHTS["w"].repeat(1 << 14), "next")
    assert file_part(kept.tensor, None).offset // large.nbytes == len(outcome.changes)


def test_after_a_failed_check_the_next_rule_is_tried():
    """When it takes the node, the model is right without the change that failed, and nothing has to be refused."""
    other = replace(RELU, name="other")
    outcome, _ = applied(
        "g (float[4] a) => (float[4] y) { y = Relu(a) }", RELU, other, prove=lambda m, r: verdict(m.rule.name == "other", "off")
    )
    assert outcome.failed == []
    assert outcome.undone == [Undone("relu", "Relu -> y", "off", "y")]
    assert [change.rule for change in outcome.changes] == ["other"]


TWO = "g (float[4] a) => (float[4] y, float[4] z) { y = Relu(a) z = Relu(a) }"
CAN_DO_WITHOUT = replace(RELU, optional=lambda m: True)


def broken(m):
    raise IndexError("list index out of range")


def broken_judge(match, realised):
    if match.output.name == "y":
        broken(match)
    return verdict(True)


def unable(match, realised):
    if match.output.name == "y":
        raise Unprovable("the original cannot be evaluated")
    return verdict(True)


@pytest.mark.parametrize(("prove", "reason"), [
    (lambda m, r: verdict(m.output.name != "y", "differs"), "differs"),
    (unable, "the change cannot be proved: the original cannot be evaluated"),
    (broken_judge, "IndexError: list index out of range"),
])  # fmt: skip
def test_an_optional_change_that_cannot_be_made_is_undone(prove, reason):
    outcome, result = applied(TWO, CAN_DO_WITHOUT, prove=prove)
    assert outcome.failed == []
    (undone,) = outcome.undone
    assert (undone.rule, undone.node, undone.tensor) == ("relu", "Relu -> y", "y")
    assert undone.reason.startswith(reason)
    assert [change.node for change in outcome.changes] == ["Relu -> z"]
    assert text(result) == ["y = Relu(a)", "z = Mul(a, Relu -> z/two)"]


@pytest.mark.parametrize("part", ["preconditions", "replacement", "extent", "warning"])
def test_an_exception_in_an_optional_rule_undoes_it(part):
    rule = replace(CAN_DO_WITHOUT, **{part: (broken,) if part == "preconditions" else broken})
    outcome, result = applied(TWO, rule)
    assert [u.tensor for u in outcome.undone] == ["y", "z"]
    assert all(u.reason.startswith("IndexError: list index out of range") for u in outcome.undone)
    assert text(result) == ["y = Relu(a)", "z = Relu(a)"]


@pytest.mark.parametrize("part", ["preconditions", "replacement", "extent", "warning"])
@pytest.mark.parametrize("optional", [None, lambda m: False])
def test_an_exception_in_a_rule_that_is_needed_is_a_defect(part, optional):
    rule = replace(RELU, optional=optional, **{part: (broken,) if part == "preconditions" else broken})
    with pytest.raises(IndexError):
        applied(TWO, rule)


def test_a_rule_that_cannot_say_whether_it_is_needed_is_left_to_the_audit():
    outcome, _ = applied(TWO, replace(RELU, optional=broken))
    assert [u.tensor for u in outcome.undone] == ["y", "z"]


def test_the_place_of_an_exception_is_named():
    """A user sees no traceback, and whoever reads the report needs the line."""

    def elsewhere(m):
        return m.value("nothing")

    outcome, _ = applied(TWO, replace(CAN_DO_WITHOUT, preconditions=(elsewhere,)))
    assert re.fullmatch(r"KeyError: 'nothing' \(rule.py, line \d+\)", outcome.undone[0].reason)


def test_a_graph_that_is_left_half_edited_is_said_to_be(monkeypatch):
    monkeypatch.setattr(Editor, "_remember", lambda self, realised: broken(None))
    outcome, _ = applied(TWO, CAN_DO_WITHOUT)
    assert not outcome.is_whole
    assert [u.tensor for u in outcome.undone] == ["y"]


def test_what_cannot_be_proved_is_refused_and_not_a_failure():
    def unable(match, realised):
        raise Unprovable("the original cannot be evaluated")

    outcome, result = applied("g (float[4] a) => (float[4] y) { y = Relu(a) }", RELU, prove=unable)
    assert outcome.changes == outcome.failed == []
    assert outcome.rejections == (
        Rejection("relu", "Relu -> y", "the change cannot be proved: the original cannot be evaluated"),
    )
    assert text(result) == ["y = Relu(a)"]


def test_equal_nodes_are_told_apart():
    """graphsurgeon compares nodes by content; two of one name and content must not be mixed up."""
    graph = "g (float[4] a) => (float[4] y, float[4] z) { [n] y = Relu(a) [n] z = Relu(a) }"
    outcome, result = applied(graph, RELU)
    assert len(outcome.changes) == 2
    assert [list(node.output) for node in result.graph.node] == [["y"], ["z"]]
    names = [node.name for node in result.graph.node]
    assert names == ["n/double", "n/double_2"]
    constants = [t.name for t in result.graph.initializer]
    assert constants == ["n/two", "n/two_2"]


def test_names_in_subgraphs_are_taken_too():
    graph = (
        "g (float[4] a, bool t) => (float[4] y, float[4] r) { [n] y = Relu(a) r = If (t) <then_branch = g1 () => (float[4] p)"
        ' { "n/two" = Neg(a) p = Abs("n/two") }, else_branch = g2 () => (float[4] q) { q = Neg(a) }> }'
    )
    _, result = applied(graph, RELU)
    assert [t.name for t in result.graph.initializer] == ["n/two_2"]


def test_the_constants_of_a_replacement_in_a_branch_stay_in_it():
    graph = (
        "g (float[4] a, bool t) => (float[4] r) { r = If (t) <then_branch = g1 () => (float[4] p) { p = Relu(a) },"
        " else_branch = g2 () => (float[4] q) { q = Neg(a) }> }"
    )
    _, result = applied(graph, RELU)
    (node,) = result.graph.node
    branch = next(attribute.g for attribute in node.attribute if attribute.name == "then_branch")
    assert [t.name for t in branch.initializer] == ["Relu -> p/two"]
    assert not result.graph.initializer
    onnx.checker.check_model(result, full_check=True)


def test_a_shared_part_of_a_replacement_is_made_once():
    def twice(m):
        square = NewNode("Mul", (m.tensor("x"), m.tensor("x")), role="square")
        one = NewConstant("one", np.float32([1]))
        return NewNode("Add", (NewNode("Mul", (square, square)), NewNode("Add", (one, one), role="two")), role="sum")

    _, result = applied("g (float[4] a) => (float[4] y) { [n] y = Relu(a) }", replace(RELU, replacement=twice))
    assert text(result) == [
        "n/square_output = Mul(a, a)",
        "n/Mul_output = Mul(n/square_output, n/square_output)",
        "n/two_output = Add(n/one, n/one)",
        "y = Add(n/Mul_output, n/two_output)",
    ]


def test_an_input_left_out_and_an_empty_list_of_a_replacement():
    """ONNX cannot tell the type of an empty list, so the attribute is not written."""

    def clip(m):
        return NewNode(
            "Clip", (m.tensor("x"), None, NewConstant("high", np.array(6, np.float32))), {"nothing": []}, role="clip"
        )

    _, result = applied("g (float[4] a) => (float[4] y) { [n] y = Relu(a) }", replace(RELU, replacement=clip))
    (node,) = result.graph.node
    assert list(node.input) == ["a", "", "n/high"]
    assert not node.attribute
    onnx.checker.check_model(result, full_check=True)
