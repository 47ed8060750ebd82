"""Real builds of small models in a process of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx

from trtnorm_cli.child_process import Limits
from trtnorm_cli.onnx_model.stored import brought_in
from trtnorm_cli.records.engine_parts import launched
from trtnorm_cli.tensorrt.launch import launch
from trtnorm_cli.tensorrt.request import BuildRequest, BuildResult

Profiles = tuple[dict[str, Any], ...]


def built(
    model: onnx.ModelProto | bytes,
    folder: Path,
    profiles: Profiles = (),
    settings: dict[str, Any] | None = None,
    on_event: Any = lambda event: None,
) -> BuildResult:
    """What TensorRT for RTX makes of a model as it is, without cleaning and rewriting."""
    content = model if isinstance(model, bytes) else brought_in(model).SerializeToString()
    (folder / "fixed.onnx").write_bytes(content)
    request = BuildRequest("fixed.onnx", str(folder / "out.engine"), "tensorrt-rtx", profiles, settings or {})
    return launch(request, folder, on_event, Limits(120))


def kernels(model: onnx.ModelProto, folder: Path, profiles: Profiles = ()) -> int:
    """How many layers of the compiled engine launch something."""
    result = built(model, folder, profiles)
    assert result.ok, result.errors
    return len(launched(result.kernels))
