"""Requests to the export process, and its results. Both are plain JSON, tensors are files beside it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from trtnorm_cli.child_process import REQUEST_FILE, RESULT_FILE
from trtnorm_cli.export.options import ExportOptions
from trtnorm_cli.files import save_in_one_step
from trtnorm_cli.profile.load import parse_profile
from trtnorm_cli.profile.model import BuildProfile
from trtnorm_cli.target import Target

LOG_FILE = "export.log"
MODEL_FILE = "exported.onnx"


@dataclass(frozen=True)
class ProfileText:
    """A build profile as YAML, which parent and child read with the same code. ``source`` is the file's name for messages."""

    text: str
    source: str | None = None

    @staticmethod
    def of(profile: BuildProfile) -> ProfileText:
        """The text that the profile was read from, or one that says the same."""
        if profile.positions.text is not None:
            return ProfileText(profile.positions.text, profile.positions.source)
        values = profile.model_dump(mode="json", exclude_unset=True)
        return ProfileText(yaml.safe_dump(values, allow_unicode=True, sort_keys=False))

    def parse(self) -> BuildProfile:
        return parse_profile(self.text, self.source)


@dataclass(frozen=True)
class ExportRequest:
    """Export the model. ``default_opset`` is that of the backend. The options may say another one."""

    target: Target
    options: ExportOptions
    default_opset: int
    profile: ProfileText | None = None

    def to_json(self) -> dict[str, Any]:
        profile = None if self.profile is None else asdict(self.profile)
        return {**_common_json(self.target, self.options), "default_opset": self.default_opset, "profile": profile}

    @staticmethod
    def load(data: dict[str, Any]) -> ExportRequest:
        profile = None if data["profile"] is None else ProfileText(**data["profile"])
        return ExportRequest(*_load_common(data), data["default_opset"], profile)


@dataclass(frozen=True)
class RunRequest:
    """Run the model on ``feeds``, which are records of tensor files by label of the trial and by input."""

    target: Target
    options: ExportOptions
    feeds: dict[str, dict[str, Any]]
    budget_s: float

    def to_json(self) -> dict[str, Any]:
        return {**_common_json(self.target, self.options), "feeds": self.feeds, "budget_s": self.budget_s}

    @staticmethod
    def load(data: dict[str, Any]) -> RunRequest:
        return RunRequest(*_load_common(data), data["feeds"], data["budget_s"])


@dataclass(frozen=True)
class InspectRequest:
    """List the normalizations of the model."""

    target: Target
    options: ExportOptions

    def to_json(self) -> dict[str, Any]:
        return _common_json(self.target, self.options)

    @staticmethod
    def load(data: dict[str, Any]) -> InspectRequest:
        return InspectRequest(*_load_common(data))


Request = ExportRequest | RunRequest | InspectRequest
_REQUESTS: dict[str, type[Request]] = {"export": ExportRequest, "run": RunRequest, "inspect": InspectRequest}


def _common_json(target: Target, options: ExportOptions) -> dict[str, Any]:
    return {"target": asdict(target), "options": options.to_json()}


def _load_common(data: dict[str, Any]) -> tuple[Target, ExportOptions]:
    return Target(**data["target"]), ExportOptions.load(data["options"])


def save_request(request: Request, folder: Path) -> None:
    task = next(name for name, kind in _REQUESTS.items() if isinstance(request, kind))
    text = json.dumps({"task": task, **request.to_json()}, indent=2)
    (folder / REQUEST_FILE).write_text(text + "\n", encoding="utf-8")


def load_request(folder: Path) -> Request:
    data = json.loads((folder / REQUEST_FILE).read_text(encoding="utf-8"))
    return _REQUESTS[data["task"]].load(data)


@dataclass(frozen=True)
class Failure:
    """An error that the user should see, as the name of a class of ``errors.py`` and what it says."""

    kind: str
    summary: str
    where: str | None = None
    hint: str | None = None


@dataclass(frozen=True)
class LearntDimension:
    """One dimension of the model, with the sizes asked for and those that the model takes.

    ``reasons`` are the guards that told, each with the module and the source line that it comes from. ``places`` says which
    axes it is, as in ``image[2]``.
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
    """One run of the module, with feeds and outputs as records of tensor files.

    ``exact`` is the run in float64, if there is one.
    """

    label: str
    feeds: dict[str, Any]
    outputs: dict[str, Any]
    exact: dict[str, Any] | None = None
    optional: bool = False


@dataclass(frozen=True)
class ExportResult:
    """The result of the export process. ``failure`` is None when it did what was asked."""

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
