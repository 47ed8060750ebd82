"""One model's way to an engine, as plain functions that the commands call in order."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from trtnorm_cli.compare.record import comparison_json, verdict_lines
from trtnorm_cli.compare.result import FAILED, CandidateReport, Comparison
from trtnorm_cli.compare.session import compare_rewriting
from trtnorm_cli.errors import BuilderFailure, NotCompared, OutOfTolerance, TrtnormError, UsageProblem
from trtnorm_cli.files import require_free, scratch_beside
from trtnorm_cli.onnx_model.load import LoadedModel
from trtnorm_cli.onnx_model.plugin_nodes import for_builder
from trtnorm_cli.onnx_model.save import data_file_of, save_model
from trtnorm_cli.rewrite.kernels import Cost, fewest_kernels, is_put_to_choice, why_more
from trtnorm_cli.rewrite.prepare import OpenedModel, Prepared
from trtnorm_cli.rewrite.rewriting import Rewriting, RewritingSession, require_valid
from trtnorm_cli.tensorrt.attempt import Attempt, isolated_folder
from trtnorm_cli.tensorrt.engine_file import manifest_of
from trtnorm_cli.tensorrt.evidence import keep_evidence
from trtnorm_cli.tensorrt.facts import BackendFacts
from trtnorm_cli.tensorrt.launch import launch
from trtnorm_cli.tensorrt.layer_table import launched
from trtnorm_cli.tensorrt.manifest import make_manifest
from trtnorm_cli.tensorrt.origin import Subject
from trtnorm_cli.tensorrt.plugin_request import require_plugins_can_be, with_plugins
from trtnorm_cli.tensorrt.preflight import builder_settings, require_settings
from trtnorm_cli.tensorrt.quantised_operators import require_known_quantisation
from trtnorm_cli.tensorrt.reproducible import require_reproducible
from trtnorm_cli.tensorrt.request import BuildRequest, BuildResult, ShapeTriple
from trtnorm_cli.tensorrt.typed import require_types
from trtnorm_cli.tensorrt.up_to_date import made_from
from trtnorm_cli.tensorrt.variants import VariantBuilder

FIXED_NAME = "fixed.onnx"
# What TensorRT reads where that is another file: plugin nodes without the functions that stand for them.
STRIPPED_NAME = "for-tensorrt.onnx"
# A second build to count the kernels without rewriting is worth this long at most.
_QUICK_BUILD_S = 20.0
# A search that nobody asked for is kept short.
_MOST_UNASKED_BUILDS = 16
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


@dataclass
class Stopwatch:
    """Wall time in seconds by step."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def time(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = round(time.perf_counter() - start, 3)


def rewrite_to(
    rewriting: Rewriting, source: LoadedModel, target: Path, profile: Path | None = None, origin: Path | None = None
) -> list[Path]:
    """Save a rewriting under ``target`` after the ONNX checker has passed it; returns the files written.

    ``source`` is the model it was made from, ``profile`` the build profile, ``origin`` the file of a PyTorch model: none of
    them may be overwritten.
    """
    sources = [source.path, *source.data_files, *(path for path in (profile, origin) if path is not None)]
    require_free([target, data_file_of(target)], sources)
    rewriting.require_all_checks_passed()
    with scratch_beside(target) as folder:
        written = save_model(rewriting.model, folder / target.name, rewriting.folder)
        require_valid(source, folder / target.name)
        for path in written:
            path.replace(target.with_name(path.name))
    return [target.with_name(path.name) for path in written]


def require_buildable(loaded: LoadedModel, opened: OpenedModel, backend: str | None) -> None:
    """Refuse a model that no rewriting can help, before any is tried. Plugins may know more operators than the parser."""
    if opened.profile is None or not opened.profile.plugins:
        require_known_quantisation(loaded.proto, backend, str(loaded.path))


