"""Addresses: a digest of all that a result is made from, so that equal work has one address, whoever plans it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trtnorm_cli.batch.inputs import InputFile, Inputs
from trtnorm_cli.batch.job import Job
from trtnorm_cli.batch.machine import ANY_BACKEND, Machine
from trtnorm_cli.batch.store import FORMAT
from trtnorm_cli.files import digest_of
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.record import Record

EXPORT, REWRITE, BUILD, COMPARE = "export", "rewrite", "build", "compare"


@dataclass(frozen=True)
class Addresses(Record):
    """Where the results of a job are. ``export`` is None for an ONNX model. ``programs`` are the versions of all that works on
    it. ``alike`` is the same for builds that take about as long, whatever versions they are made with.
    """

    export: str | None
    rewrite: str
    build: str
    programs: str
    alike: str


def address(kind: str, made_from: Any) -> str:
    """The address of what is made from these JSON values."""
    return digest_of([FORMAT, kind, made_from])


def addresses_of(job: Job, inputs: Inputs, machine: Machine) -> Addresses:
    """The addresses of a job that a machine with these programs does."""
    profile = inputs.settings.profile()
    values = {} if profile is None else profile.model_dump(mode="json")
    programs = [machine.trtnorm, machine.packages]
    backend = machine.backends[job.backend or ANY_BACKEND]
    used = [backend.name, backend.version]
    further, weights = _digests(inputs.profile[1:]), _digests(inputs.weights)
    export = None
    if inputs.target.is_pytorch:
        options = [job.exporter, job.opset, job.accept, job.strict, job.verify, job.how.seed]
        spec = [inputs.target.kind, inputs.target.attribute, inputs.target.location if not inputs.model else ""]
        model = [
            spec,
            _digests(inputs.model),
            weights,
            inputs.packages,
            options,
            _without(values, "builder", "device", "precision"),
        ]
        export = address(EXPORT, [model, used, programs])
        source: Any = export
    else:
        source = [_digests(inputs.model), weights]
    rewrite = address(
        REWRITE, [source, further, _without(values, "builder", "device", "precision"), job.how.snap, used, programs]
    )
    how = [job.how.compare, job.how.seed, job.how.snap]
    place = [job.gpu, sorted(job.resources.items())]
    build = address(BUILD, [source, further, values, how, place, used, programs])
    alike = address("time", [_digests(inputs.model), values.get("precision"), backend.name])
    return Addresses(export, rewrite, build, address("programs", [used, programs]), alike)


def _digests(files: Iterable[InputFile]) -> list[list[str]]:
    return [[file.place, file.sha256] for file in files]


def _without(values: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in keys}
