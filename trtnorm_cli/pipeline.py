"""One model's way to an engine, as plain functions that the commands call in order."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from trtnorm_cli.build_job import BuildOptions, Duration, Job, Stopwatch, comparison_budget_s, has_room
from trtnorm_cli.compare.participants import NetworkParticipant, loaded_network, translated_network
from trtnorm_cli.compare.record import comparison_record, verdict_lines
from trtnorm_cli.compare.result import FAILED, CandidateReport, Comparison
from trtnorm_cli.compare.session import build_settings, compare_lowered, compare_rewriting
from trtnorm_cli.errors import NotCompared, OutOfTolerance, TrtnormError
from trtnorm_cli.evaluate.ort_runner import one_child
from trtnorm_cli.files import require_free, sha256_of
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.lowering.lower import Lowered, Means, lowered, settings_of
from trtnorm_cli.onnx_model.load import LoadedModel, load_model
from trtnorm_cli.onnx_model.plugin_nodes import for_builder
from trtnorm_cli.onnx_model.save import save_model
from trtnorm_cli.placing import put_in_place
from trtnorm_cli.precision.notes import type_notes, with_check
from trtnorm_cli.precision.session import typed_session
from trtnorm_cli.precision.wide.require import NarrowingResult, check_narrowing
from trtnorm_cli.records.digests import Digest, FileDigest
from trtnorm_cli.rewrite.describe import norm_counts, of_rewriting
from trtnorm_cli.rewrite.prepare import OpenedModel, Prepared, rewrite_settings
from trtnorm_cli.rewrite.rewriting import Rewriter, Rewriting, require_valid
from trtnorm_cli.rewrite.rewritten import norm_outcomes, rule_texts
from trtnorm_cli.rewrite.rules import QUANTISED, rewritten_operators, rule_named
from trtnorm_cli.scratch import scratch_beside
from trtnorm_cli.side_work import Awaited, Later, SideWork
from trtnorm_cli.target import NETWORK_PREFIX
from trtnorm_cli.tensorrt.attempt import Attempt, isolated_folder
from trtnorm_cli.tensorrt.backend import first_installed
from trtnorm_cli.tensorrt.build_request import FIXED_NAME, with_model
from trtnorm_cli.tensorrt.evidence import forget_evidence
from trtnorm_cli.tensorrt.facts import BackendFacts
from trtnorm_cli.tensorrt.kernel_search import (
    QUICK_BACKEND,
    TO_DECIDE,
    TO_TELL,
    Built,
    Variant,
    bounds_for,
    fastest,
    folds_alone,
    is_quick,
    may_be_quick,
    why_more,
    with_fewest_kernels,
)
from trtnorm_cli.tensorrt.launch import EventHandler
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
from trtnorm_cli.tensorrt.network.parsed import ParsedNetwork
from trtnorm_cli.tensorrt.origin import Subject
from trtnorm_cli.tensorrt.plugin_request import require_plugins_can_be
from trtnorm_cli.tensorrt.preflight import require_settings
from trtnorm_cli.tensorrt.quantised_forms import require_taken_quantisation
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
from trtnorm_cli.tensorrt.variants import BuiltVariant, cost_of, kernels_of
from trtnorm_cli.tensorrt.work_folder import work_folder

_MOST_REASONS = 3


def require_buildable(loaded: LoadedModel, opened: OpenedModel, backend: str | None) -> None:
    """Refuse a model that no rewriting can help, before any is tried. Plugins may know more operators than the parser."""
    if opened.profile is None or not opened.profile.plugins:
        taken = rewritten_operators(rewrite_settings(opened.profile))
        require_known_quantisation(loaded.proto, backend, str(loaded.path), taken)


def require_rewritten(job: Job, rewriting: Rewriting) -> None:
    """Refuse a model in which operators that a rule could have taken are left, with the rule's reasons."""
    profile = job.prepared.profile
    if profile is not None and profile.plugins:
        return
    refused = [rejection for rejection in rewriting.rejections if rule_named(rejection.rule) in QUANTISED]
    reasons = [f"{refusal.rule} at {refusal.node}: {refusal.reason}" for refusal in refused[:_MOST_REASONS]]
    where, asked_for = str(job.prepared.loaded.path), rewritten_operators(rewrite_settings(profile))
    require_known_quantisation(rewriting.model, job.options.backend, where, reasons=reasons, asked_for=asked_for)


