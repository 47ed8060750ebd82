"""What a build profile says: pydantic models of the file that ``--profile`` names.

All models are frozen and refuse unknown keys. ``model_dump(mode="json")`` gives the same for the same file and goes
into the manifest; ``model_validate`` reads it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PrivateAttr,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from trtnorm_cli.profile.builder import BuilderSettings
from trtnorm_cli.profile.dims import (
    CORNERS,
    MinOptMax,
    ShapeValue,
    SmallestShapeValue,
    described,
    nearest_multiples,
    order_problems,
    rank_one_hint,
    read_shape,
    shape_schema,
)
from trtnorm_cli.profile.implementations import NormImplementation, implementation_problems
from trtnorm_cli.profile.positions import Positions
from trtnorm_cli.profile.problems import Problem, invalid
from trtnorm_cli.profile.scalars import (
    DIM_SCHEMA,
    ELEMENTS_SCHEMA,
    Bytes,
    Dim,
    ElementsValue,
    NonNegative,
    Number,
    Positive,
    SmallestDim,
    read_dim,
    read_elements,
)
from trtnorm_cli.profile.suggest import did_you_mean, listing
from trtnorm_cli.rewrite.settings import READINGS, Optimize, TrainingMode


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ShapeRange(_Settings):
    """The smallest, typical and largest shape of one input, of equal rank, min <= opt <= max in each dimension.

    A bare list or string is one fixed shape.
    """

    min: SmallestShapeValue = Field(description="Smallest shape the engine must take.")
    opt: ShapeValue = Field(description="Shape the engine is tuned for.")
    max: ShapeValue = Field(description="Largest shape the engine must take.")

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [handler.resolve_ref_schema(handler(core_schema)), *shape_schema(1)["anyOf"]]}

    @model_validator(mode="before")
    @classmethod
    def _fixed_shape(cls, value: object) -> object:
        if isinstance(value, (dict, cls)):
            return value
        if not isinstance(value, (list, tuple, str)):
            expected = "{min: …, opt: …, max: …}, or one shape such as [1, 3, 224, 224] or '1x3x224x224'"
            message = f"expected {expected}, got {described(value)}"
            raise invalid([Problem((), message, rank_one_hint(value))], value)
        return dict.fromkeys(CORNERS, read_shape(value, zero_allowed=False))

    @model_validator(mode="after")
    def _ordered(self) -> ShapeRange:
        if problems := order_problems(self.min, self.opt, self.max):
            raise invalid(problems, None)
        return self

    def corners(self) -> MinOptMax:
        """Return the three shapes as a tuple."""
        return MinOptMax(self.min, self.opt, self.max)


class DimRange(_Settings):
    """The values of one symbolic dimension: min <= opt <= max, all of them multiples of ``multiple_of``.

    A bare integer is one fixed value.
    """

    min: SmallestDim = Field(description="Smallest value the engine must take.")
    opt: Dim = Field(description="Value the engine is tuned for.")
    max: Dim = Field(description="Largest value the engine must take.")
    multiple_of: Dim | None = Field(default=None, description="Every legal value is a multiple of this.")

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [handler.resolve_ref_schema(handler(core_schema)), DIM_SCHEMA]}

    @model_validator(mode="before")
    @classmethod
    def _fixed_value(cls, value: object) -> object:
        if isinstance(value, int) and not isinstance(value, bool):
            return dict.fromkeys(CORNERS, read_dim(value))
        if not isinstance(value, (dict, cls)):
            message = f"expected {{min: …, opt: …, max: …}} or one integer, got {described(value)}"
            raise invalid([Problem((), message)], value)
        return value

    @model_validator(mode="after")
    def _ordered_multiples(self) -> DimRange:
        problems = [Problem(p.path[:1], p.message) for p in order_problems((self.min,), (self.opt,), (self.max,))]
        problems += self.multiple_problems(self.multiple_of)
        if problems:
            raise invalid(problems, None)
        return self

    def multiple_problems(self, multiple_of: int | None) -> list[Problem]:
        """Return a problem for each of min, opt and max that is no multiple of ``multiple_of``."""
        if multiple_of is None:
            return []
        wrong = [(c, value) for c, value in zip(CORNERS, self.corners(), strict=True) if value % multiple_of]
        return [
            Problem(
                (corner,),
                f"{value} is not a multiple of {multiple_of}; nearest: {nearest_multiples(value, multiple_of)}",
            )
            for corner, value in wrong
        ]

    def corners(self) -> tuple[int, int, int]:
        """Return min, opt and max."""
        return self.min, self.opt, self.max


class ValueRange(_Settings):
    """The smallest, typical and largest elements of an input that holds sizes, min <= opt <= max in each element.

    A bare list is one fixed value; a bare integer that of a scalar.
    """

    min: ElementsValue = Field(description="Smallest elements the engine must take.")
    opt: ElementsValue = Field(description="Elements the engine is tuned for.")
    max: ElementsValue = Field(description="Largest elements the engine must take.")

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [handler.resolve_ref_schema(handler(core_schema)), *ELEMENTS_SCHEMA["anyOf"]]}

    @model_validator(mode="before")
    @classmethod
    def _fixed_values(cls, value: object) -> object:
        return value if isinstance(value, (dict, cls)) else dict.fromkeys(CORNERS, read_elements(value))

    @model_validator(mode="after")
    def _ordered(self) -> ValueRange:
        if problems := order_problems(self.min, self.opt, self.max):
            raise invalid(problems, None)
        return self

    def corners(self) -> MinOptMax:
        """Return the three lists as a tuple."""
        return MinOptMax(self.min, self.opt, self.max)


class OptimizationProfile(_Settings):
    """One range of shapes that the engine serves: TensorRT's optimization profile."""

    name: str | None = Field(default=None, min_length=1, description="Unique; 'default' or 'profile<index>' otherwise.")
    inputs: dict[str, ShapeRange] = Field(default_factory=dict, description="Shapes by input; static inputs need none.")
    dims: dict[str, DimRange] = Field(default_factory=dict, description="Symbolic dimensions, before the file's own.")
    values: dict[str, ValueRange] = Field(default_factory=dict, description="Elements of inputs that hold sizes.")


