"""The files of one build get their names all or none, whatever stops the process and wherever."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from trtnorm_cli import placing
from trtnorm_cli.errors import NoRoom, UsageProblem
from trtnorm_cli.placing import put_in_place

CHILD = Path(__file__).with_name("placing_child.py")
PAIR, TRIPLE = ("1.engine", "2.json"), ("1.data", "2.onnx", "3.json")


def is_consistent(found: dict[str, str], names: tuple[str, ...]) -> bool:
    """True where what is there are the first files of one build, and none that describes another's."""
    there = [name for name in names if name in found]
    return there == list(names[: len(there)]) and len({found[name] for name in there}) <= 1


@pytest.mark.parametrize("is_over", [True, False], ids=["over an earlier build", "nothing there"])
@pytest.mark.parametrize("names", [PAIR, TRIPLE], ids=["engine and manifest", "weights, model and manifest"])
@pytest.mark.parametrize("how", ["kill", "error", "errors", "interrupt"])
def test_stopped_at_every_operation(tmp_path, names, is_over, how):
    command = [sys.executable, "-S", str(CHILD), str(tmp_path), how, "over" if is_over else "new", *names]
    paths = os.pathsep.join(path for path in sys.path if path)
    ended = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    attempts = [json.loads(line) for line in ended.stdout.splitlines()]
    before, after = dict.fromkeys(names, "old") if is_over else {}, dict.fromkeys(names, "new")
    stopped = [attempt for attempt in attempts if attempt["code"] != 0]
    assert len(stopped) > 2 * len(names), "it was stopped at each of many operations"
    assert attempts[-1] == {"code": 0, "found": after, "next": 0, "then": after}, "and at last at none"
    for attempt in attempts:
        found = {name: text for name, text in attempt["found"].items() if not name.endswith(".lock")}
        assert is_consistent(found, names)
        assert (attempt["next"], attempt["then"]) == (0, after), "the next run works"
        if attempt["code"] == 0:
            assert found == after
        elif how in ("error", "interrupt"):
            came_late = how == "interrupt" and attempt is stopped[-1]  # both were in place, and the lock was given back
            assert attempt["found"] == (after if came_late else before), "it is undone, and nothing is left"
        if how == "kill":
            assert attempt["code"] in (0, -signal.SIGKILL)
        if how == "interrupt":
            assert attempt["code"] in (0, 130)


def files_in(folder: Path, text: str = "new") -> dict[Path, Path]:
    (folder / "aside").mkdir(exist_ok=True)
    (folder / "out").mkdir(exist_ok=True)
    for name in PAIR:
        (folder / name).write_text(text)
    return {folder / name: folder / "out" / name for name in PAIR}


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_without_hard_links_earlier_files_are_copied(tmp_path, monkeypatch):
    put_in_place(files_in(tmp_path, "old"), tmp_path / "aside")
    files = files_in(tmp_path)

    def no_links(*arguments: object, **options: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    replace = Path.replace

    def refuse_the_manifest(self: Path, target: Path) -> Path:
        if target.name == PAIR[1] and "earlier" not in self.name:
            raise OSError(errno.EBUSY, "Device or resource busy", str(self), None, str(target))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", refuse_the_manifest)
    with pytest.raises(UsageProblem, match="Device or resource busy") as caught:
        put_in_place(files, tmp_path / "aside")
    assert caught.value.where == str(tmp_path / "out" / PAIR[1])
    assert contents(tmp_path / "out") == dict.fromkeys(PAIR, "old")


def test_a_full_disk_is_told_from_a_refusal(tmp_path, monkeypatch):
    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    files = files_in(tmp_path)
    monkeypatch.setattr(placing, "_sync", full)
    with pytest.raises(NoRoom, match="No space left on device") as caught:
        put_in_place(files, tmp_path / "aside")
    assert caught.value.exit_code == 6
    assert contents(tmp_path / "out") == {}


def test_many_at_once_end_with_the_files_of_one(tmp_path):
    (tmp_path / "out").mkdir()

    def work(number: int) -> None:
        for turn in range(20):
            folder = tmp_path / f"{number}-{turn}"
            (folder / "aside").mkdir(parents=True)
            for name in PAIR:
                (folder / name).write_text(f"{number}-{turn}")
            put_in_place({folder / name: tmp_path / "out" / name for name in PAIR}, folder / "aside")

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    seen = 0
    while any(worker.is_alive() for worker in workers):
        manifest = tmp_path / "out" / PAIR[1]
        try:
            first, engine, second = manifest.read_text(), (tmp_path / "out" / PAIR[0]).read_text(), manifest.read_text()
        except FileNotFoundError:
            continue
        if first == second:  # it was there all the while
            assert first == engine
            seen += 1
    for worker in workers:
        worker.join()
    found = contents(tmp_path / "out")
    assert sorted(found) == sorted(PAIR), "no lock is left"
    assert len(set(found.values())) == 1


def test_a_lock_that_is_not_given_back_is_named(tmp_path, monkeypatch):
    import fcntl

    files = files_in(tmp_path)
    monkeypatch.setattr(placing, "_LONGEST_WAIT_S", 0.1)
    lock = tmp_path / "out" / f".{PAIR[0]}.lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(UsageProblem, match="another process holds the lock") as caught:
            put_in_place(files, tmp_path / "aside")
    assert caught.value.where == str(lock)
    put_in_place(files, tmp_path / "aside")
    assert contents(tmp_path / "out") == dict.fromkeys(PAIR, "new")
