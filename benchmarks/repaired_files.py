"""Write docs/repaired_files.md: what the ONNX checker, ONNX Runtime, TensorRT and trtnorm make of each broken file.

python -m benchmarks.repaired_files
"""

from __future__ import annotations

import multiprocessing
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from benchmarks.repaired_file_list import FILES, BrokenFile
from trtnorm_cli.errors import ModelError
from trtnorm_cli.onnx_model.load import load_model

PAGE = Path(__file__).parents[1] / "docs" / "repaired_files.md"
SHAPE = (2, 4, 6, 6)
_LONGEST = 110
_INTRODUCTION = """# Files that the ONNX checker refuses

Exporters, editors and old tools write files that `onnx.checker` refuses and runtimes take. trtnorm mends what can mean only one
thing, says so in a note, and refuses the rest with exit 3. Each row is a small model with one edit
(`benchmarks/repaired_file_list.py`), and a test. `python -m benchmarks.repaired_files` writes this page.

- *as it is*: read without a change, with a note where the checker objects. Where ONNX Runtime refuses the file, nothing can be
  proved or compared; sparse weights are refused when the model is cleaned.
- *mended*: ONNX Runtime gives the mended model the result of the sound one.
- *refused*: the file has no meaning, or two. ONNX Runtime runs two of these, taking one of two values without a word.

A BatchNormalization that leaves outputs out or names unused ones is read by its mode (`onnx_model/batchnorm_outputs.py`), and
functions that import another opset than the model are given the model's (`onnx_model/function_opsets.py`): ONNX Runtime and
TensorRT both read a function's nodes in the model's opset, whatever the function imports. Nodes that only the function's opset
has run nowhere and are converted; a node that means something else in the two is named in a note.
"""


@dataclass(frozen=True)
class Row:
    """What each of the four says of a file; ``mended`` is the file as trtnorm reads it."""

    checker: str
    runtime: str
    trtnorm: str
    mended: onnx.ModelProto | None


def row(file: BrokenFile, folder: Path) -> Row:
    """Everything but TensorRT, which can die of a file."""
    path = folder / "model.onnx"
    path.write_bytes(file.model().SerializeToString())
    trtnorm, mended = _read(path)
    return Row(_objection(path), _runs(path), trtnorm, mended)


def _read(path: Path) -> tuple[str, onnx.ModelProto | None]:
    try:
        loaded = load_model(path)
    except ModelError as error:
        return _short(f"refused: {error.summary.removeprefix('this is not a valid ONNX model: ')}"), None
    mended = [note for note in loaded.warnings if "is taken as it is" not in note]
    return _short(f"mended: {'; '.join(mended)}") if mended else "as it is", loaded.proto


def outputs_of(model: Path | onnx.ModelProto) -> list[np.ndarray]:
    """What ONNX Runtime computes, without optimization."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    content = model.read_bytes() if isinstance(model, Path) else model.SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, {"x": np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)}))


def _runs(path: Path) -> str:
    try:
        outputs_of(path)
    except Exception:  # it has a class for each status
        return "refuses"
    return "runs"


def _objection(path: Path) -> str:
    try:
        onnx.checker.check_model(str(path))
    except onnx.checker.ValidationError as error:
        return _short(" ".join(str(error).split()).split(" ==> Context")[0])
    return "passes"


def _short(text: str) -> str:
    return (text if len(text) <= _LONGEST else text[:_LONGEST] + "…").replace("|", "\\|")


def tensorrt_says(model: bytes) -> str:
    """Whether TensorRT's parser takes ``model``, asked in a process of its own."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_parse, args=(model, queue))
    process.start()
    process.join()
    return str(queue.get(timeout=5)) if process.exitcode == 0 else "dies"


def _parse(model: bytes, queue: multiprocessing.Queue[str]) -> None:
    import tensorrt_rtx as trt

    logger = trt.Logger(trt.Logger.INTERNAL_ERROR)
    network = trt.Builder(logger).create_network(0)
    parser = trt.OnnxParser(network, logger)
    queue.put("parses" if parser.parse(model) and network.num_layers and network.num_outputs else "refuses")
    queue.close()
    queue.join_thread()


def line(file: BrokenFile, found: Row, tensorrt: str) -> str:
    """A row of the table."""
    return f"| {file.name} | {found.checker} | {found.runtime} | {tensorrt} | {found.trtnorm} |"


def main() -> None:
    """Write the page."""
    text = _INTRODUCTION
    with tempfile.TemporaryDirectory() as folder:
        for section, files in FILES.items():
            text += f"\n## {section}\n\n| file | checker | ONNX Runtime | TensorRT parser | trtnorm |\n|---|---|---|---|---|\n"
            for file in files:
                content = file.model().SerializeToString()
                text += line(file, row(file, Path(folder)), tensorrt_says(content)) + "\n"
    versions = f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}"
    PAGE.write_text(f"{text}\nMeasured with {versions} and TensorRT-RTX 1.7.1.\n", encoding="utf-8")


if __name__ == "__main__":
    main()
