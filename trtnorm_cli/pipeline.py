"""One model's way to an engine, as plain functions that the commands call in order."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trtnorm_cli.child_process import Limits
from trtnorm_cli.compare.record import comparison_json, verdict_lines
from trtnorm_cli.compare.result import FAILED, CandidateReport, Comparison
from trtnorm_cli.compare.session import compare_rewriting
from trtnorm_cli.errors import NotCompared, OutOfTolerance, TrtnormError, UsageProblem
from trtnorm_cli.files import require_free, scratch_beside, sha256_of
from trtnorm_cli.onnx_model.load import LoadedModel
from trtnorm_cli.onnx_model.plugin_nodes import for_builder
from trtnorm_cli.onnx_model.save import save_model
from trtnorm_cli.profile.rewriting import Optimize
from trtnorm_cli.rewrite.describe import norm_counts, of_rewriting
from trtnorm_cli.rewrite.kernels import is_put_to_choice, why_more
from trtnorm_cli.rewrite.prepare import OpenedModel, Prepared
from trtnorm_cli.rewrite.rewriting import Rewriting, RewritingSession, require_valid
from trtnorm_cli.tensorrt.attempt import Attempt, isolated_folder
from trtnorm_cli.tensorrt.build_request import FIXED_NAME, request_for, with_model
from trtnorm_cli.tensorrt.facts import BackendFacts
from trtnorm_cli.tensorrt.kernel_search import Variant, is_worse, searched
from trtnorm_cli.tensorrt.launch import launch
from trtnorm_cli.tensorrt.layer_table import launched
from trtnorm_cli.tensorrt.manifest import (
    Digest,
    EngineFile,
    FileDigest,
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
from trtnorm_cli.tensorrt.request import BuildRequest, BuildResult
from trtnorm_cli.tensorrt.typed import require_types
from trtnorm_cli.tensorrt.up_to_date import (
    ANY_COMPARISON,
    COMPLETE_COMPARISON,
    NO_COMPARISON,
    earlier_manifest,
    made_from,
)
from trtnorm_cli.tensorrt.variants import VariantBuilder
from trtnorm_cli.tensorrt.work_folder import work_folder

# A second build to count the kernels without rewriting is worth this long at most.
_QUICK_BUILD_S = 20.0
EventHandler = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class BuildOptions:
    """What the command line says about a build."""

    backend: str | None = None
    timeout_s: float | None = None
    memory_bytes: int | None = None
    check_reproducible: bool = False
    isolate: bool = False
    compare: bool = True
    seed: int = 0
    require_compare: bool = False

    def __post_init__(self) -> None:
        if self.require_compare and not self.compare:
            raise UsageProblem("--no-compare and --require-compare contradict each other", hint="leave out one of them")


@dataclass
class Stopwatch:
    """Wall time in seconds by step."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def time(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = round(self.seconds.get(name, 0.0) + time.perf_counter() - start, 3)


def require_buildable(loaded: LoadedModel, opened: OpenedModel, backend: str | None) -> None:
    """Refuse a model that no rewriting can help, before any is tried. Plugins may know more operators than the parser."""
    if opened.profile is None or not opened.profile.plugins:
        require_known_quantisation(loaded.proto, backend, str(loaded.path))


@dataclass(frozen=True)
class Job:
    """One build: what is built, how, and where. ``work`` is private to it, ``beside`` a folder on the disk of ``engine``."""

    prepared: Prepared
    engine: Path
    options: BuildOptions
    work: Path
    beside: Path
    on_event: EventHandler
    session: RewritingSession
    clock: Stopwatch

    @property
    def built(self) -> Path:
        """Where the engine is until it gets its name."""
        return self.beside / self.engine.name

    @property
    def limits(self) -> Limits:
        return Limits(self.options.timeout_s, self.options.memory_bytes)

    @property
    def policy(self) -> Optimize:
        return self.session.settings.optimize

    def subject(self, rewriting: Rewriting) -> Subject:
        """The user's model, for messages about nodes that ``rewriting`` made."""
        loaded = self.prepared.loaded
        return Subject(loaded.path, self.prepared.profile_path, loaded.proto, rewriting.changes)

    def request(self, engine: Path) -> BuildRequest:
        """The request to build ``engine``, but for the model."""
        return request_for(self.prepared, self.options.backend, engine)

    def variants(self) -> VariantBuilder:
        """What builds engines that are only looked at."""
        return VariantBuilder(self.work, self.request(self.built), self.limits)

    def stage(self, name: str) -> None:
        self.on_event({"event": "stage", "stage": name})

    def run(self, request: BuildRequest, folder: Path, listen: EventHandler | None = None) -> BuildResult:
        """Run one build process in ``folder``."""
        limits = self.limits
        return launch(request, folder, listen or self.on_event, limits.timeout_s, memory_bytes=limits.memory_bytes)


