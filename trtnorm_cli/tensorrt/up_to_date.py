"""Recognise an engine that a build would only make again.

A manifest says what its engine was made from. That is the bytes of the model with its external data and of further weights,
what the build profile means, and the programs. Where all of that is the same, and the engine's bytes are still those that the
manifest describes, building again would change nothing that counts. TensorRT for RTX gives some inner tensors other numbers in
each build, and TensorRT 10 and 11 choose kernels by timing them; ``--check-reproducible`` makes the former equal to the byte.
Whatever cannot be read or differs is built.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterable
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import trtnorm_cli
from trtnorm_cli.errors import ModelError
from trtnorm_cli.files import sha256_of
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.record import json_of
from trtnorm_cli.rewrite.prepare import Prepared
from trtnorm_cli.tensorrt.facts import BackendFacts, ask_facts
from trtnorm_cli.tensorrt.manifest import BackendUsed, MadeFrom, Manifest, manifest_of

NO_COMPARISON, ANY_COMPARISON, COMPLETE_COMPARISON = "none", "any", "complete"
_PACKAGES = ("onnx", "onnxruntime", "numpy", "onnxscript", "onnx-ir", "onnx-graphsurgeon")


def origins(prepared: Prepared, programs: Programs | None = None) -> MadeFrom:
    """All that an engine depends on besides the backend. ``programs`` are given where they are known."""
    profile, checkpoint, programs = prepared.profile, prepared.checkpoint, programs or Programs.here()
    meaning = [None if profile is None else profile.model_dump(mode="json"), json_of(prepared.fitted.records())]
    return MadeFrom(
        file=prepared.loaded.path.name,
        model=prepared.sha256,
        weights=None if checkpoint is None else sha256_of(checkpoint.files),
        data=_digest_of_data(prepared),
        plugins=tuple(sha256_of([Path(library)]) for library in prepared.plugin_libraries),
        profile=hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest(),
        trtnorm=programs.trtnorm,
        packages=programs.packages,
    )


@dataclass(frozen=True)
class Programs:
    """The digest of this package's source, and the versions of Python and of the packages that an engine depends on."""

    trtnorm: str
    packages: dict[str, str]

    @staticmethod
    def here() -> Programs:
        return Programs(own_code(), package_versions())


def _digest_of_data(prepared: Prepared) -> str | None:
    """The digest of the calibration inputs that the build profile names; None where it names none."""
    files = prepared.calibration_files
    return sha256_of(files) if files else None


def made_from(prepared: Prepared, backend: BackendFacts, programs: Programs | None = None) -> MadeFrom:
    """``origins`` with the backend."""
    return replace(origins(prepared, programs), backend=BackendUsed(backend.name, backend.version, tuple(backend.devices)))


def earlier_manifest(prepared: Prepared, engine: Path, backend: str | None, wanted: str, seed: int) -> Manifest | None:
    """The manifest of ``engine`` when a build would make the same engine again, or None when it must be built.

    ``wanted`` is the comparison that the build would make. An engine that was not compared, or with random inputs of another
    ``seed``, is no answer to a build that compares, and one that could not be compared none where that is required.
    """
    try:
        if not engine.is_file() or not manifest_of(engine).is_file():
            return None
        manifest = Manifest.load(manifest_of(engine))
        compared, known = manifest.comparison, manifest.made_from
        if known is None or (wanted != NO_COMPARISON and (compared is None or compared.seed != seed)):
            return None
        if wanted == COMPLETE_COMPARISON and compared is not None and compared.not_compared:
            return None
        if manifest.precision is not None and manifest.precision.seed != seed:
            return None
        if replace(known, backend=None) != origins(prepared) or sha256_of([engine]) != manifest.engine.sha256:
            return None
        same = made_from(prepared, ask_facts(backend)) == known
    except (ModelError, OSError, KeyError, TypeError, AttributeError):
        return None
    return manifest if same else None


def package_versions() -> dict[str, str]:
    """The versions of Python and of the packages that an engine depends on."""
    return {"python": platform.python_version(), **_versions(_PACKAGES)}


def own_code() -> str:
    """The digest of this package's source, since a checkout changes without a new version."""
    root = Path(trtnorm_cli.__file__).parent
    return f"{trtnorm_cli.__version__} {sha256_of(sorted(root.rglob('*.py')))[:16]}"


def _versions(names: Iterable[str]) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
