"""The child process that parses a model with TensorRT and writes its network as ONNX.

    python -m trtnorm_cli.tensorrt.network.worker REQUEST.json

REQUEST.json holds ``{"model": path, "output": path, "backend": name or null}``. ``result.json`` is written beside it, last:
``{"ok": true, "layers": {type: count}, …}`` or ``{"ok": false, "kind": …, "errors": […]}``.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trtnorm_cli.child_process import RESULT_FILE, die_with_parent, run_with_large_stack
from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.files import save_in_one_step
from trtnorm_cli.tensorrt.backend import load_backend
from trtnorm_cli.tensorrt.network.parsing import ParserRefused, parse_and_translate
from trtnorm_cli.tensorrt.network.problems import UntranslatableLayer


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Do what ``request`` asks. Every foreseen failure is part of the answer."""
    try:
        backend = load_backend(request["backend"])
    except UsageProblem as problem:
        return _failure("usage", [{"summary": problem.summary, "where": problem.where, "hint": problem.hint}])
    made_by = {"backend": backend.name, "version": backend.version}
    try:
        paths = Path(request["model"]), Path(request["output"])
        return {"ok": True, **made_by, **parse_and_translate(*paths, backend.trt, backend.network_flags())}
    except ParserRefused as refusal:
        return {**_failure("refused", [asdict(message) for message in refusal.messages]), **made_by}
    except UntranslatableLayer as refusal:
        layers = [refusal, *refusal.others]
        errors = [{"layer": r.layer, "type": r.type, "reason": r.reason} for r in layers]
        return {**_failure("untranslatable", errors), **made_by}


def _failure(kind: str, errors: list[dict[str, Any]]) -> dict[str, Any]:
    return {"ok": False, "kind": kind, "errors": errors}


def main(request_path: Path) -> int:
    """Answer the request in ``request_path`` and write the result beside it in one step."""
    result = answer(json.loads(request_path.read_text(encoding="utf-8")))
    save_in_one_step(result, request_path.with_name(RESULT_FILE))
    return 0


if __name__ == "__main__":
    die_with_parent()
    sys.exit(run_with_large_stack(lambda: main(Path(sys.argv[1]))))