@dataclass(frozen=True)
class Built:
    """The files of a rewritten model, and what TensorRT made of it. The engine is in ``Job.built``."""

    files: Sequence[Path]
    result: BuildResult


def earlier_build(prepared: Prepared, engine: Path, options: BuildOptions) -> Manifest | None:
    """The manifest of ``engine`` where this build would only make it again; None where it must be built."""
    if options.check_reproducible:
        return None
    wanted = COMPLETE_COMPARISON if options.require_compare else ANY_COMPARISON if options.compare else NO_COMPARISON
    return earlier_manifest(prepared, engine, options.backend, wanted, options.seed)


def build(prepared: Prepared, engine: Path, options: BuildOptions, on_event: EventHandler) -> Manifest:
    """Rewrite, check, build and compare; writes ``engine`` and its manifest and returns the manifest.

    Neither file is written, nor an earlier one touched, unless everything succeeded. Raises ``RewriteError``,
    ``TensorRTRefusal``, ``BuilderDied`` or ``OutOfTolerance`` otherwise.
    """
    require_possible(prepared, engine, options)
    subject = Subject(prepared.loaded.path, prepared.profile_path)
    with scratch_beside(engine) as beside, work_folder(subject) as work:
        job = started(prepared, engine, options, work, beside, on_event)
        variant = first_variant(job)
        built = make(job, variant)
        before = kernels_before(job, variant, built)
        better = fewer_kernels(job, variant, built, before)
        if better is not None:
            variant, built = better, make(job, better)
        job.clock.seconds.update(built.result.seconds)
        notes = require_types(variant.rewriting.model, built.result)
        require_same_bytes(job, variant, built)
        comparison = compared(job, variant, built)
        optimize = optimized(job, variant, built, before)
        manifest = described(job, variant, built, optimize, comparison, notes)
        put_in_place(manifest, job)
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


def started(prepared: Prepared, engine: Path, options: BuildOptions, work: Path, beside: Path, on_event: EventHandler) -> Job:
    """The job, with the model cleaned."""
    clock = Stopwatch()
    on_event({"event": "stage", "stage": "rewrite"})
    with clock.time("rewrite"):
        session = prepared.session()
    return Job(prepared, engine, options, work, beside, on_event, session, clock)


def first_variant(job: Job) -> Variant:
    """The rewriting that the policy asks for."""
    with job.clock.time("rewrite"):
        if job.policy == "kernels":
            return searched(job.session, job.variants())
        return Variant(job.session.rewrite())


def make(job: Job, variant: Variant) -> Built:
    """Save the rewritten model and build the engine from it."""
    rewriting, fixed = variant.rewriting, job.work / FIXED_NAME
    rewriting.require_all_checks_passed()
    files = save_model(rewriting.model, fixed, rewriting.folder)
    require_valid(job.prepared.loaded, fixed)
    request = with_model(job.request(job.built), rewriting, job.work)
    attempt = Attempt(request, job.work, for_builder(rewriting.model), rewriting.folder, job.subject(rewriting), job.run)
    isolated = isolated_folder(job.engine) if job.options.isolate else None
    return Built(files, attempt.result(isolated, job.on_event))


def kernels_before(job: Job, variant: Variant, built: Built) -> Kernels | None:
    """The kernels of an engine without the changes that only improve the model, to see what they did.

    None where there are no such changes, and where a build is not a matter of seconds: TensorRT for RTX compiles without
    timing anything, TensorRT 10 and 11 measure every kernel.
    """
    result = built.result
    with job.clock.time("variants"):
        quick = result.backend == "tensorrt-rtx" and result.seconds.get("build", 0.0) <= _QUICK_BUILD_S
        if not quick or not any(change.optional for change in variant.rewriting.changes):
            return None
        return job.variants().build(job.session.rewrite("never"))


def fewer_kernels(job: Job, variant: Variant, built: Built, before: Kernels | None) -> Variant | None:
    """A rewriting with fewer kernels where ``optimize: auto`` finds that changes took some; None where there is no cause."""
    choosable = any(map(is_put_to_choice, variant.rewriting.changes))
    if job.policy != "auto" or not choosable or not is_worse(built.result, before):
        return None
    with job.clock.time("variants"):
        return searched(job.session, job.variants())


def optimized(job: Job, variant: Variant, built: Built, before: Kernels | None) -> Optimization:
    """What came of the policy, and why the engine still launches more kernels where it does."""
    more = None
    if before is not None and is_worse(built.result, before):
        now = len(launched(built.result.kernels))
        more = why_more(now, before.launches, job.policy, variant.rewriting.changes)
    return Optimization(job.policy, variant.choice, before, more)


