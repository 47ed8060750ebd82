"""What the chosen backend is and has, asked in a process of its own: ``python -m trtnorm_cli.tensorrt.facts [BACKEND]``.

The process that the user runs imports no TensorRT: native code may take it down.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass

from trtnorm_cli.child_process import child_environment, die_with_parent
from trtnorm_cli.errors import TrtnormError, UsageProblem
from trtnorm_cli.tensorrt.backend import Backend, load_backend
from trtnorm_cli.tensorrt.gpu import device_names

_TIMEOUT_S = 60


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
    command = [sys.executable, "-m", "trtnorm_cli.tensorrt.facts", *([name] if name else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, env=child_environment())
        answer = json.loads(done.stdout)
    except subprocess.TimeoutExpired as error:
        raise UsageProblem(f"TensorRT gave no answer within {_TIMEOUT_S} s", hint="see `trtnorm doctor`") from error
    except json.JSONDecodeError as error:
        summary = f"the process that imports TensorRT ended with exit code {done.returncode} and without an answer"
        raise UsageProblem(summary, done.stderr.strip()[-500:] or None, "see `trtnorm doctor`") from error
    if "summary" in answer:
        raise UsageProblem(**answer)
    lists = (tuple(answer[key]) for key in ("capabilities", "targets", "devices"))
    return BackendFacts(answer["name"], answer["version"], *lists)


def _answer(name: str | None) -> dict[str, object]:
    try:
        return asdict(facts_of(load_backend(name)))
    except TrtnormError as error:
        return {"summary": error.summary, "where": error.where, "hint": error.hint}


def main() -> None:
    die_with_parent()
    print(json.dumps(_answer(sys.argv[1] if len(sys.argv) > 1 else None)))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
