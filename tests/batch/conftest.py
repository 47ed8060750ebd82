"""A cluster in this process, whose workers do next to nothing instead of building."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.models import parse, saved
from trtnorm_cli.batch import steps
from trtnorm_cli.batch.inputs import laid_out
from trtnorm_cli.batch.store import Store
from trtnorm_cli.batch.ticket import Ticket
from trtnorm_cli.errors import BuilderDied, TensorRTRefusal
from trtnorm_cli.records.batch import BatchRecord, JobRecord

if TYPE_CHECKING:
    from distributed import Client


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Two workers in this process; one has a GPU."""
    distributed = pytest.importorskip("distributed")
    options = {"nthreads": 1, "memory_limit": 0, "dashboard": False}
    workers = {
        number: {"cls": distributed.Worker, "options": {**options, "resources": resources}}
        for number, resources in enumerate(({}, {"GPU_sm_89": 1.0}))
    }
    scheduler = {"cls": distributed.Scheduler, "options": {"dashboard": False, "dashboard_address": ":0", "port": 0}}
    with (
        distributed.SpecCluster(workers=workers, scheduler=scheduler) as cluster,
        distributed.Client(cluster, set_as_default=False) as made,
    ):
        yield made


class Work:
    """What was done instead of exports, rewritings and builds, and which models fail in it."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []
        self.specs: dict[str, Path] = {}
        self.waits: dict[str, threading.Event] = {}

    def rewrite(self, ticket: Ticket, store: Store, folder: Path) -> Mapping[str, Any]:
        self.done.append(("rewrite", ticket.job.model))
        return {"proofs": {}}

    def build(self, ticket: Ticket, store: Store, folder: Path) -> Mapping[str, Any]:
        name = ticket.job.name
        self.done.append(("build", name))
        self.specs[name] = Path(laid_out(ticket.inputs, store, folder, ticket.here).spec)
        if ticket.job.model == "refused":
            raise TensorRTRefusal("TensorRT does not accept the model", f"{folder}/refused.onnx", "another model")
        if ticket.job.model == "crashing":
            raise BuilderDied("the builder was ended by SIGSEGV")
        if ticket.job.model == "defect":
            raise ZeroDivisionError
        if (event := self.waits.get(name)) is not None:
            from trtnorm_cli.child_process import require_wanted

            while not event.wait(0.05):
                require_wanted()
        files = []
        for suffix in (".engine", ".engine.json"):
            path = folder / f"{name}{suffix}"
            path.write_text(f"{ticket.addresses.build}{suffix}")
            files.append(store.put_file(path, path.name).to_json())
        return {"files": files, "stages": {"build": 0.1}, "comparison": "passed", "engine_bytes": 3, "warnings": []}


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    made = Work()
    monkeypatch.setattr(steps, "rewritten", made.rewrite)
    monkeypatch.setattr(steps, "built", made.build)
    return made


class Seen:
    """Whoever follows a batch, and remembers."""

    def __init__(self) -> None:
        self.begun: list[BatchRecord] = []
        self.changes: list[JobRecord] = []

    def begins(self, batch: BatchRecord) -> None:
        self.begun.append(batch)

    def changed(self, job: JobRecord) -> None:
        self.changes.append(job)


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """A folder with three models and a plan of ten jobs: three models in two precisions for two targets, without two."""
    for number, name in enumerate(("good", "refused", "crashing")):
        saved(parse(f"g (float[{number + 1}] x) => (float[{number + 1}] y) {{ y = Relu(x) }}"), tmp_path / f"{name}.onnx")
    (tmp_path / "plan.yaml").write_text(
        "models: {all: '*.onnx'}\nprecisions: [as-written, fp16]\ntargets: {any: {backend: tensorrt-rtx}, ada: {gpu: sm_89}}\n"
        "exclude: [{model: crashing, target: ada}]\n"
    )
    return tmp_path
