"""Register the plugins that an engine was built with, before it is loaded. Not run on TensorRT 10 or 11, which have some."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trtnorm_cli.files import sha256_of
from trtnorm_cli.tensorrt.manifest import manifest_of
from trtnorm_cli.tensorrt.plugins import load_library


def register_plugins(trt: Any, engine: Path) -> list[str]:
    """Register TensorRT's own plugins and those of the libraries in the engine's manifest.

    Returns what could not be registered, in words.

    A library is looked for where the build profile said, from the engine's folder and from here, and is loaded only when its
    bytes are those that the engine was built with.
    """
    trt.init_libnvinfer_plugins(None, "")
    problems = []
    for entry, said in _libraries(engine):
        found = next(_with_bytes(entry["sha256"], [engine.parent / said, engine.parent / entry["file"], Path(said)]), None)
        if found is None:
            problems.append(f"the plugin library {said} that the engine was built with is not there: put it beside the engine")
        elif reason := load_library(trt.get_plugin_registry(), str(found.absolute())):
            problems.append(reason)
    return problems


def _libraries(engine: Path) -> list[tuple[dict[str, str], str]]:
    """File and digest of each library, and its path in the build profile."""
    try:
        manifest = json.loads(manifest_of(engine).read_text(encoding="utf-8"))
        entries, paths = manifest["plugins"], (manifest["profile"] or {}).get("plugins", [])
    except (OSError, ValueError, KeyError, TypeError):
        return []  # an engine of somebody else
    return list(zip(entries, paths, strict=False))


def _with_bytes(sha256: str, paths: list[Path]) -> Iterator[Path]:
    return (path for path in paths if path.is_file() and sha256_of([path]) == sha256)
