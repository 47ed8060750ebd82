"""Give the files of one build their names, so that at every moment those that have their names belong together.

Each file describes those before it: weights, then the model that refers to them, then its manifest. Two files cannot be
replaced at once, so nothing may describe a file while that is replaced:

1. Each earlier file gets a second name in a private folder (a hard link, or a copy where there are none).
2. The earlier files lose their names, from the last to the second.
3. The new files get theirs, from the first to the last. The first replaces the earlier one in one step.

A process that is killed in between leaves an engine without a manifest, never one beside another's. Where a step fails, or an
interrupt comes, the earlier files get their names back in the same way. A lock file beside the output lets one process at a
time do all this.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.files import cannot_write
from trtnorm_cli.interrupts import Came, interrupts_held
from trtnorm_cli.light_dataclass import dataclass

_HINT = "choose another name with -o"
_LONGEST_WAIT_S, _PAUSE_S = 60.0, 0.02


def put_in_place(files: Mapping[Path, Path], aside: Path) -> None:
    """Give each file its name: all of them or none, in which case what stood there before stands there again.

    ``files`` are in the order of the module's text, and ``aside`` is a private folder for earlier ones. All are on one disk.
    Raises ``UsageProblem`` or ``NoRoom`` where it cannot be done, and passes an interrupt on once it is undone.
    """
    names = list(files.values())
    with interrupts_held() as came:
        try:
            for file in files:
                _sync(file)
            with _locked(names[0], came):
                _replace_all(files, names, aside, came)
        except OSError as error:
            raise cannot_write("the file", Path(error.filename2 or error.filename or names[0]), error, _HINT) from error


def have_kept(file: Path) -> None:
    """Have the disk keep what ``file`` holds, beside other work: a large one that was just written takes long.

    Raises ``UsageProblem`` or ``NoRoom`` where the disk cannot.
    """
    try:
        _sync(file)
    except OSError as error:
        raise cannot_write("the file", file, error, _HINT) from error


@dataclass(frozen=True)
class _Earlier:
    """A file that had the name: its device and inode, and a second name for it or for a copy."""

    identity: tuple[int, int]
    kept: Path

    def still_has(self, name: Path) -> bool:
        return _identity(name) == self.identity


def _replace_all(files: Mapping[Path, Path], names: Sequence[Path], aside: Path, came: Came) -> None:
    earlier = {name: _kept(name, aside) for name in names}
    try:
        for name in reversed(names[1:]):
            name.unlink(missing_ok=True)
        _sync(names[0].parent)
        for written, name in files.items():
            written.replace(name)
        _sync(names[0].parent)
        if came():
            raise KeyboardInterrupt
    except BaseException:
        _put_back(names, earlier)
        raise


def _kept(name: Path, aside: Path) -> _Earlier | None:
    """The file that has the name, with a second name in ``aside``; None where there is none."""
    identity, second = _identity(name), aside / f"earlier-{name.name}"
    if identity is None:
        return None
    try:
        os.link(name, second, follow_symlinks=False)
    except OSError:  # no hard links here, or not to this file
        shutil.copy2(name, second, follow_symlinks=False)
    return _Earlier(identity, second)


def _put_back(names: Sequence[Path], earlier: Mapping[Path, _Earlier | None]) -> None:
    """Undo what was done. A step that fails ends this, so that what stands there still belongs together."""
    changed = [name for name in names if (was := earlier[name]) is None or not was.still_has(name)]
    for name in reversed(changed):
        if name != names[0] or earlier[name] is None:
            name.unlink(missing_ok=True)
    for name in changed:
        if (was := earlier[name]) is not None:
            was.kept.replace(name)


def _identity(name: Path) -> tuple[int, int] | None:
    """Device and inode of what has the name; None where nothing has it."""
    try:
        found = name.lstat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _sync(path: Path) -> None:
    """Have the disk keep what ``path`` holds. Not every file system can do this for folders."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.EBADF):
            raise
    finally:
        os.close(descriptor)


def remove_dead_lock(name: Path) -> None:
    """Remove the lock that a process left which was killed just after ``name`` and its like had their names."""
    path = _lock_of(name)
    if path.exists():
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(descriptor)


def _lock_of(name: Path) -> Path:
    return name.with_name(f".{name.name}.lock")


@contextmanager
def _locked(name: Path, came: Came) -> Iterator[None]:
    """Hold the lock of ``name``, a file beside it that goes at the end."""
    path = _lock_of(name)
    descriptor = _taken(path, came)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        os.close(descriptor)


def _taken(path: Path, came: Came) -> int:
    """A descriptor of the file ``path`` that holds its lock, after waiting while another process holds it."""
    until = time.monotonic() + _LONGEST_WAIT_S
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(descriptor, path):
                return descriptor
        except BlockingIOError:
            pass
        except OSError:  # some file systems know no locks: there the bytes tell whether engine and manifest belong together
            return descriptor
        os.close(descriptor)
        if came():
            raise KeyboardInterrupt
        if time.monotonic() > until:
            what = f"another process holds the lock of the output for more than {_LONGEST_WAIT_S:g} s"
            raise UsageProblem(what, str(path), "end that process, or choose another name with -o")
        time.sleep(_PAUSE_S)


def _is_at(descriptor: int, path: Path) -> bool:
    """True where the open file still has its name: whoever held the lock before has removed it."""
    found = os.fstat(descriptor)
    return _identity(path) == (found.st_dev, found.st_ino)
