"""Run an engine on a GPU through polygraphy, in a process of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from trtnorm_cli.child_process import REQUEST_FILE, Limits, module_command, run_child
from trtnorm_cli.evaluate.ort_runner import RunFailed
from trtnorm_cli.evaluate.tensor_files import TensorFile, read_tensor, write_tensor
from trtnorm_cli.files import save_in_one_step
from trtnorm_cli.scratch import Scratch
from trtnorm_cli.tensorrt.engine_file import backend_of

WORKER = module_command("trtnorm_cli.tensorrt.child.engine_worker")
_SHOWN = 3


class EngineUnavailable(Exception):
    """The engine cannot run on this machine, whatever is in it, because there is no GPU that is supported."""


def run_engine(engine: Path, feeds: dict[str, np.ndarray], timeout_s: float) -> dict[str, np.ndarray]:
    """Outputs of the engine for one set of inputs.

    Raises ``EngineUnavailable`` without a usable GPU or backend, and ``RunFailed`` when the engine fails or dies.
    """
    with Scratch("trtnorm-engine-") as folder:
        records = {key: write_tensor(folder / f"feed{i}", array).to_json() for i, (key, array) in enumerate(feeds.items())}
        backend = backend_of(engine)
        request = {"engine": str(engine.absolute()), "backend": backend, "folder": str(folder), "feeds": records}
        save_in_one_step(request, folder / REQUEST_FILE)
        outputs = _outputs(folder, backend, timeout_s)
        return {key: read_tensor(folder, record) for key, record in outputs.items()}


def _outputs(folder: Path, backend: str, timeout_s: float) -> dict[str, TensorFile]:
    environment = {"POLYGRAPHY_USE_TENSORRT_RTX": "1"} if backend == "tensorrt-rtx" else {}
    ended = run_child([*WORKER, str(folder)], folder, limits=Limits(timeout_s), environment=environment)
    if ended.excess is not None:
        raise RunFailed(f"the engine did not finish within {timeout_s:g} s", timed_out=True)
    if ended.result is None:
        words = f"the process that runs the engine {ended.how}: {' '.join(ended.last_lines[-_SHOWN:])}"
        raise RunFailed(words, signal=-ended.code if ended.code < 0 else None)
    if "unavailable" in ended.result:
        raise EngineUnavailable(ended.result["unavailable"])
    if "error" in ended.result:
        raise RunFailed(ended.result["error"])
    return {name: TensorFile(**record) for name, record in ended.result["outputs"].items()}
