"""The stages of a build process, and TensorRT's own phases within them, from the events that the process reports."""

from __future__ import annotations

from contextlib import suppress

from trtnorm_cli.progress import Event, OpenStages

_STAGE = "stage"
# What the process calls the import of TensorRT.
_NAMES: dict[str, str] = {"load": "start-tensorrt"}


class BuildStages:
    """The stages of one build process. Leaving the ``with`` block ends those that it left open."""

    def __init__(self) -> None:
        self._stages = OpenStages()

    def __enter__(self) -> BuildStages:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stages.close()

    def hear(self, event: Event) -> None:
        """Take over an event of the process; one that lacks something shows nothing. A stage ends when the next begins."""
        with suppress(KeyError):
            self._hear(event)

    def _hear(self, event: Event) -> None:
        kind, stages = event["event"], self._stages
        if kind == "stage":
            stages.end(_STAGE)
            stages.begin(_STAGE, _NAMES.get(event["stage"]) or event["stage"])
        elif kind == "phase":
            stages.begin(("phase", event["phase"]), event["phase"], self._outer(event["parent"]), event["steps"])
        elif kind == "step":
            stages.get(("phase", event["phase"])).reach(event["step"] + 1)
        elif kind == "finish":
            stages.end(("phase", event["phase"]))

    def _outer(self, parent: str) -> object:
        return ("phase", parent) if self._stages.has(("phase", parent)) else _STAGE
