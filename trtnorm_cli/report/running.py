"""The stages that are running, put together from events: in words, how far each is, and how long it will take."""

from __future__ import annotations

import time
from dataclasses import field
from typing import Any

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.progress import Event

# Names that are not here are TensorRT's own phases.
WORDS = {
    "load": "reading the model",
    "weights": "reading the weights",
    "sizes": "working out the sizes",
    "export": "exporting the PyTorch model",
    "import-torch": "importing PyTorch",
    "load-module": "making the module",
    "inspect-module": "looking at its normalizations",
    "trace": "tracing",
    "torch-export": "torch.export",
    "write-onnx": "writing ONNX",
    "torchscript": "TorchScript",
    "run-module": "running the module",
    "rewrite": "rewriting and checking",
    "clean": "cleaning",
    "resolve": "resolving what is ambiguous",
    "find-norms": "finding normalizations",
    "plan": "looking where rules apply",
    "prove": "proving changes",
    "audit": "looking for what is left",
    "save": "writing the model",
    "inspect": "looking at the model",
    "match": "matching nodes",
    "types": "trying float32 for double",
    "precision": "settling the precision",
    "calibrate": "running calibration inputs",
    "ranges": "measuring ranges",
    "settle": "fitting the error budget",
    "network-errors": "running TensorRT's network",
    "network": "asking TensorRT's parser",
    "search": "searching for the fewest kernels",
    "variants": "comparing engines",
    "start-tensorrt": "starting TensorRT",
    "parse": "parsing the model",
    "build": "building the engine",
    "isolate": "isolating the failure",
    "reproducible": "building it again",
    "compare": "comparing",
    "trials": "comparing",
    "gather": "waiting for TensorRT's network",
    "run": "running in ONNX Runtime",
    "float64": "evaluating in float64",
    "noise": "measuring what rounding does",
    "judge": "judging",
    "blame": "finding the first node that differs",
    "try-sizes": "trying sizes in ONNX Runtime",
    "ask-parser": "asking TensorRT's parser",
    "engine": "reading the engine",
    "page": "writing the report",
}
# An estimate from less than this would jump.
_LEAST_SHARE, _LEAST_S = 0.02, 0.5


@dataclass
class Running:
    """A stage that is going on, or has ended."""

    number: int
    name: str
    outer: Running | None
    total: int | None
    unit: str
    start: float
    done: int = 0
    share: float | None = None
    at: str = ""
    seconds: float = 0.0

    @property
    def words(self) -> str:
        return WORDS.get(self.name, self.name)

    def seconds_at(self, now: float) -> float:
        """The seconds that it has lasted."""
        return now - self.start

    def left_s(self, now: float) -> float | None:
        """The seconds that it will still take, if it goes on as it did; None where that cannot be told.

        TensorRT's phases have few steps, which take anything from no time to all of it.
        """
        if not self.is_ours:
            return None
        share = self.share if self.share is not None else self.done / self.total if self.total else None
        lasted = self.seconds_at(now)
        if share is None or not _LEAST_SHARE <= share <= 1.0 or lasted < _LEAST_S:
            return None
        return lasted * (1 - share) / share

    def state(self, now: float) -> dict[str, Any]:
        """Its state for a program, as far as it is known."""
        left = self.left_s(now)
        known = {
            "done": self.done,
            "total": self.total,
            "unit": self.unit or None,
            "at": self.at or None,
            "left_s": None if left is None else round(left, 1),
        }
        return {"words": self.words, **{key: value for key, value in known.items() if value is not None}}

    def text(self, now: float) -> str:
        """One line on what is going on, from the outermost stage on."""
        parts, has_estimate = [], False
        for stage in self._told_of():
            left = None if has_estimate else stage.left_s(now)
            has_estimate = has_estimate or left is not None
            parts.append(stage._own_text() + ("" if left is None or left < 1 else f", about {_duration(left)} left"))
        return ": ".join(parts)

    @property
    def outermost(self) -> Running:
        """The stage that it is a part of, and that is a part of none."""
        return self if self.outer is None else self.outer.outermost

    def _told_of(self) -> list[Running]:
        """The stages from the outermost to this one, without one that says the same as the next, nor TensorRT's between."""
        chain = [self]
        outer = self.outer
        while outer is not None:
            if outer.is_ours and outer.words != chain[-1].words:
                chain.append(outer)
            outer = outer.outer
        return chain[::-1]

    @property
    def is_ours(self) -> bool:
        """False for one of TensorRT's phases."""
        return self.name in WORDS

    def _own_text(self) -> str:
        unit = "" if self.words.endswith(self.unit) else f" {self.unit}"
        if self.total:
            counted = f" {self.done}/{self.total}{unit}"
        elif self.done and self.unit:
            counted = f" {self.done} {self.unit}"
        else:
            counted = ""
        return f"{self.words}{counted}{f' ({self.at})' if self.at else ''}"


@dataclass
class Stages:
    """All that are running, by their number."""

    _running: dict[int, Running] = field(default_factory=dict)

    def hear(self, event: Event) -> Running | None:
        """Take in an event. Returns the stage that it ends."""
        number, kind = event["id"], event["event"]
        if kind == "begin":
            outer = self._running.get(event.get("parent", 0))
            made = Running(number, event["stage"], outer, event.get("total"), event.get("unit", ""), time.monotonic())
            self._running = {**self._running, number: made}
            return None
        stage = self._running.get(number)
        if stage is None:
            return None
        if kind == "end":
            stage.seconds = event["seconds"]
            self._running = {key: value for key, value in self._running.items() if key != number}
            return stage
        stage.done, stage.total = event.get("done", stage.done), event.get("total", stage.total)
        stage.share, stage.at = event.get("share", stage.share), event.get("at", stage.at)
        return None

    def get(self, number: int) -> Running | None:
        return self._running.get(number)

    def innermost(self) -> list[Running]:
        """The stages that have no other inside them, the first begun first."""
        running = self._running  # replaced and never changed, so that another thread may look at it
        outer = {stage.outer.number for stage in running.values() if stage.outer is not None}
        return [stage for number, stage in running.items() if number not in outer]


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
