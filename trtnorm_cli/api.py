"""The Python API: one function for each command that works on a model. What they need is imported when they are called.

They raise ``TrtnormError`` where the command ends with an exit code, and print nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from trtnorm_cli.compare.result import Comparison
    from trtnorm_cli.compare.settings import Settings
    from trtnorm_cli.differences.record import Diff
    from trtnorm_cli.export.command import WrittenExport
    from trtnorm_cli.export.inspecting import ModuleDescription
    from trtnorm_cli.export.options import ExportOptions
    from trtnorm_cli.onnx_model.load import LoadedModel
    from trtnorm_cli.pipeline import BuildOptions
    from trtnorm_cli.profile.model import BuildProfile, PrecisionSettings
    from trtnorm_cli.profile.prove import Proof
    from trtnorm_cli.progress import Listener
    from trtnorm_cli.records.export import ExportRecord
    from trtnorm_cli.rewrite.describe import ModelDescription
    from trtnorm_cli.rewrite.rewritten import RewrittenModel
    from trtnorm_cli.target import Target
    from trtnorm_cli.tensorrt.engine_file import EngineDescription
    from trtnorm_cli.tensorrt.manifest import Manifest
    from trtnorm_cli.tensorrt.network.describe import NetworkDescription

    Description: TypeAlias = ModelDescription | NetworkDescription | EngineDescription | ExportRecord | ModuleDescription

File = str | PathLike[str]


def build(
    model: File,
    output: File | None = None,
    *,
    profile: File | None = None,
    precision: str | None = None,
    dynamic_quantization: str | None = None,
    weights: File | None = None,
    snap: bool = False,
    force: bool = False,
    options: BuildOptions | None = None,
    exporting: ExportOptions | None = None,
    on_event: Listener | None = None,
) -> Manifest:
    """Build a TensorRT engine as ``trtnorm build`` does, and return its manifest.

    ``model`` is an ONNX file or names a PyTorch model; ``exporting`` says how that is exported. An engine that is up to date
    is not built again unless ``force`` is set. ``on_event`` is told of the stages of the build. ``precision`` (as-written,
    fp16, bf16 or fp32) and ``dynamic_quantization`` (as-written or float) stand in place of what the profile says.
    """
    from functools import partial

    from trtnorm_cli import pipeline
    from trtnorm_cli.export.opening import opened_model
    from trtnorm_cli.progress import listening
    from trtnorm_cli.rewrite.prepare import prepare
    from trtnorm_cli.target import parse_model
    from trtnorm_cli.tensorrt.backend import require_backend

    options = options or pipeline.BuildOptions()
    require_backend(options.backend)
    target = parse_model(str(model))
    engine = Path(f"{target.stem}.engine" if output is None else output)
    exporting = replace(_export_options(exporting, weights), backend=options.backend, seed=options.seed)
    heard = nullcontext() if on_event is None else listening(on_event)
    with heard, opened_model(target, _path(profile), exporting, precision, dynamic_quantization) as opened:
        prepared = prepare(opened, snap, partial(pipeline.begin, opened=opened, backend=options.backend))
        earlier = None if force else pipeline.earlier_build(prepared, engine, options)
        return earlier or pipeline.build(prepared, engine, options)


def rewrite(
    model: File,
    output: File | None = None,
    *,
    profile: File | None = None,
    precision: str | None = None,
    dynamic_quantization: str | None = None,
    weights: File | None = None,
    snap: bool = False,
    exporting: ExportOptions | None = None,
    on_proof: Callable[[Proof | None], None] = lambda proof: None,
    in_memory: bool = True,
) -> RewrittenModel:
    """Rewrite the normalization layers as ``trtnorm rewrite`` does; without ``output`` nothing is written.

    ``on_proof`` is told what is known of the profile's sizes, before the rewriting begins. With ``in_memory=False`` weights
    are not read into ``rewriting.model``, which is then of no use to others. ``precision`` is as in :func:`build`, and settled
    without TensorRT. ``dynamic_quantization`` is as in :func:`build`.
    """
    from trtnorm_cli.export.opening import opened_model
    from trtnorm_cli.onnx_model.stored import brought_in
    from trtnorm_cli.progress import stage
    from trtnorm_cli.rewrite.prepare import prepare
    from trtnorm_cli.rewrite.rewritten import RewrittenModel
    from trtnorm_cli.rewrite.write import rewrite_to
    from trtnorm_cli.target import parse_model

    def on_loaded(loaded: LoadedModel) -> None:
        if in_memory:
            loaded.start_digest()

    exporting = _export_options(exporting, weights)
    target = parse_model(str(model))
    folder = None if output is None else Path(output).absolute().parent
    with opened_model(target, _path(profile), exporting, precision, dynamic_quantization) as opened:
        as_written = opened.profile is None or opened.profile.precision.type == "as-written"
        prepared = prepare(opened, snap, on_loaded, needs_sizes=False)
        on_proof(prepared.proof)
        with prepared.explaining_errors():
            # In another precision, what is rewritten is not yet the result.
            with stage("rewrite"), _shelves(folder, of_result=as_written):
                source, rewriting = prepared.loaded, prepared.rewrite()
            settled = None
            if opened.profile is not None and not as_written:
                rewriting.require_all_checks_passed()
                with stage("precision"), _shelves(folder, of_result=False):
                    from trtnorm_cli.lowering.lower import lowered_alone

                    rewriting, settled = lowered_alone(prepared, rewriting, opened.profile.precision)
            written = []
            if output is None:
                rewriting.require_all_checks_passed()
            else:
                prepared.require_unchanged()
                written = rewrite_to(rewriting, source, Path(output), _path(profile), opened.source)
        if in_memory:
            rewriting = replace(rewriting, model=brought_in(rewriting.model))
        if in_memory or opened.export is not None:
            source.keep_digest()  # an exported file is about to go, another may
        return RewrittenModel(source, rewriting, tuple(written), settled)


def export(
    model: str,
    output: File | None = None,
    *,
    profile: File | None = None,
    precision: str | None = None,
    dynamic_quantization: str | None = None,
    options: ExportOptions | None = None,
    update_profile: bool = False,
) -> WrittenExport:
    """Export a PyTorch model to ONNX as ``trtnorm export`` does, and return what was written and learnt.

    With ``precision`` (fp16, bf16 or fp32) the model is rewritten and converted as well, without TensorRT; with
    ``dynamic_quantization="float"`` it is rewritten.
    """
    from trtnorm_cli.errors import UsageProblem
    from trtnorm_cli.export.command import run_export
    from trtnorm_cli.target import parse_pytorch, require_torch

    if update_profile and profile is None:
        raise UsageProblem("to update the build profile it must be given", hint="name it with profile=")
    require_torch()
    chosen = _export_options(options, None)
    return run_export(
        parse_pytorch(model), _path(output), _path(profile), chosen, update_profile, precision, dynamic_quantization
    )


def compare(
    reference: File,
    *candidates: File,
    profile: File | None = None,
    precision: str | None = None,
    dynamic_quantization: str | None = None,
    settings: Settings | None = None,
) -> Comparison:
    """Compare candidates with a reference as ``trtnorm compare`` does; without candidates, the reference's rewriting.

    ``precision`` and ``dynamic_quantization`` are as in :func:`build`, and for a comparison without candidates.
    """
    from trtnorm_cli.compare.settings import Settings
    from trtnorm_cli.target import parse_target

    others = [parse_target(str(candidate)) for candidate in candidates]
    target, path = parse_target(str(reference)), _path(profile)
    return compare_targets(target, others, path, settings or Settings(), precision, dynamic_quantization)


def compare_targets(
    reference: Target,
    candidates: Sequence[Target],
    profile: Path | None,
    settings: Settings,
    precision: str | None = None,
    dynamic_quantization: str | None = None,
) -> Comparison:
    """Compare what ``parse_target`` read.

    Raises ``UsageProblem`` where ``precision`` or ``dynamic_quantization`` is given and nothing is converted.
    """
    from trtnorm_cli.export.opening import opened_model, profile_of

    is_alone = not candidates and (reference.kind == "onnx" or reference.is_pytorch)
    if not is_alone:
        _require_nothing_asked(reference, candidates, precision, dynamic_quantization)
    if reference.is_pytorch:
        asked = profile_of(profile, precision, dynamic_quantization) if is_alone else None
        if _precision_wanted(asked) is None:
            from trtnorm_cli.export.module_session import run_module_session

            return run_module_session(reference, candidates, profile, settings, dynamic_quantization)
    from trtnorm_cli.compare.session import run_session

    if not is_alone:
        return run_session(reference, candidates, profile, settings)
    exporting = replace(_export_options(None, settings.weights), seed=settings.seed, backend=settings.backend)
    with opened_model(reference, profile, exporting, precision, dynamic_quantization) as opened:
        if (wanted := _precision_wanted(opened.profile)) is None:
            return run_session(reference, candidates, profile, settings, opened)
        from trtnorm_cli.lowering.session import run_precision_session

        return run_precision_session(reference, opened, wanted, settings)


def _precision_wanted(profile: BuildProfile | None) -> PrecisionSettings | None:
    """The settings of a precision that is not the file's; None where ``profile`` keeps the types of the file."""
    return None if profile is None or profile.precision.type == "as-written" else profile.precision


