"""Claims: who is at work on an address, so that nobody else begins it, and how often it has ended a worker.

A claim is a file in the store with a beat that its owner moves on. One whose beat stands still, or whose process is gone, is
nobody's, and the next one takes it over. No clocks are compared. Two who take over at once both work, and the store keeps one
result: a claim saves work, and nothing depends on it.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trtnorm_cli.batch.store import Store
from trtnorm_cli.errors import TrtnormError
from trtnorm_cli.light_dataclass import dataclass

# A job that was begun so often, and ended its worker each time, is not begun again.
MOST_ATTEMPTS = 3
_BEAT_S, _STALE_S = 10.0, 45.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0


class KillsWorkers(TrtnormError):
    """A job during which workers were lost, as often as it may be tried."""

    exit_code = 6


@dataclass(frozen=True)
class Claimed:
    """A claim that was made: this is the ``attempt``-th time that the run works on the address."""

    attempt: int


def _start_of(pid: int) -> str | None:
    """The time at which a process began, in the kernel's ticks; None where there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _is_gone(claim: dict[str, Any]) -> bool:
    """True where the process that made the claim ran on this machine and has ended."""
    same = claim.get("host") == socket.gethostname() and claim.get("boot") == _boot() and claim.get("space") == _space()
    return same and _start_of(int(claim.get("pid", 0))) != claim.get("began")


def _space() -> str:
    """The name space in which numbers of processes mean something: two containers may share a host name."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


@contextmanager
def claimed(
    store: Store,
    address: str,
    run: str,
    is_done: Callable[[], bool],
    on_wait: Callable[[], None],
    after_wait: Callable[[], None],
    require_wanted: Callable[[], None] = lambda: None,
) -> Iterator[Claimed | None]:
    """A block that works on ``address`` while nobody else does; None where another one did it meanwhile.

    ``on_wait`` is called before another's work is waited for, and ``after_wait`` where it has to be done here nevertheless.
    Raises ``KillsWorkers`` where this run has lost a worker in each of its attempts.
    """
    own: dict[str, Any] = {
        "token": secrets.token_hex(8), "run": run, "host": socket.gethostname(), "boot": _boot(), "space": _space(),
        "pid": os.getpid(), "began": _start_of(os.getpid()), "attempt": 1, "beat": 0,
    }  # fmt: skip
    waited = False

    def wait() -> None:
        nonlocal waited
        if not waited:
            waited = True
            on_wait()

    if not _taken(store, address, own, is_done, wait, require_wanted):
        yield None
        return
    if waited:
        after_wait()
    stop = threading.Event()
    beating = threading.Thread(target=_beat, args=(store, address, own, stop), daemon=True)
    beating.start()
    try:
        yield Claimed(own["attempt"])
    finally:
        stop.set()
        beating.join()
        store.drop_claim(address)


def _taken(
    store: Store,
    address: str,
    own: dict[str, Any],
    is_done: Callable[[], bool],
    wait: Callable[[], None],
    require_wanted: Callable[[], None],
) -> bool:
    """True when the claim is ours, False when the work was done by another."""
    seen, since, pause = "", time.monotonic(), _FIRST_PAUSE_S
    while True:
        if store.put_claim(address, own, anew=True):
            return True
        other = store.claim(address)
        if other is None:
            continue
        if other.get("run") == own["run"]:  # the scheduler has given it to us, so that its former worker is lost
            attempts = int(other.get("attempt", 1))
            if attempts >= MOST_ATTEMPTS:
                store.drop_claim(address)
                raise KillsWorkers(
                    f"{attempts} workers were lost while they worked on it, and it is not tried again",
                    hint="it needs more memory than a worker has, or crashes it: build it alone with `trtnorm build`, "
                    "or give workers more memory (-j 1, or --memory)",
                )
            own["attempt"] = attempts + 1
            return store.put_claim(address, own, anew=False)
        if _is_gone(other):
            return store.put_claim(address, own, anew=False)
        beat = f"{other.get('token')} {other.get('beat')}"
        if beat != seen:
            seen, since = beat, time.monotonic()
        elif time.monotonic() - since > _STALE_S:
            return store.put_claim(address, own, anew=False)
        wait()
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)
        require_wanted()
        if is_done():
            return False


def _beat(store: Store, address: str, own: dict[str, Any], stop: threading.Event) -> None:
    while not stop.wait(_BEAT_S):
        own["beat"] += 1
        try:
            store.put_claim(address, own, anew=False)
        except TrtnormError:  # others may take it over; what is made here is as good as theirs
            continue
