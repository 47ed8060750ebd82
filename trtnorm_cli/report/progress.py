"""Show the progress of a command on stderr: a live line in a terminal, a line a stage in a log, JSON lines where asked for."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, TextIO

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.plain_text import shown
from trtnorm_cli.progress import Event, listening
from trtnorm_cli.report.running import Running, Stages
from trtnorm_cli.report.verbosity import Verbosity

FORMAT = 1
# A log is told of a stage once it has lasted so long, and again after so long without a line.
_ANNOUNCED_S, _SILENT_S = 2.0, 20.0
# Shorter stages are not worth a line.
_WORTH_A_LINE_S = 1.0
# The live line comes when a command lasts, and moves so often.
_LIVE_AFTER_S, _FRAME_S = 0.4, 0.125
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
# Advances of one stage that are nearer in time are left out of the JSON lines, but for the last.
_ADVANCES_S = 0.1


@dataclass(frozen=True)
class ProgressChoice:
    """The way to show progress: ``auto``, ``lines``, ``json`` or ``none``. JSON lines go to ``file``, or to stderr."""

    kind: str = "auto"
    file: Path | None = None


AUTO = ProgressChoice()


class _Display(Protocol):
    def start(self) -> None: ...

    def hear(self, event: Event) -> None: ...

    def close(self) -> None: ...


@contextmanager
def shown_progress(command: str, choice: ProgressChoice = AUTO, verbosity: Verbosity = Verbosity.NORMAL) -> Iterator[None]:
    """A block of ``command`` whose stages are shown. What it prints itself should come after the block."""
    display = _display(command, choice, verbosity)
    if display is None:
        yield
        return
    display.start()
    try:
        with listening(display.hear):
            yield
    finally:
        display.close()


def _display(command: str, choice: ProgressChoice, verbosity: Verbosity) -> _Display | None:
    if choice.kind == "json":
        return JsonLines(command, choice.file)
    if choice.kind == "none" or (choice.kind == "auto" and verbosity is Verbosity.QUIET):
        return None
    if choice.kind == "auto" and sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        return LiveLine()
    return LogLines()


class _Ticking:
    """Stages that are looked at every now and then, by a thread of its own."""

    def __init__(self, pause_s: float) -> None:
        self.stages = Stages()
        self._pause_s, self._over = pause_s, threading.Event()
        self._thread = threading.Thread(target=self._run, name="trtnorm-progress", daemon=True)

    def hear(self, event: Event) -> None:
        ended = self.stages.hear(event)
        if ended is not None:
            self.on_end(ended)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._pause_s):
            self.on_tick(time.monotonic())

    def on_end(self, ended: Running) -> None:
        """A stage has ended."""

    def on_tick(self, now: float) -> None:
        """Some time has passed."""


class LogLines(_Ticking):
    """A line when a stage that lasted has ended, with its seconds; and one while it lasts, for whoever watches."""

    def __init__(self) -> None:
        super().__init__(0.25)
        self._said: set[int] = set()
        self._last = time.monotonic()
        self._lock = threading.Lock()

    def on_end(self, ended: Running) -> None:
        if ended.outer is None and ended.seconds >= _WORTH_A_LINE_S:
            self._print(f"{ended.words}: {ended.seconds:.1f} s")

    def on_tick(self, now: float) -> None:
        for stage in self.stages.innermost():
            outermost = stage.outermost
            if outermost.seconds_at(now) < _ANNOUNCED_S:
                continue
            if outermost.number not in self._said or now - self._last >= _SILENT_S:
                self._said.add(outermost.number)
                self._print(f"{stage.text(now)} …")

    def _print(self, text: str) -> None:
        with self._lock, suppress(OSError, ValueError):
            self._last = time.monotonic()
            print(f"trtnorm: {shown(text)}", file=sys.stderr, flush=True)


class LiveLine(_Ticking):
    """One line at the bottom of the terminal that tells what is going on. It goes away when the command is done."""

    def __init__(self) -> None:
        super().__init__(_FRAME_S)
        self._start = time.monotonic()
        self._live: Any = None
        self._running = "starting"

    def on_tick(self, now: float) -> None:
        if now - self._start < _LIVE_AFTER_S:
            return
        from rich.text import Text

        if self._live is None:
            self._live = _begun()
        # Between two stages that last, there are moments that no stage is worth.
        self._running = "  ·  ".join(stage.text(now) for stage in self.stages.innermost()) or self._running
        frame = _FRAMES[int(now / _FRAME_S) % len(_FRAMES)]
        line = f"{frame} {now - self._start:.0f} s  {shown(self._running)}"
        self._live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)

    def close(self) -> None:
        super().close()
        if self._live is not None:
            self._live.stop()


def _begun() -> Any:
    from rich.console import Console
    from rich.live import Live

    live = Live(console=Console(stderr=True, highlight=False), transient=True, auto_refresh=False)
    live.start()
    return live


class JsonLines:
    """Each event as a line of JSON, as ``docs/progress.md`` describes it."""

    def __init__(self, command: str, file: Path | None) -> None:
        self._stream, self._is_own = _opened(file)
        self.stages = Stages()
        self._start, self._told = time.monotonic(), dict[int, float]()
        self._held: dict[int, dict[str, Any]] = {}
        self._command = command

    def start(self) -> None:
        self._write({"event": "start", "format": FORMAT, "command": self._command})

    def hear(self, event: Event) -> None:
        self.stages.hear(event)
        number, now = event["id"], time.monotonic()
        if event["event"] == "advance":
            if now - self._told.get(number, 0.0) < _ADVANCES_S:
                self._held[number] = self._described(event, now)
                return
            self._held.pop(number, None)
            self._told[number] = now
        elif event["event"] == "end" and (held := self._held.pop(number, None)) is not None:
            self._write(held)
        self._write(self._described(event, now))

    def close(self) -> None:
        self._write({"event": "done", "seconds": round(time.monotonic() - self._start, 3)})
        if self._is_own:
            with suppress(OSError):
                self._stream.close()

    def _described(self, event: Event, now: float) -> dict[str, Any]:
        """The event, with what is known of its stage and the seconds since the command began."""
        stage = self.stages.get(event["id"])
        known: dict[str, Any] = {key: value for key, value in event.items() if key != "share"}
        if stage is not None:
            known |= stage.state(now) if event["event"] == "advance" else {"words": stage.words}
        return {**known, "time": round(now - self._start, 3)}

    def _write(self, event: dict[str, Any]) -> None:
        with suppress(OSError, ValueError):  # nobody reads it any more
            self._stream.write(json.dumps(event) + "\n")
            self._stream.flush()


def _opened(file: Path | None) -> tuple[TextIO, bool]:
    if file is None:
        return sys.stderr, False
    from trtnorm_cli.files import cannot_write

    try:
        return file.open("w", encoding="utf-8"), True
    except OSError as error:
        raise cannot_write("the progress", file, error, "choose another file") from error
