"""The workers of a batch: a cluster on this machine, or the scheduler that the user names."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtnorm_cli.batch.claims import MOST_ATTEMPTS
from trtnorm_cli.batch.job import Job
from trtnorm_cli.batch.machine import Machine, machine_record
from trtnorm_cli.batch.sizing import Slots
from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.light_dataclass import dataclass

if TYPE_CHECKING:
    from distributed import Client

_PACKAGES = {"distributed": "distributed", "fsspec": "fsspec"}
_DASHBOARD_PORT = 8787
_ANSWER_S = 15
# Workers are lost with all tasks that wait there, so Dask's own count blames those too; ours counts what was begun.
_LOSSES_BESIDE_OURS = 10


def require_batch_possible() -> None:
    """Raise ``UsageProblem`` with the command to install what is missing. Imports nothing."""
    missing = [package for module, package in _PACKAGES.items() if find_spec(module) is None]
    if missing:
        what = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed, and needed for a batch"
        raise UsageProblem(what, hint="pip install 'trtnorm[batch]'")


@dataclass(frozen=True)
class Tls:
    """The certificates for a scheduler that speaks TLS."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    @property
    def is_given(self) -> bool:
        return any((self.ca, self.certificate, self.key))

    def security(self) -> Any:
        """Dask's object for them; None where none are given. Raises ``UsageProblem`` for a file that is not there."""
        if not self.is_given:
            return None
        from distributed.security import Security

        given = {"--tls-ca": self.ca, "--tls-cert": self.certificate, "--tls-key": self.key}
        for option, file in given.items():
            if file is None:
                raise UsageProblem(f"{option} is missing", hint="TLS takes --tls-ca, --tls-cert and --tls-key together")
        for option, file in given.items():
            if file is not None and not file.is_file():
                raise UsageProblem("there is no such file", str(file), f"check the path after {option}")
        return Security(
            tls_ca_file=str(self.ca),
            tls_client_cert=str(self.certificate),
            tls_client_key=str(self.key),
            require_encryption=True,
        )


@contextmanager
def local_client(slots: Slots, gpus: Mapping[str, float], jobs: int) -> Iterator[Client]:
    """A cluster on this machine, gone at the end. A GPU belongs to one worker: builds on it are timed."""
    import dask
    from distributed import Client, Nanny, Scheduler, SpecCluster

    safe: Any = _own_certificates()
    left = dict(gpus)

    def options() -> dict[str, Any]:
        own = {name: 1.0 for name, number in left.items() if number >= 1}
        left.update({name: left[name] - 1 for name in own})
        return {
            "nthreads": 1,
            "memory_limit": slots.memory,
            "resources": own,
            "preload": ["trtnorm_cli.batch.worker_start"],
            "silence_logs": logging.CRITICAL,
            "dashboard": False,
            "security": safe,
            "host": "127.0.0.1",
        }

    scheduler = {"cls": Scheduler, "options": {"host": "127.0.0.1", "port": 0, "security": safe, **_dashboard()}}
    workers = {number: {"cls": Nanny, "options": options()} for number in range(slots.workers)}
    # Nothing is held between tasks that could be spilled, and a worker that pauses might never go on.
    busy = {"distributed.comm.timeouts.connect": "120s"}  # of a machine with much to do
    own = {f"distributed.worker.memory.{act}": False for act in ("target", "spill", "pause")}
    losses = {"distributed.scheduler.allowed-failures": MOST_ATTEMPTS * jobs + _LOSSES_BESIDE_OURS}
    with (
        dask.config.set({**own, **losses, **busy}),
        _quiet(),
        SpecCluster(workers=workers, scheduler=scheduler, security=safe, silence_logs=logging.CRITICAL) as cluster,
        Client(cluster, security=safe, set_as_default=False, timeout=_ANSWER_S) as client,
    ):
        yield client


@contextmanager
def _quiet() -> Iterator[None]:
    """Dask's loggers, which tell of each worker that ends, say nothing: the batch says what became of its jobs."""
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _own_certificates() -> Any:
    """Certificates for this cluster alone, where the package that makes them is there: other users reach the same ports."""
    if find_spec("cryptography") is None:
        return None
    from distributed.security import Security

    return Security.temporary()


def _dashboard() -> dict[str, Any]:
    if find_spec("bokeh") is None:
        return {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", _DASHBOARD_PORT))
            port = _DASHBOARD_PORT
        except OSError:
            port = 0
    return {"dashboard": True, "dashboard_address": f"127.0.0.1:{port}"}


@contextmanager
def remote_client(address: str, tls: Tls) -> Iterator[Client]:
    """The scheduler at ``address``. Raises ``UsageProblem`` where none answers."""
    from distributed import Client

    try:
        client = Client(address, security=tls.security(), set_as_default=False, timeout=_ANSWER_S)
    except (OSError, TimeoutError, ValueError, TypeError) as error:
        hint = "check the address; one that begins with tls:// needs --tls-ca, --tls-cert and --tls-key"
        raise UsageProblem(f"no scheduler answers: {error}", address, hint) from error
    try:
        yield client
    finally:
        client.close()


@dataclass(frozen=True)
class Worker:
    """A worker with the resources that it says it has, its memory, and the programs of its machine."""

    address: str
    name: str
    resources: dict[str, float]
    memory: int | None
    machine: Machine | None = None

    def serves(self, job: Job) -> bool:
        """True where it has all resources that the job needs."""
        return all(self.resources.get(name, 0.0) >= number for name, number in job.resources.items())


def workers_of(client: Client) -> list[Worker]:
    """The workers that are there now."""
    known = client.scheduler_info(n_workers=-1)["workers"]
    return [
        Worker(address, str(about["name"]), dict(about.get("resources") or {}), about.get("memory_limit"))
        for address, about in known.items()
    ]


def machines_of(client: Client, backends: Iterable[str], further: Iterable[str]) -> dict[str, Machine]:
    """The programs of each worker, by its address. Raises ``UsageProblem`` for one that has no trtnorm."""
    answers = client.run(machine_record, list(backends), list(further), on_error="return")
    found = {}
    for address, answer in answers.items():
        if isinstance(answer, BaseException):
            what = f"a worker cannot take jobs: {type(answer).__name__}: {answer}"
            raise UsageProblem(
                what, address, "install the same trtnorm there as here, with the extras batch and rtx or tensorrt"
            )
        found[address] = Machine.load(answer)
    return found


def dashboard_of(client: Client) -> str | None:
    """The address of Dask's dashboard, where it has one."""
    if "dashboard" not in client.scheduler_info().get("services", {}):
        return None
    return str(client.dashboard_link)


def how_to_serve(job: Job, workers: Iterable[Worker]) -> str:
    """The command that starts a worker for a job that no worker can serve."""
    wanted = " ".join(f"{name}={number:g}" for name, number in job.resources.items())
    there = sorted({name for worker in workers for name in worker.resources})
    have = f"the workers have {', '.join(there)}" if there else "no worker has resources"
    return f"start one on such a machine: dask worker ADDRESS --nthreads 1 --resources '{wanted}'; {have}"
