"""The tasks of a batch, which run on workers: export a model, rewrite it, and build an engine of it.

Each is done once for its address, whoever asks. It ends with an outcome and raises nothing: one that fails stops no other.
"""

from __future__ import annotations

import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from trtnorm_cli.batch.address import BUILD, EXPORT, REWRITE
from trtnorm_cli.batch.claims import claimed
from trtnorm_cli.batch.saying import dask_worker
from trtnorm_cli.batch.store import Store, now
from trtnorm_cli.batch.ticket import Outcome, Problem, Ticket
from trtnorm_cli.child_process import Cancelled, cancellable, require_wanted
from trtnorm_cli.errors import LimitReached, TrtnormError, UsageProblem
from trtnorm_cli.files import digest_of
from trtnorm_cli.scratch import Scratch
from trtnorm_cli.tensorrt.up_to_date import own_code, package_versions

Step = Callable[[Ticket, Store, Path], Mapping[str, Any]]
# A process builds one engine at a time, however many threads a worker has: builds use several processes themselves.
_AT_WORK = threading.Lock()
_STOPPED: dict[str, threading.Event] = {}
_RUNNING: dict[str, int] = {}
_COUNTING = threading.Lock()
_EXIT_DEFECT = 70


def stop_run(run: str) -> None:
    """In a worker: give up what it does for ``run``, now and later."""
    _stop_of(run).set()


def _stop_of(run: str) -> threading.Event:
    return _STOPPED.setdefault(run, threading.Event())


def export_task(ticket: dict[str, Any]) -> dict[str, Any]:
    """Export a PyTorch model."""
    from trtnorm_cli.batch.steps import exported

    given = Ticket.load(ticket)
    assert given.addresses.export is not None, "only PyTorch models are exported"
    return _done(EXPORT, given.addresses.export, given, exported)


def rewrite_task(ticket: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any]:
    """Rewrite a model and prove each change, for all builds of it."""
    from trtnorm_cli.batch.steps import rewritten

    given = Ticket.load(ticket)
    return _unless_failed(before) or _done(REWRITE, given.addresses.rewrite, given, rewritten)


def build_task(ticket: dict[str, Any], exported: dict[str, Any] | None, rewritten: dict[str, Any] | None) -> dict[str, Any]:
    """Build an engine, compare it with the model, and write its report.

    A rewriting that failed says for itself why when it is made again; one that took all memory, or workers, is not.
    """
    from trtnorm_cli.batch.steps import built

    given = Ticket.load(ticket)
    harmless = rewritten is not None and (rewritten["problem"] or {}).get("exit_code") not in (None, LimitReached.exit_code)
    failed = _unless_failed(exported) or (None if harmless else _unless_failed(rewritten))
    return failed or _done(BUILD, given.addresses.build, given, built)


def _unless_failed(before: dict[str, Any] | None) -> dict[str, Any] | None:
    """The outcome of the task before where it failed, which is that of this one then."""
    return None if before is None or before["state"] == "done" else {**before, "seconds": 0.0, "result": None}


def _done(kind: str, address: str, ticket: Ticket, step: Step) -> dict[str, Any]:
    """The outcome of ``step``, or that of the one who did it before."""
    start, store, attempt = time.perf_counter(), Store(ticket.store), 1
    host, problem, state = _worker_name(), None, "failed"

    def found() -> Outcome | None:
        result = store.result(kind, address)
        if result is None:
            return None
        # A worker that is lost after its work takes the outcome with it, and the task is given to another.
        was_there = result.get("run") != ticket.run
        return Outcome("done", result, was_there=was_there, worker=str(result.get("worker", "")))

    try:
        with _running(ticket.run), cancellable(_stop_of(ticket.run)):
            require_wanted()
            _require_programs(ticket)
            if (there := found()) is not None:
                return there.to_json()
            with claimed(store, address, ticket.run, lambda: found() is not None, _secede, _rejoin, require_wanted) as claim:
                attempt = 1 if claim is None else claim.attempt
                if (there := found()) is not None:
                    return there.to_json()
                with _AT_WORK, Scratch("trtnorm-batch-") as folder:
                    began = time.perf_counter()
                    try:
                        made = dict(step(ticket, store, folder))
                    except TrtnormError as error:
                        problem = Problem.of(error, str(folder))
                    else:
                        about: dict[str, Any] = {"job": ticket.job.name, "run": ticket.run, "worker": host, "at": now()}
                        about["seconds"] = _since(began)
                        result = store.put_result(kind, address, {**made, **about})
                        return Outcome("done", result, None, False, attempt, _since(start), host).to_json()
    except Cancelled:
        state = "cancelled"
    except TrtnormError as error:
        problem = Problem.of(error)
    except MemoryError:
        problem = Problem.of(_out_of_memory())
    except Exception as error:
        where = "".join(traceback.format_exception(error))
        problem = Problem(f"this is a defect in trtnorm: {type(error).__name__}: {error}", where, "report it", _EXIT_DEFECT)
    return Outcome(state, None, problem, False, attempt, _since(start), host).to_json()  # type: ignore[arg-type]


def is_at_work(run: str) -> bool:
    """In a worker: whether a task of ``run`` has not ended yet."""
    return _RUNNING.get(run, 0) > 0


def _require_programs(ticket: Ticket) -> None:
    """Raise ``UsageProblem`` on a worker with other versions than the job was planned with."""
    if own_programs() != ticket.programs:
        raise UsageProblem(
            "the worker has another trtnorm, Python or onnx than the machine that planned the batch",
            socket.gethostname(),
            "install the same versions on both, as from one container image or one lock file",
        )


@cache
def own_programs() -> str:
    """The digest of trtnorm and the packages that it builds with on this machine."""
    return programs_of(own_code(), package_versions())


def programs_of(trtnorm: str, packages: Mapping[str, str]) -> str:
    """The digest of trtnorm and the packages that it builds with."""
    return digest_of([trtnorm, packages])


@contextmanager
def _running(run: str) -> Iterator[None]:
    """A block that counts as work for ``run``."""
    with _COUNTING:
        _RUNNING[run] = _RUNNING.get(run, 0) + 1
    try:
        yield
    finally:
        with _COUNTING:
            _RUNNING[run] -= 1
            if not _RUNNING[run]:
                del _RUNNING[run]


def _since(start: float) -> float:
    return round(time.perf_counter() - start, 3)


def _out_of_memory() -> LimitReached:
    return LimitReached(
        "the job needs more memory than its worker may take",
        hint="run fewer jobs at once (-j), or allow more with --memory SIZE",
    )


def _worker_name() -> str:
    worker = dask_worker()
    return socket.gethostname() if worker is None else f"{socket.gethostname()} {worker.name}"


def _secede() -> None:
    """Let the worker take another task: this one waits for somebody else's work."""
    if dask_worker() is not None:
        from distributed import secede

        secede()


def _rejoin() -> None:
    if dask_worker() is not None:
        from distributed import rejoin

        rejoin()
