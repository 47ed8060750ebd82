"""Put files in place once for each file operation that this takes, stopped at that one.

    placing_child.py FOLDER HOW over|new NAME...

Python tells of each operation on files before it does it. HOW is ``kill``, ``error`` (this operation fails), ``errors`` (it and
all that follow) or ``interrupt``. Each time is a process of its own in a folder of its own, called by the operation's number.
Prints one line of JSON for each: how the process ended and what it left, and the same of a next run.
"""

import errno
import json
import os
import signal
import sys
import traceback
from pathlib import Path

from trtnorm_cli.placing import put_in_place

TOLD = ("os.rename", "os.remove", "os.link", "open", "fcntl.flock", "shutil.copyfile")


def make_new(folder: Path, names: list[str]) -> dict[Path, Path]:
    (folder / "new").mkdir(parents=True)
    (folder / "aside").mkdir()
    (folder / "out").mkdir(exist_ok=True)
    for name in names:
        (folder / "new" / name).write_text("new")
    return {folder / "new" / name: folder / "out" / name for name in names}


def stop_at(at: int, how: str, mark: Path) -> None:
    told = [0]

    def hook(event: str, arguments: tuple) -> None:
        if event not in TOLD:
            return
        number, told[0] = told[0], told[0] + 1
        if number == at:
            mark.mkdir()
        if number == at and how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if number == at and how == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
        if (number == at and how == "error") or (number >= at and how == "errors"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    sys.addaudithook(hook)


def attempt(folder: Path, how: str, at: int, names: list[str], is_over: bool) -> None:
    files = make_new(folder, names)
    for name in names if is_over else ():
        (folder / "out" / name).write_text("old")
    stop_at(at, how, folder / "stopped")
    code = 0
    try:
        put_in_place(files, folder / "aside")
    except KeyboardInterrupt:
        code = 130
    except Exception:
        code = 1
        os.write(2, traceback.format_exc().encode())
    os._exit(code)


def forked(work) -> int:
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def again(folder: Path, names: list[str]) -> None:
    """The next run, on what the last one left."""
    (folder / "again").mkdir()
    (folder / "out").rename(folder / "again" / "out")
    put_in_place(make_new(folder / "again", names), folder / "again" / "aside")


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def main(folder: Path, how: str, is_over: bool, names: list[str]) -> None:
    for at in range(100):
        here = folder / str(at)
        code = forked(lambda here=here, at=at: attempt(here, how, at, names, is_over))
        found = contents(here / "out")
        next_code = forked(lambda here=here: again(here, names))
        then = contents(here / "again" / "out")
        print(json.dumps({"code": code, "found": found, "next": next_code, "then": then}), flush=True)
        if not (here / "stopped").exists():
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "over", sys.argv[4:])
