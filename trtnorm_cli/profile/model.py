"""The build profile as pydantic models of the file that ``--profile`` names.

All models are frozen and refuse unknown keys. ``model_dump(mode="json")`` gives the same for the same file and goes into the
manifest. ``model_validate`` reads it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    PrivateAttr,
    WithJsonSchema,
    model_validator,
)

from trtnorm_cli.cost.device import DEFAULT, Device
from trtnorm_cli.profile.builder import BuilderSettings
from trtnorm_cli.profile.device import DescribedDevice as DescribedDevice
from trtnorm_cli.profile.device import DeviceChoice, device_of
from trtnorm_cli.profile.export_settings import ExportInput as ExportInput
from trtnorm_cli.profile.export_settings import ExportSettings
from trtnorm_cli.profile.implementations import NormImplementation, implementation_problems
from trtnorm_cli.profile.positions import Positions
from trtnorm_cli.profile.precision import KeptFloat32 as KeptFloat32
from trtnorm_cli.profile.precision import PrecisionSettings
from trtnorm_cli.profile.problems import Problem, invalid
from trtnorm_cli.profile.ranges import DimRange, ProfileSection, ShapeRange, ValueRange
from trtnorm_cli.profile.rewriting import READINGS, DynamicQuantization, Optimize, TrainingMode
from trtnorm_cli.profile.scalars import (
    Bytes,
    NonNegative,
    Number,
    Positive,
)
from trtnorm_cli.suggest import did_you_mean, listing


class OptimizationProfile(ProfileSection):
    """One range of shapes that the engine serves, which is TensorRT's optimization profile."""

    name: str | None = Field(default=None, min_length=1, description="Unique; 'default' or 'profile<index>' otherwise.")
    inputs: dict[str, ShapeRange] = Field(default_factory=dict, description="Shapes by input; static inputs need none.")
    dims: dict[str, DimRange] = Field(default_factory=dict, description="Symbolic dimensions, before the file's own.")
    values: dict[str, ValueRange] = Field(default_factory=dict, description="Elements of inputs that hold sizes or settings.")
    weight: Positive = Field(default=1.0, description="How often it runs beside the others, for estimates that decide.")


class Normal(ProfileSection):
    """Normally distributed values."""

    distribution: Literal["normal"]
    mean: Number = 0.0
    std: Positive = 1.0


class Uniform(ProfileSection):
    """Uniform values, ``low`` <= x < ``high``."""

    distribution: Literal["uniform"]
    low: Number = 0.0
    high: Number = 1.0

    @model_validator(mode="after")
    def _ordered(self) -> Uniform:
        if self.low >= self.high:
            raise invalid([Problem(("low",), f"{self.low:g} is not below high, {self.high:g}")], None)
        return self


class Integers(ProfileSection):
    """Uniform integers, ``low`` <= n < ``below``."""

    distribution: Literal["integers"]
    low: Annotated[int, Field(ge=-(2**63))] = 0
    below: Annotated[int, Field(le=2**64)]

    @model_validator(mode="after")
    def _ordered(self) -> Integers:
        if self.low >= self.below:
            raise invalid([Problem(("below",), f"{self.below} is not above low, {self.low}")], None)
        return self


class Ones(ProfileSection):
    """Every element 1."""

    distribution: Literal["ones"]


class Constant(ProfileSection):
    """Every element ``value``."""

    distribution: Literal["constant"]
    value: Number


InputData = Annotated[Normal | Uniform | Integers | Ones | Constant, Field(discriminator="distribution")]


class Tolerance(ProfileSection):
    """The largest error that passes. What is left out keeps the default of ``trtnorm compare``."""

    atol: NonNegative | None = Field(default=None, description="Absolute error.")
    rtol: NonNegative | None = Field(default=None, description="Error relative to the reference.")

    @model_validator(mode="after")
    def _not_empty(self) -> Tolerance:
        if self.atol is None and self.rtol is None:
            raise invalid([Problem((), "gives neither atol nor rtol")], None)
        return self


class RuleSettings(ProfileSection):
    """The choice of rewrite rules that run."""

    skip: Annotated[tuple[str, ...], Field(strict=False)] = Field(default=(), description="Names of rules to leave out.")


def _known_reading(name: str) -> str:
    if name in READINGS:
        return name
    meant = did_you_mean(name, READINGS)
    raise invalid([Problem((), f"{name!r} is no reading of parameters{meant}", f"one of {listing(READINGS, 20)}")], name)


ReadingName = Annotated[str, AfterValidator(_known_reading), WithJsonSchema({"enum": list(READINGS)})]


def _profile_names(profiles: Sequence[OptimizationProfile]) -> tuple[str, ...]:
    alone = len(profiles) == 1
    return tuple(profile.name or ("default" if alone else f"profile{index}") for index, profile in enumerate(profiles))


def _uniquely_named(profiles: tuple[OptimizationProfile, ...]) -> tuple[OptimizationProfile, ...]:
    names = _profile_names(profiles)
    problems = [
        Problem((index, "name"), f"{name!r} is already the name of optimization_profiles[{names.index(name)}]")
        for index, name in enumerate(names)
        if names.index(name) < index
    ]
    if problems:
        raise invalid(problems, profiles)
    return profiles


