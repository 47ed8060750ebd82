"""The way to make the same engine again: the command, the build profile, the programs, and the digests of what goes in."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.profile.model import BuildProfile
from trtnorm_cli.tensorrt.manifest import Manifest

PROFILE_NAME = "profile.yaml"


@dataclass(frozen=True)
class Again:
    """The command, the profile as YAML (empty where there was none), and tables of programs and files."""

    command: str
    profile: str
    programs: tuple[tuple[str, str], ...]
    files: tuple[tuple[str, str, str], ...]

    @staticmethod
    def of(manifest: Manifest) -> Again:
        versions = manifest.versions
        packages = dict(manifest.made_from.packages) if manifest.made_from else {}
        programs = {"trtnorm": versions.trtnorm, versions.backend: versions.tensorrt, "Python": versions.python}
        packages.pop("python", None)
        programs |= {"onnx": versions.onnx, "onnxruntime": versions.onnxruntime, **packages}
        if manifest.export is not None:
            programs["torch"] = manifest.export.versions.torch
        return Again(_command(manifest), profile_text(manifest.profile), tuple(programs.items()), tuple(_files(manifest)))


def _command(manifest: Manifest) -> str:
    words = ["trtnorm", "build", manifest.source.file if manifest.export is None else manifest.export.spec]
    if manifest.profile is not None:
        words += ["--profile", PROFILE_NAME]
    if manifest.weights is not None:
        words += ["--weights", manifest.weights.file]
    elif manifest.export is not None and manifest.export.weights is not None:
        words += ["--weights", manifest.export.weights.file]
    words += ["--backend", manifest.versions.backend]
    if manifest.comparison is None:
        words += ["--no-compare"]
    elif manifest.comparison.seed:
        words += ["--seed", str(manifest.comparison.seed)]
    return shlex.join([*words, "-o", manifest.engine.file])


def profile_text(profile: Mapping[str, Any] | None) -> str:
    """The build profile as YAML, without what every profile says by default."""
    if profile is None:
        return ""
    import yaml

    said = _said(profile, BuildProfile().model_dump(mode="json"))
    return yaml.safe_dump(said, sort_keys=False, allow_unicode=True, default_flow_style=None, width=100) if said else ""


def _said(value: Any, default: Any) -> Any:
    """``value`` without keys whose value is that of ``default``, or nothing."""
    if isinstance(value, Mapping):
        known = default if isinstance(default, Mapping) else {}
        inner = {key: _said(item, known.get(key)) for key, item in value.items() if item != known.get(key, _MISSING)}
        return {key: item for key, item in inner.items() if item not in (None, {}, [])}
    return [_said(item, None) for item in value] if isinstance(value, list) else value


_MISSING = object()


def _files(manifest: Manifest) -> Iterator[tuple[str, str, str]]:
    yield "model", manifest.source.file, manifest.source.sha256
    if manifest.weights is not None:
        yield "weights", manifest.weights.file, manifest.weights.sha256
    for plugin in manifest.plugins:
        yield "plugin", plugin.file, plugin.sha256
    yield "engine", manifest.engine.file, manifest.engine.sha256
