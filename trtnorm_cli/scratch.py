"""Private folders that go at the end, and those of processes that could not remove theirs.

A process that is killed leaves its folders. Each folder has a mark, a file on which its owner holds a lock. The kernel frees
the lock when the owner is gone, however that came about. So a folder whose mark nobody holds is nobody's, and the next run
removes it. A folder without a mark is not touched: it is another program's, or was kept for a report.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from trtnorm_cli.errors import BuilderFailure, TrtnormError, UsageProblem
from trtnorm_cli.files import cannot_write
from trtnorm_cli.interrupts import interrupts_held

MARK = ".in-use"
IN_TEMPORARY, BESIDE = "trtnorm-", ".trtnorm-"
# Some file systems know no locks: there a folder gets no mark, and stays when its owner is killed.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


class Scratch:
    """A new private folder of this process, in ``within`` or the folder for temporary files. Raises ``OSError``.

    It goes with this object, or with the process, if nobody removes it before. The first one among temporary files takes those
    of killed processes with it, whichever command that was.
    """

    def __init__(self, prefix: str, within: Path | None = None) -> None:
        if within is None:
            _remove_dead_once(tempfile.gettempdir())
        with interrupts_held():
            self.path, mark = _made(prefix, within)
            self._end = weakref.finalize(self, _remove, self.path, mark, os.getpid())
            _ALIVE.add(self)

    def remove(self) -> None:
        """Remove the folder with all that is in it, unless it was kept. May be called twice.

        An interrupt waits for that: nobody would come back to a folder that is half removed.
        """
        with interrupts_held():
            self._end()

    def keep(self) -> None:
        """Leave the folder where it is: somebody is told of it."""
        ending = self._end.detach()
        if ending is not None:
            with suppress(OSError):
                (self.path / MARK).unlink()
            _release(ending[2][1])

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *exception: object) -> None:
        self.remove()


_ALIVE: weakref.WeakSet[Scratch] = weakref.WeakSet()


def remove_left() -> None:
    """Remove the folders of this process that nobody removed, before it ends without what Python does at its end."""
    for scratch in list(_ALIVE):
        scratch.remove()


def _made(prefix: str, within: Path | None) -> tuple[Path, int | None]:
    """A new folder, and the descriptor that holds its mark."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=within)).absolute()
        try:
            return folder, _marked(folder)
        except FileNotFoundError:  # a run that tidies up took it for a dead one's
            continue
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def _remove(folder: Path, mark: int | None, owner: int) -> None:
    if os.getpid() == owner:  # and not a fork of it
        shutil.rmtree(folder, ignore_errors=True)
    _release(mark)


def _release(mark: int | None) -> None:
    if mark is not None:
        os.close(mark)


def _marked(folder: Path) -> int | None:
    """Mark ``folder`` as this process's. Returns the descriptor that holds the lock; None where there are no locks.

    Raises ``FileNotFoundError`` where the folder was removed meanwhile.
    """
    mark = os.open(folder / MARK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.fstat(mark).st_nlink:
            raise FileNotFoundError(errno.ENOENT, "the folder was removed", str(folder))
    except OSError as error:
        os.close(mark)
        if isinstance(error, BlockingIOError):
            raise FileNotFoundError(errno.ENOENT, "the folder is being removed", str(folder)) from error
        if error.errno not in _NO_LOCKS:
            raise
        (folder / MARK).unlink()
        return None
    return mark


def remove_dead(within: Path, prefix: str) -> None:
    """Remove what killed processes of this user left in ``within``."""
    with suppress(OSError):
        for entry in os.scandir(within):
            if entry.name.startswith(prefix) and entry.is_dir(follow_symlinks=False):
                _remove_if_dead(Path(entry.path))


@cache
def _remove_dead_once(within: str) -> None:
    remove_dead(Path(within), IN_TEMPORARY)


def _remove_if_dead(folder: Path) -> None:
    try:
        mark = os.open(folder / MARK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:  # it has no mark, or is another user's
        return
    try:
        fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(mark).st_uid == os.geteuid():
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:  # its owner is at work
        return
    finally:
        os.close(mark)


def forget_evidence(error: BaseException) -> None:
    """Remove what was kept for a report on ``error``, which nobody is told of."""
    if isinstance(error, BuilderFailure) and error.evidence is not None:
        shutil.rmtree(error.evidence, ignore_errors=True)


@contextmanager
def scratch_beside(target: Path) -> Iterator[Path]:
    """A private folder on the same disk as ``target``, gone at the end. What a killed process left beside it goes too.

    Raises ``UsageProblem`` or ``NoRoom`` where it cannot be written, also for an ``OSError`` of the block.
    """
    remove_dead(target.parent, BESIDE)
    try:
        scratch = Scratch(BESIDE, target.parent)
    except OSError as error:
        raise cannot_write("the folder", target.parent, error, "choose another folder with -o") from error
    with scratch as folder, explained(folder, "choose another folder with -o"):
        yield folder


@contextmanager
def explained(folder: Path, hint: str) -> Iterator[None]:
    """Turn an ``OSError`` of the block into an error that says what became of the private ``folder``, if that explains it."""
    try:
        yield
    except OSError as error:
        raise _explained(folder, error, hint) or error from error


def _explained(folder: Path, error: OSError, hint: str) -> TrtnormError | None:
    if not folder.is_dir():
        return UsageProblem(
            "a folder in which the command worked was removed meanwhile",
            str(folder),
            "run the command again, and leave it there",
        )
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO):
        return cannot_write("a file", Path(error.filename or folder), error, hint)
    return None
