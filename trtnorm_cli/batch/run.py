"""Run the jobs of a batch: submit them as one graph, follow them, and fetch what they make.

Dask schedules, queues and retries. What is here submits, listens, and keeps the record.
"""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtnorm_cli.batch import tasks
from trtnorm_cli.batch.cluster import how_to_serve, workers_of
from trtnorm_cli.batch.inputs import send
from trtnorm_cli.batch.planning import FAILURES, ReadyJob, failed, with_result
from trtnorm_cli.batch.saying import topic_of
from trtnorm_cli.batch.store import Store
from trtnorm_cli.batch.ticket import Outcome, Problem, Ticket
from trtnorm_cli.errors import LimitReached, TrtnormError, UsageProblem
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.records.batch import JobProblem, JobRecord

if TYPE_CHECKING:
    from distributed import Client, Future

Watcher = Callable[[JobRecord], None]
# Where a build that was done is put, as soon as it is.
Keeper = Callable[[JobRecord, dict[str, Any]], None]
_TICK_S = 0.5
_LOOK_FOR_WORKERS_S = 5.0
_END_S = 15.0


@dataclass(frozen=True)
class RunSettings:
    """How jobs are run. ``here`` says that workers read the plan's files in their place, ``memory`` what each process may take.

    ``wait_s`` is how long a job waits for a worker that could serve it, when the last one is lost.
    """

    here: bool
    with_report: bool
    memory: int | None = None
    wait_s: float = 0.0