@dataclass(frozen=True)
class Making:
    """The files of a rewritten model, and what is being made of it. The engine will be in ``Job.built``.

    ``lowering`` is the rewriting in the precision that was asked for, if one was. ``building`` ends with what the build process
    said, ``engine`` with that or the error that explains it. ``comparison`` is that of the model with its rewriting and with
    TensorRT's ``network``. ``compares_late`` is set where it waits until it is known which rewriting stays.
    """

    variant: Variant
    lowering: Lowered | None
    files: Sequence[Path]
    building: Awaited[BuildResult]
    engine: Awaited[BuildResult]
    network: Awaited[NetworkParticipant]
    comparison: Awaited[Comparison]
    compares_late: bool

    @property
    def rewriting(self) -> Rewriting:
        """The rewriting that the engine is made of."""
        return self.variant.rewriting if self.lowering is None else self.lowering.rewriting

    @property
    def result(self) -> BuildResult:
        """The result of TensorRT's build. Raises the error that explains a failure."""
        return self.engine.result()


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
    with (
        scratch_beside(engine) as beside,
        work_folder(subject) as work,
        prepared.explaining_errors(),
        SideWork(has_room(prepared)) as side,
        one_child(),
    ):
        job = started(prepared, engine, options, work, beside, on_event, side)
        first = first_variant(job)
        narrowing = narrowing_checked(job, first.rewriting)
        made = make(job, first)
        unbuilt = without_changes(job, made)
        in_float32 = float32_kernels(job, made)
        compare_meanwhile(job, made)
        job.clock.seconds.update(made.result.seconds)
        unchanged = unbuilt.result()
        better = faster(job, made, unchanged)
        if better.rewriting is made.variant.rewriting:
            made = replace(made, variant=better)
        else:
            made.network.cancel()
            made = make(job, better, unchanged)
            job.clock.seconds.update(made.result.seconds)
        require_types(made.rewriting.model, made.result)
        require_same_bytes(job, made)
        comparison = compared(job, made)
        optimize = optimized(job, made, None if unchanged is None else unchanged.kernels)
        manifest = described(job, made, optimize, comparison, narrowing)
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
    on_event: EventHandler,
    side: SideWork,
) -> Job:
    """The job, with the model cleaned."""
    clock = Stopwatch()
    on_event({"event": "stage", "stage": "rewrite"})
    with clock.time("rewrite"):
        session = typed_session(prepared)
    return Job(prepared, engine, options, work, beside, on_event, session, clock, side)


def first_variant(job: Job) -> Variant:
    """The rewriting that the policy asks for.

    Where builds will show which changes stay, those are tried too that are not always for the better.
    """
    with job.clock.time("rewrite"):
        if job.policy == "kernels":
            return with_fewest_kernels(job.session, job.variants())
        if not may_be_chosen(job) or not may_be_quick(job.prepared.loaded.proto, TO_DECIDE):
            return Variant(job.session.rewrite())
        return Variant(job.session.rewrite(measured=True), measured=True)


def narrowing_checked(job: Job, rewriting: Rewriting) -> NarrowingResult | None:
    """Try a model whose doubles became float32 on random inputs; None where it had none, and where nothing is compared.

    Raises ``RewriteError`` where float32 cannot give the results.
    """
    if rewriting.wide is None or not job.options.compare:
        return None
    rewriting.require_all_checks_passed()
    with job.clock.time("types"):
        return check_narrowing(job.prepared, rewriting, job.work, job.options.seed)


