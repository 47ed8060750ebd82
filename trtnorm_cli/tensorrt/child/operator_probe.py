"""The child process that asks TensorRT's parser whether it has an operator.

    python -m trtnorm_cli.tensorrt.child.operator_probe FOLDER

Its answer: true or false by the operator's name.
"""

from __future__ import annotations

import base64
from typing import Any

from trtnorm_cli.child_process import answer_request
from trtnorm_cli.tensorrt.backend import Backend, load_backend
from trtnorm_cli.tensorrt.parser_errors import parser_errors


def has_operator(backend: Backend, logger: Any, name: str, model: bytes) -> bool:
    """False when the parser says of ``model`` that it does not have the operator ``name``. Other complaints do not count."""
    trt: Any = backend.trt
    network = trt.Builder(logger).create_network(backend.network_flags())
    parser = trt.OnnxParser(network, logger)
    if parser.parse(model):
        return True
    said = [error.text for error in parser_errors(parser) if error.operator == name]
    return not any(text == "false" or "Plugin not found" in text for text in said)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    backend = load_backend(request["backend"])
    trt: Any = backend.trt
    logger = trt.Logger(trt.Logger.INTERNAL_ERROR)
    models = {name: base64.b64decode(text) for name, text in request["models"].items()}
    return {name: has_operator(backend, logger, name, model) for name, model in models.items()}


if __name__ == "__main__":
    answer_request(answer)
