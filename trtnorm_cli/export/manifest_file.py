"""Read the manifest that an export leaves beside its ONNX file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from trtnorm_cli.errors import ModelError
from trtnorm_cli.node_names import EVERY_NODE, NodePatterns
from trtnorm_cli.records.export import ExportRecord

# A key that manifests of exports have and those of engines have not.
_OWN_KEY = "exporter"


def read_export_manifest(path: Path, wanted: NodePatterns = EVERY_NODE) -> ExportRecord | None:
    """The record in ``path`` with the normalization modules that fit ``wanted``, or None where the file is something else.

    Raises ``ModelError`` when it is the manifest of an export that this trtnorm cannot read, and ``UsageProblem`` for a pattern
    that no module fits.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(values, dict) or _OWN_KEY not in values:
        return None
    try:
        found = ExportRecord.load(values)
    except ValueError as error:
        raise ModelError("the manifest of this export cannot be read", str(path), "export the model again") from error
    wanted.require((row.path for row in found.normalizations), str(path))
    return replace(found, normalizations=tuple(row for row in found.normalizations if wanted.fits(row.path)))
