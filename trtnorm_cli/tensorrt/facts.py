"""The facts about the chosen backend, asked in a process of its own: ``python -m trtnorm_cli.tensorrt.facts FOLDER``.

The process that the user runs imports no TensorRT, because native code may take it down.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from trtnorm_cli.child_process import answer_request, ask_child, module_command
from trtnorm_cli.errors import TrtnormError, UsageProblem
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.tensorrt.backend import Backend, load_backend
from trtnorm_cli.tensorrt.gpu import device_names

WORKER = module_command("trtnorm_cli.tensorrt.facts")
_TIMEOUT_S = 60
_LONGEST = 500


@dataclass(frozen=True)
class BackendFacts:
    """Name and version of a backend, its capabilities by name, the compute capabilities that it compiles for, and the GPUs
    of this machine.
    """

    name: str
    version: str
    capabilities: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()


def facts_of(backend: Backend) -> BackendFacts:
    """The facts of a loaded backend."""
    return BackendFacts(backend.name, backend.version, tuple(sorted(backend.capabilities)), backend.targets, device_names())


def ask_facts(name: str | None) -> BackendFacts:
    """The facts of the backend that a build with ``name`` would take.

    Raises ``UsageProblem`` when it cannot be imported, or its process ends without an answer.
    """
    ended = ask_child(WORKER, {"backend": name}, _TIMEOUT_S)
    if ended.excess is not None:
        raise UsageProblem(f"TensorRT gave no answer within {_TIMEOUT_S} s", hint="see `trtnorm doctor`")
    answer = ended.result
    if answer is None:
        summary = f"the process that imports TensorRT {ended.how} and without an answer"
        raise UsageProblem(summary, "\n".join(ended.last_lines)[-_LONGEST:] or None, "see `trtnorm doctor`")
    if "summary" in answer:
        raise UsageProblem(**answer)
    lists = (tuple(answer[key]) for key in ("capabilities", "targets", "devices"))
    return BackendFacts(answer["name"], answer["version"], *lists)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        return asdict(facts_of(load_backend(request["backend"])))
    except TrtnormError as error:
        return {"summary": error.summary, "where": error.where, "hint": error.hint}


if __name__ == "__main__":
    answer_request(_answer)
