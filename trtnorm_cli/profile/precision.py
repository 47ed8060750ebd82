"""The types that an engine computes in, as the build profile asks for them."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from trtnorm_cli.profile.dims import described
from trtnorm_cli.profile.problems import Problem, invalid
from trtnorm_cli.profile.ranges import ProfileSection
from trtnorm_cli.profile.rewriting import PRECISIONS, Precision
from trtnorm_cli.profile.scalars import Positive
from trtnorm_cli.suggest import did_you_mean, listing

# Relative L2 of each output. Half precision keeps 11 bits, bfloat16 8; networks without outliers lose a tenth of these.
MAX_ERROR = {"fp16": 1e-2, "bf16": 5e-2}

Names = Annotated[tuple[str, ...], Field(strict=False)]


class KeptFloat32(ProfileSection):
    """The nodes that stay float32 because the user says so."""

    nodes: Names = Field(default=(), description="Patterns of node names, as in 'decoder/*/norm'.")
    operators: Names = Field(default=(), description="ONNX operators, as in 'Softmax'.")


class PrecisionSettings(ProfileSection):
    """The type that the network computes in, and what is left out of it. A bare type is the type alone."""

    type: Precision = Field(
        default="as-written",
        description="The types of the file; half (fp16) or bfloat16 (bf16) wherever that keeps the result; or float32 (fp32), "
        "also where the file holds half or double.",
    )
    keep_fp32: KeptFloat32 = Field(default_factory=KeptFloat32, description="Nodes that stay float32.")
    io: Literal["keep", "low"] = Field(
        default="keep", description="Inputs and outputs keep their types, or take the low one as well."
    )
    max_error: Positive | None = Field(
        default=None,
        description="Largest relative L2 error of an output against float32; 1e-2 for fp16 and 5e-2 for bf16 otherwise. With "
        "fp32 it is held against the types of the file, and only where it is given.",
    )
    data: str | None = Field(
        default=None,
        min_length=1,
        description="Calibration inputs, relative to the folder of this file: an .npz, a folder of .npy files, or polygraphy's "
        "JSON. Random inputs otherwise.",
    )

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [handler.resolve_ref_schema(handler(core_schema)), {"enum": list(PRECISIONS), "type": "string"}]}

    @model_validator(mode="before")
    @classmethod
    def _type_alone(cls, value: object) -> object:
        if isinstance(value, (dict, cls)):
            return value
        if isinstance(value, str) and value in PRECISIONS:
            return {"type": value}
        meant = did_you_mean(value, PRECISIONS) if isinstance(value, str) else ""
        message = f"expected a type or {{type: fp16, …}}, got {described(value)}{meant}"
        raise invalid([Problem((), message, f"one of {listing(PRECISIONS)}")], value)

    @model_validator(mode="after")
    def _something_to_change(self) -> PrecisionSettings:
        defaults = {
            name: field.get_default(call_default_factory=True) for name, field in PrecisionSettings.model_fields.items()
        }
        unused = [name for name, default in defaults.items() if getattr(self, name) != default]
        if unused and self.type == "as-written":
            message = f"has no effect where the type is as-written: {', '.join(unused)}"
            raise invalid([Problem((unused[0],), message, "give type: fp16, bf16 or fp32")], None)
        return self

    @property
    def limit(self) -> float:
        """The largest relative L2 error of an output that passes; float32 is right whatever a half file computes."""
        return self.max_error or MAX_ERROR.get(self.type, math.inf)
