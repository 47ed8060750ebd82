"""The ranges in a build profile, of a shape, of one symbolic dimension, and of the elements of an input that holds sizes."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from trtnorm_cli.profile.dims import (
    CORNERS,
    MinOptMax,
    ShapeValue,
    SmallestShapeValue,
    described,
    entry_text,
    nearest_multiples,
    order_problems,
    rank_one_hint,
    read_shape,
    shape_schema,
)
from trtnorm_cli.profile.problems import Problem, invalid
from trtnorm_cli.profile.scalars import (
    DIM_SCHEMA,
    ELEMENTS_SCHEMA,
    Dim,
    ElementsValue,
    SmallestDim,
    read_dim,
    read_elements,
)


class ProfileSection(BaseModel):
    """A section of the file, which is frozen and refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ShapeRange(ProfileSection):
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
        """The three shapes as a tuple."""
        return MinOptMax(self.min, self.opt, self.max)


class DimRange(ProfileSection):
    """The values of one symbolic dimension, min <= opt <= max, all of them multiples of ``multiple_of``.

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
        found = order_problems((self.min,), (self.opt,), (self.max,), scalar=True)
        problems = [Problem(p.path[:1], p.message, p.hint) for p in found]
        problems += self.multiple_problems(self.multiple_of)
        if problems:
            raise invalid(problems, None)
        return self

    def multiple_problems(self, multiple_of: int | None) -> list[Problem]:
        """A problem for each of min, opt and max that is no multiple of ``multiple_of``."""
        if multiple_of is None:
            return []
        wrong = [(c, value) for c, value in zip(CORNERS, self.corners(), strict=True) if value % multiple_of]
        return [
            Problem(
                (corner,),
                f"{value} is not a multiple of {multiple_of}; nearest: {nearest_multiples(value, multiple_of)}",
                self._multiples_hint(multiple_of),
            )
            for corner, value in wrong
        ]

    def _multiples_hint(self, multiple_of: int) -> str:
        """The multiples next to what was written, with min upwards, and opt and max downwards as far as min allows."""
        low = -(-self.min // multiple_of) * multiple_of
        high = max(self.max // multiple_of * multiple_of, low, multiple_of)
        opt = min(max(self.opt // multiple_of * multiple_of, low, multiple_of), high)
        return f"write {entry_text((low, opt, high), multiple_of)}"

    def corners(self) -> tuple[int, int, int]:
        """Min, opt and max."""
        return self.min, self.opt, self.max


class ValueRange(ProfileSection):
    """The smallest, typical and largest elements of an input that holds sizes, min <= opt <= max in each element.

    A bare list is one fixed value. A bare integer is that of a scalar.
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
        """The three lists as a tuple."""
        return MinOptMax(self.min, self.opt, self.max)