def _require_nothing_asked(
    reference: Target, candidates: Sequence[Target], precision: str | None, dynamic_quantization: str | None
) -> None:
    from trtnorm_cli.errors import UsageProblem

    option = (
        f"--precision {precision}"
        if precision not in (None, "as-written")
        else "--dynamic-quantization float"
        if dynamic_quantization == "float"
        else None
    )
    if option is None:
        return
    model = next((target.location for target in (reference, *candidates) if target.kind != "engine"), "MODEL.onnx")
    if candidates:
        raise UsageProblem(
            f"{option} is given, and candidates are compared in the types and operators that they have",
            f"candidates {', '.join(target.text for target in candidates)}",
            f"leave it out: a candidate in half or bfloat16 is held to the rounding of its own types; or convert the model "
            f"first, with trtnorm rewrite {model} {option} -o CONVERTED.onnx, and name that as a candidate",
        )
    raise UsageProblem(
        f"{option} is for a model that trtnorm converts, and {reference.text} is taken as it is",
        reference.text,
        f"name the model: trtnorm compare {model} {option}",
    )


def inspect(
    target: File,
    *,
    output: File | None = None,
    weights: File | None = None,
    backend: str | None = None,
    nodes: Sequence[str] = (),
) -> Description:
    """The description of a model, of TensorRT's network of one, of an engine, or of a manifest.

    Its ``to_json`` is as ``trtnorm inspect --json``.

    ``output`` is where the network of ``network:MODEL.onnx`` is saved as ONNX. With ``nodes``, patterns with * and ?, the
    description is about the nodes whose names fit one of them.
    """
    from trtnorm_cli.errors import UsageProblem
    from trtnorm_cli.node_names import NodePatterns
    from trtnorm_cli.target import parse_target

    spec, wanted = parse_target(str(target)), NodePatterns(tuple(nodes))
    if output is not None and spec.kind != "network":
        raise UsageProblem("only a network is saved; a model or an engine is a file already", spec.text)
    if spec.is_pytorch:
        from trtnorm_cli.export.inspecting import inspect_module

        return inspect_module(spec, _path(weights), wanted)
    if spec.kind == "manifest":
        from trtnorm_cli.export.manifest_file import read_export_manifest

        exported = read_export_manifest(spec.path, wanted)
        if exported is not None:
            return exported
    if spec.kind in ("engine", "manifest"):
        from trtnorm_cli.tensorrt.engine_file import fitting, inspect_engine

        return fitting(inspect_engine(spec.path), wanted)
    if spec.kind == "network":
        from trtnorm_cli.tensorrt.network.describe import describe_network

        return describe_network(spec.path, _path(output), backend, wanted)
    from trtnorm_cli.rewrite.describe import describe_model

    return describe_model(spec.path, wanted)


def diff(
    first: File,
    second: File,
    *,
    exported: bool = False,
    profile: File | None = None,
    backend: str | None = None,
    exporting: ExportOptions | None = None,
) -> Diff:
    """The differences between two models, networks or engines, as ``trtnorm diff`` shows them.

    ``exported`` asks for the graphs of two PyTorch models, whose sizes ``profile`` has.
    """
    from trtnorm_cli.differences.comparing import Options, compare_targets

    options = Options(exported, _path(profile), backend, _export_options(exporting, None))
    return compare_targets(str(first), str(second), options)


def _shelves(folder: Path | None, of_result: bool) -> AbstractContextManager[None]:
    """A block in which large new weights are kept in ``folder``, where there is a result to be written there."""
    from trtnorm_cli.onnx_model.shelf import shelves_in

    return nullcontext() if folder is None else shelves_in(folder, of_result)


def _path(file: File | None) -> Path | None:
    return None if file is None else Path(file)


def _export_options(given: ExportOptions | None, weights: File | None) -> ExportOptions:
    from trtnorm_cli.export.options import ExportOptions

    options = given or ExportOptions()
    return options if weights is None else replace(options, weights=Path(weights))