def build(prepared: Prepared, engine: Path, options: BuildOptions, on_event: EventHandler) -> dict[str, Any]:
    """Rewrite, check, build and compare; writes ``engine`` and its manifest and returns the manifest.

    Neither file is written, nor an earlier one touched, unless everything succeeded. Raises ``RewriteError``,
    ``TensorRTRefusal``, ``BuilderDied`` or ``OutOfTolerance`` otherwise.
    """
    loaded, profile = prepared.loaded, prepared.profile_path
    require_plugins_can_be(prepared.profile, options.backend)
    weights = prepared.checkpoint.files if prepared.checkpoint else ()
    sources = [*loaded.data_files, *weights, *(path for path in (profile, prepared.source) if path is not None)]
    require_free([engine, manifest_of(engine)], [loaded.path, *sources])
    require_settings(prepared.profile, options.backend, loaded.proto)
    clock = Stopwatch()
    with scratch_beside(engine) as beside, _work_folder(Subject(loaded.path, profile)) as work:
        fixed = work / FIXED_NAME
        on_event({"event": "stage", "stage": "rewrite"})
        with clock.time("rewrite"):
            session = prepared.session()
            fitted = shapes_and_settings(prepared)
            given = (*fitted, options.timeout_s, prepared.plugin_libraries, options.memory_bytes)
            variants = VariantBuilder(work, options.backend, *given)
            searches = session.settings.optimize == "kernels"
            rewriting, choice = _choose(session, variants, searches)

        def run(request: BuildRequest, folder: Path, listen: EventHandler = on_event) -> BuildResult:
            return launch(request, folder, listen, options.timeout_s, memory_bytes=options.memory_bytes)

        def make(rewriting: Rewriting) -> tuple[list[Path], BuildResult]:
            rewriting.require_all_checks_passed()
            files = save_model(rewriting.model, fixed, rewriting.folder)
            require_valid(loaded, fixed)
            request = _request(prepared, rewriting, work, beside / engine.name, options.backend)
            subject = Subject(loaded.path, profile, loaded.proto, rewriting.changes)
            attempt = Attempt(request, work, for_builder(rewriting.model), rewriting.folder, subject, run)
            return files, attempt.result(isolated_folder(engine) if options.isolate else None, on_event)

        files, result = make(rewriting)
        with clock.time("variants"):
            before = _kernels_before(session, rewriting, result, variants)
            choosable = any(map(is_put_to_choice, rewriting.changes))
            if session.settings.optimize == "auto" and choosable and _is_worse(result, before):
                searches = True
                rewriting, choice = _choose(session, variants, searches)
        if choice is not None and session.settings.optimize == "auto":
            files, result = make(rewriting)
        notes = require_types(rewriting.model, result)
        clock.seconds.update(result.seconds)
        if options.check_reproducible:
            with clock.time("reproducible"):
                again = partial(_make_again, prepared, variants, searches)
                require_reproducible(files, beside / engine.name, work, again, run)
        comparison = None
        if options.compare:
            on_event({"event": "stage", "stage": "compare"})
            with clock.time("compare"):
                comparison = _compared(prepared, rewriting, fixed, work, options, result.backend)
            _require_within_tolerance(comparison)
            if options.require_compare:
                _require_compared(comparison)
        manifest = make_manifest(prepared, rewriting, result, files, beside / engine.name, engine)
        policy, more = session.settings.optimize, _why_more(session, rewriting, result, before)
        manifest["optimize"] = {"policy": policy, "chosen": choice, "before": before, "more": more}
        manifest["comparison"] = None if comparison is None else comparison_json(comparison, options.seed)
        manifest["warnings"] += notes
        facts = BackendFacts(result.backend, result.version, devices=result.devices)
        manifest["made_from"] = made_from(prepared, facts)
        manifest["reproducible"] = options.check_reproducible or None
        manifest["proof"] = None if prepared.proof is None else prepared.proof.to_json()
        manifest["seconds"] = clock.seconds
        _put_in_place(manifest, beside, engine)
    return manifest


def _make_again(
    prepared: Prepared, variants: VariantBuilder, searches: bool, folder: Path, engine: Path
) -> tuple[list[Path], BuildRequest]:
    """The files of a rewritten model, made from the start, and the request to build it."""
    rewriting, _ = _choose(prepared.session(), variants, searches)
    files = save_model(rewriting.model, folder / FIXED_NAME, rewriting.folder)
    return files, _request(prepared, rewriting, folder, engine, variants.backend)


def _choose(session: RewritingSession, variants: VariantBuilder, searches: bool) -> tuple[Rewriting, dict[str, Any] | None]:
    """The rewriting that the policy asks for, and how a search for the fewest kernels came to it, where there was one."""
    if not searches:
        return session.rewrite(), None

    def measure(rewriting: Rewriting) -> Cost:
        return variants.build(rewriting).cost

    if session.settings.optimize == "auto":
        chosen = fewest_kernels(session, measure, _MOST_UNASKED_BUILDS, is_put_to_choice)
    else:
        chosen = fewest_kernels(session, measure)
    costs = {"every change": chosen.every_change, "no change": chosen.no_change, "chosen": chosen.best}
    return chosen.rewriting, {
        **{name: {"launches": cost.launches, "engine_bytes": cost.engine_bytes} for name, cost in costs.items()},
        "left_out": list(chosen.left_out),
        "builds": chosen.builds,
    }