def require_same_bytes(job: Job, variant: Variant, built: Built) -> None:
    """Where that was asked for, make the engine once more from the start, and compare the bytes."""
    if not job.options.check_reproducible:
        return

    def make_again(folder: Path, engine: Path) -> tuple[list[Path], BuildRequest]:
        session = job.prepared.session()
        again = Variant(session.rewrite()) if variant.choice is None else searched(session, job.variants())
        files = save_model(again.rewriting.model, folder / FIXED_NAME, again.rewriting.folder)
        return files, with_model(job.request(engine), again.rewriting, folder)

    with job.clock.time("reproducible"):
        require_reproducible(built.files, job.built, job.work, make_again, job.run)


def compared(job: Job, variant: Variant, built: Built) -> Comparison | None:
    """Compare the model with its rewriting and what TensorRT made of that; None where that was not wanted.

    Raises ``OutOfTolerance`` where they differ, and ``NotCompared`` where a comparison is required and none was possible.
    """
    if not job.options.compare:
        return None
    job.stage("compare")
    with job.clock.time("compare"):
        comparison = _comparison(job, variant.rewriting, built.result.backend)
    _require_within_tolerance(comparison)
    if job.options.require_compare:
        _require_compared(comparison)
    return comparison


def _comparison(job: Job, rewriting: Rewriting, backend: str) -> Comparison:
    """The comparison; one that cannot be made is no reason to throw an engine away, so that its result says why."""
    prepared, options = job.prepared, job.options
    try:
        fixed = job.work / FIXED_NAME
        return compare_rewriting(prepared, rewriting, fixed, job.work, options.seed, backend, options.memory_bytes)
    except TrtnormError as error:
        why = f"{error.summary} ({error.where})" if error.where else error.summary
    except Exception as error:  # the engine is built, and whoever waited for it should have it
        why = f"trtnorm's comparison failed, please report it: {type(error).__name__}: {error}"
    report = CandidateReport("network:rewriting", "network", error=why, unavailable=True)
    return Comparison(prepared.loaded.path.name, candidates=[report])


def _require_compared(comparison: Comparison) -> None:
    if comparison.not_compared:
        raise NotCompared(
            "the engine could not be compared with the model, so nothing was written",
            where="\n".join(comparison.not_compared),
            hint="without `--require-compare` the build ends with a warning instead",
        )


def _require_within_tolerance(comparison: Comparison) -> None:
    if comparison.state == FAILED:
        raise OutOfTolerance(
            "what TensorRT would compute is not what the model computes, so nothing was written",
            where="\n".join(["the comparison says:", *verdict_lines(comparison)]),
            hint="look closer with `trtnorm compare`; `--no-compare` builds the engine all the same",
        )


def described(
    job: Job, variant: Variant, built: Built, optimize: Optimization, comparison: Comparison | None, notes: Sequence[str]
) -> Manifest:
    """The manifest of the engine that the job has made."""
    prepared, rewriting, result = job.prepared, variant.rewriting, built.result
    loaded, profile, checkpoint, proof = prepared.loaded, prepared.profile, prepared.checkpoint, prepared.proof
    counts = norm_counts(rewriting.cleaned, rewriting.composites)
    return Manifest(
        versions=Versions.of(result),
        source=FileDigest(loaded.path.name, prepared.sha256),
        export=prepared.export,
        weights=None if checkpoint is None else FileDigest.of(checkpoint.path, checkpoint.files),
        plugins=tuple(FileDigest.of(Path(library)) for library in prepared.plugin_libraries),
        rewritten=Digest(sha256_of(built.files)),
        engine=EngineFile.of(job.engine, job.built, result),
        profile=None if profile is None else profile.model_dump(mode="json"),
        optimization_profiles=prepared.fitted.records(),
        cleaning=dict(sorted(rewriting.cleaning.counts.items())),
        normalizations=Normalizations(**counts, composite=of_rewriting(rewriting)),
        changes=rewriting.changes,
        undone=rewriting.undone,
        refused=rewriting.rejections,
        network=Network.of(result),
        rewrite_warnings=rewriting.warnings,
        warnings=(*loaded.warnings, *rewriting.cleaning.notes, *result.warnings, *notes),
        optimize=optimize,
        comparison=None if comparison is None else comparison_json(comparison, job.options.seed),
        made_from=made_from(prepared, BackendFacts(result.backend, result.version, devices=result.devices)),
        reproducible=job.options.check_reproducible or None,
        proof=None if proof is None else proof.record(),
        seconds=job.clock.seconds,
    )


def put_in_place(manifest: Manifest, job: Job) -> None:
    """Give engine and manifest their names, after both are on the disk."""
    text = json.dumps(manifest.to_json(), indent=2) + "\n"
    written = job.beside / "manifest"
    try:
        written.write_text(text, encoding="utf-8")
        job.built.replace(job.engine)
        written.replace(manifest_of(job.engine))
    except OSError as error:
        what, engine = f"the engine cannot be written: {error.strerror}", str(job.engine)
        raise UsageProblem(what, engine, "make room, or use -o") from error
