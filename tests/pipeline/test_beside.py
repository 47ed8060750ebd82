"""What a build does beside each other: which processes it starts, in which order it speaks, and what a failing part costs."""

from __future__ import annotations

import errno
import json
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.models import batchnorm, parse, random, saved
from tests.pipeline.runs import build, hidden, left_in_temp, manifest_of
from trtnorm_cli import build_job, child_process, pipeline, placing, variant_choice
from trtnorm_cli.compare import session
from trtnorm_cli.errors import OutOfTolerance
from trtnorm_cli.rewrite import rewriting
from trtnorm_cli.rewrite.proof.check import Prover
from trtnorm_cli.rewrite.realise import Realised
from trtnorm_cli.rewrite.rewriting import RewritingSession
from trtnorm_cli.rewrite.rule import Check, Match
from trtnorm_cli.side_work import Later, SideWork
from trtnorm_cli.tensorrt.kernel_search import Bounds, Variant, fastest
from trtnorm_cli.tensorrt.launch import launch
from trtnorm_cli.tensorrt.network.parsed import ParsedNetwork

pytestmark = pytest.mark.rtx

ABORTS = (sys.executable, "-c", "import os; os.abort()")
HANGS = (sys.executable, "-c", "import time; time.sleep(60)")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, unshared_child: None) -> list[str]:
    """The modules of the child processes that were started."""
    modules: list[str] = []
    real = child_process.Child.__init__

    def start(self, command, *arguments, **options):
        modules.append(next((part for part in command if part.startswith("trtnorm_cli.")), command[0]))
        real(self, command, *arguments, **options)

    monkeypatch.setattr(child_process.Child, "__init__", start)
    return modules


@pytest.fixture
def unsure(monkeypatch: pytest.MonkeyPatch) -> None:
    """No engine tells by itself that it leaves nothing to gain."""
    monkeypatch.setattr(variant_choice, "may_tell", lambda rules, model: False)
    monkeypatch.setattr(variant_choice, "leaves_nothing_to_gain", lambda built, device: False)


ENGINE, NETWORK = "trtnorm_cli.tensorrt.child.worker", "trtnorm_cli.tensorrt.network.worker"
RUNS = "trtnorm_cli.evaluate.ort_worker"


def plain(work: Path) -> None:
    """``plain.onnx``, in which nothing is changed."""
    text = "g (float[N, 2, 9, 9] x) => (float[N, 4, 7, 7] y) { c = Conv(x, w) y = Relu(c) }"
    saved(parse(text, {"w": random(4, 2, 3, 3)}), work / "plain.onnx")


def test_the_processes_of_a_build(work, started):
    """One for TensorRT's engine, which tells that the changes cost nothing, and one that runs models.

    The first hands out the network that it has parsed. Models are run for the proofs of the changes, and for the comparison.
    """
    assert build("good.onnx") == 0
    assert sorted(started) == [RUNS, ENGINE]


def test_a_scale_that_is_made_in_passing_begins_no_second_engine(work, started, monkeypatch):
    """It is in the kernel of the addition behind it, with the change and without."""
    branch = "m = MatMul(x, w) b = Add(m, v) s = Mul(b, u) r = Add(s, x) y = Relu(r)"
    text = f"g (float[N, 9, 16] x) => (float[N, 9, 16] y) {{ {branch} }}"
    saved(parse(text, {"w": random(16, 16), "v": random(16), "u": random(16, seed=1)}), work / "branch.onnx")
    monkeypatch.setattr(variant_choice, "usable_cores", lambda: 2)
    Path("cfg.yaml").write_text("dims: {N: {min: 1, opt: 2, max: 4}}\n")
    assert build("branch.onnx") == 0
    assert [change["rule"] for change in manifest_of(work / "branch.engine")["changes"]] == ["fold-scale-shift-upstream"]
    assert started.count(ENGINE) == 1


def test_a_second_engine_tells_what_the_changes_did_where_the_first_one_does_not(work, started, unsure):
    assert build("good.onnx") == 0
    assert sorted(set(started)) == [RUNS, ENGINE]
    assert started.count(ENGINE) == 2
    assert started.count(RUNS) == 1


def test_a_model_that_stays_as_it_is_is_built_once(work, started):
    plain(work)
    assert build("plain.onnx") == 0
    assert (started.count(ENGINE), started.count(NETWORK)) == (1, 0)


def test_what_is_not_tiny_is_built_once_where_nothing_depends_on_more(work, started, monkeypatch):
    monkeypatch.setattr(variant_choice, "TO_TELL", Bounds(1, 4 << 20))
    Path("cfg.yaml").write_text(Path("cfg.yaml").read_text() + "optimize: always\n")
    assert build("good.onnx") == 0
    assert started.count(ENGINE) == 1
    assert manifest_of(work / "good.engine")["optimize"]["before"] is None


