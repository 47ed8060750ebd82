"""Ask for the TensorRT network of a model: TensorRT is native code and may abort, so it runs in a child process."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtnorm_cli.errors import BuilderDied, ModelError, TrtnormError, UsageProblem
from trtnorm_cli.tensorrt.limits import LimitExceeded, Limits, Watch, wait_within
from trtnorm_cli.tensorrt.network.problems import UntranslatableNetwork
from trtnorm_cli.tensorrt.request import LOG_FILE, REQUEST_FILE, RESULT_FILE, BuildResult, TensorRTMessage

WORKER = (sys.executable, "-m", "trtnorm_cli.tensorrt.network.worker")
_SHOWN = 5


@dataclass(frozen=True)
class NetworkTranslation:
    """The network that TensorRT's parser made of ``model``, written as ONNX to ``network``.

    ``layers`` counts TensorRT's layer types; ``warnings`` are the parser's; ``notes`` name the places where TensorRT's
    documentation leaves a choice that the translation had to make.
    """

    model: Path
    network: Path
    backend: str
    version: str
    layers: dict[str, int]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    seconds: float


def network_of(
    model: Path,
    out: Path,
    backend: str | None = None,
    timeout_s: float = 300,
    worker: tuple[str, ...] = WORKER,
    memory_bytes: int | None = None,
) -> NetworkTranslation:
    """Parse ``model`` with TensorRT and write its network to ``out``.

    ``backend`` is ``tensorrt``, ``tensorrt-rtx`` or None for the first that is installed. Raises ``TensorRTRefusal`` with
    the parser's words, ``UntranslatableNetwork`` (a ``TensorRTRefusal``) naming the layers, ``BuilderDied`` when the child
    crashed, took longer than ``timeout_s`` seconds or more than ``memory_bytes`` of memory, ``ModelError`` when ``model`` is no
    file, ``UsageProblem`` without a backend.
    """
    if not model.is_file():
        raise ModelError("there is no such model file", where=str(model))
    folder = Path(tempfile.mkdtemp(prefix="trtnorm-network-"))
    request = folder / REQUEST_FILE
    wishes = {"model": str(model.absolute()), "output": str(out.absolute()), "backend": backend}
    request.write_text(json.dumps(wishes, indent=1) + "\n", encoding="utf-8")
    try:
        result = _run(request, Limits(timeout_s, memory_bytes), worker)
    except KeyboardInterrupt:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if not result["ok"]:
        raise _problem(result, model, folder)
    shutil.rmtree(folder)
    return NetworkTranslation(
        model=model,
        network=out,
        backend=result["backend"],
        version=result["version"],
        layers=result["layers"],
        warnings=tuple(result["warnings"]),
        notes=tuple(result["notes"]),
        seconds=result["seconds"],
    )


def _run(request: Path, limits: Limits, worker: tuple[str, ...]) -> dict[str, Any]:
    log = request.with_name(LOG_FILE)
    with log.open("wb") as output:
        child = subprocess.Popen(
            [*worker, str(request)], stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=_environment()
        )
    try:
        code = wait_within(child, Watch(limits, child.pid, "TensorRT's parser"))
    except LimitExceeded as exceeded:
        raise BuilderDied(str(exceeded), _evidence(log), f"{exceeded.allow}\n{_repeat(worker, request)}") from None
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
    result = request.with_name(RESULT_FILE)
    if code != 0 or not result.exists():
        raise BuilderDied(_death(code), _evidence(log), _repeat(worker, request))
    loaded: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return loaded


def _environment() -> dict[str, str]:
    """The child must import the same trtnorm as the parent, wherever the parent was started."""
    paths = [str(Path(__file__).resolve().parents[3]), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _death(code: int) -> str:
    if code >= 0:
        return f"the process that runs TensorRT's parser ended with exit code {code} and without a result"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"the process that runs TensorRT's parser was ended by {name}"


def _evidence(log: Path) -> str:
    tail = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-_SHOWN:]
    return "\n".join([f"log: {log}", *(f"  {line}" for line in tail)])


def _repeat(worker: tuple[str, ...], request: Path) -> str:
    return f"repeat it by hand: {' '.join([Path(worker[0]).name, *worker[1:], str(request)])}"


def _problem(result: dict[str, Any], model: Path, folder: Path) -> TrtnormError:
    if result["kind"] == "usage":
        shutil.rmtree(folder)
        return UsageProblem(**result["errors"][0])
    if result["kind"] == "untranslatable":
        shutil.rmtree(folder)
        return _untranslatable(result["errors"], model)
    return _refusal(result, model, folder)


def _untranslatable(errors: list[dict[str, str]], model: Path) -> UntranslatableNetwork:
    lines = [f"layer {e['layer']} ({e['type']}): {e['reason']}" for e in errors[:_SHOWN]]
    if len(errors) > _SHOWN:
        lines.append(f"and {len(errors) - _SHOWN} more layers")
    return UntranslatableNetwork(
        "TensorRT parsed the model, but its network cannot be written as ONNX",
        where="\n".join([str(model), *lines]),
        hint="the engine may still be right: compare the engine itself on a machine with a GPU",
    )


def _refusal(result: dict[str, Any], model: Path, folder: Path) -> TrtnormError:
    import onnx
    from google.protobuf.message import DecodeError

    from trtnorm_cli.tensorrt.explain import refusal

    errors = tuple(TensorRTMessage(**error) for error in result["errors"])
    failed = BuildResult(ok=False, stage="parse", backend=result["backend"], version=result["version"], errors=errors)
    try:
        proto = onnx.load(str(model), load_external_data=False)
    except DecodeError:
        proto = onnx.ModelProto()  # no protobuf, so there is no node to name
    return refusal(failed, proto, folder)
