"""Choices between engines: which rewritings are built for them, how many, and what becomes of changes that nobody measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from tests.models import parse, random
from tests.pipeline.variants import CLOCK, EVERY, NEEDED, NEVER, NO_NODES, OPTIONAL, SESSION, USUAL, made, rewriting, rewritten
from trtnorm_cli import variant_choice
from trtnorm_cli.errors import BuilderDied
from trtnorm_cli.records.cost import CostTotal
from trtnorm_cli.rewrite.kernels import Cost
from trtnorm_cli.side_work import Later
from trtnorm_cli.tensorrt.kernel_search import Variant
from trtnorm_cli.tensorrt.manifest import Choice, Kernels
from trtnorm_cli.tensorrt.part_search import Built
from trtnorm_cli.variant_choice import Unchanged


@dataclass
class Case:
    """A build in another precision; each field that is turned is a reason against a measurement."""

    failed: bool = False
    optional: bool = True
    bytes: int = 8
    is_built: bool = True
    has_cost: bool = True
    quick: bool = True
    needless: bool = False


@pytest.mark.parametrize(
    ("case", "decided"),
    [
        (Case(), True),
        (Case(failed=True), False),
        (Case(optional=False), False),
        (Case(bytes=9), False),
        (Case(is_built=False), False),
        (Case(has_cost=False), False),
        (Case(quick=False), False),
        (Case(needless=True), True),
    ],
    ids=[
        *("all is well", "a change failed", "nothing optional", "too large", "not built", "no estimate", "slow"),
        "the first engine tells",
    ],
)
def test_optional_changes_are_measured_in_the_types_of_the_file_where_that_is_quick(monkeypatch, case, decided):
    every = rewriting(*([NEEDED, OPTIONAL] if case.optional else [NEEDED]))
    every.failed = [1] if case.failed else []
    every.model.graph.initializer.append("weight")

    def rewrite(policy: str = "", left_out: frozenset[str] = frozenset(), measured: bool = False) -> Any:
        asked.append(left_out)
        return every if measured else rewritten(policy)

    asked: list[frozenset[str]] = []
    session = SimpleNamespace(rewrite=rewrite, model=NO_NODES)
    monkeypatch.setattr(variant_choice, "batchnorms_before_means", lambda model: frozenset("a"))
    built = []

    def build(one: Any) -> Any:
        built.append(one)
        return SimpleNamespace(result="built" if case.is_built else None, cost="cost" if case.has_cost else None)

    chosen = []
    monkeypatch.setattr(variant_choice, "tensor_bytes", lambda tensor: case.bytes)
    monkeypatch.setattr(variant_choice, "bounds_for", lambda changes: SimpleNamespace(engine_bytes=8))
    monkeypatch.setattr(variant_choice, "is_quick", lambda result, bounds: case.quick)
    monkeypatch.setattr(variant_choice, "fastest", lambda *given, **named: chosen.append((given, named)) or "chosen")
    monkeypatch.setattr(variant_choice, "leaves_nothing_to_gain", lambda built, device: case.needless)
    monkeypatch.setattr(variant_choice, "device_of", lambda prepared: "device")
    monkeypatch.setattr(variant_choice, "settled_alone", lambda variant, cost: (variant, cost))
    monkeypatch.setattr(Built, "total", "total")
    job = SimpleNamespace(
        clock=CLOCK, session=session, variants=lambda: SimpleNamespace(built=build, tried=None), prepared=None
    )
    variant = variant_choice._chosen_in_the_types_of_the_file(job)
    if not decided:
        assert variant == Variant(USUAL)
        assert NEVER not in built
        return
    if case.needless:
        assert variant == (Variant(every, measured=True, not_tried=frozenset("a")), "total")
        assert built == [every]
        return
    (((_, _, changed, _), named),) = chosen
    assert named == {"measured": True, "not_tried": frozenset("a")}
    assert frozenset("a") in asked
    assert (variant, built) == ("chosen", [every, NEVER])
    assert (changed.rewriting, changed.result, changed.cost) == (every, "built", "cost")


@pytest.mark.parametrize(
    ("policy", "decides", "quick", "lowered", "begun"),
    [
        ("kernels", True, True, False, "searched"),
        ("auto", True, True, False, Variant(EVERY, measured=True)),
        ("auto", True, True, True, "measured in the types of the file"),
        ("auto", True, False, False, Variant(USUAL)),
        ("auto", False, True, False, Variant(USUAL)),
    ],
)
def test_the_first_variant(monkeypatch, policy, decides, quick, lowered, begun):
    monkeypatch.setattr(variant_choice, "with_fewest_kernels", lambda session, variants: "searched")
    monkeypatch.setattr(variant_choice, "_estimates_decide", lambda job: decides)
    monkeypatch.setattr(variant_choice, "may_be_quick", lambda model, bounds: quick)
    monkeypatch.setattr(variant_choice, "_chosen_in_the_types_of_the_file", lambda job: "measured in the types of the file")
    prepared = SimpleNamespace(loaded=SimpleNamespace(proto=None), precision="half" if lowered else None)
    job = SimpleNamespace(clock=CLOCK, policy=policy, session=SESSION, variants=lambda: None, prepared=prepared)
    assert variant_choice.first_variant(job, Unchanged(job)) == begun


@pytest.mark.parametrize(
    ("others", "not_tried", "known"),
    [(True, frozenset("ab"), frozenset("b")), (False, frozenset(), frozenset())],
    ids=["with others", "alone"],
)
def test_what_costs_time_is_left_out_where_a_second_engine_will_tell_of_others(monkeypatch, others, not_tried, known):
    """With no other change there is no second engine, and what it costs to leave them out is never known."""
    asked: list[frozenset[str]] = []

    def rewrite(left_out: frozenset[str] = frozenset(), measured: bool = False, foreseen: Any = None) -> Any:
        asked.append(left_out)
        return EVERY if others or "a" not in left_out else USUAL

    monkeypatch.setattr(variant_choice, "_estimates_decide", lambda job: True)
    monkeypatch.setattr(variant_choice, "batchnorms_before_means", lambda model: frozenset("a"))
    monkeypatch.setattr(variant_choice, "known_to_cost", lambda job: frozenset("b"))
    prepared = SimpleNamespace(loaded=SimpleNamespace(proto=NO_NODES), precision=None)
    session = SimpleNamespace(rewrite=rewrite, model=NO_NODES)
    job = SimpleNamespace(clock=CLOCK, policy="auto", session=session, variants=lambda: None, prepared=prepared)
    found = variant_choice.first_variant(job, Unchanged(job))
    assert found == Variant(EVERY, measured=True, not_tried=not_tried, known_to_cost=known)
    assert asked == ([frozenset("ab")] if others else [frozenset("ab"), frozenset()])


@pytest.mark.parametrize(
    ("sizes", "channels", "plane", "taken"),
    [
        ([{"N": 1}], 64, 48, frozenset()),
        ([{"N": 1}], 64, 64, frozenset("iu")),
        ([{"N": 2}, {"N": 4}], 64, 48, frozenset("iu")),
        ([{"N": 4}, {"N": 1}], 64, 48, frozenset()),
        ([{}], 64, 64, frozenset()),
        ([{"N": 8}], 96, 64, frozenset()),
        ([{"N": 8}], 64, 96, frozenset()),
        ([{"N": 1}], 64, 8, frozenset()),
        ([{"N": 8}], 64, 8, frozenset("iu")),
    ],
    ids=[
        *("a launch takes longer", "they take longer", "of several samples", "not at every profile", "an unknown size"),
        *("unusual channels", "rows that take more kernels", "short rows", "many short rows"),
    ],
)
@pytest.mark.parametrize("read", ["Conv(u, w)", "HardSwish(u)"], ids=["between convolutions", "read otherwise"])
def test_large_group_norms_are_known_to_cost_time_along_rows(monkeypatch, sizes, channels, plane, taken, read):
    """On an RTX 3060, behind convolutions, they do from 174 thousand values on."""
    groups = 32
    weights = {"groups": np.array((0, groups, -1)), "back": np.array((-1, channels, plane, plane))}
    weights |= {"ones": np.ones(groups, np.float32), "w": random(channels, channels, 1, 1)}
    text = "c = Conv(x, w) r = Reshape(c, groups) i = InstanceNormalization(r, ones, ones) u = Reshape(i, back)"
    shape = f"float[N,{channels},{plane},{plane}]"
    model = parse(f"g ({shape} x) => ({shape} y) {{ {text} y = {read} }}", weights)
    session = SimpleNamespace(model=onnx.shape_inference.infer_shapes(model))
    monkeypatch.setattr(variant_choice, "opt_sizes", lambda prepared: dict(enumerate(sizes)))
    job = SimpleNamespace(session=session, prepared=SimpleNamespace(profile=None))
    assert variant_choice.known_to_cost(job) == (taken if read.startswith("Conv") else frozenset())


@pytest.mark.parametrize(
    ("case", "stays"),
    [
        ("its engine is being built", True),
        ("the other one is being built", True),
        ("it is the faster one", True),
        ("it is as fast", True),
        ("the other one is faster", False),
        ("TensorRT refused it", False),
        ("TensorRT died of it", False),
        ("TensorRT died of the other one", False),
        ("the other one was not built", True),
        ("the other one was not built, and it was to be measured", False),
        ("the other one was not built, as it was needless, and it was to be measured", True),
        ("the other one was not built, and no rule asked whether it was to be measured", True),
        ("the other one was not built, no rule asked, and folds were not tried where it was to be measured", False),
    ],
)
def test_what_was_made_is_likely_until_the_other_one_is_better(monkeypatch, case, stays):
    other, own = {"it is the faster one": (5.0, 4.0), "the other one is faster": (4.0, 5.0)}.get(case, (4.0, 4.0))
    monkeypatch.setattr(variant_choice, "kernels_of", lambda result, cost: Kernels({}, 1, cost=of_cost(cost)))
    result: Any = SimpleNamespace(ok=case != "TensorRT refused it")
    every = rewriting(NEEDED, OPTIONAL, follows_measured="no rule asked" not in case)
    skipped = frozenset("a" if "not tried" in case else "")
    variant = Variant(every, measured=case.endswith("measured"), not_tried=skipped)
    making = replace(made(variant, result), building=done(result))
    unbuilt = done(None if "was not built" in case else SimpleNamespace(kernels=Kernels({}, 1, cost=of_cost(other))))
    if case == "its engine is being built":
        making = replace(making, building=Later(lambda: result))
    if case == "the other one is being built":
        unbuilt = Later(lambda: None)
    if case == "TensorRT died of it":
        making = replace(making, building=died())
    if case == "TensorRT died of the other one":
        unbuilt = died()
    job: Any = SimpleNamespace(estimated=lambda result, model: own)
    without: Any = SimpleNamespace(is_needless=lambda made: "needless" in case)
    assert variant_choice.may_stay(job, making, unbuilt, without) == stays


def of_cost(us: float) -> CostTotal:
    return CostTotal(1, 0, 0, us)


def done(value: Any) -> Later[Any]:
    later = Later(lambda: value)
    later.result()
    return later


def died() -> Later[Any]:
    def die() -> None:
        raise BuilderDied("it died", "there", "so")

    later = Later(die)
    later.error()
    return later


@pytest.mark.parametrize(
    ("replaced", "unchanged", "cost", "needless", "preferred"),
    [
        (False, "built", "cost", False, "as it was made"),
        (True, None, "cost", False, "without what was not measured"),
        (True, "built", None, False, "without what was not measured"),
        (True, "built", "cost", False, "the fastest"),
        (True, None, "cost", True, "with all that was measured"),
    ],
)
def test_the_faster_engine_is_asked_for_where_both_are_known(monkeypatch, replaced, unchanged, cost, needless, preferred):
    monkeypatch.setattr(variant_choice, "may_be_replaced", lambda job, variant: replaced)
    monkeypatch.setattr(variant_choice, "without_measured_changes", lambda job, variant: "without what was not measured")
    monkeypatch.setattr(variant_choice, "fastest", lambda *given: "the fastest")
    monkeypatch.setattr(variant_choice, "kernels_of", lambda result, cost: Kernels({"conv": 7}, 1, cost=of_cost(4.0)))
    job: Any = SimpleNamespace(clock=CLOCK, estimated=lambda result, model: cost, session=SESSION)
    without: Any = SimpleNamespace(is_needless=lambda made: needless)
    variant = Variant(EVERY, measured=True, not_tried=frozenset("b"))
    found = variant_choice.faster(job, made(variant, "result"), unchanged, without, None, None)
    alone = Choice(cost := Cost(7, 1, 4.0, 0), None, cost, ("b",), 1, ("b",))
    named = {"as it was made": variant, "with all that was measured": replace(variant, choice=alone, is_settled=True)}
    assert found == named.get(preferred, preferred)


@pytest.mark.parametrize(
    ("measured", "follows", "changes", "kept", "settled"),
    [
        (False, True, [NEEDED, OPTIONAL], True, False),
        (True, False, [NEEDED, OPTIONAL], True, True),
        (True, True, [NEEDED, OPTIONAL], False, True),
        (True, True, [NEEDED], True, True),
    ],
    ids=["nothing to measure", "for the better everywhere", "others without them", "the same without them"],
)
def test_changes_that_nobody_measures_stay_where_they_are_for_the_better_everywhere(measured, follows, changes, kept, settled):
    every = rewriting(*changes, follows_measured=follows)
    job: Any = SimpleNamespace(clock=CLOCK, session=SESSION)
    found = variant_choice.without_measured_changes(job, Variant(every, measured=measured))
    assert found.rewriting is (every if kept else USUAL)
    assert found.is_settled == settled


@pytest.mark.parametrize(
    ("not_tried", "known", "kept"),
    [("b", "b", True), ("ab", "b", False), ("a", "", False)],
    ids=["what is known to cost time", "and what is likely to", "what is likely to"],
)
def test_what_is_known_to_cost_time_stays_left_out_where_nobody_measures(not_tried: str, known: str, kept: bool) -> None:
    asked = []

    def rewrite(left_out: frozenset[str] = frozenset()) -> Any:
        asked.append(left_out)
        return USUAL

    job: Any = SimpleNamespace(clock=CLOCK, session=SimpleNamespace(rewrite=rewrite))
    every = rewriting(NEEDED, OPTIONAL, follows_measured=False)
    variant = Variant(every, measured=True, not_tried=frozenset(not_tried), known_to_cost=frozenset(known))
    found = variant_choice.without_measured_changes(job, variant)
    assert found.rewriting is (every if kept else USUAL)
    assert (found.not_tried, asked) == (frozenset(known), [] if kept else [frozenset(known)])
