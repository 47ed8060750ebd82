"""Work beside the main thread, and work that is put off until somebody asks for it.

Python's own long work stays in the main thread, where an interrupt reaches it. A thread prepares a child process and waits for
it, so that it can be ended by ending its child. What it prepares may take a moment: a rewriting without changes is made there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import Any, Generic, Protocol, TypeVar

from trtnorm_cli.child_process import Cancelled, cancellable, is_cancellable, require_wanted
from trtnorm_cli.progress import Place, inside

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Awaited(Protocol[T_co]):
    """Something that is known, or will be."""

    def result(self) -> T_co:
        """The result of the work. Raises the error that it ended with."""

    def error(self) -> BaseException | None:
        """The error that it ended with, or ends with."""

    def is_done(self) -> bool:
        """True where its result is there, or would take no time."""

    def cancel(self) -> None:
        """It is not wanted any more: end it soon."""


class Later(Generic[T]):
    """Work of the thread that first asks for its result, done once. What it waits for is ``after``."""

    def __init__(self, work: Callable[[], T], after: Sequence[Awaited[Any]] = ()) -> None:
        self._work, self._after = work, after
        self._future: Future[T] = Future()

    def error(self) -> BaseException | None:
        if not self._future.done():
            try:
                self._future.set_result(self._work())
            except Exception as error:
                self._future.set_exception(error)
        return self._future.exception()

    def result(self) -> T:
        self.error()
        return self._future.result()

    def is_done(self) -> bool:
        return self._future.done() or (len(self._after) > 0 and all(each.is_done() for each in self._after))

    def cancel(self) -> None:
        if not self._future.done():
            self._future.set_exception(Cancelled())


_PAUSE_S = 0.1


def wait_while_wanted(future: Future[Any]) -> None:
    """Wait until ``future`` is done. Raises ``Cancelled`` where the work of this thread is not wanted any more."""
    if not is_cancellable():
        return
    while not future.done():
        require_wanted()
        wait([future], timeout=_PAUSE_S)


class Pending(Generic[T]):
    """Work in a thread of its own, begun at once."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._future: Future[T] = Future()
        self._stop = threading.Event()
        self.was_asked = False
        self._place = Place()
        self._thread = threading.Thread(target=self._run, name="trtnorm-side-work")
        self._thread.start()

    def _run(self) -> None:
        try:
            with cancellable(self._stop), inside(self._place):
                found = self._work()
        except BaseException as error:
            self._future.set_exception(error)
        else:
            self._future.set_result(found)

    def error(self) -> BaseException | None:
        wait_while_wanted(self._future)
        return self._future.exception()

    def result(self) -> T:
        self.was_asked = True
        wait_while_wanted(self._future)
        return self._future.result()

    def is_done(self) -> bool:
        return self._future.done()

    def cancel(self) -> None:
        self._stop.set()

    def close(self) -> None:
        """Wait until it is at work no more."""
        self._thread.join()


class SideWork:
    """A block during which work is done beside the main thread. At its end nothing of it is left running.

    Where there is no room for that, ``is_beside`` is false, and each piece is done when its result is asked for.
    """

    def __init__(self, is_beside: bool = True) -> None:
        self.is_beside = is_beside
        self._begun: list[tuple[Pending[Any], Callable[[BaseException], None]]] = []

    def start(self, work: Callable[[], T], forget: Callable[[BaseException], None] = lambda error: None) -> Awaited[T]:
        """Begin ``work``, which runs child processes, or reads files. ``forget`` is told of an error that nobody asked for."""
        if not self.is_beside:
            return Later(work)
        begun = Pending(work)
        self._begun.append((begun, forget))
        return begun

    def __enter__(self) -> SideWork:
        return self

    def __exit__(self, *exception: object) -> None:
        """End all that is still at work. A further interrupt does not shorten the wait for that, which is short."""
        for begun, _ in self._begun:
            begun.cancel()
        interrupted = False
        while self._begun:
            begun, forget = self._begun[-1]
            try:
                begun.close()
                if (error := begun.error()) is not None and not begun.was_asked:
                    forget(error)
                self._begun.pop()
            except KeyboardInterrupt:
                interrupted = True
        if interrupted:
            raise KeyboardInterrupt