class BuildProfile(ProfileSection):
    """Everything that a build is told besides the model, which is the whole of a ``--profile`` file."""

    optimization_profiles: Annotated[tuple[OptimizationProfile, ...], Field(strict=False), AfterValidator(_uniquely_named)] = (
        Field(default=(), description="Ranges of shapes; one is enough, and a model whose inputs are all static needs none.")
    )
    dims: dict[str, DimRange] = Field(
        default_factory=dict, description="Symbolic dimensions by name, for every input and optimization profile."
    )
    values: dict[str, ValueRange] = Field(
        default_factory=dict,
        description="Elements of inputs that hold sizes (TensorRT's shape tensors) or settings, for every optimization "
        "profile; an input whose elements are the same in all of them becomes a constant.",
    )
    max_memory: Bytes = Field(
        default=None, description="Refuse a profile whose estimated memory is above this, as in '200GiB'; 80GiB otherwise."
    )
    builder: BuilderSettings = Field(default_factory=BuilderSettings)
    data: dict[str, InputData] = Field(default_factory=dict, description="Random data by input, to check and compare.")
    tolerances: dict[str, Tolerance] = Field(default_factory=dict, description="By output; 'default' for all others.")
    rules: RuleSettings = Field(default_factory=RuleSettings)
    optimize: Optimize = Field(
        default="auto",
        description="Changes that only improve a model: make those whose engine takes less time by the estimate (auto); always "
        "make them; let kernels counted in variants that are built decide about each; or never make them and only repair what "
        "TensorRT refuses or computes wrongly.",
    )
    training_mode: TrainingMode = Field(
        default="as-written",
        description="What a BatchNormalization in training mode becomes: statistics of each batch, as the file has it; "
        "the running statistics (eval), which changes the results; or an error.",
    )
    dynamic_quantization: DynamicQuantization = Field(
        default="as-written",
        description="What becomes of operators on activations that are quantised while the model runs, which TensorRT does not "
        "have: they stay; or they compute with floats and dequantised weights (float), which changes the results by what the "
        "rounding of activations did.",
    )
    mismatch: dict[str, ReadingName] = Field(
        default_factory=dict,
        description="How parameters that do not fit the channels are meant, by normalization node.",
    )
    instance_norm: NormImplementation = Field(
        default_factory=NormImplementation,
        description="What computes an InstanceNormalization: TensorRT's own layer, or the plugin InstanceNormalization_TRT.",
    )
    group_norm: NormImplementation = Field(
        default_factory=NormImplementation,
        description="What computes a GroupNormalization; a plugin needs a library under 'plugins'.",
    )
    precision: PrecisionSettings = Field(
        default_factory=PrecisionSettings, description="The type that the network computes in: fp16, bf16, fp32, or as written."
    )
    int64: Literal["keep", "narrow"] = Field(
        default="keep",
        description="What is int64 inside the model: as it is, or int32 where its range at all sizes of the profile fits.",
    )
    io_double: Literal["float", "keep"] = Field(
        default="float",
        description="Inputs and outputs of type double, which TensorRT does not have: float32 in the engine, or an error.",
    )
    plugins: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        default=(), description="Libraries with TensorRT plugins, relative to the folder of this file."
    )
    device: DeviceChoice = Field(
        default=DEFAULT,
        description="The GPU that costs are estimated for: a name from the table in docs/cost_model.md, or a mapping with what "
        "its data sheet says.",
    )
    export: ExportSettings = Field(default_factory=ExportSettings, description="Of PyTorch models alone.")

    _positions: Positions = PrivateAttr(default_factory=Positions)

    @property
    def positions(self) -> Positions:
        """The place of each value in the file it was read from. They are empty for a profile made in a program."""
        return self._positions

    @property
    def path(self) -> Path | None:
        """The file it was read from, where relative paths in it start, or None for a profile made in a program."""
        return None if self._positions.source is None else Path(self._positions.source)

    @property
    def target_device(self) -> Device:
        """The device that costs are estimated for."""
        return device_of(self.device)

    @property
    def calibration_data(self) -> Path | None:
        """The calibration inputs that ``precision`` names; a relative path starts from the folder of the file."""
        named = self.precision.data
        return None if named is None else (Path() if self.path is None else self.path.parent) / named

    def located(self, positions: Positions) -> BuildProfile:
        """This profile with the positions of the file it was read from."""
        copy = self.model_copy()
        copy._positions = positions
        return copy

    def profile_names(self) -> tuple[str, ...]:
        """Each optimization profile's name, which is its own, or ``default`` when alone, or else ``profile<index>``."""
        return _profile_names(self.optimization_profiles)

    @model_validator(mode="after")
    def _multiples_kept(self) -> BuildProfile:
        # A multiple belongs to the model, so a profile's own range keeps it even where it does not repeat it.
        problems = [
            Problem(("optimization_profiles", index, "dims", name, *problem.path), problem.message)
            for index, profile in enumerate(self.optimization_profiles)
            for name, own in profile.dims.items()
            if name in self.dims and own.multiple_of is None
            for problem in own.multiple_problems(self.dims[name].multiple_of)
        ]
        if problems:
            raise invalid(problems, None)
        return self

    @model_validator(mode="after")
    def _implementations_exist(self) -> BuildProfile:
        wanted = {"instance_norm": self.instance_norm, "group_norm": self.group_norm}
        if problems := list(implementation_problems(wanted, self.plugins, self.builder)):
            raise invalid(problems, None)
        return self


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a build profile, for editors."""
    return BuildProfile.model_json_schema()
