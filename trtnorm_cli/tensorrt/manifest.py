"""The manifest: everything that says what is in an engine and how it came about. Paths are file names only."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from trtnorm_cli import __version__
from trtnorm_cli.files import sha256_of
from trtnorm_cli.rewrite.describe import norm_counts, of_rewriting
from trtnorm_cli.rewrite.rewriting import Rewriting
from trtnorm_cli.tensorrt.engine_file import FORMAT
from trtnorm_cli.tensorrt.layer_table import launched
from trtnorm_cli.tensorrt.request import BuildResult

if TYPE_CHECKING:
    from trtnorm_cli.rewrite.prepare import Prepared


def make_manifest(
    prepared: Prepared,
    rewriting: Rewriting,
    result: BuildResult,
    fixed: Sequence[Path],
    built: Path,
    engine: Path,
) -> dict[str, Any]:
    """The manifest of an engine whose bytes are in ``built`` and whose final name is ``engine``.

    ``fixed`` are the files of the rewritten model.
    """
    profile, checkpoint = prepared.profile, prepared.checkpoint
    return {
        "format": FORMAT,
        "versions": versions(result),
        "source": {"file": prepared.loaded.path.name, "sha256": prepared.loaded.sha256},
        "export": prepared.export,
        "weights": None if checkpoint is None else {"file": checkpoint.path.name, "sha256": sha256_of(checkpoint.files)},
        "plugins": [{"file": Path(file).name, "sha256": sha256_of([Path(file)])} for file in prepared.plugin_libraries],
        "rewritten": {"sha256": sha256_of(fixed)},
        "engine": {
            "file": engine.name,
            "sha256": sha256_of([built]),
            "bytes": result.engine_bytes,
            "targets": list(result.targets),
            "newer_too": result.newer_too,
            "bindings": list(result.bindings),
        },
        "profile": None if profile is None else profile.model_dump(mode="json"),
        "optimization_profiles": prepared.fitted.to_json(),
        "cleaning": dict(sorted(rewriting.cleaning.counts.items())),
        "normalizations": {**norm_counts(rewriting.cleaned, rewriting.composites), "composite": of_rewriting(rewriting)},
        "changes": [asdict(change) for change in rewriting.changes],
        "undone": [asdict(undone) for undone in rewriting.undone],
        "refused": [asdict(rejection) for rejection in rewriting.rejections],
        "network": {
            "inputs": list(result.inputs),
            "outputs": list(result.outputs),
            "layers": list(result.layers),
            "layers_by_type": count(layer["type"] for layer in result.layers),
            "kernels": list(result.kernels),
            "kernels_by_type": count(kernel.get("type", "unread") for kernel in launched(result.kernels)),
        },
        "rewrite_warnings": list(rewriting.warnings),
        "warnings": [*prepared.loaded.warnings, *rewriting.cleaning.notes, *result.warnings],
    }


def versions(result: BuildResult) -> dict[str, str]:
    """What made the engine."""
    return {
        "trtnorm": __version__,
        "python": platform.python_version(),
        "onnx": onnx.__version__,
        "onnxruntime": metadata.version("onnxruntime"),
        "backend": result.backend,
        "tensorrt": result.version,
    }


def count(names: Iterable[str]) -> dict[str, int]:
    """How often each name occurs, most frequent first, equal counts by name."""
    return dict(sorted(Counter(names).items(), key=lambda item: (-item[1], item[0])))
