"""Work in a copy of a process: beside it where that can be, and else at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trtnorm_cli.tensorrt.child import process_copy
from trtnorm_cli.tensorrt.child.process_copy import Copy


def write_own_number(path: Path) -> None:
    path.write_text(str(os.getpid()))


def test_it_is_done_in_another_process_on_what_was_there(tmp_path: Path) -> None:
    held = ["before"]
    copy = Copy(lambda: (tmp_path / "said").write_text(f"{os.getpid()} {held[0]}") and None)
    held[0] = "after"
    copy.wait()
    number, said = (tmp_path / "said").read_text().split()
    assert (int(number) != os.getpid(), said) == (True, "before")


def test_waiting_again_is_no_mistake(tmp_path: Path) -> None:
    copy = Copy(lambda: write_own_number(tmp_path / "number"))
    copy.wait()
    copy.wait()
    assert (tmp_path / "number").exists()


@pytest.mark.parametrize("why", ["no room", "a device"])
def test_without_a_copy_it_is_done_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    def no_room() -> int:
        raise BlockingIOError("no more processes")

    if why == "no room":
        monkeypatch.setattr(os, "fork", no_room)
    else:
        monkeypatch.setattr(process_copy, "_holds_device", lambda: True)
    copy = Copy(lambda: write_own_number(tmp_path / "number"))
    assert (tmp_path / "number").read_text() == str(os.getpid())
    copy.wait()


@pytest.mark.parametrize(
    ("maps", "holds"), [("7f00-7f10 r-xp 0 0:0 1 /usr/lib/libcuda.so.590.1\n", True), ("7f00 /lib/libc.so\n", False)]
)
def test_a_loaded_driver_is_seen(monkeypatch: pytest.MonkeyPatch, maps: str, holds: bool) -> None:
    monkeypatch.setattr(Path, "read_text", lambda path, **kinds: maps)
    assert process_copy._holds_device() is holds


def test_where_the_system_does_not_say_what_is_loaded_a_driver_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(path: Path, **kinds: object) -> str:
        raise PermissionError

    monkeypatch.setattr(Path, "read_text", closed)
    assert process_copy._holds_device() is True


@pytest.mark.parametrize("how", ["raises", "is killed"])
def test_one_that_dies_is_waited_for(tmp_path: Path, how: str) -> None:
    def die() -> None:
        if how == "raises":
            raise RuntimeError("as planned")
        os.kill(os.getpid(), signal.SIGKILL)

    Copy(die).wait()


ENDLESS = """
import os, sys, time
from pathlib import Path
from trtnorm_cli.tensorrt.child.process_copy import Copy

def work():
    Path(sys.argv[1]).write_text(str(os.getpid()))
    time.sleep(60)

Copy(work)
time.sleep(60)
"""


def test_it_ends_with_the_process_that_it_is_a_copy_of(tmp_path: Path) -> None:
    said = tmp_path / "number"
    with subprocess.Popen([sys.executable, "-c", ENDLESS, str(said)]) as process:
        deadline = time.monotonic() + 30
        while not (said.exists() and said.read_text()) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.kill()
    number = int(said.read_text())
    while Path(f"/proc/{number}").exists() and "Z" not in Path(f"/proc/{number}/stat").read_text().split()[2]:
        assert time.monotonic() < deadline, "it is still there"
        time.sleep(0.02)
