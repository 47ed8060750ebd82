"""Interrupts: what asks the command to end, heard at once wherever the main thread is, or held until a block is over."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

# Being asked to end is being interrupted: what is half done is removed on the way out.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_CLOSE_TOGETHER_S = 3.0
# Nothing here uses this one, and a program that does not know it ignores it.
_REMINDER = signal.SIGURG
_PAUSE_S = 0.05
# What stands for an interrupt that was ignored, where the other bytes are numbers of signals.
_AGAIN = b"\0"
Came = Callable[[], bool]


class Interrupt:
    """A handler of signals that raises ``KeyboardInterrupt``, and once for those that come close together.

    A second interrupt would meet what the first has begun to remove, and stop that. ``number`` is the last signal's.
    """

    def __init__(self) -> None:
        self.number: int = signal.SIGINT
        self.forget()

    def forget(self) -> None:
        """Raise at the next signal, however soon it comes."""
        self._last = time.monotonic() - _CLOSE_TOGETHER_S

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now, self.number = time.monotonic(), number
        if now - self._last >= _CLOSE_TOGETHER_S:
            self._last = now
            raise KeyboardInterrupt


def heed_interrupts() -> None:
    """Have signals that ask the command to end raise ``KeyboardInterrupt`` in the main thread, which calls this."""
    interrupt = Interrupt()
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup asks, and a shell in the background
            signal.signal(number, interrupt)
    _Reminder(interrupt).start()


def comes_of_interrupt(error: BaseException) -> bool:
    """True for an interrupt, and for another error that was raised because of one.

    Python before 3.12 makes a ``RuntimeError`` of what is raised while a class gets its attributes.
    """
    seen: list[BaseException] = []
    while error not in seen:
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.append(error)
        error = error.__cause__ or error.__context__ or error
    return False


class _Reminder:
    """A thread that reminds the main thread of signals until it has looked for them, and of an interrupt that it ignored.

    Python notes a signal when it comes, and its handler is called when the main thread next looks. A signal between the last
    look and the moment at which a lock is waited for is heard of when that wait is over, which may be as long as a build.
    Another signal ends the wait for a moment, and Python looks for all of them then. What Python writes to a descriptor as it
    notes a signal (``signal.set_wakeup_fd``) says that one came.

    What a handler raises in a finalizer, or in a callback of the garbage collector, ends nothing: Python prints that it ignores
    it (``sys.unraisablehook``). A signal during a collection is looked for there first.
    """

    def __init__(self, interrupt: Interrupt) -> None:
        self._interrupt = interrupt
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._has_looked = True
        signal.signal(_REMINDER, self._look)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._hook, sys.unraisablehook = sys.unraisablehook, self._ignored

    def start(self) -> None:
        threading.Thread(target=self._run, name="trtnorm-signals", daemon=True).start()

    def _look(self, number: int, frame: FrameType | None) -> None:
        self._has_looked = True

    def _ignored(self, what: sys.UnraisableHookArgs) -> None:
        """Have an interrupt that ended nothing come again. Another thread sends it, as this is no place for it either."""
        if what.exc_type is not KeyboardInterrupt:
            self._hook(what)
            return
        os.write(self._writer, _AGAIN)

    def _run(self) -> None:
        main = threading.main_thread().ident
        assert main is not None, "it runs"
        while came := os.read(self._reader, 64):
            if _AGAIN in came:
                time.sleep(_PAUSE_S)  # the main thread is where nothing ends, and may be there for a moment more
                self._interrupt.forget()
                signal.pthread_kill(main, self._interrupt.number)
            if set(came) <= {_REMINDER, *_AGAIN}:
                continue
            self._has_looked = False
            while not self._has_looked:
                time.sleep(_PAUSE_S)
                signal.pthread_kill(main, _REMINDER)


@contextmanager
def interrupts_held() -> Iterator[Came]:
    """A block in which an interrupt raises nothing, wherever it comes. It is told by what is yielded, and acts at the end.

    Only the main thread hears of signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        heard.append(number)

    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        for number, handler in handlers.items():
            if handler not in (signal.SIG_IGN, None):
                signal.signal(number, hear)
        yield lambda: bool(heard)
    finally:
        for number, handler in handlers.items():
            if handler is not None:
                signal.signal(number, handler)
    if heard:
        signal.raise_signal(heard[0])
