"""Recognise an engine on disk, read its manifest, and ask TensorRT's inspector where a GPU allows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from trtnorm_cli.child_process import ask_child, module_command
from trtnorm_cli.errors import ModelError
from trtnorm_cli.files import sha256_of
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.node_names import NodePatterns
from trtnorm_cli.record import KEY, LEFT_OUT_BY_DEFAULT, NOT_IN_JSON, Record
from trtnorm_cli.records.engine_parts import Kernel
from trtnorm_cli.target import MANIFEST_SUFFIX, _first_bytes
from trtnorm_cli.tensorrt.manifest import Manifest, manifest_of

INSPECTOR = module_command("trtnorm_cli.tensorrt.child.inspector")
_INSPECTOR_TIMEOUT_S = 300.0
_ALONE = "the engine is not beside its manifest"


@dataclass(frozen=True)
class Inspection(Record):
    """The words of TensorRT's inspector on an ``engine``, in its own JSON, or the ``reason`` why it says nothing."""

    available: bool
    engine: dict[str, Any] | None = field(default=None, metadata=LEFT_OUT_BY_DEFAULT)
    reason: str | None = field(default=None, metadata=LEFT_OUT_BY_DEFAULT)


@dataclass(frozen=True)
class EngineDescription(Record):
    """The description of the engine in ``path``.

    ``matches_manifest`` is False where its bytes are not those that the manifest describes, and None where there is the
    manifest alone.
    """

    path: Path = field(metadata=NOT_IN_JSON)
    manifest: Manifest
    matches_manifest: bool | None = field(metadata={KEY: "engine_matches_manifest"})
    inspector: Inspection


def fitting(found: EngineDescription, wanted: NodePatterns) -> EngineDescription:
    """``found`` with the normalizations, changes, layers and kernels of the nodes that fit.

    Raises ``UsageProblem`` for a pattern that none fits.
    """
    if not wanted:
        return found
    manifest = found.manifest
    norms, network = manifest.normalizations, manifest.network
    changes = tuple(one for one in manifest.changes if wanted.fits(one.node, *one.removed, *one.added))
    kernels = tuple(one for one in network.kernels if isinstance(one, Kernel) and wanted.fits(one.name, *one.onnx_nodes))
    names = {kernel.name for kernel in kernels}
    cost = manifest.cost
    wanted.require(_node_names(manifest), str(found.path))
    filtered = replace(
        manifest,
        normalizations=replace(
            norms,
            outcomes=tuple(one for one in norms.outcomes if wanted.fits(one.node)),
            composite=tuple(one for one in norms.composite if wanted.fits(one.node, one.output)),
        ),
        changes=changes,
        network=replace(network, kernels=kernels, layers=tuple(one for one in network.layers if wanted.fits(one.name))),
        cost=None if cost is None else replace(cost, kernels=tuple(one for one in cost.kernels if one.name in names)),
    )
    return replace(found, manifest=filtered)


def _node_names(manifest: Manifest) -> Iterator[str]:
    """The names by which nodes can be asked for."""
    yield from (name for change in manifest.changes for name in (change.node, *change.removed, *change.added))
    yield from (one.node for one in manifest.normalizations.outcomes)
    yield from (name for one in manifest.normalizations.composite for name in (one.node, one.output))
    yield from (layer.name for layer in manifest.network.layers)
    yield from (name for one in manifest.network.kernels if isinstance(one, Kernel) for name in (*one.onnx_nodes, one.name))


def inspect_engine(path: Path) -> EngineDescription:
    """The manifest of an engine, whether its bytes are still those it describes, and the inspector's view if possible.

    ``path`` is the engine or its manifest, which is enough. Raises ``ModelError`` when what it names is missing, when the
    engine has no manifest, or when that cannot be read.
    """
    is_manifest = path.suffix == MANIFEST_SUFFIX
    if not path.is_file():
        beside = manifest_of(path)
        hint = f"its manifest is there: trtnorm inspect {beside}" if not is_manifest and beside.is_file() else "check the path"
        raise ModelError(f"there is no such {'manifest' if is_manifest else 'engine'}", str(path), hint)
    manifest_path, manifest = manifest_beside(path)
    engine = manifest_path.with_suffix("")
    if not engine.is_file():
        return EngineDescription(engine, manifest, None, Inspection(False, reason=_ALONE))
    matches = sha256_of([engine]) == manifest.engine.sha256
    return EngineDescription(engine, manifest, matches, _inspector(engine, manifest.versions.backend))


def manifest_beside(engine: Path) -> tuple[Path, Manifest]:
    """The manifest of ``engine``, with its path; ``engine`` may name the manifest itself. Raises ``ModelError``."""
    path = engine if engine.suffix == ".json" else manifest_of(engine)
    if path.is_file():
        return path, Manifest.load(path)
    if not engine.exists():
        raise ModelError("there is no such engine", str(engine), "check the path")
    if engine.suffix == ".onnx":
        hint = f"trtnorm build {engine} makes one of it; trtnorm inspect {engine} shows what is in the model"
        raise ModelError("this is an ONNX model, and no engine", str(engine), hint)
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
