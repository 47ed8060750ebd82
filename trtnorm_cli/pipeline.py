"""One model's way to an engine, as plain functions that the commands call in order."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from trtnorm_cli.build_job import BuildOptions, Findings, Job, Stopwatch, has_room
from trtnorm_cli.engine_making import Making, Settled, comparison_of, lowered_variant, make
from trtnorm_cli.errors import NotCompared, OutOfTolerance
from trtnorm_cli.evaluate.ort_runner import one_child
from trtnorm_cli.files import require_free
from trtnorm_cli.onnx_model.load import LoadedModel
from trtnorm_cli.onnx_model.save import MAPPED_FROM, save_model
from trtnorm_cli.placing import put_in_place
from trtnorm_cli.precision.notes import type_notes, with_check
from trtnorm_cli.precision.session import typed_session
from trtnorm_cli.precision.wide.require import NarrowingResult, check_narrowing
from trtnorm_cli.record import json_lines
from trtnorm_cli.records.digests import Digest, FileDigest
from trtnorm_cli.rewrite.describe import norm_counts, of_rewriting
from trtnorm_cli.rewrite.prepare import OpenedModel, Prepared, rewrite_settings
from trtnorm_cli.rewrite.rewriting import Rewriting
from trtnorm_cli.rewrite.rewritten import norm_outcomes, rule_texts
from trtnorm_cli.rewrite.rules import rewritten_operators
from trtnorm_cli.scratch import scratch_beside
from trtnorm_cli.side_work import Awaited, Later, SideWork
from trtnorm_cli.tensorrt.build_request import FIXED_NAME, with_model
from trtnorm_cli.tensorrt.facts import BackendFacts
from trtnorm_cli.tensorrt.kernel_search import TO_TELL, is_quick
from trtnorm_cli.tensorrt.manifest import (
    EngineFile,
    Kernels,
    Manifest,
    Network,
    Normalizations,
    Optimization,
    Versions,
    manifest_of,
)
from trtnorm_cli.tensorrt.origin import Subject
from trtnorm_cli.tensorrt.plugin_request import require_plugins_can_be
from trtnorm_cli.tensorrt.preflight import require_settings
from trtnorm_cli.tensorrt.quantised_operators import require_known_quantisation
from trtnorm_cli.tensorrt.reproducible import require_reproducible
from trtnorm_cli.tensorrt.request import BuildRequest
from trtnorm_cli.tensorrt.typed import require_types
from trtnorm_cli.tensorrt.up_to_date import (
    ANY_COMPARISON,
    COMPLETE_COMPARISON,
    NO_COMPARISON,
    Programs,
    earlier_manifest,
    made_from,
)
from trtnorm_cli.tensorrt.variants import BuiltVariant
from trtnorm_cli.tensorrt.work_folder import work_folder
from trtnorm_cli.variant_choice import (
    Unchanged,
    faster,
    first_variant,
    made_again,
    may_be_replaced,
    may_stay,
    optimized,
    without_changes,
)

if TYPE_CHECKING:
    from trtnorm_cli.compare.result import Comparison
    from trtnorm_cli.compare.session import Likely


def begin(loaded: LoadedModel, opened: OpenedModel, backend: str | None) -> None:
    """Refuse a model that no rewriting can help, before any is tried, and begin to digest its files.

    Plugins may know more operators than the parser.
    """
    if opened.profile is None or not opened.profile.plugins:
        taken = rewritten_operators(rewrite_settings(opened.profile))
        require_known_quantisation(loaded.proto, backend, str(loaded.path), taken)
    loaded.start_digest()


def earlier_build(prepared: Prepared, engine: Path, options: BuildOptions) -> Manifest | None:
    """The manifest of ``engine`` where this build would only make it again; None where it must be built."""
    if options.check_reproducible:
        return None
    wanted = COMPLETE_COMPARISON if options.require_compare else ANY_COMPARISON if options.compare else NO_COMPARISON
    return earlier_manifest(prepared, engine, options.backend, wanted, options.seed)


def build(prepared: Prepared, engine: Path, options: BuildOptions, findings: Findings | None = None) -> Manifest:
    """Rewrite, check, build and compare; writes ``engine`` and its manifest and returns the manifest.

    With ``findings`` what another build found out is not found out again.

    Neither file is written, nor an earlier one touched, unless everything succeeded. Raises ``RewriteError``,
    ``TensorRTRefusal``, ``BuilderDied`` or ``OutOfTolerance`` otherwise.
    """
    require_possible(prepared, engine, options)
    subject = Subject(prepared.loaded.path, prepared.profile_path)
    with (
        scratch_beside(engine) as beside,
        work_folder(subject) as work,
        prepared.explaining_errors(),
        SideWork(has_room(prepared, options.memory_bytes)) as side,
        one_child(),
    ):
        job = replace(started(prepared, engine, options, work, beside, side), findings=findings)
        unchanged = Unchanged(job)
        first = first_variant(job, unchanged)
        narrowing = narrowing_checked(job, first.rewriting)
        begun = make(job, first)
        programs = side.start(Programs.here)
        unbuilt = without_changes(job, begun, unchanged)
        in_float32 = float32_kernels(job, begun)
        settled = Settled(lambda likely: settled_on(job, begun, unbuilt, unchanged, likely))
        comparing = Later(lambda: comparison_of(job, begun, settled))
        if options.compare and side.is_beside:  # while TensorRT builds
            comparing.error()
        made, before = settled.result(), unbuilt.result()
        job.clock.seconds.update(made.result.seconds)
        require_types(made.rewriting.model, made.result)
        require_same_bytes(job, made)
        comparison = compared(job, comparing)
        optimize = optimized(job, made, None if before is None else before.kernels)
        manifest = described(job, made, optimize, comparison, narrowing, programs.result())
        manifest = replace(manifest, float32=in_float32.result())
        placed(manifest, job)
    return manifest


def require_possible(prepared: Prepared, engine: Path, options: BuildOptions) -> None:
    """Refuse what cannot end well before any work is spent: plugins, settings, and files that would be overwritten."""
    require_plugins_can_be(prepared.profile, options.backend)
    require_free([engine, manifest_of(engine)], sources_of(prepared))
    require_settings(prepared.profile, options.backend, prepared.loaded.proto)


def sources_of(prepared: Prepared) -> list[Path]:
    """The files that an engine is made from."""
    loaded, checkpoint = prepared.loaded, prepared.checkpoint
    weights = checkpoint.files if checkpoint else ()
    named = [path for path in (prepared.profile_path, prepared.source) if path is not None]
    return [loaded.path, *loaded.data_files, *weights, *named]


def started(
    prepared: Prepared,
    engine: Path,
    options: BuildOptions,
    work: Path,
    beside: Path,
    side: SideWork,
) -> Job:
    """The job, with the model cleaned. Calibration inputs that do not fit are refused before anything is built."""
    clock = Stopwatch()
    if prepared.precision is not None:
        from trtnorm_cli.lowering.calibration import require_fitting_data

        require_fitting_data(prepared)
    with clock.time("rewrite", "clean"):
        session = typed_session(prepared)
    return Job(prepared, engine, options, work, beside, session, clock, side)


def narrowing_checked(job: Job, rewriting: Rewriting) -> NarrowingResult | None:
    """Try a model whose doubles became float32 on random inputs; None where it had none, and where nothing is compared.

    Raises ``RewriteError`` where float32 cannot give the results.
    """
    if rewriting.wide is None or not job.options.compare:
        return None
    rewriting.require_all_checks_passed()
    with job.clock.time("types"):
        return check_narrowing(job.prepared, rewriting, job.work, job.options.seed)


def float32_kernels(job: Job, made: Making) -> Awaited[Kernels | None]:
    """The kernels of the same rewriting in the types of the file, to see what another precision did."""
    if made.lowering is None:
        return Later(lambda: None)

    def counted() -> Kernels | None:
        if not is_quick(made.result, TO_TELL):
            return None
        with job.clock.time("variants"):
            return job.variants().tried(made.variant.rewriting).kernels

    return Later(counted)


def settled_on(job: Job, begun: Making, unbuilt: Awaited[BuiltVariant | None], without: Unchanged, likely: Likely) -> Making:
    """The making of the rewriting that stays: what was ``begun``, or another once it is known that its engine is better.

    While it waits for engines, what is ``likely`` to stay is compared. Then the build ``without`` changes has a core.
    """
    if not may_be_replaced(job, begun.variant):
        return begun
    if job.side.is_beside:
        likely(begun.rewritten, partial(may_stay, job, begun, unbuilt, without), lambda: not begun.building.is_done())
        without.begin_beside(begun.building)
    job.clock.seconds.update(begun.result.seconds)
    unchanged, variants = unbuilt.result(), job.variants(keeps=True)
    better = faster(job, begun, unchanged, without, variants, likely)
    if better.rewriting is begun.variant.rewriting:
        return replace(begun, variant=better)
    begun.network.cancel()
    return make(job, better, [*([] if unchanged is None else [unchanged]), *variants.kept])


def require_same_bytes(job: Job, made: Making) -> None:
    """Where that was asked for, make the engine once more from the start, and compare the bytes."""
    if not job.options.check_reproducible:
        return

    def make_again(folder: Path, engine: Path) -> tuple[list[Path], BuildRequest]:
        session = typed_session(job.prepared)
        again = made_again(job, session, made.variant)
        lowering = lowered_variant(job, again)
        rewriting = again.rewriting if lowering is None else lowering.rewriting
        files = save_model(rewriting.model, folder / FIXED_NAME, rewriting.folder, MAPPED_FROM)
        return files, with_model(job.request(engine), rewriting, folder)

    with job.clock.time("reproducible"):
        require_reproducible(made.files, job.built, job.work, make_again, job.run)


def compared(job: Job, comparing: Awaited[Comparison]) -> Comparison | None:
    """The comparison of the model with its rewriting and what TensorRT made of that; None where that was not wanted.

    Raises ``OutOfTolerance`` where they differ, and ``NotCompared`` where a comparison is required and none was possible.
    """
    if not job.options.compare:
        return None
    comparison = comparing.result()
    _require_within_tolerance(comparison)
    if job.options.require_compare:
        _require_compared(comparison)
    return comparison


def _require_compared(comparison: Comparison) -> None:
    if comparison.not_compared:
        raise NotCompared(
            "the engine could not be compared with the model, so nothing was written",
            where="\n".join(comparison.not_compared),
            hint="without `--require-compare` the build ends with a warning instead",
        )


def _require_within_tolerance(comparison: Comparison) -> None:
    from trtnorm_cli.compare.record import verdict_lines
    from trtnorm_cli.compare.result import FAILED

    if comparison.state == FAILED:
        raise OutOfTolerance(
            "what TensorRT would compute is not what the model computes, so nothing was written",
            where="\n".join(["the comparison says:", *verdict_lines(comparison)]),
            hint="look closer with `trtnorm compare`; `--no-compare` builds the engine all the same",
        )


def described(
    job: Job,
    made: Making,
    optimize: Optimization,
    comparison: Comparison | None,
    narrowing: NarrowingResult | None,
    programs: Programs,
) -> Manifest:
    """The manifest of the engine that the job has made."""
    from trtnorm_cli.compare.record import comparison_record

    prepared, rewriting, result = job.prepared, made.variant.rewriting, made.result
    loaded, profile, checkpoint, proof = prepared.loaded, prepared.profile, prepared.checkpoint, prepared.proof
    model, engine = made.digests.result()
    counts = norm_counts(rewriting.cleaned, rewriting.composites)
    return Manifest(
        versions=Versions.of(result),
        source=FileDigest(loaded.path.name, prepared.sha256),
        export=prepared.export,
        weights=None if checkpoint is None else FileDigest.of(checkpoint.path, checkpoint.files),
        plugins=tuple(FileDigest.of(Path(library)) for library in prepared.plugin_libraries),
        rewritten=Digest(model),
        engine=EngineFile.of(job.engine, engine, result),
        profile=None if profile is None else profile.model_dump(mode="json"),
        optimization_profiles=prepared.fitted.records(),
        cleaning=dict(sorted(rewriting.cleaning.counts.items())),
        normalizations=Normalizations(**counts, composite=of_rewriting(rewriting), outcomes=norm_outcomes(rewriting)),
        changes=rewriting.changes,
        rules=rule_texts(rewriting.changes),
        undone=rewriting.undone,
        refused=rewriting.rejections,
        network=Network.of(result, loaded.proto),
        cost=job.estimated(result, made.rewriting.model),
        effects=rewriting.effects,
        rewrite_warnings=(*rewriting.warnings, *(narrowing.warnings if narrowing else ())),
        warnings=(*loaded.warnings, *rewriting.cleaning.notes, *type_notes(rewriting.types), *result.warnings),
        types=with_check(rewriting.types, None if narrowing is None else narrowing.record),
        optimize=optimize,
        precision=None if made.lowering is None else made.lowering.record,
        comparison=None if comparison is None else comparison_record(comparison, job.options.seed),
        made_from=made_from(prepared, BackendFacts(result.backend, result.version, devices=result.devices), programs),
        reproducible=job.options.check_reproducible or None,
        proof=None if proof is None else proof.record(),
        seconds=job.clock.in_order(),
    )


def placed(manifest: Manifest, job: Job) -> None:
    """Give engine and manifest their names, after both are on the disk."""
    job.prepared.require_unchanged()
    written = job.beside / "manifest"
    written.write_text(json_lines(manifest.to_json()) + "\n", encoding="utf-8")
    put_in_place({job.built: job.engine, written: manifest_of(job.engine)}, job.beside)
