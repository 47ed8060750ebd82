"""How often a rewriting goes over the whole graph: counted, because seconds depend on the machine."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest

from tests.models import batchnorm, loaded, parse, random
from tests.rewritings import rewrite
from trtnorm_cli.onnx_model.shapes import declared_types
from trtnorm_cli.onnx_model.surgery import open_model
from trtnorm_cli.rewrite import driver
from trtnorm_cli.rewrite.borders import Borders
from trtnorm_cli.rewrite.norms import matching, record
from trtnorm_cli.rewrite.norms.composition import compositions
from trtnorm_cli.rewrite.rule import Check
from trtnorm_cli.rewrite.rules import RULES

PASSED = Check(0.0, 0.0, 1e-5, 0.0, 1e-5, 0, {}, "nothing", True)


def chain(length: int) -> onnx.ModelProto:
    """``length`` times Conv, BatchNormalization and Relu."""
    lines = [
        f"c{i} = Conv(r{i - 1}, w) n{i} = BatchNormalization(c{i}, gamma, beta, mu, var) r{i} = Relu(n{i})"
        for i in range(1, length + 1)
    ]
    types = {name: f"float[1, 2, 4, 4] {name}" for i in range(1, length + 1) for name in (f"c{i}", f"n{i}", f"r{i}")}
    types.pop(f"r{length}")
    graph = f"g (float[1, 2, 4, 4] r0) => (float[1, 2, 4, 4] r{length}) <{', '.join(types.values())}> {{ {' '.join(lines)} }}"
    return parse(graph, {"w": random(2, 2, 1, 1), **batchnorm(2)})


def applied(model: onnx.ModelProto) -> driver.Outcome:
    surgery = open_model(model, None)
    return driver.apply(surgery, RULES, declared_types(model), lambda found, realised: PASSED)


@pytest.fixture
def passes(monkeypatch) -> Counter[str]:
    """How often the shapes of a graph are inferred, and how often a graph is checked or opened."""
    calls: Counter[str] = Counter()

    def count(owner, name):
        original = getattr(owner, name)

        def counted(*arguments, **options):
            calls[name] += 1
            return original(*arguments, **options)

        monkeypatch.setattr(owner, name, counted)

    count(onnx.shape_inference, "infer_shapes")
    count(onnx.checker, "check_model")
    count(gs, "import_onnx")
    return calls


def test_a_model_that_stays_is_inferred_checked_and_opened_a_fixed_number_of_times(passes, tmp_path):
    for length in (1, 30):
        lines = " ".join(f"r{i} = Relu(r{i - 1})" for i in range(1, length + 1))
        model = parse(f"g (float[N, 4] r0) => (float[N, 4] r{length}) {{ {lines} }}")
        read = loaded(model, tmp_path)
        passes.clear()
        done = rewrite(read)
        assert not done.changes
        # Folding, the result of cleaning, and the shapes at which changes would be proved, with and without norms set aside.
        assert passes["infer_shapes"] <= 4
        assert passes["check_model"] <= 1
        assert passes["import_onnx"] == 1


def test_changes_do_not_multiply_them(passes):
    """What is inferred for one change is its own cut-out, which has a handful of nodes."""
    seen = []
    for length in (3, 12):
        model = chain(length)
        passes.clear()
        assert len(applied(model).changes) == length
        seen.append(passes["infer_shapes"])
    assert seen == [0, 0]
    assert passes["import_onnx"] == 1


def test_rules_are_tried_at_nodes_of_their_operators_only(monkeypatch):
    """5000 nodes: each is looked at by the rules of its operator, in any of the few plans."""
    tried: Counter[str] = Counter()
    concerns = driver._concerns

    def counted(rule, node, surgery):
        tried[rule.name] += 1
        return concerns(rule, node, surgery)

    monkeypatch.setattr(driver, "_concerns", counted)
    model = chain(1667)
    surgery = open_model(model, None)
    driver.plan(surgery, RULES, declared_types(model))
    per_node = tried.total() / len(model.graph.node)
    assert per_node <= 6, tried.most_common(5)


def test_nodes_of_several_operators_are_given_in_the_order_of_execution():
    model = parse("g (float[3] x) => (float[3] z) { a = Relu(x) b = Neg(a) c = Relu(b) d = Abs(c) z = Neg(d) }")
    borders = Borders(open_model(model, None).graphs())
    assert [node.op for node in borders.nodes_of(("Neg", "Relu", "Neg"))] == ["Relu", "Neg", "Relu", "Neg"]
    assert borders.nodes_of(("Conv",)) == []


def test_normalizations_in_pieces_are_looked_for_once_for_each_state_of_the_graph(monkeypatch, tmp_path):
    """The listing and the first plan see the same graph; each later plan sees another one."""
    searched: Counter[str] = Counter()

    def counted(*arguments):
        searched["compositions"] += 1
        return compositions(*arguments)

    monkeypatch.setattr(record, "compositions", counted)
    monkeypatch.setattr(matching, "compositions", counted)
    norm = "mean = ReduceMean <axes = [1]> (x) d = Sub(x, mean) s = Mul(d, d) v = ReduceMean <axes = [1]> (s) e = Add(v, eps)"
    in_pieces = f"g (float[2, 8] x) => (float[2, 8] y) {{ {norm} r = Sqrt(e) y = Div(d, r) }}"
    unchanged = rewrite(loaded(parse(in_pieces, {"eps": np.array([1e-5], np.float32)}, opset=17), tmp_path))
    assert len(unchanged.composites) == 1
    assert not unchanged.changes
    assert searched["compositions"] == 1

    searched.clear()
    assert len(rewrite(loaded(chain(1), tmp_path)).changes) == 1
    assert searched["compositions"] <= 2
