"""The child that runs one engine: ``python -m trtnorm_cli.tensorrt.child.engine_worker FOLDER``.

Reads ``request.json`` and tensor files in FOLDER, writes the outputs beside them and ``result.json`` last.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trtnorm_cli.child_process import answer_request
from trtnorm_cli.errors import TrtnormError
from trtnorm_cli.evaluate.tensor_files import TensorFile, read_tensor, write_tensor
from trtnorm_cli.tensorrt.backend import load_backend
from trtnorm_cli.tensorrt.child.inspector import load_engine


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The outcome, as ``outputs`` with tensor records, ``unavailable`` with a reason, or ``error``."""
    folder = Path(request["folder"])
    try:
        trt = load_backend(request["backend"]).trt
    except TrtnormError as error:
        return {"unavailable": error.summary}
    engine, reason = load_engine(trt, Path(request["engine"]))
    if engine is None:
        return {"unavailable": reason}
    feeds = {name: read_tensor(folder, TensorFile(**record)) for name, record in request["feeds"].items()}
    from polygraphy.backend.trt import TrtRunner
    from polygraphy.exception import PolygraphyException

    try:
        with TrtRunner(engine) as runner:
            outputs = {name: value.copy() for name, value in runner.infer(feeds).items()}
    except PolygraphyException as error:
        return {"error": str(error)}
    records = {name: write_tensor(folder / f"out{i}", array).to_json() for i, (name, array) in enumerate(outputs.items())}
    return {"outputs": records}


if __name__ == "__main__":
    answer_request(answer)
