"""The making of one engine: from which files, with which network beside it, and what an earlier build gives to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.pipeline.variants import CLOCK, EVERY, NEEDED, USUAL, made, rewriting
from trtnorm_cli import build_job, engine_making, pipeline
from trtnorm_cli.compare import participants, session
from trtnorm_cli.errors import NotCompared, UsageProblem
from trtnorm_cli.side_work import Later
from trtnorm_cli.tensorrt.kernel_search import Variant
from trtnorm_cli.tensorrt.origin import Subject
from trtnorm_cli.tensorrt.request import NETWORK_FILE


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
    monkeypatch.setattr(pipeline, "faster", lambda job, begun, *given: Variant(better, is_settled=True))
    monkeypatch.setattr(pipeline, "make", lambda job, variant, earlier: offered.append(earlier) or "made again")
    network: Any = SimpleNamespace(cancel=lambda: cancelled.append(1))
    begun = replace(made(Variant(EVERY, measured=True), SimpleNamespace(seconds={"parse": 1.0})), network=network)
    clock = SimpleNamespace(seconds={})
    job: Any = SimpleNamespace(clock=clock, variants=lambda keeps: SimpleNamespace(kept=["kept"] if keeps else []))
    job.side = SimpleNamespace(is_beside=True)
    worked_on: list[Any] = []
    other: Any = SimpleNamespace(begin_beside=lambda building: worked_on.append(building))

    def likely(one: Any, may_stay: Any, nobody_waits: Any) -> None:
        assert nobody_waits() == (not begun.building.is_done())
        worked_on.append(one.rewriting)

    found: Any = pipeline.settled_on(job, begun, Later(lambda: unchanged), other, likely)
    assert worked_on == ([EVERY, begun.building] if replaced else [])
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
    monkeypatch.setattr(participants, "loaded_network", lambda *given, **more: "network")
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
    assert network == (NETWORK_FILE if compare and not reproducible else None)


@pytest.mark.parametrize(
    ("size", "limit", "room"),
    [
        (9, None, True), (10, None, False), (9, 27, False), (8, 27, True), (9, 40, True),
        (14, None, True), (15, None, False), (14, 28, False),
    ],
)  # fmt: skip
def test_several_processes_have_room_in_a_share_of_the_memory_and_within_its_limit(monkeypatch, tmp_path, size, limit, room):
    (tmp_path / "m.onnx").write_bytes(bytes(size - 1))
    (tmp_path / "m.data").write_bytes(bytes(1))
    monkeypatch.setattr(build_job, "available_memory", lambda: 30 / build_job._MEMORY_SHARE)
    for name, value in {"_COPIES": 3, "_COPIES_OF_LARGE": 2, "SINGLE_FILE_LIMIT": 12}.items():
        monkeypatch.setattr(build_job, name, value)
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
    monkeypatch.setattr(session, "build_settings", lambda memory, seed, budget, timeout: (memory, seed, budget(), timeout))
    monkeypatch.setattr(session, "compare_rewriting", lambda *given: given[5])
    monkeypatch.setattr(session, "compare_lowered", lambda *given: given[6])
    job: Any = SimpleNamespace(clock=CLOCK, prepared=None, work=None, findings=None)
    job.options = SimpleNamespace(seed=1, memory_bytes=2, timeout_s=3)
    lowering: Any = SimpleNamespace(wide="wide", record=SimpleNamespace(max_error=None)) if lowered else None
    first = replace(made(Variant(USUAL), "result", lowering), tensorrt="the build", fixed=Later(lambda: "fixed"))
    settings = engine_making._compared(job, first, Later(lambda: first))
    assert settings == (2, 1, "budget of the build", 3)