def test_an_engine_that_was_built_to_be_counted_is_not_built_again(work, started, monkeypatch, unsure):
    """Where the changes cost time, as the estimate says here, the engine without any is the one."""
    real = fastest

    def slow(session, variants, changed, *rest):
        total = replace(changed.cost.total, us=1e6)
        return real(session, variants, replace(changed, cost=replace(changed.cost, total=total)), *rest)

    monkeypatch.setattr(variant_choice, "fastest", slow)
    assert build("good.onnx", "-o", "auto.engine") == 0
    assert (started.count(ENGINE), started.count(NETWORK)) == (2, 1)
    Path("cfg.yaml").write_text(Path("cfg.yaml").read_text() + "optimize: never\n")
    assert build("good.onnx", "-o", "never.engine") == 0
    assert (work / "auto.engine").read_bytes() == (work / "never.engine").read_bytes()
    auto, never = manifest_of(work / "auto.engine"), manifest_of(work / "never.engine")
    assert auto["changes"] == never["changes"] == []
    assert auto["network"] == never["network"]
    assert auto["comparison"]["state"] == never["comparison"]["state"] == "passed"
    assert hidden(work) == left_in_temp(work) == []


def test_an_engine_that_is_built_behind_the_first_one_leaves_its_network_to_be_compared(work, started, monkeypatch, unsure):
    """The first one was expected to tell by itself, and does not."""
    monkeypatch.setattr(variant_choice, "may_tell", lambda rules, model: True)
    monkeypatch.setattr(variant_choice, "fastest", lambda session, tried, changed, unchanged, *_: Variant(unchanged.rewriting))
    assert build("good.onnx") == 0
    assert (started.count(ENGINE), started.count(NETWORK)) == (2, 0)
    manifest = manifest_of(work / "good.engine")
    assert (manifest["changes"], manifest["comparison"]["state"]) == ([], "passed")
    assert hidden(work) == left_in_temp(work) == []


def test_an_engine_with_some_of_the_changes_is_built_once_and_compared_once(work, started, monkeypatch, unsure):
    """The search has built it, with its network; what the model itself says was found out before the choice was made."""
    text = """g (float[N, 2, 9, 9] x) => (float[N, 4, 9, 9] y) {
      c = Conv(x, w) n = BatchNormalization(c, gamma, beta, mu, var) r = Relu(n)
      d = Conv(r, v) m = BatchNormalization(d, gamma, beta, mu, var) y = Sigmoid(m) }"""
    saved(parse(text, {"w": random(4, 2, 1, 1), "v": random(4, 4, 1, 1), **batchnorm(4)}), work / "two.onnx")
    choices = iter([frozenset({"m"}), None])
    monkeypatch.setattr("trtnorm_cli.tensorrt.part_search.PartSearch._next", lambda search: next(choices))
    monkeypatch.setattr("trtnorm_cli.tensorrt.part_search.PartSearch.leaves_little", False)
    monkeypatch.setattr("trtnorm_cli.tensorrt.kernel_search.is_as_good", lambda every, other: False)
    monkeypatch.setattr("trtnorm_cli.tensorrt.kernel_search.preferred", lambda costs: costs[2])
    compared: list[str] = []
    real = session.compare_rewriting
    monkeypatch.setattr(session, "compare_rewriting", lambda *given: compared.append("") or real(*given))
    assert build("two.onnx") == 0
    assert (started.count(ENGINE), started.count(NETWORK), started.count(RUNS), len(compared)) == (3, 0, 1, 1)
    manifest = manifest_of(work / "two.engine")
    assert [change["tensor"] for change in manifest["changes"]] == ["n"]
    assert (manifest["optimize"]["chosen"]["left_out"], manifest["optimize"]["chosen"]["builds"]) == (["m"], 3)
    assert manifest["comparison"]["state"] == "passed"
    assert manifest["engine"]["bytes"] == (work / "two.engine").stat().st_size
    assert hidden(work) == left_in_temp(work) == []


def test_the_engine_without_changes_is_begun_before_they_are_proved(work, started, monkeypatch, unsure):
    events: list[str] = []
    starts, proves = SideWork.start, Prover.__call__
    monkeypatch.setattr(variant_choice, "usable_cores", lambda: 2)
    monkeypatch.setattr(SideWork, "start", lambda *given: events.append("a build") or starts(*given))
    monkeypatch.setattr(Prover, "__call__", lambda *given: events.append("a proof") or proves(*given))
    assert build("good.onnx") == 0
    assert events[:2] == ["a build", "a proof"]
    assert started.count(ENGINE) == 2
    manifest = manifest_of(work / "good.engine")
    assert manifest["optimize"]["before"]["reason"] == ""
    assert manifest["comparison"]["state"] == "passed"


