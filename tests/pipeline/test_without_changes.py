"""The engine without the changes, which shows what they do: when it is begun, when ended, and when it is needless."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.pipeline.variants import CLOCK, EVERY, NEEDED, NEVER, NO_NODES, OPTIONAL, SESSION, USUAL, made, rewriting, rewritten
from trtnorm_cli import variant_choice
from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.side_work import Later
from trtnorm_cli.tensorrt.kernel_search import Bounds, Variant
from trtnorm_cli.variant_choice import Unchanged


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
    built = SimpleNamespace(built=lambda one, engine, network: (one, engine), network="network")
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
    wanted = NEVER, "beside.engine", None  # it does not decide, and is not compared
    builder = SimpleNamespace(built=lambda *given: "unchanged" if given == wanted else "wrong", network="network")
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

    def second(one: Any, engine: Any, network: Any) -> str:
        events.append("second")
        assert network == ("network" if decides and not at_once else None)
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
    fold = SimpleNamespace(optional=True, rule="fold-batchnorm-conv", in_passing=False)
    every = rewriting(NEEDED, fold if tells else OPTIONAL)
    every.model.graph.initializer.append("weight")
    job: Any = SimpleNamespace(
        options=SimpleNamespace(backend=None), clock=CLOCK, session=SESSION, side=SimpleNamespace(is_beside=True, start=start),
        variants=lambda: SimpleNamespace(built=second, network="network"), unchanged="beside.engine",
    )  # fmt: skip
    making = replace(made(Variant(every), None), building=Later(first))
    found = variant_choice.without_changes(job, making, Unchanged(job)).result()
    is_wanted = quick and not (decides and needless)
    assert found == ("unchanged" if is_wanted else None)
    assert [one for one in events if one != "asked"] == ["second", "first"] if at_once else ["first", "second"][: 1 + is_wanted]
    assert ("asked" in events) == (decides and quick)
    assert begun[0].cancelled == cancelled


@pytest.mark.parametrize(
    ("cores", "size", "doubtful", "tells", "there", "beside"),
    [
        (2, 9, True, False, False, True),
        (2, 9, True, True, False, True),
        (2, 9, False, False, False, False),
        (1, 9, True, False, False, False),
        (2, 10, True, False, False, False),
        (2, 9, True, False, True, False),
    ],
    ids=["it is wanted", "it is not wanted", "no doubt", "one core", "large", "the first one is there"],
)
def test_where_it_is_in_doubt_a_core_that_is_free_builds_the_engine_without_changes(
    monkeypatch, cores, size, doubtful, tells, there, beside
):
    begun: list[Begun] = []
    networks: list[Any] = []

    def start(work: Any) -> Begun:
        begun.append(Begun(work))
        return begun[-1]

    def second(one: Any, engine: Any, network: Any) -> str:
        networks.append(network)
        return "unchanged"

    monkeypatch.setattr(variant_choice, "usable_cores", lambda: cores)
    monkeypatch.setattr(variant_choice, "may_be_replaced", lambda job, variant: True)
    monkeypatch.setattr(variant_choice, "bounds_for", lambda changes: Bounds(600, 9))
    monkeypatch.setattr(variant_choice, "may_tell", lambda rules, model: True)
    monkeypatch.setattr(variant_choice, "is_doubtful", lambda rules, model: doubtful)
    monkeypatch.setattr(variant_choice, "may_be_quick", lambda model, bounds: True)
    monkeypatch.setattr(variant_choice, "is_quick", lambda result, bounds: True)
    monkeypatch.setattr(variant_choice, "first_installed", lambda wanted: "tensorrt-rtx")
    monkeypatch.setattr(variant_choice, "tensor_bytes", lambda tensor: size)
    monkeypatch.setattr(Unchanged, "is_needless", lambda unchanged, made: tells)
    every = rewriting(NEEDED, OPTIONAL)
    every.model.graph.initializer.append("weight")
    job: Any = SimpleNamespace(
        options=SimpleNamespace(backend=None), clock=CLOCK, session=SESSION, side=SimpleNamespace(is_beside=True, start=start),
        variants=lambda: SimpleNamespace(built=second, network="network"), unchanged="beside.engine",
    )  # fmt: skip
    building = Later(lambda: SimpleNamespace(ok=True))
    unchanged = Unchanged(job)
    found = variant_choice.without_changes(job, replace(made(Variant(every), None), building=building), unchanged)
    if there:
        building.result()
    unchanged.begin_beside(building)
    unchanged.begin_beside(building)
    assert len(begun) == 1 + beside
    assert found.result() == (None if tells else "unchanged")
    assert networks == ([] if tells else [None] if beside else ["network"]), "it is built once"
    assert [one.cancelled for one in begun[1:]] == [tells] * beside
    unchanged.begin_beside(building)
    assert len(begun) == 1 + beside


@pytest.mark.parametrize("case", ["usual", "refused", "the first engine is there meanwhile"])
def test_the_rewriting_without_changes_is_made_by_the_thread_that_begins_its_build(case):
    """Another one may rewrite once the first engine is there, and no two do at once."""
    building, started = Later(lambda: SimpleNamespace(ok=True)), []

    def rewrite(policy: str) -> Any:
        assert started == []
        if case == "refused":
            raise UsageProblem("no")
        if case != "usual":
            building.result()
        return NEVER

    job: Any = SimpleNamespace(
        session=SimpleNamespace(rewrite=rewrite), side=SimpleNamespace(start=lambda work: started.append(work) or Later(work))
    )
    unchanged = Unchanged(job)
    unchanged.may_begin_beside = True
    unchanged.begin_beside(building)
    assert bool(started) == (case == "usual")
    assert unchanged.rewriting.is_done()


@pytest.mark.parametrize(
    ("ok", "cost", "backend", "nothing_to_gain", "needless"),
    [
        (True, "cost", "tensorrt-rtx", True, True),
        (True, "cost", "tensorrt-rtx", False, False),
        (False, "cost", "tensorrt-rtx", True, False),
        (True, None, "tensorrt-rtx", True, False),
        (True, "cost", "tensorrt", True, False),
    ],
    ids=["it shows all", "there is something to gain", "refused", "no estimate", "kernels that were timed"],
)
def test_the_engine_without_changes_is_needless_where_the_first_one_shows_all(
    monkeypatch, ok, cost, backend, nothing_to_gain, needless
):
    """However large it is: to ask costs no build."""
    monkeypatch.setattr(variant_choice, "is_quick", lambda result, bounds: False)
    monkeypatch.setattr(variant_choice, "device_of", lambda prepared: "device")
    monkeypatch.setattr(
        variant_choice,
        "leaves_nothing_to_gain",
        lambda built, device: nothing_to_gain and (built.cost, device) == ("cost", "device"),
    )
    job: Any = SimpleNamespace(session=SESSION, prepared=None, estimated=lambda result, model: cost)
    unchanged = Unchanged(job)
    result = SimpleNamespace(ok=ok, backend=backend)
    assert unchanged.is_needless(made(Variant(EVERY, measured=True), result)) is needless


@pytest.mark.parametrize(
    ("follows", "backend", "wanted"),
    [(True, "tensorrt-rtx", True), (False, "tensorrt-rtx", False), (True, "tensorrt", False)],
    ids=["it would be made again", "it stays", "kernels that would be timed"],
)
def test_a_large_engine_is_built_without_changes_where_another_one_would_be_built_all_the_same(
    monkeypatch, follows, backend, wanted
):
    monkeypatch.setattr(variant_choice, "may_be_replaced", lambda job, variant: True)
    monkeypatch.setattr(variant_choice, "is_quick", lambda result, bounds: False)
    monkeypatch.setattr(variant_choice, "may_be_quick", lambda model, bounds: True)
    monkeypatch.setattr(variant_choice, "first_installed", lambda wanted: backend)
    monkeypatch.setattr(Unchanged, "is_needless", lambda unchanged, made: False)
    every = rewriting(NEEDED, OPTIONAL)
    every.follows_measured = follows
    builder = SimpleNamespace(built=lambda *given: "unchanged", network="network")
    job: Any = SimpleNamespace(
        options=SimpleNamespace(backend=None), clock=CLOCK, session=SESSION, side=SimpleNamespace(is_beside=False),
        variants=lambda: builder, unchanged="beside.engine",
    )  # fmt: skip
    making = made(Variant(every, measured=True), SimpleNamespace(ok=True, backend=backend))
    found = variant_choice.without_changes(job, making, Unchanged(job)).result()
    assert found == ("unchanged" if wanted else None)