def make(job: Job, variant: Variant, earlier: BuiltVariant | None = None) -> Making:
    """Save the rewritten model, and begin to build the engine and to translate TensorRT's network of it.

    The engine of an ``earlier`` build is taken where it is that of ``variant``.
    """
    fixed = job.work / FIXED_NAME
    variant.rewriting.require_all_checks_passed()
    require_rewritten(job, variant.rewriting)
    require_taken_quantisation(variant.rewriting.model, variant.rewriting.folder, str(job.prepared.loaded.path))
    lowering = lowered_variant(job, variant)
    rewriting = variant.rewriting if lowering is None else lowering.rewriting
    files = save_model(rewriting.model, fixed, rewriting.folder)
    require_valid(job.prepared.loaded, fixed)
    request = with_model(job.request(job.built), rewriting, job.work)
    # What else its process does decides where TensorRT's memory is, and so some bytes: to be repeated, it only builds.
    alone = job.options.check_reproducible or lowering is not None
    ready = None if earlier is None or alone else earlier.result_for(rewriting, request.settings)
    # TensorRT parses a file once, unless it builds another one than is compared: a plugin's definition stands for the plugin.
    parses = job.options.compare and ready is None and not alone and request.model == FIXED_NAME
    parsed = ParsedNetwork(job.work) if parses else None

    tensorrt, waits = Duration(), compares_late(job, variant)

    def built() -> BuildResult:
        if ready is not None:
            job.unchanged.replace(job.built)
        with tensorrt.measured():
            if parsed is None:
                result = ready or job.run(request, job.work)
            else:
                result = parsed.built(lambda listen: job.run(parsed.asked(request), job.work, listen), job.on_event)
        if result.ok and not waits:
            say_that_it_compares(job)
        return result

    building = job.side.start(built) if ready is None else Later(built)
    attempt = Attempt(request, job.work, for_builder(rewriting.model), rewriting.folder, job.subject(rewriting), job.run)
    isolated = isolated_folder(job.engine) if job.options.isolate else None
    engine = Later(lambda: attempt.result(building, isolated, job.on_event))
    loaded = Later(lambda: load_model(fixed))
    if lowering is not None:
        network: Awaited[NetworkParticipant] = Later(lowering.known_network)
    elif parsed is not None:
        network = Later(lambda: parsed_network(parsed, building, fixed))
    else:
        network = begun_network(job, loaded)

    def known_network() -> NetworkParticipant:
        if network.error() is not None and engine.error() is not None:  # which ends the build
            raise NotCompared("there is no engine")
        return network.result()

    comparison = Later(lambda: _comparison(job, variant.rewriting, lowering, loaded, Later(known_network), tensorrt))
    return Making(variant, lowering, files, building, engine, network, comparison, waits)


def lowered_variant(job: Job, variant: Variant) -> Lowered | None:
    """The rewriting in the precision that the build profile asks for, held to TensorRT's network of it; None where it asks
    for none."""
    settings = settings_of(job.prepared)
    if settings is None:
        return None
    job.stage("precision")
    options, folder = job.options, Path(tempfile.mkdtemp(prefix="precision-", dir=job.work))

    def parsed(loaded: LoadedModel) -> NetworkParticipant:
        return loaded_network(loaded, folder, options.backend, memory_bytes=options.memory_bytes)

    with job.clock.time("precision"):
        return lowered(job.prepared, variant.rewriting, settings, Means(folder, options.seed, options.memory_bytes, parsed))


def float32_kernels(job: Job, made: Making) -> Awaited[Kernels | None]:
    """The kernels of the same rewriting in the types of the file, to see what another precision did."""
    if made.lowering is None:
        return Later(lambda: None)

    def counted() -> Kernels | None:
        if not is_quick(made.result, TO_TELL):
            return None
        with job.clock.time("variants"):
            return job.variants().build(made.variant.rewriting)

    return Later(counted)


def may_be_chosen(job: Job) -> bool:
    """True where estimates of what was built decide about optional changes, by the policy."""
    quick = first_installed(job.options.backend) == QUICK_BACKEND
    return quick and job.policy == "auto" and settings_of(job.prepared) is None


def may_be_replaced(job: Job, variant: Variant) -> bool:
    """True where a faster rewriting may come instead."""
    return may_be_chosen(job) and not variant.is_settled and any(change.optional for change in variant.rewriting.changes)


def compares_late(job: Job, variant: Variant) -> bool:
    """True for a rewriting that another one is likely to replace: what is compared should be what stays."""
    return may_be_replaced(job, variant) and not folds_alone(variant.rewriting.changes)


def say_that_it_compares(job: Job) -> None:
    if job.options.compare:
        job.stage("compare")


def parsed_network(parsed: ParsedNetwork, building: Awaited[BuildResult], model: Path) -> NetworkParticipant:
    """The network that the build process made of ``model``, which it writes before it builds."""
    if (translation := parsed.translation(model, building)) is None:
        raise building.error() or NotCompared("there is no engine")
    return translated_network(translation, f"{NETWORK_PREFIX}{model}")