class Normal(_Settings):
    """Normally distributed values."""

    distribution: Literal["normal"]
    mean: Number = 0.0
    std: Positive = 1.0


class Uniform(_Settings):
    """Uniform values, ``low`` <= x < ``high``."""

    distribution: Literal["uniform"]
    low: Number = 0.0
    high: Number = 1.0

    @model_validator(mode="after")
    def _ordered(self) -> Uniform:
        if self.low >= self.high:
            raise invalid([Problem(("low",), f"{self.low:g} is not below high, {self.high:g}")], None)
        return self


class Integers(_Settings):
    """Uniform integers, ``low`` <= n < ``below``."""

    distribution: Literal["integers"]
    low: Annotated[int, Field(ge=-(2**63))] = 0
    below: Annotated[int, Field(le=2**64)]

    @model_validator(mode="after")
    def _ordered(self) -> Integers:
        if self.low >= self.below:
            raise invalid([Problem(("below",), f"{self.below} is not above low, {self.low}")], None)
        return self


class Ones(_Settings):
    """Every element 1."""

    distribution: Literal["ones"]


class Constant(_Settings):
    """Every element ``value``."""

    distribution: Literal["constant"]
    value: Number


InputData = Annotated[Normal | Uniform | Integers | Ones | Constant, Field(discriminator="distribution")]


class Tolerance(_Settings):
    """The largest error that passes; what is left out keeps the default of ``trtnorm compare``."""

    atol: NonNegative | None = Field(default=None, description="Absolute error.")
    rtol: NonNegative | None = Field(default=None, description="Error relative to the reference.")

    @model_validator(mode="after")
    def _not_empty(self) -> Tolerance:
        if self.atol is None and self.rtol is None:
            raise invalid([Problem((), "gives neither atol nor rtol")], None)
        return self


class RuleSettings(_Settings):
    """Which rewrite rules run."""

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


class BuildProfile(_Settings):
    """Everything that a build is told besides the model; the whole of a ``--profile`` file."""

    optimization_profiles: Annotated[tuple[OptimizationProfile, ...], Field(strict=False), AfterValidator(_uniquely_named)] = (
        Field(default=(), description="Ranges of shapes; one is enough, and a model whose inputs are all static needs none.")
    )
    dims: dict[str, DimRange] = Field(
        default_factory=dict, description="Symbolic dimensions by name, for every input and optimization profile."
    )
    values: dict[str, ValueRange] = Field(
        default_factory=dict,
        description="Elements of inputs that hold sizes (TensorRT's shape tensors), for every optimization profile.",
    )
    max_memory: Bytes = Field(
        default=None, description="Refuse a profile whose estimated memory is above this, as in '200GiB'; 80GiB otherwise."
    )
    builder: BuilderSettings = Field(default_factory=BuilderSettings)
    data: dict[str, InputData] = Field(default_factory=dict, description="Random data by input, to check and compare.")
    tolerances: dict[str, Tolerance] = Field(default_factory=dict, description="By output; 'default' for all others.")
    rules: RuleSettings = Field(default_factory=RuleSettings)
    optimize: Optimize = Field(
        default="always",
        description="Changes that only improve a model: always make them; let kernels counted in variants that are built "
        "decide; or never make them and only repair what TensorRT refuses or computes wrongly.",
    )
    training_mode: TrainingMode = Field(
        default="as-written",
        description="What a BatchNormalization in training mode becomes: statistics of each batch, as the file has it; "
        "the running statistics (eval), which changes the results; or an error.",
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
    plugins: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        default=(), description="Libraries with TensorRT plugins, relative to the folder of this file."
    )

    _positions: Positions = PrivateAttr(default_factory=Positions)

    @property
    def positions(self) -> Positions:
        """Where each value stands in the file it was read from; empty for a profile made in a program."""
        return self._positions

    def located(self, positions: Positions) -> BuildProfile:
        """Return this profile with the positions of the file it was read from."""
        copy = self.model_copy()
        copy._positions = positions
        return copy

    def profile_names(self) -> tuple[str, ...]:
        """Return each optimization profile's name: its own, or ``default`` when alone, else ``profile<index>``."""
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
        if problems := list(implementation_problems(self)):
            raise invalid(problems, None)
        return self


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a build profile, for editors."""
    return BuildProfile.model_json_schema()
