"""The one ``trt.ILogger``. Only for processes that import TensorRT."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

# Takes the severity and the text of a message; False drops the message.
Hear = Callable[[str, str], bool]


def make_logger(trt: Any, hear: Hear = lambda severity, message: True) -> Any:
    """A ``trt.ILogger`` that keeps ``errors`` and ``warnings`` and hands every message to ``hear`` first."""

    class Logger(trt.ILogger):
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []
            self.warnings: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if not hear(severity.name, message):
                return
            if severity in (trt.ILogger.Severity.ERROR, trt.ILogger.Severity.INTERNAL_ERROR):
                self.errors.append(message)
            elif severity == trt.ILogger.Severity.WARNING:
                self.warnings.append(message)

    return Logger()


def in_one_line(messages: Iterable[str]) -> list[str]:
    """Each message without line breaks."""
    return [" ".join(message.split()) for message in messages]
