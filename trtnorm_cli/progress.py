"""The stages of a command while it runs: what is done, how far it is, and what it is part of.

Work that can last opens a ``stage`` around itself. Whoever wants to know opens ``listening`` further out and is told of each
beginning, advance and end as a dictionary (``docs/progress.md``). Where nobody listens, a stage costs a microsecond.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

# What is going on, with the kind of the event under ``event``.
Event = Mapping[str, Any]
Listener = Callable[[Event], None]
T = TypeVar("T")


class Stage(Protocol):
    """Work that goes on."""

    def advance(self, count: int = 1, share: float | None = None) -> None:
        """Say that ``count`` more of the total is done. ``share`` is the part of the time that goes with what is done."""

    def reach(self, done: int) -> None:
        """Say how much of the total is done."""

    def expect(self, total: int) -> None:
        """Say how much there is to do."""

    def at(self, what: str) -> None:
        """Say what is in hand, such as a node's name."""


class _Silent:
    """A stage that nobody listens to."""

    def advance(self, count: int = 1, share: float | None = None) -> None:
        pass

    def reach(self, done: int) -> None:
        pass

    def expect(self, total: int) -> None:
        pass

    def at(self, what: str) -> None:
        pass


class _Told:
    """A stage that a listener hears of."""

    def __init__(self, teller: _Teller, name: str, outer: _Told | None, total: int | None, unit: str) -> None:
        self._teller, self._name, self._done = teller, name, 0
        self.number = teller.next_number()
        self._start = time.monotonic()
        self._tell("begin", parent=None if outer is None else outer.number, total=total, unit=unit or None)

    def advance(self, count: int = 1, share: float | None = None) -> None:
        self._done += count
        self._tell("advance", done=self._done, share=share)

    def reach(self, done: int) -> None:
        self._done = done
        self._tell("advance", done=done)

    def expect(self, total: int) -> None:
        self._tell("advance", total=total)

    def at(self, what: str) -> None:
        self._tell("advance", at=what)

    def end(self) -> None:
        self._tell("end", seconds=round(time.monotonic() - self._start, 3))

    def _tell(self, event: str, **what: object) -> None:
        known = {key: value for key, value in what.items() if value is not None}
        self._teller.tell({"event": event, "id": self.number, "stage": self._name, **known})


class _Teller:
    """Tells one listener, from any thread, one event after the other."""

    def __init__(self, listener: Listener) -> None:
        self._listener, self._lock, self._numbers = listener, threading.RLock(), itertools.count(1)

    def next_number(self) -> int:
        return next(self._numbers)

    def tell(self, event: Event) -> None:
        with self._lock:
            self._listener(event)


_TELLER: ContextVar[_Teller | None] = ContextVar("teller", default=None)
_INSIDE: ContextVar[_Told | None] = ContextVar("inside", default=None)
_SILENT = _Silent()


def each(name: str, items: Sequence[T], unit: str) -> Iterator[tuple[T, Stage]]:
    """The items, one after the other, in a stage that knows how many are done."""
    with stage(name, len(items), unit) as told:
        for item in items:
            yield item, told
            told.advance()


def current() -> Stage:
    """The innermost stage of this thread."""
    return _INSIDE.get() or _SILENT


class Place:
    """The listener and the stage of the thread that makes it."""

    def __init__(self) -> None:
        self.teller, self.told = _TELLER.get(), _INSIDE.get()


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """A block whose stages ``listener`` is told of, in whatever thread they are."""
    token = _TELLER.set(_Teller(listener))
    try:
        yield
    finally:
        _TELLER.reset(token)


@contextmanager
def stage(name: str, total: int | None = None, unit: str = "") -> Iterator[Stage]:
    """A block of work. ``total`` is how much there is to do, in ``unit``s, where that is known."""
    teller = _TELLER.get()
    if teller is None:
        yield _SILENT
        return
    told = _Told(teller, name, _INSIDE.get(), total, unit)
    token = _INSIDE.set(told)
    try:
        yield told
    finally:
        _INSIDE.reset(token)
        told.end()


@contextmanager
def inside(place: Place) -> Iterator[None]:
    """A block of another thread whose stages belong where ``place`` was taken."""
    tokens = _TELLER.set(place.teller), _INSIDE.set(place.told)
    try:
        yield
    finally:
        _TELLER.reset(tokens[0])
        _INSIDE.reset(tokens[1])


class OpenStages:
    """Stages that do not end in the order of blocks, by a key of their own. All that are left end with the ``with`` block.

    They belong to the stage in which this was made, whatever thread begins and ends them.
    """

    def __init__(self) -> None:
        self._place = Place()
        self._open: dict[object, _Told] = {}
        self._lock = threading.Lock()
        self._is_closed = False

    @property
    def is_heard(self) -> bool:
        return self._place.teller is not None

    def __enter__(self) -> OpenStages:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def begin(self, key: object, name: str, inside: object = None, total: int | None = None, unit: str = "") -> None:
        """Begin a stage, inside the open stage of the key ``inside`` if there is one."""
        with self._lock:
            teller = self._place.teller
            if teller is None or self._is_closed:
                return
            self._open[key] = _Told(teller, name, self._open.get(inside, self._place.told), total, unit)

    def has(self, key: object) -> bool:
        """True while the stage of this key is open."""
        return key in self._open

    def get(self, key: object) -> Stage:
        """The open stage of this key, or one that nobody hears of."""
        return self._open.get(key, _SILENT)

    def end(self, key: object) -> None:
        """End the stage of this key, if it is open."""
        with self._lock:
            if (told := self._open.pop(key, None)) is not None:
                told.end()

    def close(self) -> None:
        """End what is open, the innermost first, and begin no more."""
        with self._lock:
            self._is_closed = True
            while self._open:
                self._open.popitem()[1].end()

    def relay(self, event: Mapping[str, Any]) -> None:
        """Take over an event of a child process, which numbers its stages itself."""
        number = event.get("id")
        if event.get("event") == "begin":
            self.begin(number, str(event.get("stage")), event.get("parent"), event.get("total"), event.get("unit") or "")
        elif event.get("event") == "end":
            self.end(number)
        elif event.get("event") == "advance":
            told = self.get(number)
            if "total" in event:
                told.expect(event["total"])
            if "at" in event:
                told.at(event["at"])
            if "done" in event:
                told.reach(event["done"])


def telling_parent(descriptor: int) -> Listener:
    """In a child process: a listener that writes each event as a line of JSON for the parent, while that reads."""
    stream = os.fdopen(descriptor, "w", buffering=1, encoding="utf-8")

    def tell(event: Event) -> None:
        with suppress(OSError, ValueError):
            stream.write(json.dumps(event) + "\n")

    return tell
