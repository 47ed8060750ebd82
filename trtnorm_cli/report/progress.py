"""Show a build's progress on stderr, as a bar in a terminal and as plain lines elsewhere."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import Any

from trtnorm_cli.child_process import Event
from trtnorm_cli.plain_text import shown
from trtnorm_cli.report.verbosity import Verbosity


def trial_text(event: Event) -> str:
    """One line for a trial of `build --isolate`."""
    outcome = "fails in the same way" if event["fails"] else "does not fail in this way"
    nodes = "1 node" if event["nodes"] == 1 else f"{event['nodes']} nodes"
    return f"isolate: trial {event['number']} of at most {event['limit']}: {nodes}: {outcome}"


_STAGES = {
    "export": "exporting the PyTorch model",
    "rewrite": "rewriting and checking",
    "precision": "settling the precision",
    "load": "starting TensorRT",
    "parse": "parsing the model",
    "build": "building the engine",
    "compare": "comparing",
}


class BuildProgress:
    """A context manager whose instances are called with the events of a build. When quiet, nothing is shown."""

    def __init__(self, verbosity: Verbosity = Verbosity.NORMAL) -> None:
        self._verbosity = verbosity

    def __enter__(self) -> BuildProgress:
        self._bar = _display(self._verbosity)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._bar.close()

    def __call__(self, event: Event) -> None:
        self._bar.show(event)


def _display(verbosity: Verbosity) -> _Bar | _Lines | _Nothing:
    if verbosity is Verbosity.QUIET:
        return _Nothing()
    return _Bar() if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" else _Lines()


class _Nothing:
    def show(self, event: Event) -> None:
        pass

    def close(self) -> None:
        pass


class _Lines:
    """One line for each stage. TensorRT's steps within it are too many for a log."""

    def show(self, event: Event) -> None:
        if event["event"] == "stage":
            print(f"trtnorm: {_STAGES.get(event['stage'], event['stage'])} …", file=sys.stderr, flush=True)
        elif event["event"] == "trial":
            print(f"trtnorm: {trial_text(event)}", file=sys.stderr, flush=True)

    def close(self) -> None:
        pass


class _Bar:
    """A bar for each phase that TensorRT has under way, nested as TensorRT nests them."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._stage: Any = None
        self._phases: dict[str, Any] = {}
        self._depth: dict[str, int] = {}
        self._progress.start()

    def show(self, event: Event) -> None:
        kind = event["event"]
        if kind == "stage":
            self._start_stage(_STAGES.get(event["stage"], str(event["stage"])))
        elif kind == "phase":
            self._depth[event["phase"]] = depth = self._depth.get(event["parent"], 0) + 1
            self._phases[event["phase"]] = self._progress.add_task("  " * depth + shown(event["phase"]), total=event["steps"])
        elif kind == "trial":
            self._start_stage(trial_text(event))
        elif kind == "step" and event["phase"] in self._phases:
            self._progress.update(self._phases[event["phase"]], completed=event["step"] + 1)
        elif kind == "finish" and event["phase"] in self._phases:
            self._progress.remove_task(self._phases.pop(event["phase"]))

    def _start_stage(self, title: str) -> None:
        if self._stage is not None:
            self._progress.remove_task(self._stage)
        self._stage = self._progress.add_task(title, total=None)

    def close(self) -> None:
        self._progress.stop()