def begun_network(job: Job, loaded: Awaited[LoadedModel]) -> Awaited[NetworkParticipant]:
    """TensorRT's network of the rewritten model, where a comparison will ask for it."""
    backend, memory_bytes = job.options.backend, job.options.memory_bytes
    scratch = Path(tempfile.mkdtemp(prefix="network-", dir=job.work))

    def translated() -> NetworkParticipant:
        return loaded_network(loaded.result(), scratch, backend, memory_bytes=memory_bytes)

    if not job.options.compare or not job.side.is_beside or loaded.error() is not None:
        return Later(translated)
    return job.side.start(translated, forget_evidence)


def compare_meanwhile(job: Job, made: Making) -> None:
    """Compare while TensorRT builds the engine. A rewriting in whose place another may come waits until that is known."""
    if job.options.compare and job.side.is_beside and not made.compares_late:
        made.comparison.error()


def without_changes(job: Job, made: Making) -> Awaited[BuiltVariant | None]:
    """The build without the changes that only improve the model, to see what they did.

    None where there are no such changes, and where a second build would take long for what its answer is worth. TensorRT for
    RTX compiles without timing anything, while TensorRT 10 and 11 measure every kernel.
    """
    model = made.variant.rewriting.model
    bounds = bounds_for(made.variant.rewriting.changes) if may_be_replaced(job, made.variant) else TO_TELL

    def build_unchanged() -> BuiltVariant | None:
        result = made.building.result()
        if not (result.ok and is_quick(result, bounds)):
            return None
        with job.clock.time("variants"):
            return job.variants().built(unchanged.result(), job.unchanged)

    if made.lowering is not None or not any(change.optional for change in made.variant.rewriting.changes):
        return Later(lambda: None)
    unchanged = Later(lambda: job.session.rewrite("never"))
    is_likely = first_installed(job.options.backend) == QUICK_BACKEND and may_be_quick(model, bounds)
    if job.side.is_beside and is_likely and unchanged.error() is None:
        return job.side.start(build_unchanged)
    return Later(build_unchanged)


def faster(job: Job, made: Making, unchanged: BuiltVariant | None) -> Variant:
    """The rewriting that ``optimize: auto`` prefers: the one that was made, or another."""
    variant = made.variant
    if not may_be_replaced(job, variant):
        return variant
    cost = None if unchanged is None else job.estimated(made.result, made.rewriting.model)
    if unchanged is None or cost is None:
        return without_measured_changes(job, variant)
    with job.clock.time("variants"):
        every = Built(made.rewriting, made.result, cost)
        return fastest(job.session, job.variants(), every, unchanged, variant.measured)


def without_measured_changes(job: Job, variant: Variant) -> Variant:
    """The rewriting with those changes only that are for the better everywhere, for an engine that is not built twice."""
    if not variant.measured:
        return variant
    with job.clock.time("rewrite"):
        rewriting = job.session.rewrite()
    return Variant(variant.rewriting if rewriting.changes == variant.rewriting.changes else rewriting, is_settled=True)


def optimized(job: Job, made: Making, before: Kernels | None) -> Optimization:
    """The outcome of the policy, and why the engine still launches more kernels, or takes longer, where it does."""
    more = None
    if before is not None:
        now = cost_of(kernels_of(made.result, job.estimated(made.result, made.rewriting.model)))
        more = why_more(now, cost_of(before), job.policy)
    return Optimization(job.policy, made.variant.choice, before, more)


def made_again(job: Job, session: Rewriter, variant: Variant) -> Variant:
    """``variant`` from the start. What a search found is taken over: it follows from engines that are thrown away."""
    if variant.choice is None:
        return Variant(session.rewrite(measured=variant.measured))
    if job.policy == "kernels":
        return with_fewest_kernels(session, job.variants())
    if not variant.rewriting.changes or variant.choice.chosen == variant.choice.no_change:
        return Variant(session.rewrite("never"))
    return Variant(session.rewrite("auto", frozenset(variant.choice.left_out), variant.measured))


def require_same_bytes(job: Job, made: Making) -> None:
    """Where that was asked for, make the engine once more from the start, and compare the bytes."""
    if not job.options.check_reproducible:
        return

    def make_again(folder: Path, engine: Path) -> tuple[list[Path], BuildRequest]:
        session = typed_session(job.prepared)
        again = made_again(job, session, made.variant)
        lowering = lowered_variant(job, again)
        rewriting = again.rewriting if lowering is None else lowering.rewriting
        files = save_model(rewriting.model, folder / FIXED_NAME, rewriting.folder)
        return files, with_model(job.request(engine), rewriting, folder)

    with job.clock.time("reproducible"):
        require_reproducible(made.files, job.built, job.work, make_again, job.run)


