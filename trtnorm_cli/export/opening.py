"""A model as commands take it: an ONNX file, or a PyTorch model that is exported to one first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtnorm_cli.export.options import ExportOptions
from trtnorm_cli.export.spec import is_model_spec, parse_model_spec
from trtnorm_cli.profile.load import load_profile
from trtnorm_cli.profile.model import BuildProfile

EventHandler = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class OpenedModel:
    """An ONNX file and the build profile that fits it. ``manifest`` says how it was exported, None where it was not.

    ``source`` is the file that the user named, ``None`` for a Python module; ``weights`` those that are still to be used.
    """

    path: Path
    profile: BuildProfile | None
    source: Path | None
    weights: Path | None
    manifest: dict[str, Any] | None = None


@contextmanager
def opened_model(
    text: str, profile_path: Path | None, options: ExportOptions, on_event: EventHandler | None = None
) -> Iterator[OpenedModel]:
    """The ONNX file that ``text`` names. One that was exported is gone at the end, unless TensorRT failed on it.

    Raises as ``export_model`` does.
    """
    profile = None if profile_path is None else load_profile(profile_path)
    if not is_model_spec(text):
        yield OpenedModel(Path(text), profile, Path(text), options.weights)
        return
    from trtnorm_cli.export.export_model import export_model, work_folder

    spec = parse_model_spec(text)
    if on_event is not None:
        on_event({"event": "stage", "stage": "export"})
    with work_folder("trtnorm-exported-") as folder:
        exported = export_model(text, profile, options, folder)
        source = None if spec.kind == "module" else Path(spec.target)
        yield OpenedModel(exported.path, exported.profile, source, None, exported.manifest())


def stem_of(text: str) -> str:
    """What files made from the model are called."""
    return parse_model_spec(text).stem if is_model_spec(text) else Path(text).stem