def test_the_engine_without_changes_is_ended_where_none_is_left(work, monkeypatch, unsure):
    """Here none is proved."""

    def unproved(self: Prover, match: Match, realised: Realised) -> Check:
        return replace(proves(self, match, realised), passed=False, reason="off")

    proves = Prover.__call__
    monkeypatch.setattr(Prover, "__call__", unproved)
    monkeypatch.setattr(variant_choice, "usable_cores", lambda: 2)
    monkeypatch.setattr("trtnorm_cli.tensorrt.variants.launch", partial(launch, worker=HANGS))
    start = time.monotonic()
    assert build("good.onnx") == 0
    assert time.monotonic() - start < 40
    manifest = manifest_of(work / "good.engine")
    assert (manifest["changes"], manifest["optimize"]["before"]) == ([], None)
    assert manifest["undone"]
    assert hidden(work) == left_in_temp(work) == []


def test_what_takes_long_is_built_once_though_changes_depend_on_it(work, started, monkeypatch):
    """And rewritten once with them: none of them is one that only a build could have kept."""
    wanted: list[str | None] = []
    real = RewritingSession.rewrite

    def rewrite(self, optimize=None, left_out=frozenset(), measured=False, foreseen=None):
        wanted.append(optimize)
        return real(self, optimize, left_out, measured, foreseen)

    monkeypatch.setattr(RewritingSession, "rewrite", rewrite)
    monkeypatch.setattr(variant_choice, "bounds_for", lambda changes: Bounds(100, 100))
    monkeypatch.setattr(variant_choice, "TO_DECIDE_ON_FOLDS", Bounds(100, 100))
    assert build("good.onnx") == 0
    assert wanted == [None], "and not without them: the engine would have told whether that is wanted"
    assert (started.count(ENGINE), started.count(NETWORK)) == (1, 0)
    manifest = manifest_of(work / "good.engine")
    assert manifest["changes"]
    assert manifest["optimize"]["before"] is None
    assert manifest["comparison"]["state"] == "passed"


def test_without_a_comparison_no_network_is_translated(work, started, unsure):
    assert build("good.onnx", "--no-compare") == 0
    assert (started.count(ENGINE), started.count(NETWORK)) == (2, 0)


def test_little_memory_lets_one_after_the_other_work(work, monkeypatch, capsys, unsure):
    monkeypatch.setattr(build_job, "available_memory", lambda: 1)
    threads: list[int] = []
    real = build_job.launch

    def counting(*arguments, **options):
        threads.append(sum(thread.name == "trtnorm-side-work" for thread in threading.enumerate()))
        return real(*arguments, **options)

    monkeypatch.setattr(build_job, "launch", counting)
    assert build("good.onnx") == 0
    assert threads == [0]
    manifest = manifest_of(work / "good.engine")
    assert manifest["comparison"]["state"] == "passed"
    assert manifest["optimize"]["before"]["reason"] == ""


@pytest.mark.parametrize("slow", [None, "engine", "comparison"])
def test_the_order_of_the_steps_does_not_depend_on_what_is_slow(work, monkeypatch, slow, unsure):
    real_launch, real_comparison = build_job.launch, session.compare_rewriting

    def launch_late(*arguments, **options):
        time.sleep(1.0)
        return real_launch(*arguments, **options)

    def compare_late(*arguments, **options):
        time.sleep(1.0)
        return real_comparison(*arguments, **options)

    if slow == "engine":
        monkeypatch.setattr(build_job, "launch", launch_late)
    if slow == "comparison":
        monkeypatch.setattr(session, "compare_rewriting", compare_late)
    assert build("good.onnx") == 0
    assert list(manifest_of(work / "good.engine")["seconds"]) == ["rewrite", "variants", "parse", "build", "compare"]


def test_a_builder_that_dies_ends_the_others(work, monkeypatch, capsys, started, unsure):
    """At once, and what is kept for a report is the engine's alone."""
    monkeypatch.setattr(build_job, "launch", partial(launch, worker=ABORTS))
    monkeypatch.setattr("trtnorm_cli.tensorrt.variants.launch", partial(launch, worker=HANGS))
    assert build("good.onnx") == 6
    assert "the build process was ended by SIGABRT" in capsys.readouterr().err
    assert len(left_in_temp(work)) == 1
    assert hidden(work) == []
    assert not any(thread.name == "trtnorm-side-work" for thread in threading.enumerate())


def test_a_refused_model_is_not_compared_first(work, monkeypatch, capsys):
    """What TensorRT says of the engine ends the build, and a comparison would come to nothing."""
    monkeypatch.setattr("trtnorm_cli.compare.comparer.Comparer.run", lambda *arguments: pytest.fail("compared"))
    assert build("odd.onnx") == 5
    assert "Plugin not found" in capsys.readouterr().err
    assert len(left_in_temp(work)) == 1


