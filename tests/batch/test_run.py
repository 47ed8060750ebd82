"""Batches on a cluster: what is done once, what fails alone, what is continued, and what is said."""

from __future__ import annotations

import fcntl
import json
import re
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from trtnorm_cli.batch import session, tasks
from trtnorm_cli.batch.cluster import Tls
from trtnorm_cli.batch.machine import BackendAt, Machine
from trtnorm_cli.batch.run import BatchRun
from trtnorm_cli.batch.session import BatchOptions, run_batch
from trtnorm_cli.batch.store import Store
from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.records.batch import BatchRecord
from trtnorm_cli.report.batch import BatchProgress, print_batch, print_plan
from trtnorm_cli.report.batch_page import index_of
from trtnorm_cli.report.junit import junit_of
from trtnorm_cli.report.verbosity import Verbosity
from trtnorm_cli.tensorrt.up_to_date import own_code, package_versions

pytestmark = pytest.mark.batch
PROGRAMS = own_code(), package_versions()


@pytest.fixture(autouse=True)
def here(client, monkeypatch):
    """This machine has a GPU, TensorRT, and the cluster of the tests."""
    backends = {name: BackendAt(name or "tensorrt", "10.3", ("NVIDIA L4 (sm_89)",)) for name in ("", "tensorrt-rtx")}
    machine = Machine(*PROGRAMS, backends, {})
    monkeypatch.setattr(session, "this_machine", lambda names: machine)

    @contextmanager
    def local(slots, gpus, jobs):
        yield client

    monkeypatch.setattr(session, "local_client", local)


@pytest.fixture
def run(fleet, seen, monkeypatch):
    def run(**options) -> BatchRecord:
        return run_batch(fleet / "plan.yaml", BatchOptions(output=fleet / "out", **options), seen)

    return run


def states(batch: BatchRecord) -> dict[str, str]:
    return {job.name: job.state for job in batch.jobs}


def test_what_fails_stops_no_other_and_what_is_there_is_not_done_again(run, work, fleet, seen):
    batch = run()
    assert batch.counts == {"failed": 6, "built": 4}
    assert not batch.succeeded
    assert {job.problem.exit_code for job in batch.jobs if job.problem} == {5, 6}
    refused = next(job for job in batch.jobs if job.name == "refused.fp16.any")
    assert refused.problem is not None
    assert refused.problem.where == "refused.onnx"
    assert sorted(work.done).count(("rewrite", "good")) == 2  # with and without the GPU's backend
    assert (fleet / "out" / "good.fp16.ada.engine").read_text().endswith(".engine")
    assert json.loads((fleet / "out" / "batch.json").read_text())["jobs"][0]["state"] == batch.jobs[0].state
    assert [job.state for job in seen.changes if job.name == "good.fp16.any"][-1] == "built"

    (fleet / "out" / "good.fp16.ada.engine").unlink()
    work.done.clear()
    again = run()
    assert again.counts == {"failed": 6, "up to date": 4}
    assert sorted({name for kind, name in work.done if kind == "build"}) == sorted(
        name for name, state in states(again).items() if state == "failed"
    )
    assert (fleet / "out" / "good.fp16.ada.engine").is_file()

    work.done.clear()
    resumed = run(resume=True)
    assert states(resumed) == states(again)
    assert work.done == []
    assert {job.problem.summary for job in resumed.jobs if job.problem} >= {"TensorRT does not accept the model"}


def test_the_lock_of_a_process_that_was_killed_goes_with_the_next_batch(run, work, fleet):
    run(only=("good.fp16.any",))
    lock = fleet / "out" / ".good.fp16.any.engine.lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert run(only=("good.fp16.any",)).counts == {"up to date": 1}
        assert lock.exists(), "it is another process's"
    assert run(only=("good.fp16.any",)).counts == {"up to date": 1}
    assert not lock.exists()


