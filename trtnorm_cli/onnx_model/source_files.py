"""The files that a model was read from, and whether they are still what they were then.

Weights are read when they are needed. A file that is written anew meanwhile would mix two models without a sign of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path

from trtnorm_cli.errors import ModelError
from trtnorm_cli.files import sha256_of

State = tuple[int, ...]
# Linux before 6.13 gives files the time of the last tick of its clock, up to 10 ms ago.
_TICK_NS = 10_000_000


class SourceFiles:
    """``paths`` are the model's file and its external files."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = tuple(paths)
        self._states = [_settled_state(path) for path in self.paths]
        self._digesting: threading.Thread | None = None
        self._lock = threading.Lock()

    def add(self, paths: Sequence[Path]) -> None:
        """Further files, as they are now."""
        self.paths += tuple(paths)
        self._states += [_settled_state(path) for path in paths]

    def start_digest(self) -> None:
        """Compute the digest beside other work, where it is known that somebody will ask for it."""
        if self._digesting is None:
            self._digesting = threading.Thread(target=self._digest_quietly, daemon=True)
            self._digesting.start()

    def _digest_quietly(self) -> None:
        with suppress(OSError, ModelError):  # whoever asks for it meets the same error
            self.sha256()

    def sha256(self) -> str:
        """The digest of the files as they were read. Raises ``ModelError`` when they have changed since."""
        with self._lock:
            return self._digest

    @cached_property
    def _digest(self) -> str:
        self.require_unchanged()
        found = sha256_of(self.paths)
        self.require_unchanged()
        return found

    def require_unchanged(self) -> None:
        """Raise ``ModelError`` when a file is not what it was when the model was read."""
        for path, state in zip(self.paths, self._states, strict=True):
            if _state(path) != state:
                raise ModelError(
                    f"{path.name} changed while it was worked on",
                    str(path),
                    "run the command again when nothing writes to the file",
                )

    @contextmanager
    def explaining_errors(self) -> Iterator[None]:
        """A block in which an error, whatever it is, becomes a ``ModelError`` where a file has changed: that explains it."""
        try:
            yield
        except Exception as error:
            try:
                self.require_unchanged()
            except ModelError as change:
                raise change from error
            raise


def _settled_state(path: Path) -> State | None:
    """The state of a file, after a wait where it was written just now: a change within a tick of the clock has its time."""
    state = _state(path)
    while state is not None and 0 <= time.time_ns() - state[-1] < _TICK_NS:
        time.sleep(_TICK_NS / 1e9)
        state = _state(path)
    return state


def _state(path: Path) -> State | None:
    """The state of a file, which changes when it is written or replaced; None when it is gone.

    The last time is one that no program can set back.
    """
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
