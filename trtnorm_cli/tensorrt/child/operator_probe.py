"""Ask TensorRT's parser whether it has an operator, in a process of its own.

python -m trtnorm_cli.tensorrt.child.operator_probe [BACKEND]
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trtnorm_cli.child_process import child_environment, die_with_parent
from trtnorm_cli.tensorrt.backend import Backend, load_backend

if TYPE_CHECKING:
    import onnx

_TIMEOUT_S = 30


def ask_operators(probes: Mapping[str, onnx.ModelProto], backend: str | None) -> dict[str, bool]:
    """Whether the parser of ``backend`` has each operator; ``probes`` are small models by the operator in them.

    Where the parser's process gives no answer the operators count as known: the build itself will tell.
    """
    if not probes:
        return {}
    models = {name: base64.b64encode(model.SerializeToString()).decode("ascii") for name, model in probes.items()}
    command = [sys.executable, "-m", "trtnorm_cli.tensorrt.child.operator_probe", *([backend] if backend else [])]
    try:
        done = subprocess.run(
            command, input=json.dumps(models), capture_output=True, text=True, timeout=_TIMEOUT_S, check=False,
            env=child_environment(),
        )  # fmt: skip
        answer: dict[str, bool] = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, json.JSONDecodeError):
        return dict.fromkeys(probes, True)
    return answer


def has_operator(backend: Backend, logger: Any, name: str, model: bytes) -> bool:
    """False when the parser says of ``model`` that it does not have the operator ``name``; other complaints do not count."""
    trt: Any = backend.trt
    network = trt.Builder(logger).create_network(backend.network_flags())
    parser = trt.OnnxParser(network, logger)
    if parser.parse(model):
        return True
    errors = [parser.get_error(index) for index in range(parser.num_errors)]
    return not any(e.node_operator() == name and (e.desc() == "false" or "Plugin not found" in e.desc()) for e in errors)


def main() -> None:
    die_with_parent()
    backend = load_backend(sys.argv[1] if len(sys.argv) > 1 else None)
    trt: Any = backend.trt
    logger = trt.Logger(trt.Logger.INTERNAL_ERROR)
    probes = json.load(sys.stdin)
    found = {name: has_operator(backend, logger, name, base64.b64decode(model)) for name, model in probes.items()}
    print(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
