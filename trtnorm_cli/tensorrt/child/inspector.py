"""The child process that loads an engine and asks TensorRT's inspector about it. Needs a GPU.

    python -m trtnorm_cli.tensorrt.child.inspector FOLDER

Its answer: ``{"available": true, "engine": …}`` or ``{"available": false, "reason": …}``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trtnorm_cli.child_process import answer_request
from trtnorm_cli.errors import TrtnormError
from trtnorm_cli.tensorrt.backend import load_backend
from trtnorm_cli.tensorrt.child.engine_plugins import register_plugins
from trtnorm_cli.tensorrt.logger import in_one_line, make_logger

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
    logger = make_logger(trt)
    of_plugins = register_plugins(trt, engine)
    runtime = trt.Runtime(logger)
    loaded = runtime.deserialize_cuda_engine(engine.read_bytes()) if runtime is not None else None
    if loaded is not None:
        return loaded, ""
    messages = [*of_plugins, *in_one_line(logger.errors)]
    if any("error 35" in message.lower() or "cudaerror 35" in message.lower() for message in messages):
        return None, NO_GPU
    return None, f"TensorRT cannot load the engine: {'; '.join(messages) or 'no reason given'}"


if __name__ == "__main__":
    answer_request(lambda request: ask(Path(request["engine"]), request["backend"]))
