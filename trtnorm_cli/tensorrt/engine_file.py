"""Engines on disk: recognise one, read its manifest, and ask TensorRT's inspector where a GPU allows it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from trtnorm_cli.errors import ModelError
from trtnorm_cli.files import sha256_of
from trtnorm_cli.target import _first_bytes

# The format of the manifest; it changes when a reader of the old one would misread the new one.
FORMAT = 1
_KEYS = frozenset(
    {
        "versions",
        "source",
        "engine",
        "optimization_profiles",
        "cleaning",
        "normalizations",
        "changes",
        "network",
        "warnings",
        "optimize",
        "seconds",
    }
)
_INSPECTOR_TIMEOUT_S = 300


def manifest_of(engine: Path) -> Path:
    return engine.with_name(engine.name + ".json")


def inspect_engine(engine: Path) -> dict[str, Any]:
    """The manifest of ``engine``, whether its bytes are still those it describes, and the inspector's view if possible.

    Raises ``ModelError`` when the engine or its manifest is missing or cannot be read.
    """
    if not engine.is_file():
        raise ModelError("there is no such engine", str(engine), "check the path")
    path = manifest_of(engine)
    if not path.is_file():
        raise ModelError(
            "the engine has no manifest, and without a GPU an engine cannot be opened",
            str(engine),
            f"keep {path.name} beside the engine; `trtnorm build` writes both",
        )
    manifest = read_manifest(path)
    digest = sha256_of([engine])
    return {
        "manifest": manifest,
        "engine_matches_manifest": digest == manifest["engine"]["sha256"],
        "inspector": _inspector(engine, manifest["versions"]["backend"]),
    }


def backend_of(engine: Path) -> str:
    """The backend that built ``engine``: what its manifest says, or else what its first bytes are."""
    manifest = manifest_of(engine)
    if manifest.is_file():
        return str(read_manifest(manifest)["versions"]["backend"])
    return "tensorrt-rtx" if _first_bytes(engine)[:1] == b"v" else "tensorrt"


def read_manifest(path: Path) -> dict[str, Any]:
    """The content of a manifest; raises ``ModelError`` for anything else."""
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelError("the manifest is not JSON", str(path), "build the engine again") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ModelError(
            f"this is no manifest of format {FORMAT}, the one that this trtnorm writes", str(path), "build the engine again"
        )
    if missing := _KEYS - manifest.keys():
        raise ModelError(f"the manifest lacks {', '.join(sorted(missing))}", str(path), "build the engine again")
    return manifest


def _inspector(engine: Path, backend: str) -> dict[str, Any]:
    """What TensorRT's engine inspector says, from a process of its own; the reason when it says nothing."""
    command = [sys.executable, "-m", "trtnorm_cli.tensorrt.child.inspector", str(engine), backend]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSPECTOR_TIMEOUT_S, check=False)
        answer: dict[str, Any] = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, json.JSONDecodeError):
        return {"available": False, "reason": "the process that loads the engine ended without an answer"}
    return answer
