"""The work of each task: an export, a rewriting, or a build, from the store into the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from trtnorm_cli import pipeline
from trtnorm_cli.batch.address import COMPARE, EXPORT, REWRITE, address
from trtnorm_cli.batch.claims import claimed
from trtnorm_cli.batch.inputs import LaidOut, laid_out
from trtnorm_cli.batch.saying import dask_worker, say, worker_memory
from trtnorm_cli.batch.store import Store, StoredFile
from trtnorm_cli.batch.ticket import Ticket
from trtnorm_cli.compare.result import PASSED, Comparison
from trtnorm_cli.errors import ModelError
from trtnorm_cli.export.opening import in_precision
from trtnorm_cli.export.options import ExportOptions
from trtnorm_cli.profile.model import BuildProfile
from trtnorm_cli.profile.positions import Positions
from trtnorm_cli.progress import Event, listening
from trtnorm_cli.record import json_of, read
from trtnorm_cli.records.export import ExportRecord
from trtnorm_cli.report.page.write import LIBRARIES, write_report
from trtnorm_cli.rewrite.prepare import OpenedModel, Prepared, prepare
from trtnorm_cli.rewrite.rule import Check
from trtnorm_cli.target import parse_model, require_torch
from trtnorm_cli.tensorrt.backend import require_backend
from trtnorm_cli.tensorrt.manifest import Manifest, manifest_of
from trtnorm_cli.variant_choice import first_rewriting

_PAGE = ".html"


def exported(ticket: Ticket, store: Store, folder: Path) -> Mapping[str, Any]:
    """The PyTorch model of a job as ONNX, compared with the module."""
    from trtnorm_cli.export.export_model import export_model

    require_torch()
    say(ticket, "export")
    laid, job = laid_out(ticket.inputs, store, folder, ticket.here), ticket.job
    options = ExportOptions(
        job.exporter, job.opset, job.backend, job.verify, job.how.seed, laid.weights, job.strict, accepted=job.accept
    )
    profile = None if laid.profile is None else in_precision(laid.profile, "as-written")
    made = export_model(parse_model(laid.spec), profile, options, folder)
    return {
        "files": [store.put_file(file, file.name).to_json() for file in made.files],
        "record": made.record().to_json(),
        "profile": None if made.profile is None else made.profile.model_dump(mode="json"),
    }


def rewritten(ticket: Ticket, store: Store, folder: Path) -> Mapping[str, Any]:
    """The checks of all changes to a model, as every build of it makes them."""
    say(ticket, "rewrite")
    prepared = _prepared(ticket, store, folder)
    with prepared.explaining_errors():
        first_rewriting(prepared, ticket.job.backend).require_all_checks_passed()
    return {"proofs": json_of(prepared.proofs)}


def built(ticket: Ticket, store: Store, folder: Path) -> Mapping[str, Any]:
    """An engine with its manifest and its page."""
    require_backend(ticket.job.backend)
    job, how = ticket.job, ticket.job.how
    prepared = _prepared(ticket, store, folder)
    options = pipeline.BuildOptions(
        backend=job.backend,
        timeout_s=how.timeout,
        memory_bytes=how.memory or ticket.memory or worker_memory(),
        compare=how.compare != "no",
        seed=how.seed,
        require_compare=how.compare == "required",
    )
    engine = folder / "made" / f"{job.name}.engine"
    engine.parent.mkdir()
    with listening(_listener(ticket)):
        manifest = pipeline.build(prepared, engine, options, SharedFindings(ticket, store))
    files = [engine, manifest_of(engine)]
    if ticket.with_report and can_report():
        say(ticket, "report")
        page = engine.with_name(engine.name + _PAGE)
        write_report(manifest, page)
        files.append(page)
    store.put_time(ticket.addresses.alike, sum(manifest.seconds.values()))
    return {"files": [store.put_file(file, file.name).to_json() for file in files], **_about(manifest)}


def can_report() -> bool:
    """True where the packages of a report are installed."""
    return all(find_spec(module) is not None for module in LIBRARIES)


def _about(manifest: Manifest) -> dict[str, Any]:
    """The facts of a build that a table of many has."""
    cost = manifest.cost
    return {
        "stages": manifest.seconds,
        "engine_bytes": manifest.engine.bytes,
        "kernels": manifest.network.launches,
        "estimate_us": None if cost is None else cost.total.us,
        "comparison": None if manifest.comparison is None else manifest.comparison.state,
        "changes": len(manifest.changes),
        "warnings": [*manifest.rewrite_warnings, *manifest.warnings],
        "tensorrt": f"{manifest.versions.backend} {manifest.versions.tensorrt}",
    }


def _listener(ticket: Ticket) -> Callable[[Event], None]:
    worker = dask_worker()

    def listen(event: Event) -> None:
        if event["event"] == "begin" and "parent" not in event:
            say(ticket, str(event["stage"]), worker)

    return listen


def _prepared(ticket: Ticket, store: Store, folder: Path) -> Prepared:
    """The model of a job with its build profile, and the checks that are known of it."""
    laid, job = laid_out(ticket.inputs, store, folder, ticket.here), ticket.job
    opened = _opened(ticket, laid, store, folder)
    prepared = prepare(opened, job.how.snap, partial(pipeline.begin, opened=opened, backend=job.backend))
    known = store.result(REWRITE, ticket.addresses.rewrite)
    checks = {} if known is None else {key: read(Check, value) for key, value in known["proofs"].items()}
    return replace(prepared, proofs=checks)


def _opened(ticket: Ticket, laid: LaidOut, store: Store, folder: Path) -> OpenedModel:
    if ticket.addresses.export is None:
        path = Path(laid.spec)
        return OpenedModel(path, laid.profile, path, laid.weights)
    result = store.result(EXPORT, ticket.addresses.export)
    if result is None:
        raise ModelError("the store has lost the exported model", ticket.addresses.export, "run the batch again")
    files = [StoredFile(**file) for file in result["files"]]
    place = folder / "exported"
    for file in files:
        store.get_file(file, place / file.name)
    model = next(file.name for file in files if file.name.endswith(".onnx"))
    return OpenedModel(place / model, _learnt(laid.profile, result["profile"]), None, None, ExportRecord.load(result["record"]))


def _learnt(given: BuildProfile | None, values: dict[str, Any] | None) -> BuildProfile | None:
    """The build profile with the sizes that the export found, in the precision of ``given``."""
    if given is None or values is None:
        return given
    learnt = BuildProfile.model_validate(values).model_copy(update={"precision": given.precision})
    return learnt.located(Positions(given.positions.source))


class SharedFindings:
    """Findings in the store: what one build compared, those that TensorRT gave the same network need not compare."""

    def __init__(self, ticket: Ticket, store: Store) -> None:
        self._ticket, self._store = ticket, store

    def comparison(self, made_from: str, compare: Callable[[], Comparison]) -> Comparison:
        """The comparison in the store, or that of ``compare``, which goes there if it passed."""
        at, store = address(COMPARE, [made_from, self._ticket.addresses.programs]), self._store

        def found() -> Comparison | None:
            known = store.result(COMPARE, at)
            return None if known is None else read(Comparison, known["comparison"])

        if (known := found()) is not None:
            return known
        # A worker that was lost is blamed on the job, not on this.
        run = f"{self._ticket.run} {self._ticket.job.name} {self._ticket.addresses.build}"
        with claimed(store, at, run, lambda: found() is not None, _nothing, _nothing):
            if (known := found()) is not None:
                return known
            made = compare()
            if made.state == PASSED:
                store.put_result(COMPARE, at, {"comparison": json_of(made)})
            return made


def _nothing() -> None:
    """Nothing is to be done before or after a wait within a build: TensorRT is at work beside."""
