"""The child that runs models with ONNX Runtime: ``python -m trtnorm_cli.evaluate.ort_worker FOLDER DESCRIPTORS … [options]``.

One JSON request a line on standard input, one JSON reply a line on the first descriptor; tensors lie in memory
that both processes map. When standard input ends, so does the child, even in the middle of a run, and it removes
``FOLDER``: nothing is left behind when the parent is killed.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import queue
import resource
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime as ort

from trtnorm_cli.evaluate.shared_tensors import SharedTensors

# TensorProto.DataType of the types that ONNX Runtime's Python binding cannot turn into NumPy arrays.
ELEMENT_TYPES = {
    "bfloat16": 16,
    "float8_e4m3fn": 17,
    "float8_e4m3fnuz": 18,
    "float8_e5m2": 19,
    "float8_e5m2fnuz": 20,
    "uint4": 21,
    "int4": 22,
}
TYPE_NAMES = {number: name for name, number in ELEMENT_TYPES.items()}
PACKED = ("uint4", "int4")
# A reference and its candidates; each session holds its weights.
MOST_HELD = 4
# ONNX Runtime writes results where earlier ones were, which saves up to a third of a run's memory. To find places takes the
# square of their number when a session is opened: of models with more nodes, each result has its own until its last use.
MOST_REUSING = 1000


def to_ort_value(array: np.ndarray) -> ort.OrtValue:
    """A tensor of ONNX Runtime; 4-bit integers are packed two to a byte, the low half first."""
    name = array.dtype.name
    if name not in ELEMENT_TYPES:
        return ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array).reshape(array.shape))
    data = array.view(f"u{array.itemsize}")
    if name in PACKED:
        data = _pack(data)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(data, ELEMENT_TYPES[name])


def _pack(data: np.ndarray) -> np.ndarray:
    """Packed bytes at the front of an array of the unpacked shape, from which ONNX Runtime takes the shape."""
    nibbles = np.append(data.ravel() & 0xF, np.zeros(data.size % 2, np.uint8))
    packed = np.zeros(data.size, np.uint8)
    packed[: nibbles.size // 2] = nibbles[::2] | nibbles[1::2] << 4
    return packed.reshape(data.shape)


def to_numpy(value: ort.OrtValue, name: str) -> np.ndarray:
    if not value.is_tensor():
        raise TypeError(f"output '{name}' is a {value.data_type()}; only tensors can be compared")
    dtype = TYPE_NAMES.get(value.element_type())
    if dtype is None:
        return value.numpy()
    shape = tuple(value.shape())
    size = int(np.prod(shape, dtype=np.int64))
    target = np.dtype(getattr(ml_dtypes, dtype))
    length = (size + 1) // 2 if dtype in PACKED else size * target.itemsize
    data = np.frombuffer(ctypes.string_at(value.data_ptr(), length) if length else b"", np.uint8)
    if dtype in PACKED:
        nibbles = np.stack([data & 0xF, data >> 4], axis=1).ravel()[:size]
        signed = (nibbles.astype(np.int8) ^ 8) - 8 if dtype == "int4" else nibbles
        return signed.astype(target).reshape(shape)
    return data.copy().view(target).reshape(shape)


def open_session(
    model: str, external_folder: str | None, threads: int | None, source: bytes | None = None, nodes: int = 0
) -> ort.InferenceSession:
    """The session of a file, or of what was read from it; with ``external_folder`` its weights are there.

    ``nodes`` is how many it has, where that is known.
    """
    options = session_options(threads, nodes)
    opened: str | bytes = model
    if external_folder:  # it counts only for a model that is not read from a path; older versions take the working folder
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", external_folder)
        opened = Path(model).read_bytes() if source is None else source
        os.chdir(external_folder)
    return ort.InferenceSession(opened, options, providers=["CPUExecutionProvider"])


def session_options(threads: int | None, nodes: int = 0) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    # A session runs a few times at most. Packed copies of its weights take longer to make than they save.
    options.add_session_config_entry("session.disable_prepacking", "1")
    options.enable_mem_reuse = nodes <= MOST_REUSING
    options.log_severity_level = 4  # the exception carries the words; the log would only repeat them
    options.inter_op_num_threads = 1
    if threads:
        options.intra_op_num_threads = threads
        # Others have work for the cores on which a thread would wait for the next operator by spinning.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def _state_of(file: str) -> tuple[int, ...]:
    """Numbers that tell the file from another that gets its name; none where it is not there, as opening it will say."""
    try:
        found = Path(file).stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def infer(session: ort.InferenceSession, feeds: dict[str, np.ndarray], outputs: list[str]) -> list[np.ndarray]:
    if any(array.dtype == object for array in feeds.values()):  # an OrtValue cannot be made from strings
        return [np.asarray(value) for value in session.run(outputs, feeds)]
    values = session.run_with_ort_values(outputs, {name: to_ort_value(array) for name, array in feeds.items()})
    return [to_numpy(value, name) for name, value in zip(outputs, values, strict=True)]


class Worker:
    """Holds the one session of a model, and those that are kept because the same model comes again and again.

    ``feeds`` are the parent's tensors, ``results`` those for the parent.
    """

    def __init__(self, feeds: SharedTensors, results: SharedTensors, threads: int | None) -> None:
        self.feeds, self.results, self.threads = feeds, results, threads
        self.session: ort.InferenceSession | None = None
        self.kept: dict[str, ort.InferenceSession] = {}
        self.held: dict[tuple[object, ...], ort.InferenceSession] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            if request.get("fresh"):
                self.results.clear()
            return getattr(self, f"do_{request['do']}")(request)
        except MemoryError as error:
            return {"error": f"out of memory: {error}" if str(error) else "out of memory"}
        except Exception as error:
            return {"error": str(error) or type(error).__name__}

    def do_load(self, request: dict[str, Any]) -> dict[str, Any]:
        self.session = None
        self.session = open_session(request["model"], request["external_folder"], self.threads)
        return {}

    def do_run(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.session is not None
        return {"outputs": self._run(self.session, request["feeds"], request["outputs"])}

    def do_renew(self, request: dict[str, Any]) -> dict[str, Any]:
        """Forget every model, for another runner."""
        self.session, self.kept, self.held, self.threads = None, {}, {}, request["threads"]
        return {}

    def do_unload(self, request: dict[str, Any]) -> dict[str, Any]:
        self.session = None
        return {}

    def do_run_kept(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run a model several times: ``constants`` are fed each time. One that comes again is named by its key alone."""
        for key in request["dropped"]:
            self.kept.pop(key, None)
        session = self.kept.get(request["key"])
        if opened := session is None:
            # So little is computed that a second thread would wait longer than it works.
            model = self.feeds.get(request["model"]).tobytes()
            session = ort.InferenceSession(model, session_options(threads=1), providers=["CPUExecutionProvider"])
            if request["keep"]:
                self.kept[request["key"]] = session
        self.feeds.reuse_copies()
        constants = self._tensors(request["constants"])
        outputs = [self._results(session, {**constants, **self._tensors(feeds)}, None) for feeds in request["feeds"]]
        return {"outputs": outputs, "opened": opened, "keeps": request["keep"]}

    def do_run_file(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run the model in a file once; with ``hold`` its session is there for the next time.

        Another ``source`` with weights beside that file is run instead.
        """
        start, began, model = time.perf_counter(), time.process_time(), request["model"]
        if "source" in request:
            source = self.feeds.get(request["source"]).tobytes()
            session = open_session(model, str(Path(model).parent), self.threads, source, request["nodes"])
            return self._ran(session, request, start, began, opened=True)
        key = (model, *_state_of(model))
        session = self.held.get(key)
        if opened := session is None:
            session = open_session(model, None, self.threads, nodes=request["nodes"])
            if request["hold"]:
                self.held[key] = session
        while len(self.held) > MOST_HELD:
            del self.held[next(iter(self.held))]
        return self._ran(session, request, start, began, opened)

    def _ran(
        self, session: ort.InferenceSession, request: dict[str, Any], start: float, began: float, opened: bool
    ) -> dict[str, Any]:
        ready = time.process_time()
        outputs = [self._run(session, request["feeds"], None)]
        end = time.process_time()
        times = {"seconds": time.perf_counter() - start, "processor_s": end - began, "computing_s": end - ready}
        return {"outputs": outputs, "opened": opened, "keeps": False, **times}

    def _run(self, session: ort.InferenceSession, feeds: dict[str, Any], outputs: list[str] | None) -> list[Any]:
        return self._results(session, self._tensors(feeds), outputs)

    def _tensors(self, records: dict[str, Any]) -> dict[str, np.ndarray]:
        return {name: self.feeds.get(record) for name, record in records.items()}

    def _results(self, session: ort.InferenceSession, feeds: dict[str, np.ndarray], outputs: list[str] | None) -> list[Any]:
        names = outputs or [output.name for output in session.get_outputs()]
        return list(zip(names, map(self.results.put, infer(session, feeds, names)), strict=True))


def follow_input(requests: queue.Queue[str], folder: Path) -> None:
    for line in sys.stdin:
        requests.put(line)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)  # the main thread may be inside native code for minutes


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("reply_fd", type=int)
    parser.add_argument("feeds_fd", type=int)
    parser.add_argument("results_fd", type=int)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--memory-bytes", type=int)
    arguments = parser.parse_args()
    if arguments.memory_bytes:
        resource.setrlimit(resource.RLIMIT_DATA, (arguments.memory_bytes, arguments.memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    requests: queue.Queue[str] = queue.Queue()
    threading.Thread(target=follow_input, args=(requests, arguments.folder), daemon=True).start()
    worker = Worker(SharedTensors(arguments.feeds_fd), SharedTensors(arguments.results_fd), arguments.threads)
    with os.fdopen(arguments.reply_fd, "w") as replies:
        replies.write(json.dumps({"version": ort.__version__}) + "\n")
        replies.flush()
        while True:
            replies.write(json.dumps(worker.answer(json.loads(requests.get()))) + "\n")
            replies.flush()


if __name__ == "__main__":
    main()
