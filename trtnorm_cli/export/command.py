"""``trtnorm export`` as one function that exports, then puts the files in place."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.export.export_model import ExportedModel, export_model
from trtnorm_cli.export.opening import as_asked
from trtnorm_cli.export.options import ExportOptions
from trtnorm_cli.export.profile_update import Edit, planned_update, suggestion
from trtnorm_cli.files import require_free
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.save import data_file_of
from trtnorm_cli.placing import put_in_place
from trtnorm_cli.profile.load import load_profile
from trtnorm_cli.profile.model import BuildProfile
from trtnorm_cli.progress import stage
from trtnorm_cli.records.export import ExportRecord
from trtnorm_cli.scratch import scratch_beside
from trtnorm_cli.target import Target


@dataclass(frozen=True)
class WrittenExport:
    """The files of an export. ``suggested`` are changes to the build profile, ``updated`` those that were written into it."""

    path: Path
    manifest_path: Path
    manifest: ExportRecord
    suggested: tuple[str, ...]
    updated: tuple[Edit, ...]


def run_export(
    spec: Target,
    output: Path | None,
    profile_path: Path | None,
    options: ExportOptions,
    update: bool,
    precision: str | None = None,
    dynamic_quantization: str | None = None,
) -> WrittenExport:
    """Export the model ``spec`` to ``output`` with its manifest beside it. Nothing is written unless everything succeeded.

    With ``precision`` the exported model is rewritten and converted after it was compared with the module, with
    ``dynamic_quantization`` rewritten alone.
    """
    profile = None if profile_path is None else load_profile(profile_path)
    target = output or Path(f"{spec.stem}.onnx")
    manifest_path = target.with_name(target.name + ".json")
    sources = [path for path in (spec.path, profile_path, options.weights) if path is not None]
    require_free([target, data_file_of(target), manifest_path], sources)
    if target.suffix != ".onnx":
        raise UsageProblem("the output is an ONNX file", str(target), f"call it {target.name}.onnx")
    with scratch_beside(target) as folder:
        exported = export_model(spec, profile, options, folder, target.name)
        manifest = exported.record()
        if precision not in (None, "as-written") or dynamic_quantization == "float":
            exported, manifest = _converted(exported, as_asked(exported.profile, precision, dynamic_quantization), folder)
        (folder / manifest_path.name).write_text(json.dumps(manifest.to_json(), indent=2) + "\n", encoding="utf-8")
        suggested = [] if profile is None else suggestion(profile, exported.result.dimensions)
        learnt = exported.result.dimensions
        updating = planned_update(profile_path, learnt) if update and profile_path is not None else None
        written = (*exported.files, folder / manifest_path.name)
        put_in_place({file: target.with_name(file.name) for file in written}, folder)
    if updating is not None:
        updating.write()
    return WrittenExport(target, manifest_path, manifest, tuple(suggested), () if updating is None else updating.edits)


def _converted(exported: ExportedModel, profile: BuildProfile | None, folder: Path) -> tuple[ExportedModel, ExportRecord]:
    """The exported model, rewritten and in the precision of ``profile``, in place of what was exported."""
    from trtnorm_cli.lowering.lower import lowered_alone
    from trtnorm_cli.onnx_model.save import save_model
    from trtnorm_cli.precision.session import typed_session
    from trtnorm_cli.rewrite.prepare import OpenedModel, prepare

    prepared = prepare(OpenedModel(exported.path, profile, exported.path, None))
    settings, record = prepared.precision, None
    with stage("rewrite"):
        made = (typed_session(prepared) if settings else prepared).rewrite()
    made.require_all_checks_passed()
    if settings is not None:
        with stage("precision"):
            made, record = lowered_alone(prepared, made, settings, exported.seed)
    work = folder / "rewritten"
    work.mkdir()
    files = save_model(made.model, work / exported.path.name, made.folder)
    for file in exported.files:
        file.unlink()
    moved = tuple(file.replace(folder / file.name) for file in files)
    work.rmdir()
    exported = replace(exported, files=moved)
    return exported, replace(exported.record(), precision=record)
