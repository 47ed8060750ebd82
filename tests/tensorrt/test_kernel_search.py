"""Which builds are repeated to see what changes did, and which of them is preferred."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from onnx import helper

from tests.models import loaded, operators
from tests.rewrite.rules.test_recompose_group_norm import group_norm
from trtnorm_cli.profile.rewriting import RewriteSettings
from trtnorm_cli.records.engine_parts import Kernel
from trtnorm_cli.rewrite.kernels import Cost
from trtnorm_cli.rewrite.rewriting import RewritingSession
from trtnorm_cli.tensorrt import kernel_search
from trtnorm_cli.tensorrt.kernel_search import TO_DECIDE, TO_TELL, Bounds, is_quick, may_be_quick, preferred, why_more
from trtnorm_cli.tensorrt.request import BuildResult

SMALL = BuildResult(True, "done", "tensorrt-rtx", kernels=(Kernel("k", "kgen", "", (), (), ()),) * 80, engine_bytes=50 << 20)


@pytest.mark.parametrize(
    ("result", "bounds", "quick"),
    [
        (SMALL, TO_DECIDE, True),
        (SMALL, TO_TELL, False),
        (replace(SMALL, kernels=SMALL.kernels[:8], engine_bytes=1 << 20), TO_TELL, True),
        (replace(SMALL, kernels=SMALL.kernels * 8), TO_DECIDE, False),
        (replace(SMALL, engine_bytes=2 << 30), TO_DECIDE, False),
        (replace(SMALL, backend="tensorrt"), TO_DECIDE, False),
    ],
    ids=["small", "small, to be told", "tiny, to be told", "many kernels", "large", "a backend that times kernels"],
)
@pytest.mark.parametrize("seconds", [0.1, 1000.0])
def test_whether_a_build_is_repeated_does_not_depend_on_the_clock(
    result: BuildResult, bounds: Bounds, quick: bool, seconds: float
) -> None:
    assert is_quick(replace(result, seconds={"build": seconds}), bounds) is quick


@pytest.mark.parametrize(
    ("operator", "attributes", "sizes", "nodes", "quick"),
    [
        ("Add", {}, (32,), 4800, True),
        ("Add", {}, (32,), 4801, False),
        ("LSTM", {}, (32, 1, 8), 23, True),
        ("LSTM", {"direction": "reverse"}, (32, 1, 8), 23, True),
        ("LSTM", {"direction": "bidirectional"}, (32, 1, 8), 23, False),
        ("GRU", {"direction": "bidirectional"}, (32, 1, 8), 11, True),
        ("RNN", {}, (32, 1, 8), 24, False),
        ("RNN", {}, (), 24, False),
        ("LSTM", {}, (1, 32, 8), 200, True),
        ("LSTM", {"layout": 1}, (1, 32, 8), 24, False),
        ("LSTM", {}, (8, 32, 8), 60, True),
        ("LSTM", {}, (9, 32, 8), 60, False),
    ],
)
def test_recurrent_operators_launch_many_kernels(operator: str, attributes: Any, sizes: Any, nodes: int, quick: bool) -> None:
    """36 bidirectional LSTMs of Sequencer2D launch 3613: both of its engines were built, and only then was it known."""
    made = [helper.make_node(operator, ["x"], ["y"], **attributes) for _ in range(nodes)]
    given = [helper.make_tensor_value_info("x", 1, sizes)] if sizes else []
    assert may_be_quick(helper.make_model(helper.make_graph(made, "g", given, [])), TO_DECIDE) is quick


@pytest.mark.parametrize(
    ("costs", "best"),
    [
        ([Cost(126, 9, 2610.0), Cost(167, 9, 2588.0)], 1),
        ([Cost(99, 9, 500.0), Cost(98, 9, 500.3)], 1),
        ([Cost(23, 9, 675.0, 20), Cost(23, 9, 675.3, 1)], 1),
        ([Cost(23, 9, 675.0, 1), Cost(23, 9, 675.0, 1)], 0),
    ],
    ids=["less time in more kernels", "as much time in fewer kernels", "fewer compiled on the device", "the first of equals"],
)
def test_the_least_time_is_preferred_and_kernels_decide_between_equal_times(costs: list[Cost], best: int) -> None:
    assert preferred(costs) is costs[best]


@pytest.mark.parametrize(
    ("now", "before", "policy", "said"),
    [
        (Cost(57, 9, 1000.0), Cost(57, 9, 1000.5), "auto", None),
        (Cost(58, 9, 1000.0), Cost(57, 9, 1000.5), "auto", "1 more kernel than without optional changes, in the same time"),
        (Cost(59, 9, 950.0), Cost(57, 9, 1000.0), "auto", "2 more kernels than without optional changes, in 5.0% less time"),
        (Cost(58, 9, 1003.0), Cost(57, 9, 1000.0), "auto", "0.3% more time and 1 more kernel than without optional changes"),
        (
            Cost(57, 9, 1003.0),
            Cost(57, 9, 1000.0),
            "auto",
            "0.3% more time than without optional changes, by the estimate: too",
        ),
        (
            Cost(57, 9, 1003.0, 2),
            Cost(57, 9, 1000.0, 1),
            "auto",
            "0.3% more time than without optional changes, by the estimate",
        ),
        (
            Cost(56, 9, 1003.0),
            Cost(57, 9, 1000.0),
            "kernels",
            "more time than without optional changes: optimize: kernels does",
        ),
        (Cost(58, 9, 1003.0), Cost(57, 9, 1000.0), "always", "1 more kernel than without optional changes: optimize: always"),
    ],
)
def test_it_is_told_why_an_engine_has_more_kernels_or_takes_longer(now, before, policy, said: str | None) -> None:
    found = why_more(now, before, policy)
    assert found is None if said is None else found.startswith(said)


@pytest.mark.parametrize(
    ("every", "none", "mixture", "stays"),
    [
        (Cost(58, 9, 1003.0, 1), Cost(57, 9, 1001.5, 46), Cost(57, 9, 1000.0, 1), "every"),
        (Cost(58, 9, 1003.0, 2), Cost(57, 9, 1001.5, 1), Cost(56, 9, 1000.0, 2), "mixture"),
        (Cost(58, 9, 1003.0, 1), Cost(57, 9, 1001.5, 46), Cost(57, 9, 990.0, 1), "mixture"),
    ],
    ids=["a mixture that did not keep what it promised", "another one compiles fewer", "it saves a percent"],
)
def test_every_change_stays_unless_an_engine_that_was_built_is_better(monkeypatch, every, none, mixture, stays: str) -> None:
    built = {
        frozenset(left_out): SimpleNamespace(total=cost, rewriting=name)
        for name, left_out, cost in (("every", "", every), ("none", "ab", none), ("mixture", "a", mixture))
    }
    search = SimpleNamespace(leaves_little=False, run=lambda build: built)
    monkeypatch.setattr(kernel_search, "PartSearch", lambda *given, **named: search)
    monkeypatch.setattr(kernel_search, "Built", lambda *given: built[frozenset("ab")])
    unchanged: Any = SimpleNamespace(rewriting="none", result="built", cost="known")
    session: Any = None
    found = kernel_search.fastest(session, session, built[frozenset()], unchanged, measured=True)
    assert found.rewriting == stays
    assert (found.choice.builds, found.choice.chosen) == (3, built[frozenset(found.choice.left_out)].total)


@pytest.mark.parametrize(
    ("left_out", "whole", "made"),
    [("norm", "norm inside further", "scale"), ("scale", "scale", "norm"), ("", "", "norm scale")],
    ids=["others take its place", "nothing does", "nothing is left out"],
)
def test_what_takes_the_place_of_a_change_that_is_left_out_is_left_out_too(left_out: str, whole: str, made: str) -> None:
    """No engine has shown what it does. BiT's norms were written in rows, in the time and the kernels of those before."""
    instead = {"norm": "inside", "inside": "further"}

    def change(tensor: str, optional: bool = True) -> Any:
        while tensor in instead and tensor in asked[-1]:
            tensor = instead[tensor]
        return SimpleNamespace(tensor=tensor, optional=optional)

    def rewrite(policy: str, left_out: frozenset[str], measured: bool) -> Any:
        assert (policy, measured) == ("auto", True)
        asked.append(left_out)
        changes = [change("norm"), change("scale"), change("a repair", optional=False)]
        return SimpleNamespace(changes=[one for one in changes if one.tensor not in left_out])

    asked: list[frozenset[str]] = [frozenset()]
    session: Any = SimpleNamespace(rewrite=rewrite)
    every = rewrite("auto", frozenset(), measured=True)
    found, all_left_out = kernel_search.mixture(session, every, frozenset(left_out.split()), measured=True)
    assert all_left_out == frozenset(whole.split())
    assert [one.tensor for one in found.changes] == [*made.split(), "a repair"]
    assert asked[-1] == all_left_out


def test_a_group_norm_that_is_left_out_is_not_written_in_rows(tmp_path) -> None:
    """As its InstanceNormalization would be by another rule, which comes to the same kernels."""
    session = RewritingSession(loaded(group_norm(shape=(2, 4, 8, 8)), tmp_path), None, RewriteSettings())
    every = session.rewrite("auto", measured=True)
    assert [change.rule for change in every.changes] == ["recompose-group-norm"]
    left_out = frozenset(change.tensor for change in every.changes)
    instead = session.rewrite("auto", left_out, measured=True)
    assert [change.rule for change in instead.changes] == ["normalization-in-rows"]
    found, whole = kernel_search.mixture(session, every, left_out, measured=True)
    assert not found.changes
    assert whole == left_out | {change.tensor for change in instead.changes}
    assert operators(found.model) == operators(session.rewrite("never").model)
