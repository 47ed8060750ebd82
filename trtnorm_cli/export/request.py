"""Requests to the export process, and its results. Both are plain JSON, tensors are files beside it."""

from __future__ import annotations

import json
from dataclasses import field
from pathlib import Path

import yaml

from trtnorm_cli.child_process import REQUEST_FILE, RESULT_FILE
from trtnorm_cli.evaluate.tensor_files import TensorFile
from trtnorm_cli.export.options import ExportOptions
from trtnorm_cli.files import save_in_one_step
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.profile.load import parse_profile
from trtnorm_cli.profile.model import BuildProfile
from trtnorm_cli.record import Record
from trtnorm_cli.records.export import AccidentRecord, ExportedInput, LearntDimension, LoadedWeights, NormModule
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
class ExportRequest(Record):
    """Export the model. ``default_opset`` is that of the backend. The options may say another one."""

    target: Target
    options: ExportOptions
    default_opset: int
    profile: ProfileText | None = None


@dataclass(frozen=True)
class RunRequest(Record):
    """Run the model on ``feeds``, which are records of tensor files by label of the trial and by input."""

    target: Target
    options: ExportOptions
    feeds: dict[str, dict[str, TensorFile]]
    budget_s: float


@dataclass(frozen=True)
class InspectRequest(Record):
    """List the normalizations of the model."""

    target: Target
    options: ExportOptions


Request = ExportRequest | RunRequest | InspectRequest
_REQUESTS: dict[str, type[Request]] = {"export": ExportRequest, "run": RunRequest, "inspect": InspectRequest}


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
class TrialRecord:
    """One run of the module, with feeds and outputs as records of tensor files.

    ``exact`` is the run in float64, if there is one.
    """

    label: str
    feeds: dict[str, TensorFile]
    outputs: dict[str, TensorFile]
    exact: dict[str, TensorFile] | None = None
    optional: bool = False


@dataclass(frozen=True)
class ExportResult(Record):
    """The result of the export process. ``failure`` is None when it did what was asked."""

    failure: Failure | None = None
    exporter: str = ""
    because: str = ""
    opset: int = 0
    torch: str = ""
    inputs: tuple[ExportedInput, ...] = ()
    outputs: tuple[str, ...] = ()
    dimensions: tuple[LearntDimension, ...] = ()
    accidents: tuple[AccidentRecord, ...] = ()
    normalizations: tuple[NormModule, ...] = ()
    weights: LoadedWeights | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    trials: tuple[TrialRecord, ...] = ()
    skipped: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        """Write the result under its final name in one step, so that a reader never sees half of it."""
        save_in_one_step(self.to_json(), folder / RESULT_FILE)