def _kernels_before(
    session: RewritingSession, rewriting: Rewriting, result: BuildResult, variants: VariantBuilder
) -> dict[str, Any] | None:
    """The kernels of an engine without the changes that only improve the model, to see what they did.

    None where there are no such changes, and where a build is not a matter of seconds: TensorRT for RTX compiles without
    timing anything, TensorRT 10 and 11 measure every kernel.
    """
    quick = result.backend == "tensorrt-rtx" and result.seconds.get("build", 0.0) <= _QUICK_BUILD_S
    if not quick or not any(change.optional for change in rewriting.changes):
        return None
    kernels = variants.build(session.rewrite("never"))
    return {"kernels_by_type": kernels.by_type, "engine_bytes": kernels.engine_bytes, "reason": kernels.reason}


def _is_worse(result: BuildResult, before: dict[str, Any] | None) -> bool:
    """True when the engine launches more kernels than one without the changes that only improve the model."""
    if before is None or before["reason"]:
        return False
    return len(launched(result.kernels)) > sum(before["kernels_by_type"].values())


def _compared(
    prepared: Prepared, rewriting: Rewriting, fixed: Path, work: Path, options: BuildOptions, backend: str
) -> Comparison:
    """The comparison; one that cannot be made is no reason to throw an engine away, so that its result says why."""
    try:
        return compare_rewriting(prepared, rewriting, fixed, work, options.seed, backend, options.memory_bytes)
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


def _why_more(
    session: RewritingSession, rewriting: Rewriting, result: BuildResult, before: dict[str, Any] | None
) -> str | None:
    """Why it still does in the end; None where it does not."""
    if before is None or not _is_worse(result, before):
        return None
    counts = len(launched(result.kernels)), sum(before["kernels_by_type"].values())
    return why_more(*counts, session.settings.optimize, rewriting.changes)


def _require_within_tolerance(comparison: Comparison) -> None:
    if comparison.state == FAILED:
        raise OutOfTolerance(
            "what TensorRT would compute is not what the model computes, so nothing was written",
            where="\n".join(["the comparison says:", *verdict_lines(comparison)]),
            hint="look closer with `trtnorm compare`; `--no-compare` builds the engine all the same",
        )


def _request(prepared: Prepared, rewriting: Rewriting, work: Path, engine: Path, backend: str | None) -> BuildRequest:
    model, name = for_builder(rewriting.model), FIXED_NAME
    if model is not rewriting.model:
        name = STRIPPED_NAME
        save_model(model, work / name, rewriting.folder)
    request = BuildRequest(name, str(engine.absolute()), backend, *shapes_and_settings(prepared))
    return with_plugins(request, rewriting.model, prepared.plugin_libraries)


def shapes_and_settings(prepared: Prepared) -> tuple[tuple[dict[str, ShapeTriple], ...], dict[str, Any]]:
    """Min, opt and max of each dynamic input in each optimization profile, and the builder's settings.

    Of inputs whose elements decide sizes, it is the elements.
    """
    dynamic = prepared.fitted.dynamic_inputs
    has_values = any(profile.values for profile in prepared.fitted.profiles)
    profiles: list[dict[str, ShapeTriple]] = []
    for profile in prepared.fitted.profiles if dynamic or has_values else ():
        shapes = {**{name: profile.shapes[name] for name in dynamic}, **profile.values}
        profiles.append({name: (s.min, s.opt, s.max) for name, s in shapes.items()})
    settings = builder_settings(prepared.profile)
    if "timing_cache" in settings and prepared.profile_path is not None:  # relative to the file that names it
        settings["timing_cache"] = str(prepared.profile_path.parent.absolute() / settings["timing_cache"])
    return tuple(profiles), settings


@contextmanager
def _work_folder(subject: Subject) -> Iterator[Path]:
    """The folder of one build. What a report needs stays when TensorRT refused the model or died."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="trtnorm-build-"))
    except OSError as error:
        raise UsageProblem(
            f"no folder can be made to work in: {error.strerror}", error.filename, "set TMPDIR to a folder with room"
        ) from error
    keep = False
    try:
        yield folder
    except BuilderFailure as error:
        keep = True
        with suppress(OSError):
            keep_evidence(folder, error, subject)
        raise
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _put_in_place(manifest: dict[str, Any], beside: Path, engine: Path) -> None:
    """Give engine and manifest their names, after both are on the disk."""
    text = json.dumps(manifest, indent=2) + "\n"
    try:
        (beside / "manifest").write_text(text, encoding="utf-8")
        (beside / engine.name).replace(engine)
        (beside / "manifest").replace(manifest_of(engine))
    except OSError as error:
        raise UsageProblem(f"the engine cannot be written: {error.strerror}", str(engine), "make room, or use -o") from error
