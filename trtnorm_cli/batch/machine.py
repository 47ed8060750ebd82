"""A machine that builds: which programs it has, by the words that addresses are made of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trtnorm_cli.batch.inputs import versions_of
from trtnorm_cli.errors import TrtnormError
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.record import Record
from trtnorm_cli.tensorrt.facts import ask_facts
from trtnorm_cli.tensorrt.up_to_date import own_code, package_versions

# What a plan that names no backend asks for.
ANY_BACKEND = ""


@dataclass(frozen=True)
class BackendAt(Record):
    """A backend on a machine, with the GPUs there; or why there is none."""

    name: str
    version: str
    devices: tuple[str, ...] = ()
    missing: str = ""


@dataclass(frozen=True)
class Machine(Record):
    """The programs of one machine. ``backends`` are by the name that was asked for."""

    trtnorm: str
    packages: dict[str, str]
    backends: dict[str, BackendAt]
    further: dict[str, str]

    @property
    def gpus(self) -> dict[str, float]:
        """The resources that the GPUs of this machine make, as ``GPU_sm_89``, with how many there are."""
        found: dict[str, float] = {}
        for device in max((backend.devices for backend in self.backends.values()), key=len, default=()):
            if "(sm_" in device:
                name = f"GPU_{device.rpartition('(')[2].rstrip(')')}"
                found[name] = found.get(name, 0.0) + 1.0
        return found


def this_machine(backends: Iterable[str], further: Iterable[str] = ()) -> Machine:
    """The programs here. ``backends`` are names, or ``ANY_BACKEND``; ``further`` are packages that exports depend on."""
    found = {name: _backend(name) for name in sorted(set(backends))}
    return Machine(own_code(), package_versions(), found, versions_of(further))


def _backend(name: str) -> BackendAt:
    try:
        facts = ask_facts(name or None)
    except TrtnormError as error:
        return BackendAt(name, "", missing=error.summary)
    return BackendAt(facts.name, facts.version, facts.devices)


def machine_record(backends: list[str], further: list[str]) -> dict[str, Any]:
    """``this_machine`` as JSON values, to be asked of workers."""
    return this_machine(backends, further).to_json()
