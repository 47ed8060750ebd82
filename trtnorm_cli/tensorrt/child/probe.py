"""The child process that finds out whether a backend imports and builds.

python -m trtnorm_cli.tensorrt.child.probe FOLDER
"""

from __future__ import annotations

from typing import Any

from trtnorm_cli.child_process import answer_request
from trtnorm_cli.errors import TrtnormError
from trtnorm_cli.tensorrt.backend import Backend, installed, load_backend, spec_named
from trtnorm_cli.tensorrt.logger import in_one_line, make_logger


def probe(name: str) -> dict[str, Any]:
    """The findings about the backend ``name``, with its version and whether it builds an engine with one layer, or why not."""
    if spec_named(name) not in installed():
        return {"installed": False, "can_build": False, "reason": "not installed"}
    try:
        backend = load_backend(name)
    except TrtnormError as error:
        return {"installed": True, "can_build": False, "reason": error.where or error.summary}
    reason = _build_one_layer(backend)
    return {
        "installed": True,
        "version": backend.version,
        "can_build": not reason,
        "strongly_typed_only": not backend.can("weak typing"),
        "targets": list(backend.targets),
        "capabilities": sorted(backend.capabilities),
        **({"reason": reason} if reason else {}),
    }


def _build_one_layer(backend: Backend) -> str:
    """Empty when a network of one ReLU was built, else TensorRT's words."""
    trt: Any = backend.trt
    logger = make_logger(trt)
    try:
        builder = trt.Builder(logger)
        network = builder.create_network(backend.network_flags())
        data = network.add_input("x", trt.float32, (1, 4))
        network.mark_output(network.add_activation(data, trt.ActivationType.RELU).get_output(0))
        plan = builder.build_serialized_network(network, builder.create_builder_config())
    except (RuntimeError, TypeError) as error:  # without a driver, TensorRT's builder cannot even be made
        return "; ".join([*in_one_line(logger.errors), " ".join(str(error).split())])
    return "" if plan is not None else "; ".join(in_one_line(logger.errors)) or "no reason given"


if __name__ == "__main__":
    answer_request(lambda request: probe(request["backend"]))
