"""The implementation of a kind of normalization, by TensorRT's own layers or a plugin, and the libraries of plugins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from trtnorm_cli.profile.builder import BuilderSettings
from trtnorm_cli.profile.dims import described
from trtnorm_cli.profile.problems import Problem, invalid
from trtnorm_cli.profile.rewriting import Implementation, Implementations
from trtnorm_cli.suggest import did_you_mean

_CHOICES = ("native", "plugin")
OPERATORS = {"instance_norm": "InstanceNormalization", "group_norm": "GroupNormalization"}
_GROUP_NORM_REASON = (
    "there is no plugin to recommend: NVIDIA's GroupNormalizationPlugin is deprecated, calls cuDNN in training mode, and takes "
    "a fixed batch and float32 only"
)


class NormImplementation(BaseModel):
    """The implementation of the normalizations of one kind, with a default and exceptions by node.

    A bare ``native`` or ``plugin`` is the default alone.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    default: Implementation = Field(default="native", description="For every node that is not named.")
    nodes: dict[str, Implementation] = Field(default_factory=dict, description="By normalization node.")

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [handler.resolve_ref_schema(handler(core_schema)), {"enum": list(_CHOICES), "type": "string"}]}

    @model_validator(mode="before")
    @classmethod
    def _default_alone(cls, value: object) -> object:
        if isinstance(value, (dict, cls)):
            return value
        if isinstance(value, str) and value in _CHOICES:
            return {"default": value}
        meant = did_you_mean(value, _CHOICES) if isinstance(value, str) else ""
        message = f"expected native, plugin, or {{default: native, nodes: {{NODE: plugin}}}}, got {described(value)}{meant}"
        raise invalid([Problem((), message)], value)

    @property
    def wants_plugins(self) -> bool:
        """True when any node may become a plugin."""
        return self.default == "plugin" or "plugin" in self.nodes.values()

    def settings(self) -> Implementations:
        return Implementations(self.default, dict(self.nodes))


def implementation_problems(
    wanted: Mapping[str, NormImplementation], plugins: Sequence[str], builder: BuilderSettings
) -> Iterator[Problem]:
    """Problems with plugins that a build profile asks for and no model can have. ``wanted`` is by key of the profile."""
    if wanted["group_norm"].wants_plugins and not plugins:
        hint = "use group_norm: native, or give a library that has the plugin under plugins:"
        yield Problem(("group_norm",), _GROUP_NORM_REASON, hint)
    wanting = [key for key in OPERATORS if wanted[key].wants_plugins]
    for setting in _portable(builder):
        for key in wanting:
            reason = f"builder.{setting} asks for an engine that runs elsewhere too, which has to have TensorRT's own layers"
            yield Problem((key,), f"a plugin does not go with it: {reason}", f"use {key}: native, or leave out {setting}")


def _portable(builder: BuilderSettings) -> Iterator[str]:
    """Settings that ask for an engine that other versions or other GPUs take as well."""
    if builder.version_compatible:
        yield "version_compatible"
    if builder.hardware_compatibility not in (None, "none"):
        yield "hardware_compatibility"
