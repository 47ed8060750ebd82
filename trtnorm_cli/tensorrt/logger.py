"""The one ``trt.ILogger``. Only for processes that import TensorRT."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

# Takes the severity and the text of a message; False drops the message.
Hear = Callable[[str, str], bool]


def make_logger(trt: Any, hear: Hear = lambda severity, message: True) -> Any:
    """A ``trt.ILogger`` that keeps ``errors`` and ``warnings`` and hands every message to ``hear`` first."""

    # TensorRT sends tens of thousands of messages, and to ask a severity for its name takes longer than to write one down.
    names = {severity: name for name, severity in trt.ILogger.Severity.__members__.items()}

    class Logger(trt.ILogger):
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []
            self.warnings: list[str] = []
            self._kept = {"ERROR": self.errors, "INTERNAL_ERROR": self.errors, "WARNING": self.warnings}

        def log(self, severity: Any, message: str) -> None:
            name = names[severity]
            if hear(name, message) and name in self._kept:
                self._kept[name].append(message)

    return Logger()


def in_one_line(messages: Iterable[str]) -> list[str]:
    """Each message without line breaks."""
    return [" ".join(message.split()) for message in messages]