class BatchRun:
    """Jobs on a cluster. ``records`` has the state of each by its name."""

    def __init__(self, client: Client, store: Store, settings: RunSettings, watch: Watcher, keep: Keeper) -> None:
        self.client, self.store, self.settings = client, store, settings
        self.run = secrets.token_hex(6)
        self.records: dict[str, JobRecord] = {}
        self._watch, self._keep = watch, keep
        self._ready: dict[str, ReadyJob] = {}
        self._futures: dict[str, Future] = {}
        self._shared: list[Future] = []
        self._ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._unserved: dict[str, float] = {}

    def follow(self, jobs: list[ReadyJob]) -> None:
        """Do the jobs that are to do. Returns when all have ended; an interrupt ends those that run, and goes on."""
        self.client.subscribe_topic(topic_of(self.run), self._hear)
        try:
            self._submit(jobs)
            looked = time.monotonic()
            while self._futures:
                with suppress(queue.Empty):
                    self._end(self._ended.get(timeout=_TICK_S))
                if time.monotonic() - looked > _LOOK_FOR_WORKERS_S:
                    looked = time.monotonic()
                    self._give_up_unserved()
        except BaseException:
            self._cancel()
            raise
        finally:
            with suppress(Exception):
                self.client.unsubscribe_topic(topic_of(self.run))

    def _submit(self, jobs: list[ReadyJob]) -> None:
        """One graph of tasks: exports and rewritings once, and each build after those that it needs."""
        todo = [one for one in jobs if one.is_to_do]
        alike = Counter(one.addresses.rewrite for one in todo if one.addresses is not None)
        shared: dict[str, Future] = {}
        for one in todo:
            assert one.inputs is not None
            assert one.addresses is not None
            self._ready[one.job.name] = one
            self._set(replace(one.record, state="waiting"))
            if not self.settings.here:
                try:
                    send(one.inputs, self.store)
                except TrtnormError as error:
                    self._set(failed(one.record, error))
                    continue
            ticket = self._ticket(one).to_json()
            exporting = None
            if (at := one.addresses.export) is not None:
                exporting = shared.get(at) or shared.setdefault(
                    at, self._submitted(tasks.export_task, "export", one, at, ticket)
                )
            rewriting = None
            if alike[at := one.addresses.rewrite] > 1:
                make = tasks.rewrite_task
                rewriting = shared.get(at) or shared.setdefault(
                    at, self._submitted(make, "rewrite", one, at, ticket, exporting)
                )
            future = self._submitted(
                tasks.build_task, "build", one, one.addresses.build, ticket, exporting, rewriting, resources=one.job.resources
            )
            self._futures[one.job.name] = future
            name = one.job.name
            future.add_done_callback(lambda ended, name=name: self._ended.put(name))
        self._shared = list(shared.values())

    def _ticket(self, one: ReadyJob) -> Ticket:
        assert one.inputs is not None
        assert one.addresses is not None
        assert one.machine is not None
        set_, programs = self.settings, tasks.programs_of(one.machine.trtnorm, one.machine.packages)
        about = (self.store.url, self.run, programs, set_.here, set_.with_report, set_.memory)
        return Ticket(one.job, one.inputs, one.addresses, *about)

    def _submitted(
        self,
        task: Callable[..., Any],
        kind: str,
        one: ReadyJob,
        address: str,
        *given: Any,
        resources: dict[str, float] | None = None,
    ) -> Future:
        key = f"{kind}-{one.job.name}-{address[:8]}-{self.run}"
        return self.client.submit(task, *given, key=key, pure=False, resources=resources or None)

    def _hear(self, event: tuple[float, dict[str, str]]) -> None:
        """A task says what it is at."""
        name, stage = event[1]["job"], event[1]["stage"]
        with self._lock:
            record = self.records.get(name)
            if record is None or record.state not in ("waiting", "running"):
                return
            record = replace(record, state="running", stage=stage)
            self.records[name] = record
        self._watch(record)

    def _set(self, record: JobRecord) -> None:
        with self._lock:
            self.records[record.name] = record
        self._watch(record)

    def _end(self, name: str) -> None:
        """Take over what became of a job."""
        future = self._futures.pop(name, None)
        if future is None:
            return
        record = self._ended_record(self._ready.pop(name), self._outcome(future))
        future.release()
        self._set(record)

    def _outcome(self, future: Future) -> Outcome:
        from distributed.scheduler import KilledWorker

        try:
            return Outcome.load(future.result())
        except KilledWorker as error:
            lost = LimitReached(
                f"Dask gave it up: workers were lost while it waited or ran there ({error.last_worker.address} was the last)",
                hint="let the scheduler allow more of that: distributed.scheduler.allowed-failures; docs/batch.md says why",
            )
            return Outcome("failed", problem=Problem.of(lost))
        except Exception as error:
            defect = Problem(f"the task ended without an outcome: {type(error).__name__}: {error}", None, None, 70)
            return Outcome("failed", problem=defect)

    def _ended_record(self, one: ReadyJob, outcome: Outcome) -> JobRecord:
        record = replace(one.record, stage="", attempt=outcome.attempt, worker=outcome.worker)
        if outcome.state == "cancelled":
            return replace(record, state="cancelled")
        if outcome.state == "failed" or outcome.result is None:
            given = outcome.problem
            told = None if given is None else JobProblem(given.summary, given.where, given.hint, given.exit_code)
            if told is not None and one.addresses is not None:
                with suppress(TrtnormError):
                    self.store.put_anew(FAILURES, one.addresses.build, {"problem": told.to_json(), "job": one.job.name})
            return replace(record, state="failed", problem=told, seconds=outcome.seconds)
        record = with_result(record, outcome.result, "up to date" if outcome.was_there else "built")
        try:
            self._keep(record, outcome.result)
        except TrtnormError as error:
            return failed(record, error)
        return record

    def _give_up_unserved(self) -> None:
        """End jobs for which there is no worker any more, after the time that one may take to come."""
        anyone_serves = not any(self._ready[name].job.resources for name in self._futures)
        if anyone_serves and self.client.scheduler_info(n_workers=1)["workers"]:
            self._unserved.clear()
            return
        workers, now = workers_of(self.client), time.monotonic()
        for name in list(self._futures):
            job = self._ready[name].job
            if any(worker.serves(job) for worker in workers):
                self._unserved.pop(name, None)
            elif now - self._unserved.setdefault(name, now) >= max(self.settings.wait_s, _LOOK_FOR_WORKERS_S):
                self.client.cancel([self._futures.pop(name)])
                gone = UsageProblem("the last worker that could serve it is gone", hint=how_to_serve(job, workers))
                self._set(failed(self._ready.pop(name).record, gone))

    def _cancel(self) -> None:
        """End what runs, and wait a moment for it: each task removes what it has begun."""
        with suppress(Exception):
            self.client.cancel([*self._futures.values(), *self._shared], force=True)
            self.client.run(tasks.stop_run, self.run, on_error="ignore")
            until = time.monotonic() + _END_S
            while time.monotonic() < until and any(self.client.run(tasks.is_at_work, self.run, on_error="ignore").values()):
                time.sleep(_TICK_S / 2)
        for name in list(self._futures):
            self._set(replace(self._ready[name].record, state="cancelled"))


def fetched(store: Store, output: Path) -> Keeper:
    """A keeper that puts the files of each build into ``output``, all or none, unless they are there."""
    from trtnorm_cli.batch.output import put_files

    def keep(record: JobRecord, result: dict[str, Any]) -> None:
        put_files(store, result, output)

    return keep
