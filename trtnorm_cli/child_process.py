"""The one way to run a child process: start it, follow it, limit it, end it with all that it started, and say how it ended.

Native code can abort, hang, or take all memory, and a user's code can do anything. The program that the user runs must survive
both and say what happened. The last part of this module is what such a child does itself.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any, Literal, NoReturn

from trtnorm_cli.files import save_in_one_step
from trtnorm_cli.heap import heap_environment
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.limits import lift_limit, memory_limit
from trtnorm_cli.progress import Listener
from trtnorm_cli.scratch import Scratch

REQUEST_FILE = "request.json"
RESULT_FILE = "result.json"
LOG_FILE = "child.log"
# In the child's environment: the process that started it.
PARENT_VARIABLE = "TRTNORM_PARENT_PID"

_PR_SET_PDEATHSIG = 1
_ASK_PERSONALITY, _ADDR_NO_RANDOMIZE = 0xFFFFFFFF, 0x0040000
_STACK_BYTES = 256 << 20
_KIB = 1024
_PAUSE_S = 0.05
_LINES_KEPT, _BYTES_READ = 20, 64 << 10


@dataclass(frozen=True)
class Limits:
    """The longest time in seconds and the most memory in bytes. Without them there is no limit but that of this process.

    The memory counted is what the process has written to and holds (anonymous and shared resident pages), not what it has
    reserved. CUDA reserves address space many times the size of the machine's memory, so a limit on address space (RLIMIT_AS)
    would end every build on a machine with a GPU. The memory is read 20 times a second, so a build can exceed the limit by what
    it allocates in between.
    """

    timeout_s: float | None = None
    memory_bytes: int | None = None


_NO_LIMITS = Limits()


@dataclass(frozen=True)
class Excess:
    """The limit that a process exceeded, and the same in words that follow its name."""

    limit: Literal["time", "memory"]
    words: str


@dataclass(frozen=True)
class Ended:
    """The end of a child process, and the files and lines that it left.

    ``code`` is its exit code, or minus the number of the signal that ended it. ``excess`` is the limit for which it was
    stopped. ``result`` is what it wrote to ``result.json``, None where that is not a JSON object. ``last_lines`` are the end of
    what it printed.
    """

    code: int
    excess: Excess | None
    result: dict[str, Any] | None
    last_lines: tuple[str, ...]

    @property
    def how(self) -> str:
        """Its end in words that follow its name, as ``was ended by SIGSEGV``."""
        return self.excess.words if self.excess is not None else how_it_ended(self.code)


class Cancelled(BaseException):
    """The work of this thread is not wanted any more."""


_STOP: ContextVar[threading.Event | None] = ContextVar("stop", default=None)


@contextmanager
def cancellable(stop: threading.Event) -> Iterator[None]:
    """In this thread, raise ``Cancelled`` once ``stop`` is set, when a child is started or waited for."""
    token = _STOP.set(stop)
    try:
        yield
    finally:
        _STOP.reset(token)


def is_cancellable() -> bool:
    """True where the work of this thread may be given up."""
    return _STOP.get() is not None


def require_wanted() -> None:
    """Raise ``Cancelled`` where the work of this thread is not wanted any more."""
    stop = _STOP.get()
    if stop is not None and stop.is_set():
        raise Cancelled


def how_it_ended(code: int) -> str:
    """An exit code, or minus the number of a signal, in words."""
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"was ended by {name}"


def module_command(module: str) -> tuple[str, ...]:
    """The command that runs a module with this Python."""
    return (sys.executable, "-m", module)


def ask_child(
    command: Sequence[str], request: Mapping[str, Any], timeout_s: float, environment: Mapping[str, str] | None = None
) -> Ended:
    """Hand ``request`` to a child that runs ``answer_request``. Its answer is the result."""
    with Scratch("trtnorm-child-") as folder:
        save_in_one_step(dict(request), folder / REQUEST_FILE)
        return run_child((*command, str(folder)), folder, limits=Limits(timeout_s), environment=environment)


def run_child(
    command: Sequence[str],
    folder: Path,
    *,
    limits: Limits = _NO_LIMITS,
    listen: Listener | None = None,
    log: str = LOG_FILE,
    environment: Mapping[str, str] | None = None,
    fixed_addresses: bool = False,
) -> Ended:
    """Run ``command`` to its end, or until it exceeds one of ``limits``, and say how it ended.

    What it prints goes to the file ``log`` in ``folder``, and its result is read from there. ``environment`` adds to its
    variables. With ``listen`` the command gets one more argument: a descriptor on which it reports events as lines of JSON.
    With ``fixed_addresses`` its memory lies at the same addresses in each run, where the system allows it.
    Whatever happens, an interrupt too, nothing that it started is left running.
    """
    (folder / RESULT_FILE).unlink(missing_ok=True)
    with _fixed_addresses() if fixed_addresses else nullcontext():
        child, follower = _start(command, folder / log, environment, listen)
    with child:
        excess = child.wait(limits)
    if follower is not None:
        follower.join(timeout=5)
    return Ended(child.end(), excess, _result_in(folder), last_lines(folder / log))


@contextmanager
def _fixed_addresses() -> Iterator[bool]:
    """A block in which this thread starts processes without address space randomisation; yields False where it may not.

    A container's seccomp profile can refuse that, and only Linux has it.
    """
    if not sys.platform.startswith("linux"):
        yield False
        return
    personality = ctypes.CDLL(None).personality
    before = personality(ctypes.c_ulong(_ASK_PERSONALITY))
    try:
        yield before != -1 and personality(ctypes.c_ulong(before | _ADDR_NO_RANDOMIZE)) != -1
    finally:
        if before != -1:
            personality(ctypes.c_ulong(before))


def can_fix_addresses() -> bool:
    """True where ``run_child`` can give each run of a process the same addresses."""
    with _fixed_addresses() as is_fixed:
        return is_fixed


def _start(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None, listen: Listener | None
) -> tuple[Child, threading.Thread | None]:
    """The child, and the thread that hands its events to ``listen``."""
    if listen is None:
        return Child(command, log, environment=environment), None
    reader, writer = os.pipe()
    follower = threading.Thread(target=_follow, args=(reader, listen), daemon=True)
    follower.start()
    try:
        return Child([*command, str(writer)], log, environment=environment, pass_fds=(writer,)), follower
    finally:
        os.close(writer)  # the child has it now; the follower ends when the last of its holders does


class Child:
    """A running child process, the leader of its own process group. Leaving its ``with`` block kills all of the group.

    ``keeps_limit`` leaves it the limit on memory that this process has.

    The kernel kills the group as well when this process is gone, whatever ended it. The child holds the reading end of a pipe
    whose writing end is only here. When that closes, the kernel sends SIGKILL to the pipe's owner.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
        stdin: int = subprocess.DEVNULL,
        cwd: Path | None = None,
        dies_with_parent: bool = True,
        keeps_limit: bool = False,
    ) -> None:
        require_wanted()
        watched, self._lifeline = os.pipe()
        try:
            with log.open("wb") as output:
                self._process = subprocess.Popen(
                    command,
                    stdin=stdin,
                    stdout=output,
                    stderr=output,
                    pass_fds=(*pass_fds, watched),
                    start_new_session=True,
                    env={**child_environment(), **(environment or {})},
                    cwd=cwd,
                )
            if not keeps_limit:
                lift_limit(self._process.pid)
            if dies_with_parent:
                _kill_when_closed(watched, self._process.pid)
        except BaseException:
            os.close(self._lifeline)
            raise
        finally:
            os.close(watched)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stdin(self) -> IO[bytes] | None:
        return self._process.stdin

    def wait(self, limits: Limits) -> Excess | None:
        """Wait until the child has ended or exceeds a limit. Returns the limit that it exceeded.

        A child that has ended stays a zombie.
        """
        start = time.monotonic()
        with _end_of(self.pid) as sleep:
            while not self.has_ended():
                require_wanted()
                if (excess := exceeded(limits, self.pid, time.monotonic() - start)) is not None:
                    return excess
                sleep(_PAUSE_S)
        return None

    def has_ended(self) -> bool:
        """True when it has. It is not collected, so that its number stays taken and killing its group cannot hit another."""
        if self._process.returncode is not None:
            return True
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # SIGCHLD is ignored, so that the kernel has collected it
            return True

    def end(self) -> int:
        """Kill what is left of the process group. Returns the child's exit code. May be called twice."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        if self._lifeline >= 0:
            lifeline, self._lifeline = self._lifeline, -1
            os.close(lifeline)
        return self._process.returncode


@contextmanager
def _end_of(pid: int) -> Iterator[Callable[[float], None]]:
    """A sleep that also ends when process ``pid`` does, where the kernel can tell (Linux 5.3)."""
    try:
        watched = os.pidfd_open(pid)
    except (AttributeError, OSError):
        yield time.sleep
        return
    try:
        poll = select.poll()
        poll.register(watched, select.POLLIN)

        def sleep(seconds: float) -> None:
            poll.poll(seconds * 1000)

        yield sleep
    finally:
        os.close(watched)


def _kill_when_closed(watched: int, group: int) -> None:
    """Have the kernel send SIGKILL to ``group`` when the last writer of the pipe ``watched`` is gone. Only Linux can."""
    if not sys.platform.startswith("linux"):
        return
    fcntl.fcntl(watched, fcntl.F_SETOWN, -group)
    fcntl.fcntl(watched, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(watched, fcntl.F_SETFL, fcntl.fcntl(watched, fcntl.F_GETFL) | os.O_ASYNC)


def child_environment() -> dict[str, str]:
    """The environment in which a child imports the same trtnorm as its parent, and all else as Python does."""
    package_root = str(Path(__file__).resolve().parents[1])
    paths = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), package_root]
    own = {"PYTHONPATH": os.pathsep.join(paths), PARENT_VARIABLE: str(os.getpid())}
    return {**os.environ, **heap_environment(os.environ), **own}


def exceeded(limits: Limits, pid: int, seconds: float) -> Excess | None:
    """The limit that process ``pid`` is above after ``seconds``, or None while it is within both."""
    if limits.timeout_s is not None and seconds > limits.timeout_s:
        return Excess("time", f"took longer than {limits.timeout_s:g} s and was stopped")
    most = limits.memory_bytes or memory_limit()
    if most is not None and (used := memory_of(pid)) > most:
        return Excess("memory", f"used {used / 2**20:.0f} MiB of memory, more than {most / 2**20:.0f} MiB, and was stopped")
    return None


def memory_of(pid: int) -> int:
    """Resident memory of a process in bytes without the files that it maps, or 0 when it is gone or cannot be read."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return sum(int(fields[key].split()[0]) * _KIB for key in ("RssAnon", "RssShmem") if key in fields)


