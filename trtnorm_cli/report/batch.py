"""Print a batch: a live table in a terminal and lines elsewhere, and what became of the jobs."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from types import TracebackType
from typing import TYPE_CHECKING

from trtnorm_cli.plain_text import shown
from trtnorm_cli.records.batch import UNSUCCESSFUL, BatchRecord, JobProblem, JobRecord
from trtnorm_cli.report.console import bytes_text, console, table
from trtnorm_cli.report.verbosity import Verbosity
from trtnorm_cli.suggest import listing

if TYPE_CHECKING:
    from rich.console import Group

_MOST_ROWS = 20
_ENDED = ("built", "up to date", "failed", "cancelled")
_TIMES_A_SECOND = 4


class BatchProgress:
    """Follows a batch on stderr. A context manager; when quiet, nothing is shown."""

    def __init__(self, verbosity: Verbosity = Verbosity.NORMAL) -> None:
        self._quiet = verbosity is Verbosity.QUIET
        self._is_live = not self._quiet and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._live: _LiveTable | None = None
        self._total = self._ended = 0
        self._lock = threading.Lock()

    def __enter__(self) -> BatchProgress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._live is not None:
            self._live.close()

    def begins(self, batch: BatchRecord) -> None:
        """Show what is to do, and where."""
        self._total, self._ended = len(batch.jobs), sum(job.state in _ENDED for job in batch.jobs)
        if self._quiet:
            return
        parts = [f"{len(batch.jobs)} jobs", *(f"{n} {state}" for state, n in batch.counts.items() if state != "planned")]
        if batch.workers:
            parts.append(f"{batch.workers} worker{'' if batch.workers == 1 else 's'}")
        if batch.dashboard is not None:
            parts.append(f"dashboard {batch.dashboard}")
        _say(f"batch: {', '.join(parts)}")
        for job in batch.jobs:
            if job.state == "failed":
                _say(_line(job))
        if self._is_live and batch.workers:
            self._live = _LiveTable(batch)

    def changed(self, job: JobRecord) -> None:
        """Show that a job goes on, or has ended."""
        with self._lock:
            if job.state in _ENDED:
                self._ended += 1
            if self._live is not None:
                self._live.change(job)
            elif not self._quiet and job.state in _ENDED:
                _say(f"[{self._ended}/{self._total}] {_line(job)}")


def _say(text: str) -> None:
    print(f"trtnorm: {shown(text)}", file=sys.stderr, flush=True)


def _line(job: JobRecord) -> str:
    if job.state == "failed" and job.problem is not None:
        return f"{job.name}: failed: {job.problem.summary}"
    took = f" in {job.seconds:.1f} s" if job.state == "built" else ""
    slowest = f", most of it {job.slowest_stage}" if job.state == "built" and job.slowest_stage else ""
    again = f", at the {job.attempt}. attempt" if job.attempt > 1 else ""
    return f"{job.name}: {job.state}{took}{slowest}{again}"


class _LiveTable:
    """The jobs that run and those that failed, how many are in each state, and which step takes longest."""

    def __init__(self, batch: BatchRecord) -> None:
        from rich.live import Live

        self._jobs = {job.name: job for job in batch.jobs}
        self._since = {job.name: time.monotonic() for job in batch.jobs}
        self._began = time.monotonic()
        self._live = Live(
            console=console(stderr=True), get_renderable=self._drawn, refresh_per_second=_TIMES_A_SECOND, transient=True
        )
        self._live.start()

    def change(self, job: JobRecord) -> None:
        if self._jobs[job.name].state != job.state:
            self._since[job.name] = time.monotonic()
        self._jobs[job.name] = job

    def close(self) -> None:
        self._live.stop()

    def _drawn(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        jobs, now = list(self._jobs.values()), time.monotonic()
        counts = Counter(job.state for job in jobs)
        shown_jobs = [job for job in jobs if job.state == "running"] + [job for job in jobs if job.state == "failed"]
        rows = [
            (
                job.name,
                job.state,
                job.stage or (job.problem.summary if job.problem else ""),
                f"{now - self._since[job.name]:.0f} s",
            )
            for job in shown_jobs[:_MOST_ROWS]
        ]
        steps: Counter[str] = Counter()
        for job in jobs:
            steps.update(job.stages or {} if job.state == "built" else {})
        slowest = f"; slowest step {steps.most_common(1)[0][0]}" if steps else ""
        line = f"{', '.join(f'{n} {state}' for state, n in counts.most_common())}; {now - self._began:.0f} s{slowest}"
        return Group(table("", ("job", "state", "at", "for"), rows), Text(line))


def print_plan(batch: BatchRecord) -> None:
    """Print the jobs, what is up to date, and what each will cost."""
    out = console()
    rows = []
    for job in batch.jobs:
        cost = f"about {job.expected_s:.0f} s" if job.state == "planned" and job.expected_s else ""
        state = "to build" if job.state == "planned" else job.state
        needs = bytes_text(job.needs_bytes) if job.state == "planned" else ""
        rows.append((job.name, state, job.precision, job.target, cost, needs))
    out.print(table("", ("job", "state", "precision", "target", "takes", "needs"), rows))
    out.print()
    todo = [job for job in batch.jobs if job.state == "planned"]
    out.print(
        f"{len(batch.jobs)} jobs, {len(todo)} to build in about {sum(job.expected_s for job in todo):.0f} s of one worker"
    )
    _print_problems(batch)


def print_batch(batch: BatchRecord, output: str, verbosity: Verbosity) -> None:
    """Print what became of each job."""
    out = console()
    if verbosity is not Verbosity.QUIET:
        rows = [
            (
                job.name,
                job.state,
                f"{job.seconds:.1f} s" if job.state == "built" else "",
                job.slowest_stage,
                job.comparison or "",
                "" if job.kernels is None else str(job.kernels),
                "" if job.engine_bytes is None else bytes_text(job.engine_bytes),
            )
            for job in batch.jobs
        ]
        columns = ("job", "state", "took", "slowest", "compared", "kernels", "engine")
        out.print(table("", columns, rows))
        out.print()
        if batch.stage_seconds:
            out.print(
                f"steps     {', '.join(f'{name} {seconds:g} s' for name, seconds in list(batch.stage_seconds.items())[:6])}"
            )
    _print_problems(batch)
    counted = ", ".join(f"{number} {state}" for state, number in batch.counts.items())
    out.print(f"batch     {counted} in {batch.seconds:.1f} s")
    out.print(f"engines   {output}", soft_wrap=True)
    out.print(f"store     {batch.store}", soft_wrap=True)


def _print_problems(batch: BatchRecord) -> None:
    """Each problem once, with the jobs that have it."""
    err = console(stderr=True)
    jobs: dict[JobProblem, list[str]] = {}
    for job in batch.jobs:
        if job.state in UNSUCCESSFUL and job.problem is not None:
            jobs.setdefault(job.problem, []).append(job.name)
    for problem, names in jobs.items():
        lines = [f"error: {listing(names, 4)}: {problem.summary}"]
        lines += [f"  {line}" for line in (problem.where or "").splitlines()]
        lines += [f"  {'fix: ' if n == 0 else '     '}{line}" for n, line in enumerate((problem.hint or "").splitlines())]
        err.print("\n".join(lines))
