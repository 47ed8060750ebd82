"""A plan made ready: for each job its files, its addresses, what is up to date, and what the rest will cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace

from trtnorm_cli.batch.address import BUILD, Addresses, addresses_of
from trtnorm_cli.batch.cluster import Worker, how_to_serve
from trtnorm_cli.batch.inputs import InputReader, Inputs
from trtnorm_cli.batch.job import Job
from trtnorm_cli.batch.machine import ANY_BACKEND, Machine
from trtnorm_cli.batch.sizing import expected_s, memory_needed
from trtnorm_cli.batch.store import Store
from trtnorm_cli.errors import TrtnormError, UsageProblem
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.records.batch import JobProblem, JobRecord

FAILURES = "failures"


@dataclass(frozen=True)
class ReadyJob:
    """A job with its files. ``machine`` is one that serves it, ``addresses`` are those of that machine's programs."""

    job: Job
    record: JobRecord
    inputs: Inputs | None = None
    addresses: Addresses | None = None
    machine: Machine | None = None
    result: Mapping[str, object] | None = None

    @property
    def is_to_do(self) -> bool:
        return self.record.state == "planned"


@dataclass
class Planning:
    """Reads the files of jobs, and finds machines and results for them."""

    store: Store
    resume: bool = False
    reader: InputReader = field(default_factory=InputReader)

    def read(self, jobs: Iterable[Job]) -> list[ReadyJob]:
        """The jobs with their inputs. One whose files are not there has failed, and stops no other."""
        return [self._read(job) for job in jobs]

    def _read(self, job: Job) -> ReadyJob:
        record = JobRecord(job.name, job.model, job.profile, job.precision or "as the profile says", job.target, "planned")
        if job.precision is None and job.profile_path is None:
            record = replace(record, precision="as-written")
        try:
            inputs = self.reader.inputs(job)
        except TrtnormError as error:
            return ReadyJob(job, failed(record, error))
        return ReadyJob(job, replace(record, needs_bytes=memory_needed(inputs)), inputs)

    def placed(self, ready: list[ReadyJob], machine_for: Callable[[Job], Machine]) -> list[ReadyJob]:
        """The jobs with their addresses; those that no machine serves have failed. Results that are there are looked up."""
        found = [self._placed(one, machine_for) for one in ready]
        addresses = [one.addresses.build for one in found if one.is_to_do and one.addresses is not None]
        results = self.store.results(BUILD, addresses)
        known = self.store.results(FAILURES, addresses) if self.resume else {}
        times = self.store.times(one.addresses.alike for one in found if one.is_to_do and one.addresses is not None)
        return [self._looked_up(one, results, known, times) for one in found]

    @staticmethod
    def _placed(one: ReadyJob, machine_for: Callable[[Job], Machine]) -> ReadyJob:
        if not one.is_to_do or one.inputs is None:
            return one
        try:
            machine = machine_for(one.job)
            addresses = addresses_of(one.job, one.inputs, machine)
        except TrtnormError as error:
            return replace(one, record=failed(one.record, error))
        return replace(one, machine=machine, addresses=addresses, record=replace(one.record, address=addresses.build))

    @staticmethod
    def _looked_up(
        one: ReadyJob,
        results: Mapping[str, dict[str, object]],
        known: Mapping[str, dict[str, object]],
        times: Mapping[str, float],
    ) -> ReadyJob:
        if not one.is_to_do or one.addresses is None or one.inputs is None:
            return one
        at = one.addresses.build
        if at in results:
            return replace(one, result=results[at], record=with_result(one.record, results[at], "up to date"))
        if at in known:
            return replace(one, record=replace(one.record, state="failed", problem=JobProblem.load(known[at]["problem"])))
        return replace(one, record=replace(one.record, expected_s=expected_s(one.inputs, times.get(one.addresses.alike))))


def failed(record: JobRecord, error: TrtnormError) -> JobRecord:
    """``record`` with the error that it ended with."""
    return replace(record, state="failed", problem=JobProblem(error.summary, error.where, error.hint, error.exit_code))


def with_result(record: JobRecord, result: Mapping[str, object], state: str) -> JobRecord:
    """``record`` with what the store has of its build."""
    values = {**record.to_json(), "state": state}
    for key in (
        "seconds",
        "stages",
        "worker",
        "engine_bytes",
        "kernels",
        "estimate_us",
        "comparison",
        "tensorrt",
        "changes",
        "warnings",
    ):
        if key in result:
            values[key] = result[key]
    values["files"] = [file["name"] for file in result["files"]]  # type: ignore[attr-defined]
    return JobRecord.load(values)


def on_this_machine(machine: Machine) -> Callable[[Job], Machine]:
    """Who serves a job where everything runs on this machine. Raises ``UsageProblem`` for a job that needs more."""
    here = [Worker("", "this machine", machine.gpus, None, machine)]
    return among(here)


def among(workers: list[Worker]) -> Callable[[Job], Machine]:
    """Who of ``workers`` serves a job. Raises ``UsageProblem`` where nobody does, or they would make different engines."""

    def machine_for(job: Job) -> Machine:
        fit = [worker for worker in workers if worker.serves(job)]
        if not fit:
            wanted = ", ".join(f"{name} {number:g}" for name, number in job.resources.items())
            what = f"no worker can serve it: it needs {wanted}" if wanted else "there is no worker"
            raise UsageProblem(
                what, hint=how_to_serve(job, workers) if wanted else "start one: dask worker ADDRESS --nthreads 1"
            )
        machines = {worker.name: worker.machine for worker in fit if worker.machine is not None}
        usable = {name: one for name, one in machines.items() if not one.backends[job.backend or ANY_BACKEND].missing}
        if not usable:
            reasons = sorted({one.backends[job.backend or ANY_BACKEND].missing for one in machines.values()})
            raise UsageProblem("no worker that could serve it has TensorRT: " + "; ".join(reasons), ", ".join(machines))
        versions = {name: one.backends[job.backend or ANY_BACKEND].version for name, one in machines.items()}
        if len(set(versions.values())) > 1 or len(usable) < len(machines):
            told = ", ".join(f"{name} has {version or 'none'}" for name, version in sorted(versions.items()))
            what = "the workers that could serve it have different TensorRTs, and the engine would depend on chance"
            raise UsageProblem(what, told, "install one version on all, or give the workers different resources")
        return next(iter(usable.values()))

    return machine_for
