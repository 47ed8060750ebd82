"""Choices between engines: which rewritings are built for them, how many, and what becomes of changes that nobody measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.pipeline.variants import CLOCK, EVERY, NEEDED, NEVER, NO_NODES, OPTIONAL, SESSION, USUAL, made, rewriting, rewritten
from trtnorm_cli import variant_choice
from trtnorm_cli.errors import BuilderDied, UsageProblem
from trtnorm_cli.records.cost import CostTotal
from trtnorm_cli.rewrite.kernels import Cost
from trtnorm_cli.side_work import Later
from trtnorm_cli.tensorrt.kernel_search import Bounds, Variant
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
    monkeypatch.setattr(variant_choice, "settings_of", lambda prepared: "half" if lowered else None)
    monkeypatch.setattr(variant_choice, "_chosen_in_the_types_of_the_file", lambda job: "measured in the types of the file")
    prepared = SimpleNamespace(loaded=SimpleNamespace(proto=None))
    job = SimpleNamespace(clock=CLOCK, policy=policy, session=SESSION, variants=lambda: None, prepared=prepared)
    assert variant_choice.first_variant(job, Unchanged(job)) == begun


@pytest.mark.parametrize(("others", "not_tried"), [(True, frozenset("a")), (False, frozenset())])
def test_a_likely_fold_is_left_out_where_a_second_engine_will_tell_of_others(monkeypatch, others, not_tried):
    """With no other change there is no second engine, and what it costs to leave the fold out is never known."""
    asked: list[frozenset[str]] = []

    def rewrite(left_out: frozenset[str] = frozenset(), measured: bool = False, foreseen: Any = None) -> Any:
        asked.append(left_out)
        return EVERY if others or not left_out else USUAL

    monkeypatch.setattr(variant_choice, "_estimates_decide", lambda job: True)
    monkeypatch.setattr(variant_choice, "settings_of", lambda prepared: None)
    monkeypatch.setattr(variant_choice, "batchnorms_before_means", lambda model: frozenset("a"))
    prepared = SimpleNamespace(loaded=SimpleNamespace(proto=NO_NODES))
    session = SimpleNamespace(rewrite=rewrite, model=NO_NODES)
    job = SimpleNamespace(clock=CLOCK, policy="auto", session=session, variants=lambda: None, prepared=prepared)
    assert variant_choice.first_variant(job, Unchanged(job)) == Variant(EVERY, measured=True, not_tried=not_tried)
    assert asked == ([frozenset("a")] if others else [frozenset("a"), frozenset()])


@pytest.mark.parametrize(
    ("rule", "chosen", "is_beside", "cores", "quick", "size", "refused", "begun"),
    [
        ("fold-batchnorm-gemm", True, True, 2, True, 9, False, True),
        ("recompose-layernorm", True, True, 2, True, 99, False, True),
        ("fold-batchnorm-gemm", True, True, 2, True, 10, False, False),
        ("recompose-layernorm", True, True, 2, True, 100, False, False),
        ("fold-batchnorm-gemm", False, True, 2, True, 9, False, False),
        ("fold-batchnorm-gemm", True, False, 2, True, 9, False, False),
        ("fold-batchnorm-gemm", True, True, 1, True, 9, False, False),
        ("fold-batchnorm-gemm", True, True, 2, False, 9, False, False),
        ("fold-batchnorm-gemm", True, True, 2, True, 9, True, False),
        ("fold-batchnorm-conv", True, True, 2, True, 9, False, False),
    ],
    ids=[
        *("a fold", "more than a fold", "large", "too large", "not chosen", "no room", "one core", "many nodes", "refused"),
        "the first engine will tell",
    ],
)
def test_the_model_without_changes_is_built_once_one_is_foreseen_that_engines_decide_about(
    monkeypatch, rule, chosen, is_beside, cores, quick, size, refused, begun
):
    model = SimpleNamespace(graph=SimpleNamespace(initializer=["weight"]))
    found = SimpleNamespace(model=model)

    def rewrite(policy: str) -> Any:
        if refused:
            raise UsageProblem("no")
        return found

    monkeypatch.setattr(variant_choice, "may_be_chosen", lambda job: chosen)
    monkeypatch.setattr(variant_choice, "usable_cores", lambda: cores)
    monkeypatch.setattr(variant_choice, "may_be_quick", lambda model, bounds: quick)
    monkeypatch.setattr(variant_choice, "tensor_bytes", lambda tensor: size)
    monkeypatch.setattr(variant_choice, "TO_DECIDE_ON_FOLDS", Bounds(600, 9))
    monkeypatch.setattr(variant_choice, "TO_DECIDE", Bounds(600, 99))
    built = SimpleNamespace(built=lambda one, engine: (one, engine))
    job: Any = SimpleNamespace(
        clock=CLOCK, session=SimpleNamespace(rewrite=rewrite, model=NO_NODES),
        side=SimpleNamespace(is_beside=is_beside, start=Later), variants=lambda: built, unchanged="beside.engine",
    )  # fmt: skip
    unchanged = Unchanged(job)
    unchanged.foresee(rule)
    first = unchanged.begun
    unchanged.foresee(rule)
    assert unchanged.begun is first
    assert (unchanged.begun is not None) == begun
    assert unchanged.begun is None or unchanged.begun.result() == (found, "beside.engine")


def test_a_build_that_was_foreseen_is_ended_where_nothing_optional_is_left():
    unchanged = Unchanged(job := SimpleNamespace(session=SESSION))
    unchanged.begun = begun = Begun(lambda: "built")
    assert variant_choice.without_changes(job, made(Variant(USUAL), None), unchanged).result() is None
    assert begun.cancelled


@pytest.mark.parametrize(
    ("ok", "quick", "backend", "is_beside", "likely", "optional", "lowered", "refused", "begun", "ended"),
    [
        (True, True, "tensorrt-rtx", True, True, True, False, False, True, "unchanged"),
        (True, True, "tensorrt-rtx", True, False, True, False, False, False, "unchanged"),
        (True, True, "tensorrt-rtx", False, True, True, False, False, False, "unchanged"),
        (True, True, "tensorrt", True, True, True, False, False, False, "unchanged"),
        (True, False, "tensorrt-rtx", True, True, True, False, False, True, None),
        (False, True, "tensorrt-rtx", True, True, True, False, False, True, None),
        (True, True, "tensorrt-rtx", True, True, False, False, False, False, None),
        (True, True, "tensorrt-rtx", True, True, True, True, False, False, None),
        (True, True, "tensorrt-rtx", True, True, True, False, True, False, UsageProblem),
    ],
)
def test_a_second_build_without_the_changes_is_begun_beside_the_comparison_where_it_is_quick(
    monkeypatch, ok, quick, backend, is_beside, likely, optional, lowered, refused, begun, ended
):
    started = []

    def start(work: Any) -> Later:
        started.append(work)
        return Later(work)

    def rewrite(policy: str) -> Any:
        if refused:
            raise UsageProblem("no", "", "")
        return rewritten(policy)

    monkeypatch.setattr(variant_choice, "first_installed", lambda wanted: wanted)
    monkeypatch.setattr(variant_choice, "may_be_quick", lambda model, bounds: likely)
    monkeypatch.setattr(variant_choice, "is_quick", lambda result, bounds: quick)
    monkeypatch.setattr(variant_choice, "may_be_replaced", lambda job, variant: False)
    builder = SimpleNamespace(built=lambda one, engine: "unchanged" if (one, engine) == (NEVER, "beside.engine") else "wrong")
    job: Any = SimpleNamespace(
        options=SimpleNamespace(backend=backend), clock=CLOCK, session=SimpleNamespace(rewrite=rewrite, model=NO_NODES),
        side=SimpleNamespace(is_beside=is_beside, start=start), variants=lambda: builder, unchanged="beside.engine",
    )  # fmt: skip
    variant = Variant(EVERY if optional else USUAL)
    later = variant_choice.without_changes(
        job, made(variant, SimpleNamespace(ok=ok), "half" if lowered else None), Unchanged(job)
    )
    assert bool(started) == begun
    if ended is UsageProblem:
        assert isinstance(later.error(), UsageProblem)
    else:
        assert later.result() == ended


class Begun(Later[Any]):
    """A second build that was begun, and whether it was cancelled."""

    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


@pytest.mark.parametrize(
    ("cores", "decides", "size", "quick", "tells", "needless", "at_once", "cancelled"),
    [
        (2, True, 9, True, False, False, True, False),
        (2, True, 9, False, False, False, True, True),
        (1, True, 9, True, False, False, False, False),
        (2, False, 9, True, False, False, False, False),
        (2, True, 10, True, False, False, False, False),
        (2, True, 9, True, True, False, False, False),
        (2, True, 9, True, True, True, False, False),
        (2, True, 9, True, False, True, True, True),
        (2, False, 9, True, True, True, False, False),
    ],
    ids=[
        *("quick", "not quick after all", "one core", "only told", "large", "the first one may tell", "the first one tells"),
        *("the first one tells what was not expected of it", "only told, whatever the first one tells"),
    ],
)
def test_an_engine_that_decides_is_built_beside_the_first_one(
    monkeypatch, cores, decides, size, quick, tells, needless, at_once, cancelled
):
    """Without waiting for it, where there are cores for both."""
    begun, events = [], []

    def start(work: Any) -> Begun:
        begun.append(Begun(work))
        begun[-1].error()
        return begun[-1]

    def first() -> Any:
        events.append("first")
        return SimpleNamespace(ok=True)

    def second(one: Any, engine: Any) -> str:
        events.append("second")
        return "unchanged"

    monkeypatch.setattr(variant_choice, "usable_cores", lambda: cores)
    monkeypatch.setattr(variant_choice, "may_be_replaced", lambda job, variant: decides)
    monkeypatch.setattr(variant_choice, "bounds_for", lambda changes: Bounds(600, 9))
    monkeypatch.setattr(variant_choice, "TO_TELL", Bounds(24, 9))
    monkeypatch.setattr(variant_choice, "may_be_quick", lambda model, bounds: True)
    monkeypatch.setattr(variant_choice, "is_quick", lambda result, bounds: quick)
    monkeypatch.setattr(variant_choice, "first_installed", lambda wanted: "tensorrt-rtx")
    monkeypatch.setattr(variant_choice, "tensor_bytes", lambda tensor: size)
    monkeypatch.setattr(Unchanged, "is_needless", lambda unchanged, made: events.append("asked") or needless)
    fold = SimpleNamespace(optional=True, rule="fold-batchnorm-conv")
    every = rewriting(NEEDED, fold if tells else OPTIONAL)
    every.model.graph.initializer.append("weight")
    job: Any = SimpleNamespace(
        options=SimpleNamespace(backend=None), clock=CLOCK, session=SESSION, side=SimpleNamespace(is_beside=True, start=start),
        variants=lambda: SimpleNamespace(built=second), unchanged="beside.engine",
    )  # fmt: skip
    making = replace(made(Variant(every), None), building=Later(first))
    found = variant_choice.without_changes(job, making, Unchanged(job)).result()
    is_wanted = quick and not (decides and needless)
    assert found == ("unchanged" if is_wanted else None)
    assert [one for one in events if one != "asked"] == ["second", "first"] if at_once else ["first", "second"][: 1 + is_wanted]
    assert ("asked" in events) == (decides and quick)
    assert begun[0].cancelled == cancelled


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
    ("ok", "cost", "quick", "nothing_to_gain", "needless"),
    [
        (True, "cost", True, True, True),
        (True, "cost", True, False, False),
        (False, "cost", True, True, False),
        (True, None, True, True, False),
        (True, "cost", False, True, False),
    ],
    ids=["it shows all", "there is something to gain", "refused", "no estimate", "too large to be asked"],
)
def test_the_engine_without_changes_is_needless_where_the_first_one_shows_all(
    monkeypatch, ok, cost, quick, nothing_to_gain, needless
):
    monkeypatch.setattr(variant_choice, "bounds_for", lambda changes: "bounds" if changes == EVERY.changes else None)
    monkeypatch.setattr(variant_choice, "is_quick", lambda result, bounds: quick and bounds == "bounds")
    monkeypatch.setattr(variant_choice, "device_of", lambda prepared: "device")
    monkeypatch.setattr(
        variant_choice,
        "leaves_nothing_to_gain",
        lambda built, device: nothing_to_gain and (built.cost, device) == ("cost", "device"),
    )
    job: Any = SimpleNamespace(session=SESSION, prepared=None, estimated=lambda result, model: cost)
    unchanged = Unchanged(job)
    assert unchanged.is_needless(made(Variant(EVERY, measured=True), SimpleNamespace(ok=ok))) is needless
