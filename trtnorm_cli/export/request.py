"""What the parent asks of the export process and what it gets back. Both are plain JSON, tensors are files beside it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trtnorm_cli.child_process import REQUEST_FILE, RESULT_FILE
from trtnorm_cli.files import save_in_one_step

LOG_FILE = "export.log"
MODEL_FILE = "exported.onnx"

EXPORTERS = ("auto", "dynamo", "torchscript")


@dataclass(frozen=True)
class ExportRequest:
    """One model to ``export``, to ``inspect``, or to ``run`` on ``feeds``, as ``task`` says.

    ``spec`` holds the fields of a ``Target`` and ``profile`` a ``BuildProfile`` as JSON; ``profile_lines`` are the lines of
    its key paths in ``profile_file``, for messages. ``feeds`` maps the label of each
    trial to records of tensor files, by input.
    """

    task: str
    spec: dict[str, Any]
    profile: dict[str, Any] | None = None
    profile_file: str | None = None
    profile_lines: tuple[tuple[list[str | int], int], ...] = ()
    exporter: str = "auto"
    opset: int | None = None
    default_opset: int = 0
    seed: int = 0
    trial_budget_s: float = 30.0
    verify: bool = True
    weights: str | None = None
    strict: bool = True
    keep_training: bool = False
    accepted: tuple[str, ...] = ()
    feeds: dict[str, dict[str, Any]] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        (folder / REQUEST_FILE).write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")

    @staticmethod
    def load(folder: Path) -> ExportRequest:
        return ExportRequest(**json.loads((folder / REQUEST_FILE).read_text(encoding="utf-8")))


@dataclass(frozen=True)
class Failure:
    """An error that the user should see: the name of a class of ``errors.py`` and what it says."""

    kind: str
    summary: str
    where: str | None = None
    hint: str | None = None


@dataclass(frozen=True)
class LearntDimension:
    """What an export found out about one dimension: asked for, and what the model takes.

    ``reasons`` are the guards that told, each with the module and the source line that it comes from. ``places`` says which
    axes it is: ``image[2]``.
    """

    name: str
    asked: tuple[int, int, int]
    taken: tuple[int, int, int]
    multiple_of: int
    places: tuple[str, ...]
    reasons: tuple[str, ...] = ()
    named: bool = True

    @property
    def changed(self) -> bool:
        return self.asked != self.taken


@dataclass(frozen=True)
class TrialRecord:
    """One run of the module: feeds and outputs as records of tensor files; ``exact`` is the run in float64, if there is one."""

    label: str
    feeds: dict[str, Any]
    outputs: dict[str, Any]
    exact: dict[str, Any] | None = None
    optional: bool = False


@dataclass(frozen=True)
class ExportResult:
    """What the child found. ``failure`` is None when it did what was asked."""

    failure: Failure | None = None
    exporter: str = ""
    because: str = ""
    opset: int = 0
    torch: str = ""
    inputs: tuple[dict[str, Any], ...] = ()
    outputs: tuple[str, ...] = ()
    dimensions: tuple[LearntDimension, ...] = ()
    accidents: tuple[dict[str, Any], ...] = ()
    normalizations: tuple[dict[str, Any], ...] = ()
    weights: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    trials: tuple[TrialRecord, ...] = ()
    skipped: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        """Write the result under its final name in one step, so that a reader never sees half of it."""
        save_in_one_step(asdict(self), folder / RESULT_FILE)

    @staticmethod
    def load(folder: Path) -> ExportResult | None:
        """The result in ``folder``, or None when the child never wrote one."""
        path = folder / RESULT_FILE
        if not path.exists():
            return None
        data = json.loads(path.read_text(encoding="utf-8"))
        data["failure"] = Failure(**data["failure"]) if data["failure"] else None
        data["dimensions"] = tuple(_learnt(entry) for entry in data["dimensions"])
        data["trials"] = tuple(TrialRecord(**entry) for entry in data["trials"])
        for key in ("inputs", "outputs", "accidents", "normalizations", "notes", "warnings", "skipped"):
            data[key] = tuple(data[key])
        return ExportResult(**data)


def _learnt(entry: dict[str, Any]) -> LearntDimension:
    lists = {key: tuple(entry[key]) for key in ("asked", "taken", "places", "reasons")}
    return LearntDimension(**{**entry, **lists})
