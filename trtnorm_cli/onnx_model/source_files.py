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
from trtnorm_cli.scratch import forget_evidence

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

    def include(self, others: SourceFiles) -> None:
        """Further files, as they were when ``others`` were read."""
        self.paths += others.paths
        self._states += others._states

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
        self._require_untouched()
        found = sha256_of(self.paths)
        self._require_untouched()
        return found

    def require_unchanged(self) -> None:
        """Raise ``ModelError`` when a file is not what it was when the model was read.

        A file that was touched, or replaced by its equal, is what it was, where the digest was taken before that.
        """
        found = [_state(path) for path in self.paths]
        if found != self._states and self._has_the_same_content(found):
            self._states = found
        self._require_untouched()

    def _has_the_same_content(self, found: Sequence[State | None]) -> bool:
        """True where the digest is known, and that of the files in the states ``found`` is the same."""
        known = self.__dict__.get("_digest")
        if known is None or None in found:
            return False
        try:
            return bool(sha256_of(self.paths) == known and [_state(path) for path in self.paths] == found)
        except OSError:
            return False

    def _require_untouched(self) -> None:
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
                self._require_untouched()
            except ModelError as change:
                forget_evidence(error)
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
