"""Recognise an engine on disk, read its manifest, and ask TensorRT's inspector where a GPU allows it."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import Any

from trtnorm_cli.child_process import ask_child, module_command
from trtnorm_cli.errors import ModelError
from trtnorm_cli.files import sha256_of
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.record import LEFT_OUT_BY_DEFAULT, Record
from trtnorm_cli.target import _first_bytes
from trtnorm_cli.tensorrt.manifest import Manifest, manifest_of

INSPECTOR = module_command("trtnorm_cli.tensorrt.child.inspector")
_INSPECTOR_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Inspection(Record):
    """The words of TensorRT's inspector on an ``engine``, in its own JSON, or the ``reason`` why it says nothing."""

    available: bool
    engine: dict[str, Any] | None = field(default=None, metadata=LEFT_OUT_BY_DEFAULT)
    reason: str | None = field(default=None, metadata=LEFT_OUT_BY_DEFAULT)


@dataclass(frozen=True)
class EngineDescription:
    """The description of an engine. ``matches_manifest`` is False where its bytes are not those that the manifest describes."""

    manifest: Manifest
    matches_manifest: bool
    inspector: Inspection

    def to_json(self) -> dict[str, Any]:
        return {
            "manifest": self.manifest.to_json(),
            "engine_matches_manifest": self.matches_manifest,
            "inspector": self.inspector.to_json(),
        }


def inspect_engine(engine: Path) -> EngineDescription:
    """The manifest of ``engine``, whether its bytes are still those it describes, and the inspector's view if possible.

    Raises ``ModelError`` when the engine or its manifest is missing or cannot be read.
    """
    if not engine.is_file():
        raise ModelError("there is no such engine", str(engine), "check the path")
    _, manifest = manifest_beside(engine)
    matches = sha256_of([engine]) == manifest.engine.sha256
    return EngineDescription(manifest, matches, _inspector(engine, manifest.versions.backend))


def manifest_beside(engine: Path) -> tuple[Path, Manifest]:
    """The manifest of ``engine``, with its path; ``engine`` may name the manifest itself. Raises ``ModelError``."""
    path = engine if engine.suffix == ".json" else manifest_of(engine)
    if path.is_file():
        return path, Manifest.load(path)
    if not engine.exists():
        raise ModelError("there is no such engine", str(engine), "check the path")
    raise ModelError(
        "the engine has no manifest, and without a GPU an engine cannot be opened",
        str(engine),
        f"keep {path.name} beside the engine; `trtnorm build` writes both",
    )


def backend_of(engine: Path) -> str:
    """The backend that built ``engine``, by its manifest or else by its first bytes."""
    manifest = manifest_of(engine)
    if manifest.is_file():
        return Manifest.load(manifest).versions.backend
    return "tensorrt-rtx" if _first_bytes(engine)[:1] == b"v" else "tensorrt"


def _inspector(engine: Path, backend: str) -> Inspection:
    """The words of TensorRT's engine inspector, from a process of its own, or the reason when there are none."""
    ended = ask_child(INSPECTOR, {"engine": str(engine.absolute()), "backend": backend}, _INSPECTOR_TIMEOUT_S)
    if ended.result is None:
        return Inspection(False, reason="the process that loads the engine ended without an answer")
    return Inspection.load(ended.result)
