"""The record of a batch: what became of each job, for tables, JSON, JUnit and the index page."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.record import Record

FORMAT = 1
JobState = Literal["planned", "waiting", "running", "built", "up to date", "failed", "cancelled"]
# A batch in which one of these is left has not succeeded.
UNSUCCESSFUL: tuple[JobState, ...] = ("failed", "cancelled")


@dataclass(frozen=True)
class JobProblem(Record):
    """The error that a job ended with, as commands tell theirs."""

    summary: str
    where: str | None
    hint: str | None
    exit_code: int


@dataclass(frozen=True)
class JobRecord(Record):
    """One job. ``files`` are its files in the output folder, the engine first.

    ``seconds`` is what the build took when it was made, ``expected_s`` what it was expected to take. ``needs_bytes`` is the
    memory that it needs at least.
    """

    name: str
    model: str
    profile: str
    precision: str
    target: str
    state: JobState
    address: str = ""
    stage: str = ""
    seconds: float = 0.0
    expected_s: float = 0.0
    needs_bytes: int = 0
    stages: dict[str, float] | None = None
    worker: str = ""
    attempt: int = 1
    files: tuple[str, ...] = ()
    engine_bytes: int | None = None
    kernels: int | None = None
    estimate_us: float | None = None
    comparison: str | None = None
    tensorrt: str = ""
    changes: int | None = None
    warnings: tuple[str, ...] = ()
    problem: JobProblem | None = None

    @property
    def slowest_stage(self) -> str:
        """The step of the build that took longest, with its seconds."""
        if not self.stages:
            return ""
        name = max(self.stages, key=lambda stage: (self.stages or {})[stage])
        return f"{name} {self.stages[name]:.1f} s"


@dataclass(frozen=True)
class BatchRecord(Record):
    """A batch at one moment, or at its end."""

    plan: str
    store: str
    run: str
    began: float
    seconds: float
    workers: int
    dashboard: str | None
    jobs: tuple[JobRecord, ...]
    format: int = FORMAT

    @property
    def counts(self) -> dict[str, int]:
        """How many jobs are in each state, most frequent first."""
        return dict(Counter(job.state for job in self.jobs).most_common())

    @property
    def succeeded(self) -> bool:
        """True where an engine of every job is there."""
        return not any(job.state in UNSUCCESSFUL for job in self.jobs)

    @property
    def stage_seconds(self) -> dict[str, float]:
        """The seconds of each step in all builds together, the longest first."""
        total: Counter[str] = Counter()
        for job in self.jobs:
            if job.state == "built":
                total.update(job.stages or {})
        return {name: round(seconds, 1) for name, seconds in total.most_common()}
