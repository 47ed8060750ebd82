"""ONNX Runtime in a child process of its own, with a time limit and a memory limit.

ONNX Runtime is native code: a model can abort it, hang it or take all memory, and the program that asked must survive
and say what happened. Graph optimisation is off (``ORT_DISABLE_ALL``), because with it ONNX Runtime changes results.
One child serves many models, one after the other; after a crash or a time-out the next run starts a new one.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from trtnorm_cli.child_process import Child, Limits, how_it_ended, last_lines, module_command
from trtnorm_cli.evaluate.model_file import model_file
from trtnorm_cli.evaluate.tensor_files import read_tensor, write_tensor

WORKER = module_command("trtnorm_cli.evaluate.ort_worker")
STARTUP_LIMIT_S = 120.0
# How long a child may take to leave by itself.
_LEAVING_S = 5.0
_SHOWN = 3


class RunFailed(Exception):
    """ONNX Runtime refused the model or died on it.

    ``reason`` holds ONNX Runtime's own words without status codes and source paths, ``signal`` the signal that ended
    the child, ``timed_out`` whether the time limit did.
    """

    def __init__(self, reason: str, signal: int | None = None, timed_out: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.signal = signal
        self.timed_out = timed_out


class OrtRunner:
    """Runs ONNX models with ONNX Runtime on the CPU in one child process; a context manager, for one thread at a time.

    ``timeout_s`` bounds the loading of a model and each single run. ``memory_bytes`` bounds the child's private
    writable memory (``RLIMIT_DATA``, Linux: heap, weights copied from the file, thread stacks, about 130 MB of
    interpreter and libraries' own; ``RLIMIT_AS`` would also count address space that is only reserved). ``threads`` is
    the number of threads within an operator, by default all cores.
    """

    def __init__(self, timeout_s: float = 300.0, memory_bytes: int | None = None, threads: int | None = None) -> None:
        self.timeout_s, self.memory_bytes, self.threads = timeout_s, memory_bytes, threads
        self._folder = tempfile.TemporaryDirectory(prefix="trtnorm-ort-", ignore_cleanup_errors=True)
        self._child: _Child | None = None
        self._closed = False

    def __enter__(self) -> OrtRunner:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child and remove its files; may be called twice."""
        self._closed = True
        if self._child is not None:
            self._child.stop()
            self._child = None
        self._folder.cleanup()

    def start(self) -> None:
        """Start the child now, so that the first run takes no longer than the others."""
        self._started()

    def run(
        self,
        model: Path | onnx.ModelProto,
        feeds: Mapping[str, np.ndarray],
        outputs: Sequence[str] | None = None,
        limit_s: float | None = None,
    ) -> dict[str, np.ndarray]:
        """Outputs of ``model`` for one set of inputs; see :meth:`run_many`."""
        return self.run_many(model, [feeds], outputs, limit_s)[0]

    def run_many(
        self,
        model: Path | onnx.ModelProto,
        feeds_list: Iterable[Mapping[str, np.ndarray]],
        outputs: Sequence[str] | None = None,
        limit_s: float | None = None,
    ) -> list[dict[str, np.ndarray]]:
        """Outputs of ``model`` for each set of inputs, from one session.

        ``outputs`` names graph outputs, or inner tensors of the top-level graph; by default all graph outputs. All
        tensor types are exchanged as they are: bfloat16, float8 and int4 as ``ml_dtypes``, strings as object arrays.
        ``limit_s`` bounds each run where it is shorter than the runner's own limit.
        Raises :class:`RunFailed` when ONNX Runtime refuses the model or the inputs, has no CPU kernel for an operator
        and type, crashes, or takes longer than the time limit; also for an output that is a sequence or an optional.
        """
        if self._closed:
            raise RuntimeError("this OrtRunner is closed")
        try:
            child = self._started()
            file, external_folder = self._file_of(model, outputs)
            child.ask({"do": "load", "model": str(file), "external_folder": external_folder}, self.timeout_s)
            limit = self.timeout_s if limit_s is None else min(limit_s, self.timeout_s)
            results = [self._run_one(child, feeds, outputs, limit) for feeds in feeds_list]
            child.ask({"do": "unload"}, self.timeout_s)
            return results
        except BaseException as error:
            self._recover(error)
            raise
        finally:
            self._remove_files()

    def _file_of(self, model: Path | onnx.ModelProto, outputs: Sequence[str] | None) -> tuple[Path, str | None]:
        try:
            return model_file(model, outputs, Path(self._folder.name))
        except (OSError, DecodeError) as error:
            raise RunFailed(f"the model cannot be read: {error}") from error

    def _run_one(
        self, child: _Child, feeds: Mapping[str, np.ndarray], outputs: Sequence[str] | None, limit_s: float
    ) -> dict[str, np.ndarray]:
        folder = Path(self._folder.name)
        records = {name: write_tensor(folder / f"feed{i}", array) for i, (name, array) in enumerate(feeds.items())}
        request = {"do": "run", "feeds": records, "outputs": list(outputs) if outputs is not None else None}
        reply = child.ask(request, limit_s)
        return {name: read_tensor(folder, record) for name, record in reply["outputs"]}

    def _started(self) -> _Child:
        if self._child is None:
            self._child = _Child(Path(self._folder.name), self.threads, self.memory_bytes)
            self._child.receive(STARTUP_LIMIT_S)
        return self._child

    def _recover(self, error: BaseException) -> None:
        """End a child that died or left a request unanswered: its state is unknown."""
        if self._child is not None and not (isinstance(error, RunFailed) and self._child.answered):
            self._child.kill()
            self._child = None

    def _remove_files(self) -> None:
        for file in Path(self._folder.name).glob("*"):
            if file.name != _Child.LOG:
                file.unlink(missing_ok=True)


class _Child:
    """The worker process: requests go to its standard input, replies come from a pipe that no library prints to."""

    LOG = "stderr.log"

    def __init__(self, folder: Path, threads: int | None, memory_bytes: int | None) -> None:
        self._log = folder / self.LOG
        self.answered = False
        self._buffer = b""
        self._reply_fd, child_fd = os.pipe()
        command = [*WORKER, str(folder), str(child_fd)]
        command += [f"--threads={threads}"] if threads else []
        command += [f"--memory-bytes={memory_bytes}"] if memory_bytes else []
        environment = {"PYTHONPATH": os.pathsep.join(_import_path())}
        try:
            # The end of its input tells it that its parent is gone: it removes the folder then, so it must not be killed.
            self._process = Child(
                command, self._log, environment=environment, pass_fds=[child_fd], stdin=subprocess.PIPE, cwd=folder,
                dies_with_parent=False,
            )  # fmt: skip
        except BaseException:
            os.close(self._reply_fd)
            raise
        finally:
            os.close(child_fd)
        assert self._process.stdin is not None
        self._requests = self._process.stdin

    def ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        """The reply to one request; :class:`RunFailed` for an error, the child's death or the end of the time."""
        self.answered = False
        try:
            self._requests.write(json.dumps(request).encode() + b"\n")
            self._requests.flush()
        except BrokenPipeError:
            raise self._death() from None
        reply = self.receive(limit_s)
        if "error" in reply:
            raise RunFailed(cleaned(reply["error"]))
        return reply

    def receive(self, limit_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._reply_fd, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise RunFailed(f"ONNX Runtime was stopped after {limit_s:g} s", timed_out=True)
                chunk = os.read(self._reply_fd, 1 << 16)
                if not chunk:
                    raise self._death()
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        self.answered = True
        return json.loads(line)

    def _death(self) -> RunFailed:
        self._process.wait(Limits(_LEAVING_S))
        code = self._process.end()
        lines = (f"| {line.strip()}" for line in last_lines(self._log)[-_SHOWN:])
        message = " ".join([f"ONNX Runtime's process {how_it_ended(code)}", *lines])
        return RunFailed(message, signal=-code if code < 0 else None)

    def stop(self) -> None:
        """End an idle child: the end of its input is its signal to leave."""
        try:
            with contextlib.suppress(OSError):
                self._requests.close()
            self._process.wait(Limits(_LEAVING_S))
        finally:
            self.kill()

    def kill(self) -> None:
        self._process.end()
        if self._reply_fd >= 0:
            os.close(self._reply_fd)
            self._reply_fd = -1


def cleaned(message: str) -> str:
    """ONNX Runtime's message without its status prefix, source path, C++ signature and line breaks."""
    message = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", message.strip())
    message = re.sub(r"/\S*onnxruntime_src/\S+:\d+ (?:[^()]*\([^()]*\)(?: const)?(?: \[with [^\]]*\])? )?", "", message)
    return " ".join(message.split())


def _import_path() -> list[str]:
    """The parent's import path, absolute: the child starts in a folder without modules that could shadow others."""
    return [str(Path(entry or ".").absolute()) for entry in sys.path]