def test_an_unchanged_model_that_kills_the_builder_is_only_told(work, monkeypatch, unsure):
    monkeypatch.setattr("trtnorm_cli.tensorrt.variants.launch", partial(launch, worker=ABORTS))
    assert build("good.onnx") == 0
    manifest = manifest_of(work / "good.engine")
    assert manifest["optimize"]["before"]["reason"] == "the build process was ended by SIGABRT"
    assert manifest["comparison"]["state"] == "passed"
    assert left_in_temp(work) == []


def test_a_network_that_cannot_be_written_is_told_and_no_matter_of_the_build(work, monkeypatch):
    monkeypatch.setattr(ParsedNetwork, "asked", lambda self, request: replace(request, network="no/such/folder.onnx"))
    assert build("good.onnx") == 0
    (told,) = manifest_of(work / "good.engine")["comparison"]["not_compared"]
    assert "failed to write TensorRT's network as ONNX, please report it: FileNotFoundError" in told
    assert left_in_temp(work) == hidden(work) == []


def test_the_weights_of_the_network_are_those_of_the_model_and_not_written_again(work, monkeypatch):
    wide = {"w": random(64, 2, 8, 8), "v": random(2, 64, 1, 1)}
    text = "g (float[N, 2, 9, 9] x) => (float[N, 2, 2, 2] y) { c = Conv(x, w) r = Relu(c) y = Conv(r, v) }"
    saved(parse(text, wide), work / "wide.onnx")
    written: list[tuple[int, set[str]]] = []
    real = session.compare_rewriting

    def looking(*arguments, **options):
        network = arguments[2](lambda likely, may_stay: None).network.result()
        written.append(
            (network.path.stat().st_size, {e.value for t in network.model.graph.initializer for e in t.external_data})
        )
        return real(*arguments, **options)

    monkeypatch.setattr(session, "compare_rewriting", looking)
    assert build("wide.onnx") == 0
    ((size, places),) = written
    assert size < wide["w"].nbytes
    assert "fixed.onnx" in places
    assert manifest_of(work / "wide.engine")["comparison"]["state"] == "passed"


def test_a_comparison_that_fails_ends_a_build_that_still_runs(work, monkeypatch):
    """The unchanged model's build, here, which nobody waits for any more."""

    def wrong(*arguments, **options):
        raise OutOfTolerance("wrong")

    monkeypatch.setattr(pipeline, "compared", wrong)
    monkeypatch.setattr(pipeline, "without_changes", lambda job, *given: job.side.start(lambda: sleeping(work)) and nothing())
    start = time.monotonic()
    assert build("good.onnx") == 1
    assert time.monotonic() - start < 40
    assert left_in_temp(work) == []


def sleeping(folder: Path) -> child_process.Ended:
    return child_process.run_child(HANGS, folder)


def nothing() -> Later[None]:
    return Later(lambda: None)


@pytest.fixture
def synced(monkeypatch) -> list[tuple[str, bool]]:
    """Names of what the disk was told to keep, with whether the main thread waited for that."""
    real, found = placing._sync, list[tuple[str, bool]]()

    def sync(path: Path) -> None:
        found.append((path.name, threading.current_thread() is threading.main_thread()))
        real(path)

    monkeypatch.setattr(placing, "_sync", sync)
    return found


def test_the_disk_keeps_the_engine_beside_other_work(work, synced):
    assert build("good.onnx") == 0
    assert synced[0] == ("good.engine", False)
    assert ("good.engine", True) in synced[1:]  # there is nothing left to do then


def test_a_disk_that_cannot_keep_the_engine_ends_the_build(work, monkeypatch, capsys):
    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(placing, "_sync", full)
    assert build("good.onnx") == 6
    assert "No space left on device" in capsys.readouterr().err
    assert not (work / "good.engine").exists()
    assert not (work / "good.engine.json").exists()
    assert hidden(work) == []


def test_what_is_no_valid_model_ends_a_build_that_is_on_its_way(work, monkeypatch, capsys, started):
    monkeypatch.setattr(rewriting, "_objection", lambda path: "it is not valid")
    assert build("good.onnx") == 4
    assert "it is not valid" in capsys.readouterr().err
    assert started.count(ENGINE) == 1
    assert hidden(work) == left_in_temp(work) == []


def test_two_builds_are_the_same(work):
    """Whatever came first in either."""
    found = []
    for name in ("a", "b"):
        assert build("good.onnx", "-o", f"{name}.engine") == 0
        manifest = manifest_of(work / f"{name}.engine")
        assert manifest.pop("seconds")
        assert manifest["comparison"].pop("seconds") > 0
        assert manifest["engine"].pop("file")
        found.append(json.dumps(manifest))
    assert found[0] == found[1]
    assert (work / "a.engine").read_bytes() == (work / "b.engine").read_bytes()
