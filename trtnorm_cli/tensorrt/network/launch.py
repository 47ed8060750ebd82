"""Ask for the TensorRT network of a model. TensorRT is native code and may abort, so it runs in a child process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trtnorm_cli.child_process import Ended, Limits, module_command, run_child
from trtnorm_cli.errors import BuilderDied, BuilderFailure, ModelError, TensorRTRefusal, TrtnormError, UsageProblem
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.progress import stage
from trtnorm_cli.scratch import Scratch
from trtnorm_cli.tensorrt.launch import ALLOW_MORE
from trtnorm_cli.tensorrt.network.problems import UntranslatableNetwork
from trtnorm_cli.tensorrt.request import LOG_FILE, NETWORK_RESULT_FILE, REQUEST_FILE, BuildResult, TensorRTMessage

WORKER = module_command("trtnorm_cli.tensorrt.network.worker")
# What the parser is allowed where nobody says otherwise.
PARSE_LIMITS = Limits(timeout_s=300.0)
_SHOWN = 5


@dataclass(frozen=True)
class NetworkTranslation:
    """The network that TensorRT's parser made of ``model``, written as ONNX to ``network``.

    ``layers`` counts TensorRT's layer types. ``warnings`` are the parser's. ``notes`` name the places where TensorRT's
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
    limits: Limits = PARSE_LIMITS,
    worker: tuple[str, ...] = WORKER,
) -> NetworkTranslation:
    """Parse ``model`` with TensorRT and write its network to ``out``.

    ``backend`` is ``tensorrt``, ``tensorrt-rtx`` or None for the first that is installed. Raises ``TensorRTRefusal`` with
    the parser's words, ``UntranslatableNetwork`` (a ``TensorRTRefusal``) naming the layers, ``BuilderDied`` when the child
    crashed or exceeded one of ``limits``, ``ModelError`` when ``model`` is no
    file, ``UsageProblem`` without a backend.
    """
    if not model.is_file():
        raise ModelError("there is no such model file", where=str(model))
    scratch = Scratch("trtnorm-network-")
    try:
        with stage("network"):
            result = _asked(model, out, backend, scratch.path, limits, worker)
    except BuilderFailure as failure:
        if failure.evidence is not None:
            scratch.keep()
        raise
    finally:
        scratch.remove()
    return _translation(result, model, out)


def _asked(
    model: Path, out: Path, backend: str | None, folder: Path, limits: Limits, worker: tuple[str, ...]
) -> dict[str, Any]:
    """The answer of a child that works in ``folder``, which is the evidence of its failure."""
    request = folder / REQUEST_FILE
    wishes = {"model": str(model.absolute()), "output": str(out.absolute()), "backend": backend}
    request.write_text(json.dumps(wishes, indent=1) + "\n", encoding="utf-8")
    try:
        result = _run(request, limits, worker)
    except BuilderDied as death:
        death.evidence = folder
        raise
    if not result["ok"]:
        problem = _problem(result, model, folder)
        if isinstance(problem, TensorRTRefusal) and not isinstance(problem, UntranslatableNetwork):
            problem.evidence = folder
        raise problem
    return result


def network_of_build(folder: Path, model: Path, out: Path) -> NetworkTranslation:
    """The network that a build process in ``folder`` wrote to ``out``, as it was asked to, when it had parsed ``model``.

    Raises ``UntranslatableNetwork`` naming the layers, or what went wrong in the translation itself.
    """
    result = json.loads((folder / NETWORK_RESULT_FILE).read_text(encoding="utf-8"))
    if result["ok"]:
        return _translation(result, model, out)
    if result["kind"] == "untranslatable":
        raise _untranslatable(result["errors"], model)
    reason = result["errors"][0]["reason"]
    raise UntranslatableNetwork(f"trtnorm failed to write TensorRT's network as ONNX, please report it: {reason}", str(model))


def _translation(result: dict[str, Any], model: Path, out: Path) -> NetworkTranslation:
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
    ended = run_child([*worker, str(request)], request.parent, limits=limits, log=LOG_FILE)
    if ended.excess is None and ended.code == 0 and ended.result is not None:
        return ended.result
    repeat = f"repeat it by hand: {' '.join([Path(worker[0]).name, *worker[1:], str(request)])}"
    hint = repeat if ended.excess is None else f"{ALLOW_MORE[ended.excess.limit]}\n{repeat}"
    raise BuilderDied(_death(ended), _evidence(ended, request.with_name(LOG_FILE)), hint)


def _death(ended: Ended) -> str:
    if ended.excess is not None:
        return f"TensorRT's parser {ended.how}"
    return f"the process that runs TensorRT's parser {ended.how}{' and without a result' if ended.code >= 0 else ''}"


def _evidence(ended: Ended, log: Path) -> str:
    return "\n".join([f"log: {log}", *(f"  {line}" for line in ended.last_lines[-_SHOWN:])])


def _problem(result: dict[str, Any], model: Path, folder: Path) -> TrtnormError:
    if result["kind"] == "usage":
        return UsageProblem(**result["errors"][0])
    if result["kind"] == "untranslatable":
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
