"""Batches that build engines: in this process, and as users start them, with workers and clients that are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.batch.conftest import Seen
from tests.models import saved
from tests.pipeline.runs import PROFILE, environment, model
from trtnorm_cli.batch import session
from trtnorm_cli.batch.claims import MOST_ATTEMPTS
from trtnorm_cli.batch.session import BatchOptions, run_batch
from trtnorm_cli.batch.store import Store
from trtnorm_cli.tensorrt.manifest import Manifest, manifest_of

pytestmark = [pytest.mark.batch, pytest.mark.rtx]
PLAN = """
models: {good: {model: good.onnx, profile: cfg.yaml}}
targets:
  ada: {backend: tensorrt-rtx, targets: [sm_89]}
  blackwell: {backend: tensorrt-rtx, targets: [sm_120]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    saved(model(), tmp_path / "good.onnx")
    saved(model("Odd(r, v)"), tmp_path / "odd.onnx")
    (tmp_path / "cfg.yaml").write_text(PROFILE)
    (tmp_path / "plan.yaml").write_text(PLAN)
    return tmp_path


def test_builds_for_two_targets_share_what_does_not_depend_on_them(folder, client, monkeypatch):
    @contextmanager
    def local(slots, gpus, jobs):
        yield client

    monkeypatch.setattr(session, "local_client", local)
    seen = Seen()
    batch = run_batch(folder / "plan.yaml", BatchOptions(output=folder / "out", with_report=False), seen)
    assert [job.problem for job in batch.jobs if job.problem] == []
    manifests = [Manifest.load(manifest_of(folder / "out" / job.files[0])) for job in batch.jobs]
    assert [manifest.engine.targets for manifest in manifests] == [("sm_89",), ("sm_120",)]
    assert manifests[0].comparison == manifests[1].comparison
    assert manifests[0].changes == manifests[1].changes
    results = folder / "out" / ".store" / "results"
    assert {kind.name: len(list(kind.glob("*.json"))) for kind in results.iterdir()} == {"build": 2, "compare": 1, "rewrite": 1}
    assert len({job.stage for job in seen.changes if job.state == "running"} - {"rewrite"}) >= 2
    times = Store(str(folder / "out" / ".store"))
    known = [file.stem for file in (folder / "out" / ".store" / "times").glob("*.json")]
    assert min(times.times(known).values()) > 0


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "trtnorm_cli", "batch", *arguments]


def workers_of(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            words = Path(f"/proc/{child}/cmdline").read_bytes()
            found += [child] if b"spawn_main" in words else []
    return found


@contextmanager
def begun(folder: Path, wait_for: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A batch of eight jobs in which something has begun."""
    (folder / "plan.yaml").write_text(
        "models: {good: good.onnx}\nprofiles:\n"
        + "".join(f"  p{n}: {{file: cfg.yaml, settings: {{builder: {{max_aux_streams: {n}}}}}}}\n" for n in range(8))
    )
    arguments = command("plan.yaml", "-o", "out", "-j", "2", "--json", "--no-report", *options)
    with subprocess.Popen(
        arguments,
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        until = time.monotonic() + 200
        while not list(folder.glob(wait_for)) and process.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        yield process


def left(folder: Path) -> dict[str, Any]:
    store = folder / "out" / ".store"
    built = [json.loads(file.read_text()) for file in (store / "results" / "build").glob("*.json")]
    return {
        "jobs": len({result["job"] for result in built}),
        "results": len(built),
        "engines": len(list((folder / "out").glob("*.engine"))),
        "claims": len(list((store / "claims").glob("*.json"))),
        "partial": [path.name for path in folder.rglob(".*") if path.name not in (".store",)],
    }


ALL = {"jobs": 8, "results": 8, "engines": 8, "claims": 0, "partial": []}


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_no_job(folder):
    with begun(folder, "out/.store/claims/*.json") as process:
        os.kill(workers_of(process.pid)[0], signal.SIGKILL)
        out, err = process.communicate(timeout=250)
    assert process.returncode == 0, err
    assert {job["state"] for job in json.loads(out)["jobs"]} == {"built"}
    assert left(folder) == ALL


def attempts_at(claim: Path) -> Iterator[int]:
    """The process of each attempt at the job of ``claim``, until there is no other for a while."""
    known, until = 0, time.monotonic() + 60
    while time.monotonic() < until:
        with suppress(OSError, ValueError):
            found = json.loads(claim.read_text())
            if found["attempt"] > known:
                known, until = found["attempt"], time.monotonic() + 60
                yield found["pid"]
        if known == MOST_ATTEMPTS:
            return
        time.sleep(0.02)


@pytest.mark.slow
def test_a_job_that_ends_three_workers_fails_alone(folder):
    with begun(folder, "out/*.engine") as process:
        claim = next((folder / "out" / ".store" / "claims").glob("*.json"))
        killed = 0
        for pid in attempts_at(claim):
            os.kill(pid, signal.SIGKILL)
            killed += 1
        out, err = process.communicate(timeout=250)
    assert killed == MOST_ATTEMPTS
    assert process.returncode == 1, err
    (failed,) = [job for job in json.loads(out)["jobs"] if job["state"] != "built"]
    assert failed["problem"]["exit_code"] == 6
    assert "3 workers were lost while they worked on it" in failed["problem"]["summary"]
    assert left(folder) == {**ALL, "jobs": 7, "results": 7, "engines": 7}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_batch_whose_client_ends_goes_on_where_it_was(folder, number):
    with begun(folder, "out/*.engine") as process:
        workers = workers_of(process.pid)
        if number == signal.SIGINT:  # as a terminal does it: to all
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        _, err = process.communicate(timeout=120)
    assert process.returncode == (-9 if number == signal.SIGKILL else 130), err
    until = time.monotonic() + 30
    while any(Path(f"/proc/{worker}").exists() for worker in workers) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)
    if number != signal.SIGKILL:
        assert "Traceback" not in err
        assert left(folder)["claims"] == 0
        assert left(folder)["partial"] == []
    before = {file: file.read_bytes() for file in (folder / "out" / ".store" / "results" / "build").glob("*.json")}
    done = subprocess.run(
        command("plan.yaml", "-o", "out", "-j", "2", "--json", "--no-report", "--resume"),
        cwd=folder, env=environment(), capture_output=True, text=True, check=False, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    states = [job["state"] for job in json.loads(done.stdout)["jobs"]]
    assert states.count("up to date") == len(before)
    assert states.count("built") == 8 - len(before)
    assert all(file.read_bytes() == content for file, content in before.items())
    assert left(folder) == ALL


@pytest.mark.slow
def test_the_command_line_from_a_failure_to_the_exit_code(folder):
    (folder / "plan.yaml").write_text(
        "models: {good: {model: good.onnx, profile: cfg.yaml}, odd: {model: odd.onnx, profile: cfg.yaml}}\n"
    )
    arguments = command("plan.yaml", "-o", "out", "--junit", "junit.xml")
    done = subprocess.run(arguments, cwd=folder, env=environment(), capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 1, done.stderr
    assert "error: odd: TensorRT does not accept the model" in done.stderr
    assert "1 built, 1 failed" in done.stdout or "1 failed, 1 built" in done.stdout
    assert 'failures="1"' in (folder / "junit.xml").read_text()
    assert (folder / "out" / "index.html").is_file()
