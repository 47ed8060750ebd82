"""The ``builder:`` section of a build profile."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from trtnorm_cli.profile.problems import Problem, invalid
from trtnorm_cli.profile.scalars import Bytes
from trtnorm_cli.profile.targets import Targets

_DLA = "engines for DLA cores are not built by trtnorm; leave it out, the engine then runs on the GPU"
_PRECISION = "types follow the model: networks are strongly typed, so convert the model instead of asking the builder"
# Settings of TensorRT that are left out on purpose, and why.
LEFT_OUT = {
    **dict.fromkeys(("dla", "dla_core", "use_dla", "default_device_type", "gpu_fallback"), _DLA),
    **dict.fromkeys(("fp16", "bf16", "fp8", "int8", "fp4", "int4", "precision", "obey_precision_constraints"), _PRECISION),
}


class BuilderSettings(BaseModel):
    """Settings of TensorRT's builder. What is left out keeps TensorRT's own default."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    optimization_level: int | None = Field(default=None, ge=0, le=5, description="0 builds fastest, 5 searches most.")
    workspace: Bytes = Field(default=None, description="Largest scratch memory of a kernel, in bytes or as in '2GiB'.")
    tiling: Literal["none", "fast", "moderate", "full"] | None = Field(
        default=None, description="How long to search for tilings that keep data in the L2 cache."
    )
    l2_limit: Bytes = Field(default=None, description="L2 cache that tiling may count on; needs 'tiling'.")
    max_aux_streams: int | None = Field(default=None, ge=0, le=64, description="CUDA streams besides the main one.")
    tf32: bool | None = Field(default=None, description="TensorFloat-32 in float32 convolutions and products.")
    sparse_weights: bool | None = Field(default=None, description="Use weights in which 2 of 4 are zero.")
    refit: bool | None = Field(default=None, description="Weights can be exchanged in the built engine.")
    refit_identical: bool | None = Field(default=None, description="Weights can be put back, but only the same ones.")
    strip_plan: bool | None = Field(default=None, description="Leave the weights out of the engine file; refit puts them in.")
    version_compatible: bool | None = Field(default=None, description="The engine loads in later versions of TensorRT.")
    exclude_lean_runtime: bool | None = Field(
        default=None, description="A version-compatible engine without a runtime of its own; needs 'version_compatible'."
    )
    hardware_compatibility: Literal["none", "ampere_plus", "same_compute_capability"] | None = Field(
        default=None, description="Further GPUs that the engine runs on (tensorrt); for tensorrt-rtx see 'targets'."
    )
    weight_streaming: bool | None = Field(default=None, description="Weights can stay in host memory at run time.")
    profiling_verbosity: Literal["detailed", "layer_names_only", "none"] = Field(
        default="detailed", description="How much of its layers the engine tells; the manifest needs 'detailed'."
    )
    timing_cache: str | None = Field(
        default=None, min_length=1, description="File that keeps kernel timings between builds (tensorrt)."
    )
    targets: Targets = Field(
        default=None, description="Compute capabilities to compile for (tensorrt-rtx), such as [sm_86, sm_89, sm_120]."
    )

    @model_validator(mode="before")
    @classmethod
    def _nothing_left_out(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        found = [str(key) for key in value if str(key).casefold() in LEFT_OUT]
        if found:
            raise invalid([Problem((key,), LEFT_OUT[key.casefold()]) for key in found], value)
        return value

    @model_validator(mode="after")
    def _fit_together(self) -> BuilderSettings:
        problems = []
        if self.l2_limit is not None and self.tiling in (None, "none"):
            problems.append(Problem(("l2_limit",), "it limits tiling, and tiling is off", "add 'tiling: fast'"))
        if self.exclude_lean_runtime and not self.version_compatible:
            fix = "add 'version_compatible: true'"
            problems.append(Problem(("exclude_lean_runtime",), "the engine is not version-compatible", fix))
        if problems:
            raise invalid(problems, None)
        return self
