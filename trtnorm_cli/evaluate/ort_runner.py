"""ONNX Runtime in a child process of its own, with a time limit and a memory limit.

ONNX Runtime is native code: a model can abort it, hang it or take all memory, and the program that asked must survive
and say what happened. Graph optimisation is off (``ORT_DISABLE_ALL``), because with it ONNX Runtime changes results.
One child serves many models, one after the other; after a crash or a time-out the next run starts a new one. A small model
that comes again and again, with other weights, keeps its session.
"""

from __future__ import annotations

import collections
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from trtnorm_cli.evaluate.model_file import model_file
from trtnorm_cli.evaluate.ort_child import LOG, OrtChild, RunFailed, cleaned
from trtnorm_cli.evaluate.shared_tensors import read_there
from trtnorm_cli.onnx_model.wire import FilePart
from trtnorm_cli.scratch import MARK, Scratch

__all__ = ["AskedRuns", "OrtRunner", "RunFailed", "cleaned", "one_child"]

# Sessions of small models that are kept: none of them holds large weights.
_MOST_KEPT, _MOST_KEPT_BYTES = 32, 1 << 20


_Request = Callable[[OrtChild], dict[str, object]]


class _Parking:
    """The idle child of a runner that was closed, with its folder, for the next runner."""

    def __init__(self) -> None:
        self._parked: tuple[OrtChild, Scratch] | None = None

    def park(self, child: OrtChild, folder: Scratch) -> bool:
        """True where there was room, and the child is fit for it."""
        if self._parked is not None or not child.can_be_renewed:
            return False
        self._parked = child, folder
        return True

    def take(self, threads: int | None, memory_bytes: int | None) -> tuple[OrtChild, Scratch] | None:
        """The child that is parked, as one that was just started."""
        parked, self._parked = self._parked, None
        if parked is None:
            return None
        try:
            parked[0].renew(threads, memory_bytes)
        except RunFailed:
            parked[0].kill()
            parked[1].remove()
            return None
        return parked

    def close(self) -> None:
        if self._parked is not None:
            child, folder = self._parked
            self._parked = None
            child.stop()
            folder.remove()


_PARKING: ContextVar[_Parking | None] = ContextVar("parking", default=None)


@contextmanager
def one_child() -> Iterator[None]:
    """A block in which a runner takes the process of one that was closed before, so that few are started.

    A block inside another has that one's process, which stays until the outer one ends.
    """
    if _PARKING.get() is not None:
        yield
        return
    parking = _Parking()
    token = _PARKING.set(parking)
    try:
        yield
    finally:
        _PARKING.reset(token)
        parking.close()


