"""``trtnorm export`` as one function that exports, then puts the files in place."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.export.export_model import export_model
from trtnorm_cli.export.options import ExportOptions
from trtnorm_cli.export.profile_update import Edit, suggestion, update_file
from trtnorm_cli.files import require_free, scratch_beside
from trtnorm_cli.onnx_model.save import data_file_of
from trtnorm_cli.profile.load import load_profile
from trtnorm_cli.records.export import ExportRecord
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
    spec: Target, output: Path | None, profile_path: Path | None, options: ExportOptions, update: bool
) -> WrittenExport:
    """Export the model ``spec`` to ``output`` with its manifest beside it. Nothing is written unless everything succeeded."""
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
        (folder / manifest_path.name).write_text(json.dumps(manifest.to_json(), indent=2) + "\n", encoding="utf-8")
        suggested = [] if profile is None else suggestion(profile, exported.result.dimensions)
        updated = update_file(profile_path, exported.result.dimensions) if update and profile_path is not None else []
        for file in (*exported.files, folder / manifest_path.name):
            file.replace(target.with_name(file.name))
    return WrittenExport(target, manifest_path, manifest, tuple(suggested), tuple(updated))
