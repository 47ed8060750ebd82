"""Choices between engines: which rewritings are built for them, how many, and what becomes of changes that nobody measured."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trtnorm_cli import build_job, engine_making, pipeline, variant_choice
from trtnorm_cli.engine_making import Making
from trtnorm_cli.errors import NotCompared, UsageProblem
from trtnorm_cli.side_work import Later
from trtnorm_cli.tensorrt.kernel_search import Bounds, Variant
from trtnorm_cli.tensorrt.origin import Subject
from trtnorm_cli.tensorrt.request import NETWORK_FILE

CLOCK = SimpleNamespace(time=lambda what: nullcontext())
OPTIONAL, NEEDED = SimpleNamespace(optional=True), SimpleNamespace(optional=False)


def rewriting(*changes: Any, **more: Any) -> Any:
    model = SimpleNamespace(graph=SimpleNamespace(initializer=[]))
    return SimpleNamespace(changes=list(changes), failed=[], model=model, folder=None, **more)


USUAL, EVERY, NEVER = rewriting(NEEDED), rewriting(NEEDED, OPTIONAL), rewriting(NEEDED)


def rewritten(policy: str = "", measured: bool = False) -> Any:
    return NEVER if policy == "never" else EVERY if measured else USUAL


SESSION = SimpleNamespace(rewrite=rewritten)


@dataclass
class Case:
    """A build in another precision; each field that is turned is a reason against a measurement."""

    failed: bool = False
    optional: bool = True
    bytes: int = 8
    is_built: bool = True
    has_cost: bool = True
    quick: bool = True


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
    ],
    ids=["all is well", "a change failed", "nothing optional", "too large", "not built", "no estimate", "slow"],
)
def test_optional_changes_are_measured_in_the_types_of_the_file_where_that_is_quick(monkeypatch, case, decided):
    every = rewriting(*([NEEDED, OPTIONAL] if case.optional else [NEEDED]))
    every.failed = [1] if case.failed else []
    every.model.graph.initializer.append("weight")
    session = SimpleNamespace(rewrite=lambda policy="", measured=False: every if measured else rewritten(policy))
    built = []

    def build(one: Any) -> Any:
        built.append(one)
        return SimpleNamespace(result="built" if case.is_built else None, cost="cost" if case.has_cost else None)

    chosen = []
    monkeypatch.setattr(variant_choice, "tensor_bytes", lambda tensor: case.bytes)
    monkeypatch.setattr(variant_choice, "bounds_for", lambda changes: SimpleNamespace(engine_bytes=8))
    monkeypatch.setattr(variant_choice, "is_quick", lambda result, bounds: case.quick)
    monkeypatch.setattr(variant_choice, "fastest", lambda *given, measured: chosen.append((given, measured)) or "chosen")
    job = SimpleNamespace(clock=CLOCK, session=session, variants=lambda: SimpleNamespace(built=build))
    variant = variant_choice._chosen_in_the_types_of_the_file(job)
    if not decided:
        assert variant == Variant(USUAL)
        assert NEVER not in built
        return
    (((_, _, changed, _), measured),) = chosen
    assert (variant, measured, built) == ("chosen", True, [every, NEVER])
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
    assert variant_choice.first_variant(job) == begun


def made(variant: Variant, result: Any, lowering: Any = None) -> Any:
    nothing: Any = None
    return Making(variant, lowering, (), Later(lambda: result), Later(lambda: result), nothing, nothing, nothing)


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
        options=SimpleNamespace(backend=backend), clock=CLOCK, session=SimpleNamespace(rewrite=rewrite),
        side=SimpleNamespace(is_beside=is_beside, start=start), variants=lambda: builder, unchanged="beside.engine",
    )  # fmt: skip
    variant = Variant(EVERY if optional else USUAL)
    later = variant_choice.without_changes(job, made(variant, SimpleNamespace(ok=ok), "half" if lowered else None))
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
    ("cores", "decides", "size", "quick", "at_once", "cancelled"),
    [
        (2, True, 9, True, True, False),
        (2, True, 9, False, True, True),
        (1, True, 9, True, False, False),
        (2, False, 9, True, False, False),
        (2, True, 10, True, False, False),
    ],
    ids=["quick", "not quick after all", "one core", "only told", "large"],
)
def test_an_engine_that_decides_is_built_beside_the_first_one(monkeypatch, cores, decides, size, quick, at_once, cancelled):
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
    every = rewriting(NEEDED, OPTIONAL)
    every.model.graph.initializer.append("weight")
    job: Any = SimpleNamespace(
        options=SimpleNamespace(backend=None), clock=CLOCK, session=SESSION, side=SimpleNamespace(is_beside=True, start=start),
        variants=lambda: SimpleNamespace(built=second), unchanged="beside.engine",
    )  # fmt: skip
    making = replace(made(Variant(every), None), building=Later(first))
    found = variant_choice.without_changes(job, making).result()
    assert found == ("unchanged" if quick else None)
    assert events == (["second", "first"] if at_once else ["first", "second"])
    assert begun[0].cancelled == cancelled


@pytest.mark.parametrize(
    ("replaced", "unchanged", "cost", "preferred"),
    [
        (False, "built", "cost", "as it was made"),
        (True, None, "cost", "without what was not measured"),
        (True, "built", None, "without what was not measured"),
        (True, "built", "cost", "the fastest"),
    ],
)
def test_the_faster_engine_is_asked_for_where_both_are_known(monkeypatch, replaced, unchanged, cost, preferred):
    monkeypatch.setattr(variant_choice, "may_be_replaced", lambda job, variant: replaced)
    monkeypatch.setattr(variant_choice, "without_measured_changes", lambda job, variant: "without what was not measured")
    monkeypatch.setattr(variant_choice, "fastest", lambda *given: "the fastest")
    job: Any = SimpleNamespace(clock=CLOCK, estimated=lambda result, model: cost, session=SESSION)
    variant = Variant(EVERY)
    found = variant_choice.faster(job, made(variant, "result"), unchanged, None)
    assert found == (variant if preferred == "as it was made" else preferred)


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


@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.parametrize("lowering", [None, "half"])
@pytest.mark.parametrize("fits", [False, True])
@pytest.mark.parametrize("compare", [False, True])
def test_an_engine_that_there_is_already_is_taken_only_where_its_bytes_need_not_be_repeated(
    monkeypatch, tmp_path, reproducible, lowering, fits, compare
):
    """One that is to be repeated, or of another precision, is built alone: nothing else is done in its process."""
    lowered = lowering and SimpleNamespace(rewriting=rewriting(NEEDED), known_network=lambda: "known network")
    monkeypatch.setattr(engine_making, "require_rewritten", lambda *given: None)
    monkeypatch.setattr(engine_making, "require_taken_quantisation", lambda *given: None)
    monkeypatch.setattr(engine_making, "lowered_variant", lambda job, variant: lowered)
    monkeypatch.setattr(engine_making, "save_model", lambda *given: ["m.onnx"])
    monkeypatch.setattr(engine_making, "require_valid", lambda *given: None)
    monkeypatch.setattr(engine_making, "with_model", lambda request, rewriting, work: request)
    monkeypatch.setattr(engine_making, "for_builder", lambda model: None)
    monkeypatch.setattr(engine_making, "Attempt", lambda *given: SimpleNamespace(result=lambda build, isolated: build.result()))
    monkeypatch.setattr(engine_making, "kept_network", lambda folder, fixed: "kept network")
    monkeypatch.setattr(engine_making, "begun_network", lambda job, loaded: Later(lambda: "begun network"))
    monkeypatch.setattr(engine_making, "parsed_network", lambda parsed, building, fixed: "parsed network")
    parsed = SimpleNamespace(built=lambda run: run(None), asked=lambda request: request)
    monkeypatch.setattr(engine_making, "ParsedNetwork", lambda folder: parsed)
    request = SimpleNamespace(model=engine_making.FIXED_NAME, settings="settings")
    engine = tmp_path / "earlier.engine"
    engine.write_bytes(b"earlier")
    earlier = SimpleNamespace(
        result_for=lambda rewriting, settings: fits, result="earlier result", engine=engine, folder=tmp_path
    )
    job: Any = SimpleNamespace(
        work=tmp_path, built=tmp_path / "m.engine", engine=tmp_path / "out.engine", clock=CLOCK,
        prepared=SimpleNamespace(loaded=SimpleNamespace(path="m.onnx")), request=lambda built: request,
        run=lambda *given: "new",
        options=SimpleNamespace(check_reproducible=reproducible, compare=compare, isolate=False),
        side=SimpleNamespace(start=Later), subject=lambda rewriting: None,
    )  # fmt: skip
    variant: Any = SimpleNamespace(rewriting=rewriting(NEEDED, require_all_checks_passed=lambda: None))
    making = engine_making.make(job, variant, [earlier])
    taken = fits and not reproducible and lowering is None
    assert making.result == ("earlier result" if taken else "new")
    assert making.building.result() == making.result
    assert engine.exists() != taken
    alone = reproducible or lowering is not None
    networks = {
        "known network": lowering is not None,
        "kept network": taken,
        "parsed network": compare and not taken and not alone,
    }
    assert making.network.result() == next((name for name, holds in networks.items() if holds), "begun network")
    assert making.rewriting is (variant.rewriting if lowered is None else lowered.rewriting)


@pytest.mark.parametrize(
    ("replaced", "better", "unchanged", "known"),
    [
        (False, EVERY, "built", None),
        (True, EVERY, "built", None),
        (True, USUAL, "built", ["built", "kept"]),
        (True, USUAL, None, ["kept"]),
    ],
    ids=["nothing else may come", "it stays", "another one", "another one, and nothing was built without changes"],
)
def test_engines_that_are_there_are_offered_to_the_rewriting_that_comes_instead(
    monkeypatch, replaced, better, unchanged, known
):
    offered, cancelled = [], []
    monkeypatch.setattr(pipeline, "may_be_replaced", lambda job, variant: replaced)
    monkeypatch.setattr(pipeline, "faster", lambda job, begun, unchanged, variants: Variant(better, is_settled=True))
    monkeypatch.setattr(pipeline, "make", lambda job, variant, earlier: offered.append(earlier) or "made again")
    network: Any = SimpleNamespace(cancel=lambda: cancelled.append(1))
    begun = replace(made(Variant(EVERY, measured=True), SimpleNamespace(seconds={"parse": 1.0})), network=network)
    clock = SimpleNamespace(seconds={})
    job: Any = SimpleNamespace(clock=clock, variants=lambda keeps: SimpleNamespace(kept=["kept"] if keeps else []))
    found: Any = pipeline.settled_on(job, begun, Later(lambda: unchanged))
    assert (clock.seconds == {"parse": 1.0}) == replaced
    if known is None:
        assert (found.variant.is_settled, found.rewriting, offered, cancelled) == (replaced, EVERY, [], [])
    else:
        assert (found, offered, cancelled) == ("made again", [known], [1])


@pytest.mark.parametrize(
    ("compare", "beside", "error", "at_once"),
    [(True, True, None, True), (False, True, None, False), (True, False, None, False), (True, True, "no model", False)],
    ids=["beside others", "nothing is compared", "one thing after the other", "nothing to translate"],
)
def test_the_network_is_translated_at_once_only_beside_others(monkeypatch, tmp_path, compare, beside, error, at_once):
    begun: list[str] = []
    monkeypatch.setattr(engine_making, "loaded_network", lambda *given, **more: "network")
    side = SimpleNamespace(is_beside=beside, start=lambda work, _: begun.append("begun") or Later(work))
    options = SimpleNamespace(backend="rtx", memory_bytes=None, compare=compare)
    job: Any = SimpleNamespace(options=options, work=tmp_path, side=side)
    loaded: Any = SimpleNamespace(result=lambda: "loaded", error=lambda: error)
    assert engine_making.begun_network(job, loaded).result() == "network"
    assert bool(begun) == at_once


def test_an_engine_is_made_from_the_weights_and_the_build_profile_too():
    named = [Path(name) for name in ("m.onnx", "m.data", "w.bin", "cfg.yaml", "m.py")]
    model, data, weights, profile, module = named
    prepared: Any = SimpleNamespace(
        loaded=SimpleNamespace(path=model, data_files=(data,)),
        checkpoint=SimpleNamespace(files=(weights,)),
        profile_path=profile,
        source=module,
    )
    assert pipeline.sources_of(prepared) == named
    prepared.checkpoint = prepared.profile_path = prepared.source = None
    assert pipeline.sources_of(prepared) == [model, data]


def test_messages_about_nodes_know_the_file_the_build_profile_and_the_changes():
    loaded = SimpleNamespace(path=Path("m.onnx"), proto="the model of the file")
    job: Any = SimpleNamespace(prepared=SimpleNamespace(loaded=loaded, profile_path=Path("cfg.yaml")))
    about = build_job.Job.subject(job, rewriting(NEEDED))
    assert about == Subject(Path("m.onnx"), Path("cfg.yaml"), "the model of the file", [NEEDED])


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.parametrize("compare", [False, True])
def test_engines_are_kept_where_one_may_be_taken_with_the_network_to_compare(monkeypatch, keeps, reproducible, compare):
    monkeypatch.setattr(build_job, "VariantBuilder", lambda *given: given)
    options = SimpleNamespace(check_reproducible=reproducible, compare=compare)
    job: Any = SimpleNamespace(
        options=options,
        work="work",
        beside="beside",
        built="m.engine",
        estimated=None,
        limits=None,
        request=lambda built: built,
    )
    *_, kept_in, network = build_job.Job.variants(job, keeps)
    assert kept_in == ("beside" if keeps and not reproducible else None)
    assert network == (NETWORK_FILE if compare else None)


@pytest.mark.parametrize(
    ("size", "limit", "room"), [(9, None, True), (10, None, False), (9, 27, False), (8, 27, True), (9, 40, True)]
)
def test_several_processes_have_room_in_a_share_of_the_memory_and_within_its_limit(monkeypatch, tmp_path, size, limit, room):
    (tmp_path / "m.onnx").write_bytes(bytes(size - 1))
    (tmp_path / "m.data").write_bytes(bytes(1))
    monkeypatch.setattr(build_job, "available_memory", lambda: 30 / build_job._MEMORY_SHARE)
    monkeypatch.setattr(build_job, "COPIES", 3)
    prepared: Any = SimpleNamespace(loaded=SimpleNamespace(path=tmp_path / "m.onnx", data_files=[tmp_path / "m.data"]))
    assert build_job.has_room(prepared, limit) == room


@pytest.mark.parametrize(("network", "engine", "compared"), [(True, True, True), (True, False, True), (False, True, False)])
def test_where_there_is_no_engine_either_nothing_is_compared(network, engine, compared):
    """What fails with an engine is said to the comparison as it is."""

    def fail() -> Any:
        raise UsageProblem("no network", "", "")

    making = replace(made(Variant(USUAL), "result"), network=Later(lambda: "network") if network else Later(fail))
    making = replace(making, engine=Later(lambda: "engine") if engine else Later(fail))
    if compared:
        assert making.compared_network() == "network"
    else:
        with pytest.raises(UsageProblem):
            making.compared_network()
    with pytest.raises(NotCompared):
        replace(making, network=Later(fail), engine=Later(fail)).compared_network()


@pytest.mark.parametrize("lowered", [False, True])
def test_a_comparison_takes_as_long_as_the_build_allows(monkeypatch, lowered):
    """Its time is asked for when it begins: the build of the engine, which tells it, may still run."""
    monkeypatch.setattr(engine_making, "comparison_budget_s", lambda duration: f"budget of {duration}")
    monkeypatch.setattr(
        engine_making, "build_settings", lambda memory, seed, budget, timeout: (memory, seed, budget(), timeout)
    )
    monkeypatch.setattr(engine_making, "compare_rewriting", lambda *given: given[4])
    monkeypatch.setattr(engine_making, "compare_lowered", lambda *given: given[6])
    job: Any = SimpleNamespace(clock=CLOCK, prepared=None, work=None, findings=None)
    job.options = SimpleNamespace(seed=1, memory_bytes=2, timeout_s=3)
    lowering: Any = SimpleNamespace(wide="wide", record=SimpleNamespace(max_error=None)) if lowered else None
    first = replace(made(Variant(USUAL), "result", lowering), tensorrt="the build", fixed=Later(lambda: "fixed"))
    settings = engine_making._compared(job, first, Later(lambda: first))
    assert settings == (2, 1, "budget of the build", 3)
