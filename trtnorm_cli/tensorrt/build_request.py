"""The request for the build process, from what the user gave."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from trtnorm_cli.onnx_model.plugin_nodes import for_builder
from trtnorm_cli.onnx_model.save import MAPPED_FROM, save_model
from trtnorm_cli.rewrite.prepare import Prepared
from trtnorm_cli.rewrite.rewriting import Rewriting
from trtnorm_cli.tensorrt.plugin_request import with_plugins
from trtnorm_cli.tensorrt.preflight import builder_settings
from trtnorm_cli.tensorrt.request import BuildRequest, ShapeTriple

FIXED_NAME = "fixed.onnx"
# What TensorRT reads where that is another file: plugin nodes without the functions that stand for them.
STRIPPED_NAME = "for-tensorrt.onnx"


def request_for(prepared: Prepared, backend: str | None, engine: Path) -> BuildRequest:
    """The request to build ``engine`` from some rewriting of a model."""
    profiles, settings = shapes_and_settings(prepared)
    return BuildRequest(FIXED_NAME, str(engine.absolute()), backend, profiles, settings, prepared.plugin_libraries)


def with_model(request: BuildRequest, rewriting: Rewriting, folder: Path) -> BuildRequest:
    """``request`` for ``rewriting``, which ``folder`` holds as ``fixed.onnx``."""
    model, name = for_builder(rewriting.model), FIXED_NAME
    if model is not rewriting.model:
        name = STRIPPED_NAME
        save_model(model, folder / name, rewriting.folder, MAPPED_FROM)
    return with_plugins(replace(request, model=name), rewriting.model, request.plugins)


def shapes_and_settings(prepared: Prepared) -> tuple[tuple[dict[str, ShapeTriple], ...], dict[str, Any]]:
    """Min, opt and max of each dynamic input in each optimization profile, and the builder's settings.

    Of inputs whose elements decide sizes, it is the elements.
    """
    dynamic = prepared.fitted.dynamic_inputs
    has_values = any(profile.values for profile in prepared.fitted.profiles)
    profiles: list[dict[str, ShapeTriple]] = []
    for profile in prepared.fitted.profiles if dynamic or has_values else ():
        shapes = {**{name: profile.shapes[name] for name in dynamic}, **profile.values}
        profiles.append({name: (s.min, s.opt, s.max) for name, s in shapes.items()})
    settings = builder_settings(prepared.profile)
    if "timing_cache" in settings:  # relative to the file that names it
        folder = Path() if prepared.profile_path is None else prepared.profile_path.parent
        settings["timing_cache"] = str(folder.absolute() / settings["timing_cache"])
    return tuple(profiles), settings