def last_lines(log: Path) -> tuple[str, ...]:
    """The end of what a child printed."""
    if not log.exists():
        return ()
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - _BYTES_READ))
        text = stream.read().decode("utf-8", errors="replace")
    return tuple(text.strip().splitlines()[-_LINES_KEPT:])


def _result_in(folder: Path) -> dict[str, Any] | None:
    try:
        result = json.loads((folder / RESULT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return result if isinstance(result, dict) else None


def _follow(reader: int, listen: Listener) -> None:
    """Hand each event to ``listen``. A line cut short by the child's death is left out."""
    with os.fdopen(reader, "r", encoding="utf-8", errors="replace") as stream:
        for line in stream:
            try:
                event = json.loads(line)
            except json.JSONDecodeError:
                continue
            if isinstance(event, dict):
                listen(event)


def answer_request(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> NoReturn:
    """In the child: answer the request in the folder that the command names, and leave.

    It leaves without the usual clean-up, because Python frees native objects in an order of its own. Everything is on disk by
    then.
    """
    die_with_parent()
    folder = Path(sys.argv[1])
    request = json.loads((folder / REQUEST_FILE).read_text(encoding="utf-8"))
    save_in_one_step(answer(request), folder / RESULT_FILE)
    sys.stdout.flush()
    os._exit(0)


def die_with_parent() -> None:
    """In the child: ask the kernel to kill this process when its parent dies. Does nothing outside Linux."""
    parent = os.environ.get(PARENT_VARIABLE)
    die_with(None if parent is None else int(parent))


def die_with(parent: int | None) -> None:
    """In a process that ``parent`` has started: ask the kernel to kill it when that dies."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have died before; then another process has taken its place.
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def run_with_large_stack(work: Callable[[], int]) -> int:
    """In the child: run ``work`` in a thread with 256 MiB of stack and return its exit code.

    TensorRT walks graphs recursively, and 4000 nodes in a row overflow the usual 8 MiB.
    """
    codes: list[int] = []
    threading.stack_size(_STACK_BYTES)
    thread = threading.Thread(target=lambda: codes.append(work()))
    thread.start()
    thread.join()
    return codes[0] if codes else 1
