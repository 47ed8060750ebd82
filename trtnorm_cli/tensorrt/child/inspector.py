"""The child process that loads an engine and asks TensorRT's inspector about it. Needs a GPU.

    python -m trtnorm_cli.tensorrt.child.inspector ENGINE BACKEND

Prints one JSON object: ``{"available": true, "engine": …}`` or ``{"available": false, "reason": …}``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from trtnorm_cli.child_process import die_with_parent
from trtnorm_cli.errors import TrtnormError
from trtnorm_cli.tensorrt.backend import load_backend
from trtnorm_cli.tensorrt.child.engine_plugins import register_plugins

NO_GPU = "an engine can only be loaded on a machine with an NVIDIA GPU and its driver"


def ask(engine: Path, backend: str) -> dict[str, Any]:
    """The inspector's description of the engine."""
    try:
        trt = load_backend(backend).trt
    except TrtnormError as error:
        return {"available": False, "reason": error.summary}
    loaded, reason = load_engine(trt, engine)
    if loaded is None:
        return {"available": False, "reason": reason}
    inspector = loaded.create_engine_inspector()
    text = inspector.get_engine_information(trt.LayerInformationFormat.JSON)
    return {"available": True, "engine": json.loads(text)}


def load_engine(trt: Any, engine: Path) -> tuple[Any, str]:
    """The deserialised engine and an empty reason, or None and why it cannot be loaded."""
    messages = register_plugins(trt, engine)
    runtime = trt.Runtime(_quiet_logger(trt, messages))
    loaded = runtime.deserialize_cuda_engine(engine.read_bytes()) if runtime is not None else None
    if loaded is not None:
        return loaded, ""
    if any("error 35" in message.lower() or "cudaerror 35" in message.lower() for message in messages):
        return None, NO_GPU
    return None, f"TensorRT cannot load the engine: {'; '.join(messages) or 'no reason given'}"


def _quiet_logger(trt: Any, messages: list[str]) -> Any:
    class Logger(trt.ILogger):
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.Severity.ERROR, trt.ILogger.Severity.INTERNAL_ERROR):
                messages.append(" ".join(message.split()))

    return Logger()


def main() -> None:
    die_with_parent()
    print(json.dumps(ask(Path(sys.argv[1]), sys.argv[2])))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