class OrtRunner:
    """Runs ONNX models with ONNX Runtime on the CPU in one child process; a context manager, for one thread at a time.

    ``timeout_s`` bounds the loading of a model and each single run. ``memory_bytes`` bounds the child's private
    writable memory (``RLIMIT_DATA``, Linux: heap, weights copied from the file, thread stacks, about 130 MB of
    interpreter and libraries' own; ``RLIMIT_AS`` would also count address space that is only reserved). ``threads`` is
    the number of threads within an operator, by default all cores. ``sessions`` counts the models that were opened. With
    ``puts_off`` the child is asked once somebody waits for the results, or once it is told to ``catch_up``.
    """

    def __init__(self, timeout_s: float = 300.0, memory_bytes: int | None = None, threads: int | None = None) -> None:
        self.timeout_s, self.memory_bytes, self.threads = timeout_s, memory_bytes, threads
        self.sessions = 0
        self._folder = Scratch("trtnorm-ort-")
        self._child: OrtChild | None = None
        self._closed = False
        self.puts_off = False
        self._put_off: collections.deque[tuple[AskedRuns, _Request]] = collections.deque()
        self._asked: collections.deque[AskedRuns] = collections.deque()
        self._kept: dict[str, None] = {}
        self._dropped: list[str] = []

    def __enter__(self) -> OrtRunner:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child and remove its files; may be called twice."""
        if self._closed:  # its folder may be another's by now
            return
        self._closed = True
        for asked in (*self._asked, *(asked for asked, _ in self._put_off)):
            asked.failure = RunFailed("nobody waited for the run before its runner was closed")
        self._asked.clear()
        self._put_off.clear()
        child, self._child = self._child, None
        parking = _PARKING.get()
        if child is not None and parking is not None and parking.park(child, self._folder):
            return
        if child is not None:
            child.stop()
        self._folder.remove()

    def start(self, wait: bool = True) -> None:
        """Start the child now, so that the first run takes no longer than the others; or let it get ready beside other work."""
        child = self._started()
        if wait:
            child.wait_until_ready()

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
        self._require_open()
        self.collect()
        try:
            child = self._started()
            file, external_folder = self._file_of(model, outputs)
            child.ask({"do": "load", "model": str(file), "external_folder": external_folder}, self.timeout_s)
            self.sessions += 1
            limit = self.timeout_s if limit_s is None else min(limit_s, self.timeout_s)
            results = [self._run_one(child, feeds, outputs, limit) for feeds in feeds_list]
            child.ask({"do": "unload"}, self.timeout_s)
            return results
        except BaseException as error:
            self._recover(error)
            raise
        finally:
            self._remove_files()

    def ask(
        self,
        source: bytes,
        constants: Mapping[str, np.ndarray],
        feeds_list: Sequence[Mapping[str, np.ndarray]],
        places: Mapping[str, FilePart] | None = None,
    ) -> AskedRuns:
        """Begin to run a small model for each set of inputs, fed with ``constants`` too; the results are waited for later.

        ``source`` is the model, serialised. Its session is kept for the next time that it comes, with whatever constants.
        Those that have ``places`` are read there.
        """
        self._require_open()
        asked = AskedRuns(self, hashlib.blake2b(source, digest_size=16).hexdigest(), self.timeout_s * (1 + len(feeds_list)))

        given = places or {}

        def request(child: OrtChild) -> dict[str, object]:
            put = child.feeds.put
            return {
                "do": "run_kept",
                "key": asked.key,
                "dropped": self._dropped,
                "keep": len(source) <= _MOST_KEPT_BYTES,
                "constants": {name: read_there(array, given.get(name)) or put(array) for name, array in constants.items()},
                "feeds": [{name: put(array) for name, array in feeds.items()} for feeds in feeds_list],
                **({} if asked.key in self._kept else {"model": child.feeds.put_bytes(source)}),
            }

        self.catch_up()
        if self._send(asked, request):
            self._dropped = []
        return asked

    def begin(
        self,
        model: Path,
        feeds: Mapping[str, np.ndarray],
        hold: bool = False,
        source: bytes | None = None,
        nodes: int = 0,
    ) -> AskedRuns:
        """Begin to run the model in a file; its outputs are waited for later. ``hold`` keeps its session for the next time.

        ``source`` is run instead where it is given: a message that refers to weights beside that file. ``nodes`` is how many it
        has, where that is known: sessions of many are opened sooner.
        """
        self._require_open()
        asked = AskedRuns(self, "", self.timeout_s)

        def request(child: OrtChild) -> dict[str, object]:
            records = {name: child.feeds.put(array) for name, array in feeds.items()}
            found = {"do": "run_file", "model": str(model.absolute()), "hold": hold, "feeds": records, "nodes": nodes}
            return found if source is None else {**found, "source": child.feeds.put_bytes(source)}

        if self.puts_off:
            self._put_off.append((asked, request))
        else:
            self.catch_up()
            self._send(asked, request)
        return asked

    def catch_up(self, last: AskedRuns | None = None) -> None:
        """Begin what was put off, up to ``last`` where that is among it."""
        if last is None or any(asked is last for asked, _ in self._put_off):
            while self._put_off:
                asked, request = self._put_off.popleft()
                self._send(asked, request)
                if asked is last:
                    break

    def _send(self, asked: AskedRuns, request: _Request) -> bool:
        """True when the child got ``request``; else its failure is the result of ``asked``."""
        try:
            child = self._started()
            child.send(request(child))
        except BaseException as error:
            self._recover(error)
            if not isinstance(error, RunFailed):
                asked.failure, asked.is_lost = RunFailed("the run was interrupted"), True
                raise
            asked.failure = error
            return False
        self._asked.append(asked)
        return True

    def collect(self, last: AskedRuns | None = None) -> None:
        """Wait for what was asked, up to ``last``."""
        self.catch_up(last)
        while self._asked and (last is None or last in self._asked):
            asked = self._asked.popleft()
            try:
                assert self._child is not None, "it is kept while something is asked"
                reply = self._child.receive(asked.limit_s)
                get = self._child.results.get
                asked.found = [{name: np.array(get(record)) for name, record in run} for run in reply["outputs"]]
                asked.seconds, asked.processor_s = reply.get("seconds", 0.0), reply.get("processor_s", 0.0)
                asked.computing_s = reply.get("computing_s", 0.0)
                self._remember(asked.key, opened=reply["opened"], keeps=reply["keeps"])
            except RunFailed as error:
                asked.failure = error
                self._recover(error)
            except BaseException as error:
                self._recover(error)
                raise
        if not self._asked and self._child is not None:
            self._child.feeds.clear()

    def _remember(self, key: str, opened: bool, keeps: bool) -> None:
        """The sessions that were used last are kept."""
        self.sessions += opened
        self._kept.pop(key, None)
        if keeps:
            self._kept[key] = None
        wanted = {asked.key for asked in self._asked}
        unused = [kept for kept in self._kept if kept not in wanted]
        for oldest in unused[: max(len(self._kept) - _MOST_KEPT, 0)]:
            self._dropped.append(oldest)
            del self._kept[oldest]

    def _require_open(self) -> None:
        if self._closed:
            raise RuntimeError("this OrtRunner is closed")

    def _file_of(self, model: Path | onnx.ModelProto, outputs: Sequence[str] | None) -> tuple[Path, str | None]:
        try:
            return model_file(model, outputs, self._folder.path)
        except (OSError, DecodeError) as error:
            raise RunFailed(f"the model cannot be read: {error}") from error

    def _run_one(
        self, child: OrtChild, feeds: Mapping[str, np.ndarray], outputs: Sequence[str] | None, limit_s: float
    ) -> dict[str, np.ndarray]:
        records = {name: child.feeds.put(array) for name, array in feeds.items()}
        request = {"do": "run", "feeds": records, "outputs": list(outputs) if outputs is not None else None}
        reply = child.ask(request, limit_s)
        child.feeds.clear()
        return {name: np.array(child.results.get(record)) for name, record in reply["outputs"]}

    def _started(self) -> OrtChild:
        if self._child is None:
            parking = _PARKING.get()
            taken = None if parking is None else parking.take(self.threads, self.memory_bytes)
            if taken is None:
                self._child = OrtChild(self._folder.path, self.threads, self.memory_bytes)
            else:
                self._folder.remove()
                self._child, self._folder = taken
        return self._child

    def _recover(self, error: BaseException) -> None:
        """End a child that died or left a request unanswered: its state is unknown. What else was asked is lost with it."""
        if self._child is None or (isinstance(error, RunFailed) and not self._child.is_lost):
            return
        self._child.kill()
        self._child = None
        self._kept, self._dropped = {}, []
        while self._asked:
            asked = self._asked.popleft()
            asked.failure, asked.is_lost = error if isinstance(error, RunFailed) else RunFailed("the run was interrupted"), True

    def _remove_files(self) -> None:
        for file in self._folder.path.glob("*"):
            if file.name not in (LOG, MARK):
                file.unlink(missing_ok=True)


class AskedRuns:
    """Runs that were asked for; ``results`` waits until they are done.

    ``limit_s`` bounds that wait, and ``seconds`` is what they took. Of the processor they took ``processor_s``, and
    ``computing_s`` of these after the session was open. Those that another run took with it are lost: nothing is known of them.
    """

    def __init__(self, runner: OrtRunner, key: str, limit_s: float) -> None:
        self._runner, self.key, self.limit_s = runner, key, limit_s
        self.seconds, self.processor_s, self.computing_s, self.is_lost = 0.0, 0.0, 0.0, False
        self.found: list[dict[str, np.ndarray]] | None = None
        self.failure: RunFailed | None = None

    def results(self) -> list[dict[str, np.ndarray]]:
        """The outputs of each run; raises :class:`RunFailed` as :meth:`OrtRunner.run_many` does."""
        self._runner.collect(self)
        if self.failure is not None:
            raise self.failure
        assert self.found is not None, "its answer was waited for"
        return self.found
