"""The plan of a batch as pydantic models of its YAML file: models, build profiles, precisions, targets, and exceptions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    PrivateAttr,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from trtnorm_cli.errors import ProfileError
from trtnorm_cli.profile.dims import described
from trtnorm_cli.profile.messages import ANY, problems_of
from trtnorm_cli.profile.positions import KeyPath, Positions
from trtnorm_cli.profile.problems import Problem, invalid, refusal
from trtnorm_cli.profile.ranges import ProfileSection
from trtnorm_cli.profile.rewriting import Precision
from trtnorm_cli.profile.scalars import Bytes, Positive
from trtnorm_cli.profile.targets import Targets, read_targets
from trtnorm_cli.profile.yaml_tree import read_tree

MAX_BYTES = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9_][\w.+-]*")
_BEGIN = "a plan begins with 'models:'; docs/batch.md has one to copy"


def _gpu(value: object) -> str | None:
    read = None if value is None else read_targets([value])
    return None if read is None else read[0]


Gpu = Annotated[str | None, BeforeValidator(_gpu), WithJsonSchema({"type": ["string", "number"], "examples": ["sm_89"]})]
Text = Annotated[str, StringConstraints(min_length=1)]
Names = Annotated[tuple[Text, ...], Field(strict=False)]
Settings = dict[str, Any]


class _Shared(ProfileSection):
    """Settings of how builds are run, for a model, an override, or the whole plan."""

    timeout: Positive | None = Field(
        default=None, description="Stop the builder, or a run of the model, after this many seconds."
    )
    memory: Bytes = Field(default=None, description="Stop a job whose processes take more than this each, as in '8GiB'.")
    compare: Literal["yes", "no", "required"] | None = Field(
        default=None, description="Compare TensorRT's network with the model; 'required' fails where that is not possible."
    )
    seed: Annotated[int, Field(ge=0)] | None = Field(default=None, description="Seed of the random inputs of comparisons.")
    snap: bool | None = Field(default=None, description="Move sizes that do not fit the model to the nearest that fit.")


class PlannedModel(_Shared):
    """A model, or all files that a pattern fits. A bare text is the model alone."""

    model: Text = Field(description="An ONNX file, a PyTorch model such as 'model.py:callable', or a pattern such as '*.onnx'.")
    profile: Text | None = Field(
        default=None, description="The model's own build profile, in place of the plan's; {stem} stands for the file's name."
    )
    profiles: Names | None = Field(default=None, description="Those of the plan's build profiles that the model is built with.")
    precisions: Annotated[tuple[Precision, ...], Field(strict=False)] | None = Field(
        default=None, description="Its precisions, in place of the plan's."
    )
    targets: Names | None = Field(default=None, description="Those of the plan's targets that the model is built for.")
    weights: Text | None = Field(default=None, description="A file of weights, as --weights takes it.")
    files: Names = Field(
        default=(), description="Further files that a PyTorch model reads. Modules that it imports from its folder are found."
    )
    exporter: Literal["auto", "dynamo", "torchscript"] = Field(default="auto", description="The PyTorch exporter.")
    opset: Annotated[int, Field(ge=7)] | None = Field(default=None, description="The ONNX opset of an export.")
    accept: Names = Field(default=(), description="Kinds of accidents that do not stop an export.")
    strict: bool = Field(default=True, description="Whether weights must have all names of the model, and no others.")
    verify: bool = Field(default=True, description="Whether an export is compared with the PyTorch model.")

    @model_validator(mode="before")
    @classmethod
    def _model_alone(cls, value: object) -> object:
        return {"model": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_way_to_profiles(self) -> PlannedModel:
        if self.profile is not None and self.profiles is not None:
            raise invalid(
                [Problem(("profiles",), "the model has a 'profile' of its own as well", "leave out one of them")], None
            )
        return self


class PlannedProfile(ProfileSection):
    """A build profile, and settings that take the place of its own. A bare text is the file."""

    file: Text | None = Field(default=None, description="The build profile's file.")
    settings: Settings = Field(default_factory=dict, description="Keys of a build profile, put over those of the file.")

    @model_validator(mode="before")
    @classmethod
    def _file_alone(cls, value: object) -> object:
        return {"file": value} if isinstance(value, str) else value


class PlannedTarget(ProfileSection):
    """The aim of engines: a backend, and the GPUs that it compiles for, or the GPU that it needs at hand."""

    backend: Literal["tensorrt", "tensorrt-rtx"] | None = Field(default=None, description="The TensorRT package.")
    targets: Targets = Field(default=None, description="Compute capabilities to compile for ahead of time (tensorrt-rtx).")
    gpu: Gpu = Field(default=None, description="Build on a worker with the resource GPU_sm_…, as full TensorRT needs it.")
    resources: dict[str, Positive] = Field(default_factory=dict, description="Further resources that a worker must have.")
    settings: Settings = Field(default_factory=dict, description="Keys of a build profile, put over those of the file.")


class Selection(ProfileSection):
    """Jobs by the names of their parts, which may be patterns such as 'resnet*'. What is left out fits every job."""

    model: Text | None = None
    profile: Text | None = None
    precision: Text | None = None
    target: Text | None = None

    def parts(self) -> dict[str, str]:
        """The patterns that are given."""
        named = {"model": self.model, "profile": self.profile, "precision": self.precision, "target": self.target}
        return {key: value for key, value in named.items() if value is not None}

    @model_validator(mode="after")
    def _not_empty(self) -> Selection:
        if not self.parts():
            raise invalid(
                [Problem((), "names nothing, and would fit every job", "give model, profile, precision or target")], None
            )
        return self


class Override(_Shared):
    """Settings of some jobs."""

    match: Selection = Field(description="The jobs.")
    settings: Settings = Field(default_factory=dict, description="Keys of a build profile, put over those of the jobs.")


class Inclusion(ProfileSection):
    """A further job. What is left out is as in a plan without that list."""

    model: Text
    profile: Text | None = None
    precision: Precision | None = None
    target: Text | None = None


class Plan(_Shared):
    """A batch: the jobs are every model with each of its build profiles and precisions, for each target."""

    models: dict[str, PlannedModel] = Field(min_length=1, description="Models by the name that jobs have.")
    profiles: dict[str, PlannedProfile] = Field(default_factory=dict, description="Build profiles by name.")
    precisions: Annotated[tuple[Precision, ...], Field(strict=False)] = Field(
        default=(), description="The types to compute in; otherwise those that the build profiles ask for."
    )
    targets: dict[str, PlannedTarget] = Field(default_factory=dict, description="What engines are built for, by name.")
    exclude: Annotated[tuple[Selection, ...], Field(strict=False)] = Field(default=(), description="Jobs to leave out.")
    include: Annotated[tuple[Inclusion, ...], Field(strict=False)] = Field(default=(), description="Further jobs.")
    overrides: Annotated[tuple[Override, ...], Field(strict=False)] = Field(
        default=(), description="Settings of some jobs; a later one takes the place of an earlier one."
    )
    store: Text | None = Field(default=None, description="Folder or URL where results are kept, as --store.")

    _positions: Positions = PrivateAttr(default_factory=Positions)

    @property
    def positions(self) -> Positions:
        """The place of each value in the file."""
        return self._positions

    @property
    def folder(self) -> Path:
        """The folder of the file, where relative paths in it start."""
        return (Path() if self._positions.source is None else Path(self._positions.source).parent).absolute()

    @model_validator(mode="after")
    def _names_are_names(self) -> Plan:
        sections: dict[str, Iterable[str]] = {"models": self.models, "profiles": self.profiles, "targets": self.targets}
        problems = [
            Problem((section, name), f"{name!r} cannot be a name", "use letters, digits, '_', '.', '+' and '-': files get it")
            for section, named in sections.items()
            for name in named
            if not _NAME.fullmatch(name)
        ]
        if problems:
            raise invalid(problems, None)
        return self


SECTIONS: dict[KeyPath, type[BaseModel]] = {
    (): Plan,
    ("models", ANY): PlannedModel,
    ("profiles", ANY): PlannedProfile,
    ("targets", ANY): PlannedTarget,
    ("exclude", ANY): Selection,
    ("include", ANY): Inclusion,
    ("overrides", ANY): Override,
    ("overrides", ANY, "match"): Selection,
}


def load_plan(path: Path) -> Plan:
    """Read a plan. Raises one ``ProfileError`` with every mistake, each with its line."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ProfileError(f"the plan cannot be read: {error.strerror}", str(path), "check the path") from error
    if len(content) > MAX_BYTES:
        raise ProfileError(f"the plan is larger than {MAX_BYTES >> 20} MiB", str(path), _BEGIN)
    try:
        return parse_plan(content.decode("utf-8-sig"), str(path))
    except UnicodeDecodeError as error:
        raise ProfileError("the plan is not UTF-8 text", str(path), _BEGIN) from error


def parse_plan(text: str, source: str | None = None) -> Plan:
    """Read a plan from YAML text. Raises as ``load_plan``."""
    if not text.strip():
        raise ProfileError("the plan is empty", source, _BEGIN)
    tree = read_tree(text, source)
    if () in tree.unread:
        raise refusal(tree.problems, tree.positions)
    if not isinstance(tree.value, dict):
        raise refusal([Problem((), f"expected a mapping, got {described(tree.value)}", _BEGIN)], tree.positions)
    problems = list(tree.problems)
    try:
        plan = Plan.model_validate(tree.value)
    except ValidationError as error:
        problems += problems_of(error, tree.positions, SECTIONS)
    if problems:
        raise refusal(problems, tree.positions)
    plan._positions = tree.positions
    return plan


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a plan, for editors."""
    return Plan.model_json_schema()
