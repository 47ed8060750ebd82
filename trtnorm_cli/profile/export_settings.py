"""The part of a build profile about a PyTorch model's inputs, with the shape that names the axes and the element type."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler, WithJsonSchema, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from trtnorm_cli.profile.dims import MAX_DIM, MAX_RANK, counted, described, dim_fault
from trtnorm_cli.profile.problems import Problem, invalid
from trtnorm_cli.suggest import did_you_mean, listing

DTYPES = (
    "float32", "float16", "bfloat16", "float64", "int64", "int32", "int16", "int8", "uint8", "bool",
)  # fmt: skip

NamedShape = tuple[int | str, ...]


def _read_named_shape(value: object) -> NamedShape:
    """Sizes and names of dimensions. Raises one problem for each element that is neither."""
    if not isinstance(value, list | tuple):
        raise invalid([Problem((), f"expected a shape such as [N, 3, H, W], got {described(value)}")], value)
    if len(value) > MAX_RANK:
        raise invalid([Problem((), f"has {counted(len(value))}; TensorRT takes at most {MAX_RANK}")], value)
    problems = [Problem((i,), fault) for i, dim in enumerate(value) if (fault := _fault(dim)) is not None]
    if problems:
        raise invalid(problems, value)
    return tuple(value)


def _fault(dim: object) -> str | None:
    if isinstance(dim, str) and dim.isidentifier():
        return None
    return "expected a size or the name of a dimension" if isinstance(dim, str) else dim_fault(dim, zero_allowed=False)


def _read_dtype(name: object) -> str:
    if isinstance(name, str) and name in DTYPES:
        return name
    meant = did_you_mean(name, DTYPES) if isinstance(name, str) else ""
    raise invalid([Problem((), f"{described(name)} is no element type{meant}", f"one of {listing(DTYPES, 20)}")], name)


_DIM_SCHEMA = {"anyOf": [{"type": "integer", "minimum": 1, "maximum": MAX_DIM}, {"type": "string"}]}
_SHAPE_SCHEMA: dict[str, Any] = {"type": "array", "items": _DIM_SCHEMA, "maxItems": MAX_RANK}


class ExportInput(BaseModel):
    """One input of a PyTorch model. A bare list is its shape."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    shape: Annotated[NamedShape, BeforeValidator(_read_named_shape), WithJsonSchema(_SHAPE_SCHEMA)] = Field(
        description="Sizes, and names of dimensions that are under 'dims': [N, 3, H, W]."
    )
    dtype: Annotated[str, BeforeValidator(_read_dtype), WithJsonSchema({"enum": list(DTYPES)})] | None = Field(
        default=None, description="Element type; otherwise that of the example input, or of the model's parameters."
    )

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [handler.resolve_ref_schema(handler(core_schema)), _SHAPE_SCHEMA]}

    @model_validator(mode="before")
    @classmethod
    def _bare_shape(cls, value: object) -> object:
        return {"shape": value} if isinstance(value, list | tuple) else value


class ExportSettings(BaseModel):
    """The export of a PyTorch model. It is not used for ONNX files."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    inputs: dict[str, ExportInput] = Field(default_factory=dict, description="Shapes by parameter of the model's forward.")
