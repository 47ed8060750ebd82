"""A whole batch: from the plan's file to engines, their reports, and one record of everything."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from trtnorm_cli.batch.cluster import (
    Tls,
    Worker,
    dashboard_of,
    local_client,
    machines_of,
    remote_client,
    require_batch_possible,
    workers_of,
)
from trtnorm_cli.batch.job import Job
from trtnorm_cli.batch.machine import ANY_BACKEND, Machine, this_machine
from trtnorm_cli.batch.matrix import jobs_of
from trtnorm_cli.batch.output import make_folder, put_files
from trtnorm_cli.batch.plan import load_plan
from trtnorm_cli.batch.planning import Planning, ReadyJob, among, failed, on_this_machine
from trtnorm_cli.batch.run import BatchRun, RunSettings
from trtnorm_cli.batch.sizing import Slots, memory_needed, slots_for
from trtnorm_cli.batch.store import Store, now
from trtnorm_cli.errors import TrtnormError, UsageProblem
from trtnorm_cli.files import save_in_one_step
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.records.batch import BatchRecord, JobRecord
from trtnorm_cli.report.page.write import LIBRARIES

if TYPE_CHECKING:
    from distributed import Client

RECORD_FILE, INDEX_FILE = "batch.json", "index.html"
_PAUSE_S = 1.0


@dataclass(frozen=True)
class BatchOptions:
    """The options of a batch, as the command line gives them.

    ``wait_s`` is how long workers that can serve a job may take to come. ``only`` are patterns of names of jobs.
    """

    jobs: int | None = None
    scheduler: str | None = None
    tls: Tls = Tls()
    store: str | None = None
    output: Path | None = None
    resume: bool = False
    dry_run: bool = False
    wait_s: float = 0.0
    timeout_s: float | None = None
    memory_bytes: int | None = None
    only: tuple[str, ...] = ()
    with_report: bool = True


class Watching(Protocol):
    """Whoever follows a batch."""

    def begins(self, batch: BatchRecord) -> None:
        """The plan was read, and the workers are there."""

    def changed(self, job: JobRecord) -> None:
        """A job has another state, or is at another stage."""


def run_batch(plan_path: Path, options: BatchOptions, watching: Watching) -> BatchRecord:
    """Build what a plan asks for and is not there yet, and return what became of each job.

    Raises ``ProfileError`` for a plan with mistakes, and ``UsageProblem`` where store or scheduler cannot be used. A job that
    fails is in the record, with its reason.
    """
    require_batch_possible()
    began, clock = now(), time.monotonic()
    plan = load_plan(plan_path)
    jobs = [_with_options(job, options) for job in _chosen(jobs_of(plan), options.only)]
    output = options.output or Path(plan_path.stem)
    store = Store(_absolute(options.store or plan.store or str(output / ".store")))
    if not options.dry_run:
        make_folder(output)
        store.open()
    planning = Planning(store, options.resume)
    ready = planning.read(jobs)
    batch = BatchRecord(str(plan_path), store.url, "", began, 0.0, 0, None, ())

    def recorded(records: Iterable[JobRecord], **about: object) -> BatchRecord:
        found = {record.name: record for record in records}
        values = {**{"seconds": round(time.monotonic() - clock, 3)}, **about}
        return replace(batch, jobs=tuple(found[job.name] for job in jobs), **values)  # type: ignore[arg-type]

    if options.scheduler is None:
        ready = planning.placed(ready, on_this_machine(_this_machine(ready)))
        if options.dry_run or not any(one.is_to_do for one in ready):
            return _finished(store, ready, recorded([one.record for one in ready]), output, options, watching)
    with _client(ready, options) as (client, slots):
        if options.scheduler is not None:
            ready = _placed_among_workers(client, planning, ready, options)
        # The workers of a cluster of one's own may not have told the client yet that they are there.
        said = {"workers": len(workers_of(client)) if slots is None else slots.workers, "dashboard": dashboard_of(client)}
        if options.dry_run or not any(one.is_to_do for one in ready):
            return _finished(store, ready, recorded([one.record for one in ready], **said), output, options, watching)
        settings = RunSettings(
            here=options.scheduler is None,
            with_report=options.with_report,
            memory=options.memory_bytes or (None if slots is None else slots.memory),
            wait_s=options.wait_s,
        )
        run = BatchRun(client, store, settings, watching.changed, lambda record, result: put_files(store, result, output))
        said["run"] = run.run
        watching.begins(recorded([one.record for one in ready], **said))
        try:
            run.follow(ready)
        finally:
            records = [run.records.get(one.job.name, one.record) for one in ready]
            ended = recorded(records, **said)
            save_in_one_step(ended.to_json(), output / RECORD_FILE)
    return _finished(store, ready, ended, output, options, watching, begun=True)


def _finished(
    store: Store,
    ready: list[ReadyJob],
    batch: BatchRecord,
    output: Path,
    options: BatchOptions,
    watching: Watching,
    begun: bool = False,
) -> BatchRecord:
    """The end of a batch: files of what was there already, the record, and the index of the reports."""
    if options.dry_run:
        return batch
    if not begun:
        watching.begins(batch)
    jobs = {job.name: job for job in batch.jobs}
    for one in ready:
        if one.result is not None:
            try:
                put_files(store, one.result, output)
            except TrtnormError as error:
                jobs[one.job.name] = failed(jobs[one.job.name], error)
    batch = replace(batch, jobs=tuple(jobs.values()))
    save_in_one_step(batch.to_json(), output / RECORD_FILE)
    if can_write_index():
        from trtnorm_cli.report.batch_page import write_index

        write_index(batch, output / INDEX_FILE)
    return batch


def can_write_index() -> bool:
    """True where the package that makes the index is installed."""
    from importlib.util import find_spec

    return find_spec("jinja2") is not None


def reports_missing() -> list[str]:
    """The packages that reports on engines need, and are not installed."""
    from importlib.util import find_spec

    return [package for module, package in LIBRARIES.items() if find_spec(module) is None]


def _absolute(store: str) -> str:
    """A folder by its whole path: workers may be in another one."""
    return store if "://" in store or "::" in store else str(Path(store).absolute())


def _chosen(jobs: Iterable[Job], patterns: tuple[str, ...]) -> list[Job]:
    found = [job for job in jobs if not patterns or any(fnmatchcase(job.name, pattern) for pattern in patterns)]
    if not found:
        raise UsageProblem("no job of the plan has such a name", ", ".join(patterns), "list them with --dry-run")
    return found


def _with_options(job: Job, options: BatchOptions) -> Job:
    """The job with the limits of the command line, where the plan gives none."""
    how = replace(job.how, timeout=job.how.timeout or options.timeout_s, memory=job.how.memory or options.memory_bytes)
    return replace(job, how=how)


def _backends(ready: Iterable[ReadyJob]) -> list[str]:
    return sorted({one.job.backend or ANY_BACKEND for one in ready if one.is_to_do})


def _packages(ready: Iterable[ReadyJob]) -> list[str]:
    return sorted({name for one in ready if one.inputs is not None for name in one.inputs.packages})


def _this_machine(ready: list[ReadyJob]) -> Machine:
    return this_machine(_backends(ready))


@contextmanager
def _client(ready: list[ReadyJob], options: BatchOptions) -> Iterator[tuple[Client, Slots | None]]:
    """The cluster, with its size where it is one of this machine."""
    if options.scheduler is not None:
        with remote_client(options.scheduler, options.tls) as client:
            yield client, None
        return
    todo = [one for one in ready if one.is_to_do]
    needs = [memory_needed(one.inputs) for one in todo if one.inputs is not None]
    slots = slots_for(needs, options.jobs, options.memory_bytes)
    machine = next(one.machine for one in todo if one.machine is not None)
    with local_client(slots, machine.gpus, len(todo)) as client:
        yield client, slots


def _placed_among_workers(client: Client, planning: Planning, ready: list[ReadyJob], options: BatchOptions) -> list[ReadyJob]:
    """The jobs with their addresses on the scheduler's workers, after the time that these may take to come."""
    until = time.monotonic() + options.wait_s
    while True:
        workers = workers_of(client)
        unserved = [one for one in ready if one.is_to_do and not any(worker.serves(one.job) for worker in workers)]
        if not unserved or time.monotonic() >= until:
            break
        time.sleep(_PAUSE_S)
    machines = machines_of(client, _backends(ready), _packages(ready))
    known = [replace(worker, machine=machines[worker.address]) for worker in workers if worker.address in machines]
    _require_packages(known, ready)
    return planning.placed(ready, among(known))


def _require_packages(workers: list[Worker], ready: list[ReadyJob]) -> None:
    """Raise ``UsageProblem`` where exports would be made with other packages than the plan was read with."""
    for one in ready:
        for name, version in (one.inputs.packages if one.inputs is not None else {}).items():
            for worker in workers:
                there = worker.machine.further.get(name) if worker.machine is not None else None
                if "." not in version and len(version) == 64:  # the digest of a module, of which workers have their own copy
                    continue
                if there is not None and there != version:
                    what = f"the worker has {name} {there or 'not installed'}, and this machine {version}: exports would differ"
                    raise UsageProblem(what, worker.address, "install the same versions on both")
