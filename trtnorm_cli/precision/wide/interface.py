"""Inputs and outputs of type double, which no release of TensorRT has."""

from __future__ import annotations

import onnx

from trtnorm_cli.precision.wide.double import model_inputs
from trtnorm_cli.profile.model import BuildProfile
from trtnorm_cli.profile.problems import Problem, refusal


def require_float_interface(model: onnx.ModelProto, profile: BuildProfile | None) -> None:
    """Raise ``ProfileError`` where the profile keeps inputs and outputs double, and ``model`` has some."""
    if profile is None or profile.io_double == "float":
        return
    named = [
        f"{side} {value.name}"
        for side, values in (("input", model_inputs(model)), ("output", model.graph.output))
        for value in values
        if value.type.tensor_type.elem_type == onnx.TensorProto.DOUBLE
    ]
    if not named:
        return
    what = f"io_double: keep cannot be had: {', '.join(named)} would be float32 in the engine, as TensorRT has no double"
    hint = "io_double: float takes and gives float32 there; the build says how far the results are off"
    raise refusal([Problem(("io_double",), what, hint)], profile.positions)
