"""Interrupts that wait: nobody would know of what was made, or half done, in a block that one of them ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Came = Callable[[], bool]


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
