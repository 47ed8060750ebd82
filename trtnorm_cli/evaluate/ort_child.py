"""The process that runs ONNX Runtime, seen from its parent: what it is asked, what it answers, and how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import selectors
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from trtnorm_cli.child_process import Child, Limits, how_it_ended, last_lines, module_command
from trtnorm_cli.evaluate.shared_tensors import SharedTensors, shared_file

WORKER = module_command("trtnorm_cli.evaluate.ort_worker")
STARTUP_LIMIT_S = 120.0
LOG = "stderr.log"
# How long a child may take to leave by itself.
_LEAVING_S = 5.0
_SHOWN = 3


# The words of the worker, of ONNX Runtime's allocator and of the C++ library.
_NO_MEMORY = ("out of memory", "Failed to allocate memory", "bad_alloc", "bad allocation")


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

    @property
    def out_of_memory(self) -> bool:
        """True where its memory did not suffice, which says nothing about the model."""
        return any(words in self.reason for words in _NO_MEMORY)


class OrtChild:
    """The worker process: requests go to its standard input, replies come from a pipe that no library prints to.

    ``feeds`` are the tensors that requests name, ``results`` those that replies name. ``is_lost`` is true of a child that died
    or took too long. Starting does not wait: the first reply does.
    """

    def __init__(self, folder: Path, threads: int | None, memory_bytes: int | None) -> None:
        self._log = folder / LOG
        self._buffer = b""
        self._open_requests = self._unread = 0
        self._is_ready = self.is_lost = False
        self._is_limited = bool(memory_bytes)
        self._reply_fd, child_fd = os.pipe()
        self.feeds, self.results = SharedTensors(shared_file(str(folder))), SharedTensors(shared_file(str(folder)))
        passed = (child_fd, self.feeds.descriptor, self.results.descriptor)
        command = [*WORKER, str(folder), *map(str, passed)]
        command += [f"--threads={threads}"] if threads else []
        command += [f"--memory-bytes={memory_bytes}"] if memory_bytes else []
        environment = {"PYTHONPATH": os.pathsep.join(_import_path())}
        try:
            # The end of its input tells it that its parent is gone: it removes the folder then, so it must not be killed.
            self._process = Child(
                command, self._log, environment=environment, pass_fds=passed, stdin=subprocess.PIPE, cwd=folder,
                dies_with_parent=False, keeps_limit=True,
            )  # fmt: skip
        except BaseException:
            self._close()
            raise
        finally:
            os.close(child_fd)
        assert self._process.stdin is not None
        self._requests = self._process.stdin

    def ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        """The reply to one request; :class:`RunFailed` for an error, the child's death or the end of the time."""
        self.send(request)
        return self.receive(limit_s)

    def send(self, request: dict[str, Any]) -> None:
        """Send a request whose reply is received later; replies come in the order of requests."""
        try:
            # Where no reply is waited for, all results were taken: the child may use their memory again.
            self._requests.write(json.dumps({**request, "fresh": not self._open_requests}).encode() + b"\n")
            self._requests.flush()
        except BrokenPipeError:
            raise self._death() from None
        self._open_requests += 1

    def receive(self, limit_s: float) -> dict[str, Any]:
        """The reply to the oldest request that is still open."""
        self.wait_until_ready()
        while self._unread:
            self._line(limit_s)
            self._unread -= 1
            self._open_requests -= 1
        reply = json.loads(self._line(limit_s))
        self._open_requests -= 1
        if "error" in reply:
            raise RunFailed(cleaned(reply["error"]))
        return reply

    @property
    def can_be_renewed(self) -> bool:
        """True while it is idle, and has no limit on its memory that could not be raised."""
        return not (self.is_lost or self._open_requests or self._is_limited) and hasattr(resource, "prlimit")

    def renew(self, threads: int | None, memory_bytes: int | None) -> None:
        """Let it be as one that was just started with these; :class:`RunFailed` where it has died meanwhile."""
        if self._process.has_ended():
            raise self._death()
        self.send({"do": "renew", "threads": threads})
        self._unread += 1
        if memory_bytes:
            self._is_limited = True
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(self._process.pid, resource.RLIMIT_DATA, (memory_bytes, memory_bytes))

    def wait_until_ready(self) -> None:
        """Wait for its greeting, which comes before any reply."""
        if not self._is_ready:
            self._line(STARTUP_LIMIT_S)
            self._is_ready = True

    def _line(self, limit_s: float) -> bytes:
        deadline = time.monotonic() + limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._reply_fd, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    self.is_lost = True
                    raise RunFailed(f"ONNX Runtime was stopped after {limit_s:g} s", timed_out=True)
                chunk = os.read(self._reply_fd, 1 << 16)
                if not chunk:
                    raise self._death()
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _death(self) -> RunFailed:
        self.is_lost = True
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
        self._close()

    def _close(self) -> None:
        if self._reply_fd >= 0:
            os.close(self._reply_fd)
            self._reply_fd = -1
            self.feeds.close()
            self.results.close()


def cleaned(message: str) -> str:
    """ONNX Runtime's message without its status prefix, source path, C++ signature and line breaks."""
    message = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", message.strip())
    message = re.sub(r"/\S*onnxruntime_src/\S+:\d+ (?:[^()]*\([^()]*\)(?: const)?(?: \[with [^\]]*\])? )?", "", message)
    return " ".join(message.split())


def _import_path() -> list[str]:
    """The parent's import path, absolute: the child starts in a folder without modules that could shadow others."""
    return [str(Path(entry or ".").absolute()) for entry in sys.path]