def test_a_store_is_shared_by_batches(run, work, fleet, tmp_path, seen):
    run(only=("good.*",), store=str(tmp_path / "shared"))
    work.done.clear()
    other = run_batch(
        fleet / "plan.yaml", BatchOptions(only=("good.*",), store=str(tmp_path / "shared"), output=tmp_path / "other"), seen
    )
    assert (other.counts, work.done) == ({"up to date": 4}, [])
    assert len(list((tmp_path / "other").glob("*.engine"))) == 4


def test_two_batches_at_once_do_a_job_once(run, work, fleet, seen, client):
    work.waits["good.as-written.any"] = threading.Event()
    found: list[BatchRecord] = []
    first = threading.Thread(target=lambda: found.append(run(only=("good.as-written.any",))))
    first.start()
    while ("build", "good.as-written.any") not in work.done:
        time.sleep(0.02)
    second = threading.Thread(target=lambda: found.append(run(only=("good.as-written.any",))))
    second.start()
    time.sleep(0.3)
    work.waits["good.as-written.any"].set()
    first.join(30)
    second.join(30)
    assert sorted(batch.jobs[0].state for batch in found) == ["built", "up to date"]
    assert work.done.count(("build", "good.as-written.any")) == 1


def test_a_job_that_no_worker_can_serve_is_said_at_once(run, work, fleet):
    text = (fleet / "plan.yaml").read_text().replace("sm_89", "sm_120")
    (fleet / "plan.yaml").write_text(text)
    start = time.monotonic()
    batch = run(only=("good.*",))
    assert time.monotonic() - start < 10
    assert batch.counts == {"failed": 2, "built": 2}
    problem = next(job.problem for job in batch.jobs if job.state == "failed")
    assert problem is not None
    assert problem.summary == "no worker can serve it: it needs GPU_sm_120 1"
    assert "--resources 'GPU_sm_120=1'; the workers have GPU_sm_89" in (problem.hint or "")


def test_a_dry_run_builds_nothing(run, work, fleet, capsys):
    run(only=("good.fp16.any",))
    batch = run(dry_run=True)
    assert batch.counts == {"planned": 9, "up to date": 1}
    print_plan(batch)
    shown = capsys.readouterr().out
    assert "10 jobs, 9 to build in about" in shown
    assert "1.0 GiB" in shown
    work.done.clear()
    assert not (fleet / "out" / "good.fp16.ada.engine").exists()


