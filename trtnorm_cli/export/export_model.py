"""From the name of a PyTorch model to an ONNX file that was compared with it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from trtnorm_cli import __version__
from trtnorm_cli.compare.record import comparison_record, verdict_lines
from trtnorm_cli.compare.result import FAILED, Comparison
from trtnorm_cli.errors import BuilderFailure, OutOfTolerance
from trtnorm_cli.export.launch import launch
from trtnorm_cli.export.opset import default_opset
from trtnorm_cli.export.options import ExportOptions
from trtnorm_cli.export.profile_update import learnt_profile
from trtnorm_cli.export.request import MODEL_FILE, ExportRequest, ExportResult, ProfileText
from trtnorm_cli.export.verify import verified
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.clean import Cleaning, clean
from trtnorm_cli.onnx_model.load import load_model
from trtnorm_cli.onnx_model.save import save_model
from trtnorm_cli.profile.model import BuildProfile
from trtnorm_cli.progress import stage
from trtnorm_cli.records.digests import FileDigest
from trtnorm_cli.records.export import FORMAT, ExportRecord, ExportVersions
from trtnorm_cli.scratch import IN_TEMPORARY, Scratch, explained, remove_dead
from trtnorm_cli.target import Target, require_torch


@dataclass(frozen=True)
class ExportedModel:
    """An ONNX file in a work folder. ``profile`` is the build profile narrowed to the sizes that the model takes."""

    spec: Target
    path: Path
    files: tuple[Path, ...]
    result: ExportResult
    cleaning: Cleaning
    profile: BuildProfile | None
    comparison: Comparison | None
    seed: int

    def record(self) -> ExportRecord:
        """The record of how the file came about, as JSON values."""
        result = self.result
        return ExportRecord(
            format=FORMAT,
            versions=ExportVersions(__version__, result.torch),
            spec=self.spec.path.name + (f":{self.spec.attribute}" if self.spec.attribute else ""),
            weights=result.weights,
            model=FileDigest.of(self.path, self.files),
            exporter=result.exporter,
            because=result.because,
            opset=result.opset,
            inputs=result.inputs,
            outputs=result.outputs,
            dimensions=result.dimensions,
            cleaning=dict(sorted(self.cleaning.counts.items())),
            comparison=None if self.comparison is None else comparison_record(self.comparison, self.seed),
            skipped=result.skipped,
            accidents=result.accidents,
            normalizations=result.normalizations,
            notes=(*result.notes, *self.cleaning.notes),
            exporter_warnings=result.warnings,
            seconds=result.seconds,
        )


def export_model(
    spec: Target, profile: BuildProfile | None, options: ExportOptions, folder: Path, name: str | None = None
) -> ExportedModel:
    """Export the model that ``spec`` names into ``folder``, clean what was written, and compare it with the module.

    Raises ``UsageProblem``, ``ProfileError`` or ``ModelError`` when it cannot be exported as asked, and ``OutOfTolerance`` when
    the ONNX model does not compute what the module computes.
    """
    require_torch()
    text = None if profile is None else ProfileText.of(profile)
    request = ExportRequest(spec, options, default_opset(options.backend), text)
    with work_folder("trtnorm-export-") as work, stage("export"):
        result = launch(request, work)
        path = folder / (name or f"{spec.stem}.onnx")
        with stage("clean"):
            cleaning, files = _cleaned(work / MODEL_FILE, path)
        learnt = None if profile is None else learnt_profile(profile, result.dimensions)
        comparison = None
        if options.verify and result.trials:
            comparison = verified(spec.text, path, profile, work, result.trials)
    exported = ExportedModel(spec, path, tuple(files), result, cleaning, learnt, comparison, options.seed)
    _require_equal(exported)
    return exported


def _cleaned(raw: Path, path: Path) -> tuple[Cleaning, list[Path]]:
    """Put right what exporters write and TensorRT refuses. Large weights are copied tensor by tensor."""
    loaded = load_model(raw)
    cleaning = clean(loaded.proto, loaded.folder)
    files = save_model(cleaning.model, path, loaded.folder)
    return replace(cleaning, model=type(cleaning.model)(), shelves=()), files


def _require_equal(exported: ExportedModel) -> None:
    comparison = exported.comparison
    if comparison is None or comparison.state != FAILED:
        return
    lines = ["the comparison says:", *verdict_lines(comparison)]
    lines.append(f"exported with {exported.result.exporter}, {exported.result.because}")
    raise OutOfTolerance(
        "the exported model does not compute what the module computes, so nothing was written",
        where="\n".join([*lines, *exported.result.notes]),
        hint="try the other exporter with --exporter; --no-verify writes the file all the same",
    )


@contextmanager
def work_folder(prefix: str) -> Iterator[Path]:
    """A private folder. It stays when TensorRT refused the model or died, because the message tells how to repeat the build."""
    remove_dead(Path(tempfile.gettempdir()), IN_TEMPORARY)
    scratch = Scratch(prefix)
    try:
        with explained(scratch.path, "set TMPDIR to a folder with room"):
            yield scratch.path
    except BuilderFailure:
        scratch.keep()
        raise
    finally:
        scratch.remove()
