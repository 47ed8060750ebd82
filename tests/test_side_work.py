"""Work beside the main thread: what came of it, and that nothing of it is left running."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.work import when_busy
from trtnorm_cli import child_process
from trtnorm_cli.child_process import Cancelled, Child, Ended, run_child
from trtnorm_cli.side_work import Later, Pending, SideWork


def sleeping_child(folder: Path) -> Ended:
    """Run a child that says its number and then sleeps for a minute."""
    folder.mkdir()
    code = "import os, sys, time; open(os.path.join(sys.argv[1], 'pid'), 'w').write(str(os.getpid())); time.sleep(60)"
    return run_child((sys.executable, "-c", code, str(folder)), folder)


def wait_for(condition, seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(condition())


def pid_in(folder: Path) -> int | None:
    path = folder / "pid"
    return int(path.read_text()) if path.exists() and path.read_text() else None


def fail(error: BaseException) -> None:
    raise error


def test_work_that_is_put_off_is_done_once_by_who_asks():
    done: list[str] = []
    later = Later(lambda: done.append(threading.current_thread().name))
    assert done == []
    assert [later.result(), later.result(), later.error()] == [None, None, None]
    assert done == [threading.current_thread().name]


def test_an_error_is_kept_for_whoever_asks():
    later = Later(lambda: fail(ValueError("no")))
    assert isinstance(later.error(), ValueError)
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            later.result()


def test_an_interrupt_is_not_kept():
    later = Later(lambda: fail(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        later.error()


def test_work_in_a_thread():
    with SideWork() as side:
        good, bad = side.start(lambda: threading.current_thread()), side.start(lambda: fail(ValueError("no")))
        assert good.result() is not threading.current_thread()
        assert isinstance(bad.error(), ValueError)
        with pytest.raises(ValueError, match="no"):
            bad.result()


def test_without_room_it_is_done_in_turn():
    with SideWork(is_beside=False) as side:
        assert side.start(threading.current_thread).result() is threading.current_thread()
        asked: list[int] = []
        side.start(lambda: asked.append(1))
    assert asked == []


@pytest.mark.parametrize("error", [ValueError("another"), KeyboardInterrupt()])
def test_an_error_in_the_block_ends_the_children_at_once(tmp_path, error):
    folders = [tmp_path / "a", tmp_path / "b"]
    threads = threading.active_count()
    works, start = [], 0.0

    def block() -> None:
        nonlocal start
        with SideWork() as side:
            works.extend(side.start(lambda folder=folder: sleeping_child(folder)) for folder in folders)
            assert wait_for(lambda: all(map(pid_in, folders)))
            start = time.monotonic()
            raise error

    with pytest.raises(type(error)):
        block()
    assert time.monotonic() - start < when_busy(2)
    assert all(isinstance(work.error(), Cancelled) for work in works)
    assert not any(Path(f"/proc/{pid_in(folder)}").exists() for folder in folders)
    assert threading.active_count() == threads


def test_an_interrupt_on_the_way_out_does_not_shorten_the_wait(monkeypatch):
    events: list[str] = []

    def close(self: Pending[None]) -> None:
        events.append("close")
        if len(events) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(Pending, "close", close)
    side = SideWork()
    for _ in range(2):
        side.start(lambda: None)
    with pytest.raises(KeyboardInterrupt):
        side.__exit__()
    assert events == ["close"] * 3


def test_one_that_is_cancelled_ends_alone(tmp_path):
    with SideWork() as side:
        unwanted, wanted = side.start(lambda: sleeping_child(tmp_path / "a")), side.start(lambda: 1)
        unwanted.cancel()
        assert isinstance(unwanted.error(), Cancelled)
        assert wanted.result() == 1
        assert side.start(lambda: run_child((sys.executable, "-c", ""), tmp_path)).result().code == 0


def test_what_was_kept_for_a_report_is_forgotten_where_nobody_asked():
    told: list[BaseException | None] = []
    with SideWork() as side:
        side.start(lambda: fail(ValueError("unasked")), told.append).error()
        side.start(lambda: None, told.append)
        asked = side.start(lambda: fail(ValueError("asked")), told.append)
        with pytest.raises(ValueError, match="asked"):
            asked.result()
    assert [str(error) for error in told] == ["unasked"]


def test_waiting_ends_when_the_child_does(tmp_path):
    """Not at the next look at its memory."""
    if not hasattr(os, "pidfd_open"):
        pytest.skip("this Python cannot be told")
    with Child((sys.executable, "-S", "-c", "import time; time.sleep(0.1)"), tmp_path / "log") as child:
        start = time.monotonic()
        with child_process._end_of(child.pid) as sleep:
            sleep(20)
        assert time.monotonic() - start < 10
