"""The child process that parses a model with TensorRT and writes its network as ONNX.

    python -m trtnorm_cli.tensorrt.network.worker REQUEST.json

REQUEST.json holds ``{"model": path, "output": path, "backend": name or null}``. ``result.json`` is written beside it, last:
``{"ok": true, "layers": {type: count}, …}`` or ``{"ok": false, "kind": …, "errors": […]}``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from trtnorm_cli.child_process import RESULT_FILE, die_with_parent, run_with_large_stack
from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.files import save_in_one_step
from trtnorm_cli.tensorrt.backend import load_backend
from trtnorm_cli.tensorrt.network.answers import made_by, refused, untranslatable, unusable
from trtnorm_cli.tensorrt.network.parsing import ParserRefused, parse_and_translate
from trtnorm_cli.tensorrt.network.problems import UntranslatableLayer


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Do what ``request`` asks. Every foreseen failure is part of the answer."""
    try:
        backend = load_backend(request["backend"])
    except UsageProblem as problem:
        return unusable(problem.summary, problem.where, problem.hint)
    try:
        paths = Path(request["model"]), Path(request["output"])
        answered = {"ok": True, **parse_and_translate(*paths, backend.trt, backend.network_flags())}
    except ParserRefused as refusal:
        answered = refused(refusal.messages)
    except UntranslatableLayer as refusal:
        answered = untranslatable(refusal)
    return {**answered, **made_by(backend)}


def main(request_path: Path) -> int:
    """Answer the request in ``request_path`` and write the result beside it in one step."""
    result = answer(json.loads(request_path.read_text(encoding="utf-8")))
    save_in_one_step(result, request_path.with_name(RESULT_FILE))
    return 0


if __name__ == "__main__":
    die_with_parent()
    sys.exit(run_with_large_stack(lambda: main(Path(sys.argv[1]))))
