"""A model as commands take it, which is an ONNX file, or a PyTorch model that is exported to one first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from trtnorm_cli.export.options import ExportOptions
from trtnorm_cli.rewrite.prepare import OpenedModel
from trtnorm_cli.target import Target

if TYPE_CHECKING:
    from trtnorm_cli.profile.model import BuildProfile


@contextmanager
def opened_model(
    model: Target,
    profile_path: Path | None,
    options: ExportOptions,
    precision: str | None = None,
    dynamic_quantization: str | None = None,
) -> Iterator[OpenedModel]:
    """The ONNX file that ``model`` names. One that was exported is gone at the end, unless TensorRT failed on it.

    ``precision`` and ``dynamic_quantization`` take the place of what the profile says under these names.

    Raises as ``export_model`` does.
    """
    profile = profile_of(profile_path, precision, dynamic_quantization)
    if not model.is_pytorch:
        yield OpenedModel(model.path, profile, model.path, options.weights)
        return
    from trtnorm_cli.export.export_model import export_model, work_folder

    with work_folder("trtnorm-exported-") as folder:
        exported = export_model(model, profile, options, folder)
        source = None if model.kind == "module" else model.path
        yield OpenedModel(exported.path, exported.profile, source, None, exported.record())


def profile_of(path: Path | None, precision: str | None, dynamic_quantization: str | None) -> BuildProfile | None:
    """The build profile at ``path``, with what was asked for beside it; None where there is neither."""
    return as_asked(None if path is None else _profile(path), precision, dynamic_quantization)


def as_asked(profile: BuildProfile | None, precision: str | None, dynamic_quantization: str | None) -> BuildProfile | None:
    """``profile`` with what was asked for beside it. What is None stays as the profile says."""
    if precision is not None:
        profile = in_precision(profile, precision)
    if dynamic_quantization is not None:
        from trtnorm_cli.profile.model import BuildProfile

        profile = profile or BuildProfile()
        profile = profile.model_copy(update={"dynamic_quantization": dynamic_quantization}).located(profile.positions)
    return profile


def in_precision(profile: BuildProfile | None, precision: str) -> BuildProfile:
    """``profile``, or an empty one, that asks for this type."""
    from trtnorm_cli.profile.model import BuildProfile, PrecisionSettings

    profile = profile or BuildProfile()
    given = {} if precision == "as-written" else profile.precision.model_dump()
    wanted = PrecisionSettings.model_validate({**given, "type": precision})
    return profile.model_copy(update={"precision": wanted}).located(profile.positions)


def _profile(path: Path) -> BuildProfile:
    from trtnorm_cli.profile.load import load_profile  # imports pydantic, which takes long

    return load_profile(path)