def test_an_interrupt_ends_what_runs_and_leaves_a_record(run, work, fleet, monkeypatch, client):
    name = "good.as-written.any"
    work.waits[name] = threading.Event()
    ticks = []

    def interrupt(self: BatchRun) -> None:
        ticks.append(self)
        if ("build", name) in work.done:
            raise KeyboardInterrupt

    monkeypatch.setattr("trtnorm_cli.batch.run._LOOK_FOR_WORKERS_S", 0.0)
    monkeypatch.setattr(BatchRun, "_give_up_unserved", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(only=(name,))
    record = json.loads((fleet / "out" / "batch.json").read_text())
    assert [job["state"] for job in record["jobs"]] == ["cancelled"]
    assert not tasks.is_at_work(ticks[0].run)
    assert Store(str(fleet / "out" / ".store")).claim(record["jobs"][0]["address"]) is None
    monkeypatch.undo()


def test_the_workers_must_have_the_programs_of_the_plan(run, work, monkeypatch):
    monkeypatch.setattr(tasks, "own_programs", lambda: "others")
    batch = run(only=("good.fp16.any",))
    problem = batch.jobs[0].problem
    assert problem is not None
    assert "another trtnorm" in problem.summary


def test_a_defect_is_told_with_its_place(run, work, fleet):
    (fleet / "good.onnx").rename(fleet / "defect.onnx")
    batch = run(only=("defect.fp16.any",))
    problem = batch.jobs[0].problem
    assert problem is not None
    assert (problem.exit_code, "ZeroDivisionError" in problem.summary) == (70, True)
    assert "Traceback" in (problem.where or "")


def test_a_model_that_is_not_there_fails_alone(run, work, fleet):
    with (fleet / "plan.yaml").open("a") as plan:
        plan.write("include: [{model: gone}]\n")
    text = (fleet / "plan.yaml").read_text().replace("models: {", "models: {gone: gone/model.onnx, ")
    (fleet / "plan.yaml").write_text(text)
    found = states(run(only=("good.fp16.any", "gone")))
    assert found == {"good.fp16.any": "built", "gone": "failed"}


def test_what_is_shown_and_written(run, work, fleet, capsys):
    with BatchProgress() as progress:
        batch = run_batch(fleet / "plan.yaml", BatchOptions(output=fleet / "out"), progress)
    lines = capsys.readouterr().err.splitlines()
    assert re.match(r"trtnorm: batch: 10 jobs, [1-9]\d* workers?, dashboard http://", lines[0])
    assert any(line.startswith("trtnorm: [10/10] ") for line in lines)
    print_batch(batch, "out", Verbosity.NORMAL)
    shown = capsys.readouterr()
    assert "4 built" in shown.out
    assert "steps     build 0.4 s" in shown.out
    assert shown.err.count("error: ") == 2
    assert "refused.as-written.any, refused.as-written.ada, refused.fp16.any, refused.fp16.ada: TensorRT does not" in shown.err
    suite = ElementTree.fromstring(junit_of(batch))[0]
    assert (suite.get("tests"), suite.get("failures")) == ("10", "6")
    assert len(suite.findall("testcase/failure")) == 6
    record = replace(batch.jobs[0], name="<&", warnings=("a\x1b[2Jb",))
    ElementTree.fromstring(junit_of(replace(batch, jobs=(record,))))


def test_workers_elsewhere_get_files_through_the_store(run, work, fleet, client, monkeypatch):
    found = BackendAt("tensorrt", "10.3")
    monkeypatch.setattr("trtnorm_cli.batch.machine._backend", lambda name: found)
    batch = run(scheduler=client.scheduler.address, only=("good.*",))
    assert batch.counts == {"built": 4}
    assert all(spec.name == "good.onnx" and spec.parent != fleet for spec in work.specs.values())
    assert run(scheduler=client.scheduler.address, only=("good.*",)).counts == {"up to date": 4}
    versions = iter(("10.3", "10.4", "10.3", "10.4"))
    monkeypatch.setattr("trtnorm_cli.batch.machine._backend", lambda name: replace(found, version=next(versions)))
    other = run(scheduler=client.scheduler.address, only=("good.fp16.any",))
    assert other.jobs[0].problem is not None
    assert "have different TensorRTs" in other.jobs[0].problem.summary
    monkeypatch.setattr("trtnorm_cli.batch.machine._backend", lambda name: replace(found, version="", missing="none here"))
    none = run(scheduler=client.scheduler.address, only=("good.fp16.any",))
    assert none.jobs[0].problem is not None
    assert "no worker that could serve it has TensorRT: none here" in none.jobs[0].problem.summary


@pytest.mark.parametrize(("options", "words"), [
    ({"scheduler": "tcp://127.0.0.1:1"}, "no scheduler answers"),
    ({"scheduler": "tls://127.0.0.1:1", "tls": Tls(ca=Path("none.pem"))}, "--tls-cert is missing"),
    ({"scheduler": "tls://127.0.0.1:1", "tls": Tls(*[Path("none.pem")] * 3)}, "there is no such file"),
    ({"only": ("nothing",)}, "no job of the plan has such a name"),
])  # fmt: skip
def test_what_cannot_be_used_is_named(run, work, monkeypatch, options, words):
    monkeypatch.setattr("trtnorm_cli.batch.cluster._ANSWER_S", 1)
    with pytest.raises(UsageProblem, match=words):
        run(**options)


@pytest.mark.report
def test_the_index_links_to_every_engine(run, work, fleet):
    batch = run()
    page = (fleet / "out" / "index.html").read_text()
    bare = replace(batch, jobs=tuple(replace(job, engine_bytes=None) for job in batch.jobs))
    assert ">engine</a>" in index_of(bare)
    assert page.count('<tr><th scope="row">') == len(batch.jobs)
    assert 'href="good.fp16.ada.engine"' in page
    assert "TensorRT does not accept the model" in page
