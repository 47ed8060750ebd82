"""Ask TensorRT's parser which operators it has, in a process of its own."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING

from trtnorm_cli.child_process import ask_child, module_command

if TYPE_CHECKING:
    import onnx

PROBE = module_command("trtnorm_cli.tensorrt.child.operator_probe")
_TIMEOUT_S = 30


def ask_operators(probes: Mapping[str, onnx.ModelProto], backend: str | None) -> dict[str, bool]:
    """True for each operator that the parser of ``backend`` has. ``probes`` are small models by the operator in them.

    Where the parser's process gives no answer the operators count as known, and the build itself will tell.
    """
    if not probes:
        return {}
    models = {name: base64.b64encode(model.SerializeToString()).decode("ascii") for name, model in probes.items()}
    ended = ask_child(PROBE, {"backend": backend, "models": models}, _TIMEOUT_S)
    return dict.fromkeys(probes, True) if ended.result is None else ended.result