def compared(job: Job, made: Making) -> Comparison | None:
    """Compare the model with its rewriting and what TensorRT made of that; None where that was not wanted.

    Raises ``OutOfTolerance`` where they differ, and ``NotCompared`` where a comparison is required and none was possible.
    """
    if not job.options.compare:
        return None
    if made.compares_late:
        say_that_it_compares(job)
    comparison = made.comparison.result()
    _require_within_tolerance(comparison)
    if job.options.require_compare:
        _require_compared(comparison)
    return comparison


def _comparison(
    job: Job,
    rewriting: Rewriting,
    lowering: Lowered | None,
    loaded: Awaited[LoadedModel],
    network: Awaited[NetworkParticipant],
    tensorrt: Duration,
) -> Comparison:
    """The comparison; one that cannot be made is no reason to throw an engine away, so that its result says why."""
    prepared, options = job.prepared, job.options
    try:
        with job.clock.time("compare"):
            if lowering is not None:
                settings = build_settings(options.memory_bytes, options.seed, lambda: comparison_budget_s(tensorrt))
                typed = loaded.result()
                return compare_lowered(prepared, rewriting, lowering.wide, typed, network, job.work, settings)
            return compare_rewriting(
                prepared, rewriting, loaded.result(), network, job.work, options.seed, options.memory_bytes,
                lambda: comparison_budget_s(tensorrt),
            )  # fmt: skip
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
    job: Job,
    made: Making,
    optimize: Optimization,
    comparison: Comparison | None,
    narrowing: NarrowingResult | None,
) -> Manifest:
    """The manifest of the engine that the job has made."""
    prepared, rewriting, result = job.prepared, made.variant.rewriting, made.result
    loaded, profile, checkpoint, proof = prepared.loaded, prepared.profile, prepared.checkpoint, prepared.proof
    counts = norm_counts(rewriting.cleaned, rewriting.composites)
    return Manifest(
        versions=Versions.of(result),
        source=FileDigest(loaded.path.name, prepared.sha256),
        export=prepared.export,
        weights=None if checkpoint is None else FileDigest.of(checkpoint.path, checkpoint.files),
        plugins=tuple(FileDigest.of(Path(library)) for library in prepared.plugin_libraries),
        rewritten=Digest(sha256_of(made.files)),
        engine=EngineFile.of(job.engine, job.built, result),
        profile=None if profile is None else profile.model_dump(mode="json"),
        optimization_profiles=prepared.fitted.records(),
        cleaning=dict(sorted(rewriting.cleaning.counts.items())),
        normalizations=Normalizations(**counts, composite=of_rewriting(rewriting), outcomes=norm_outcomes(rewriting)),
        changes=rewriting.changes,
        rules=rule_texts(rewriting.changes),
        undone=rewriting.undone,
        refused=rewriting.rejections,
        network=Network.of(result),
        cost=job.estimated(result, made.rewriting.model),
        effects=rewriting.effects,
        rewrite_warnings=(*rewriting.warnings, *(narrowing.warnings if narrowing else ())),
        warnings=(*loaded.warnings, *rewriting.cleaning.notes, *type_notes(rewriting.types), *result.warnings),
        types=with_check(rewriting.types, None if narrowing is None else narrowing.record),
        optimize=optimize,
        precision=None if made.lowering is None else made.lowering.record,
        comparison=None if comparison is None else comparison_record(comparison, job.options.seed),
        made_from=made_from(prepared, BackendFacts(result.backend, result.version, devices=result.devices)),
        reproducible=job.options.check_reproducible or None,
        proof=None if proof is None else proof.record(),
        seconds=job.clock.in_order(),
    )


def placed(manifest: Manifest, job: Job) -> None:
    """Give engine and manifest their names, after both are on the disk."""
    job.prepared.require_unchanged()
    written = job.beside / "manifest"
    written.write_text(json.dumps(manifest.to_json(), indent=2) + "\n", encoding="utf-8")
    put_in_place({job.built: job.engine, written: manifest_of(job.engine)}, job.beside)
