"""Private folders: removed by their process, or by the next run where that was killed."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import weakref

import pytest

from trtnorm_cli.errors import NoRoom, UsageProblem
from trtnorm_cli.scratch import BESIDE, MARK, Scratch, explained, remove_dead, scratch_beside

OWNER = """
import sys
from pathlib import Path
from trtnorm_cli.scratch import Scratch
scratch = Scratch(".trtnorm-", Path(sys.argv[1]))
(scratch.path / "large").write_text("x")
print(scratch.path, flush=True)
sys.stdin.read()
"""


def test_only_the_folder_of_a_dead_process_is_removed(tmp_path):
    mine = Scratch(BESIDE, tmp_path)
    others = tmp_path / f"{BESIDE}without-a-mark"
    others.mkdir()
    with subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        theirs = owner.stdout.readline().decode().strip()
        remove_dead(tmp_path, BESIDE)
        assert {str(path) for path in tmp_path.iterdir()} == {str(mine.path), str(others), theirs}, "its owner lives"
        owner.kill()
    remove_dead(tmp_path, BESIDE)
    assert set(tmp_path.iterdir()) == {mine.path, others}
    mine.remove()
    mine.remove()
    assert set(tmp_path.iterdir()) == {others}


def test_a_folder_goes_with_its_object(tmp_path):
    scratch = Scratch(BESIDE, tmp_path)
    del scratch
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["mkdtemp", "finalize"])
def test_an_interrupt_while_it_is_made_leaves_nothing(tmp_path, monkeypatch, name):
    """Python hears of it right after the folder is there, when nobody knows of it."""
    module = tempfile if name == "mkdtemp" else weakref
    real = getattr(module, name)

    def interrupted(*given, **named):
        made = real(*given, **named)
        signal.raise_signal(signal.SIGINT)
        return made

    monkeypatch.setattr(module, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        Scratch(BESIDE, tmp_path)
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_while_it_is_removed_leaves_nothing(tmp_path, monkeypatch):
    """Python hears of it when the folder is no longer registered, and still there."""
    scratch = Scratch(BESIDE, tmp_path)
    real = shutil.rmtree

    def interrupted(*given, **named):
        signal.raise_signal(signal.SIGINT)
        real(*given, **named)

    monkeypatch.setattr(shutil, "rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        scratch.remove()
    assert list(tmp_path.iterdir()) == []


INTERRUPTED = """
from trtnorm_cli import cli
from trtnorm_cli.scratch import Scratch
held = Scratch("trtnorm-ort-")
cli.run = lambda arguments: cli.EXIT_INTERRUPTED
cli.main([])
"""


def test_an_interrupted_command_leaves_no_folder_that_something_still_holds(tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    assert subprocess.run([sys.executable, "-c", INTERRUPTED], env=environment, check=False, timeout=60).returncode == 130
    assert list(tmp_path.iterdir()) == []


def test_a_kept_folder_stays(tmp_path):
    scratch = Scratch(BESIDE, tmp_path)
    scratch.keep()
    scratch.remove()
    remove_dead(tmp_path, BESIDE)
    assert list(scratch.path.iterdir()) == []


def test_a_folder_is_made_again_where_it_was_taken_for_a_dead_ones(tmp_path, monkeypatch):
    import fcntl

    from trtnorm_cli import scratch

    flock, made = fcntl.flock, []

    def removed_first(descriptor: int, operation: int) -> None:
        if not made:
            (folder,) = tmp_path.iterdir()
            made.append(folder)
            (folder / MARK).unlink()
            folder.rmdir()
        flock(descriptor, operation)

    monkeypatch.setattr(scratch.fcntl, "flock", removed_first)
    found = Scratch(BESIDE, tmp_path)
    assert list(tmp_path.iterdir()) == [found.path]
    assert found.path not in made
    found.remove()


def test_a_folder_that_went_meanwhile_is_said(tmp_path):
    def write_into_a_folder_that_goes() -> None:
        with scratch_beside(tmp_path / "out") as folder:
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()
            (folder / "file").write_text("x")

    with pytest.raises(UsageProblem, match="was removed meanwhile"):
        write_into_a_folder_that_goes()


def test_a_full_disk_is_said_and_other_errors_pass(tmp_path):
    with pytest.raises(NoRoom, match="No space left"), explained(tmp_path, "do something"):
        raise OSError(errno.ENOSPC, "No space left on device", "file")
    with pytest.raises(FileNotFoundError), explained(tmp_path, "do something"):
        (tmp_path / "nothing").read_text()


DEAD = """
import os, signal
from trtnorm_cli.scratch import Scratch
held = Scratch("trtnorm-ort-")
(held.path / "large").write_text("x")
os.kill(os.getpid(), signal.SIGKILL)
"""
LATER = "from trtnorm_cli.scratch import Scratch; print(Scratch('trtnorm-compare-').path)"


def test_any_command_removes_what_a_killed_one_left_among_temporary_files(tmp_path):
    """A killed comparison left its folders until somebody built."""

    def ran(code: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)

    assert ran(DEAD).returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    (tmp_path / "trtnorm-kept").mkdir()
    assert ran(LATER).stdout
    assert [path.name for path in tmp_path.iterdir()] == ["trtnorm-kept"], left
