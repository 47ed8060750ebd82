"""The worker that a task runs on: what it tells whoever follows the batch, and what it may take."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from trtnorm_cli.batch.ticket import Ticket


def topic_of(run: str) -> str:
    """The topic of Dask's events under which tasks of ``run`` say what they are at."""
    return f"trtnorm-{run}"


def say(ticket: Ticket, stage: str, worker: Any = None) -> None:
    """Tell whoever follows the batch what the job is at. Only the thread of the task knows its ``worker`` by itself."""
    worker = worker or dask_worker()
    if worker is not None:
        with suppress(Exception):  # it is only shown
            worker.log_event(topic_of(ticket.run), {"job": ticket.job.name, "stage": stage})


def dask_worker() -> Any:
    """Dask's worker that runs this task; None where it is called without one."""
    from distributed import get_worker

    try:
        return get_worker()
    except ValueError:
        return None


def worker_memory() -> int | None:
    """The memory that Dask gives this worker; None where it gives it no limit."""
    worker = dask_worker()
    return None if worker is None else worker.memory_manager.memory_limit
