"""The normalization modules of a PyTorch model, with their family and their state.

A module is recognised by its class (``torch.nn`` and subclasses), by its state (a scale, a shift and two statistics that are
all buffers: a frozen BatchNorm), or by the name of its class (``LlamaRMSNorm``, ``GRN``). Calls of functions such as
``torch.nn.functional.layer_norm`` are no modules and are not seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field
from typing import Any, Literal

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import is_lazy

from trtnorm_cli.light_dataclass import dataclass

Family = Literal["batch", "frozen batch", "instance", "group", "layer", "rms", "local response", "global response", "other"]

# A norm's own name for its numbers; the first that it has counts.
_EPSILONS = ("eps", "epsilon", "variance_epsilon", "norm_eps", "layer_norm_eps", "_eps")
_SIZES = ("num_features", "num_channels", "normalized_shape", "hidden_size", "dim", "channels", "size")
_FROZEN = {"weight", "bias", "running_mean", "running_var"}

_BY_CLASS: tuple[tuple[type, Family], ...] = (
    (_BatchNorm, "batch"),
    (_InstanceNorm, "instance"),
    (nn.GroupNorm, "group"),
    (nn.LayerNorm, "layer"),
    (nn.RMSNorm, "rms"),
    (nn.LocalResponseNorm, "local response"),
    (nn.CrossMapLRN2d, "local response"),
)
# ``Norm`` ends a word (LayerNorm2d, RMSNorm, BatchNormAct2d), unlike in Normalize or Normal; or an abbreviation ends the name.
_NORM_WORD = re.compile(r"[Nn]orm(?:alization)?(?![a-z])|NORM|^GRN|(?<![A-Z])(?:BN|IN|GN|LN|LRN)(?:[1-3]d)?$")
_BY_NAME: tuple[tuple[str, Family], ...] = (  # the first that fits counts
    (r"rms|root_?mean_?square|simplified|t5", "rms"),
    (r"frozen.*batch", "frozen batch"),
    (r"grn|global_?response", "global response"),
    (r"local_?response|lrn", "local response"),
    (r"batch|bn(\dd)?$", "batch"),
    (r"instance|in(\dd)?$", "instance"),
    (r"group|gn(\dd)?$", "group"),
    (r"layer|ln(\dd)?$", "layer"),
)
# Parametrizations such as _WeightNorm and _SpectralNorm act on weights, not on the data.
_NOT_NORMS = ("torch.nn.utils.",)


@dataclass(frozen=True)
class Norm:
    """A normalization module at one path of a model. ``how`` says by what it was recognised."""

    path: str
    module: nn.Module = field(repr=False)
    family: Family
    how: Literal["class", "state", "name"]

    @property
    def type_name(self) -> str:
        """The class with its package, such as ``torch.nn.BatchNorm2d`` or ``timm.layers.norm.LayerNorm2d``."""
        kind = type(self.module)
        return f"torch.nn.{kind.__name__}" if getattr(nn, kind.__name__, None) is kind else f"{kind.__module__}.{kind.__name__}"

    @property
    def epsilon(self) -> float | None:
        """The module's epsilon, or None where it has no such attribute because a number stands in its code."""
        found = first_attribute(self.module, _EPSILONS)
        return float(found) if isinstance(found, int | float) else None

    @property
    def has_statistics(self) -> bool:
        """True where the module holds the mean and variance that it normalizes with outside of training."""
        return self.state("running_mean") is not None and self.state("running_var") is not None

    @property
    def uses_batch_statistics(self) -> bool:
        """True for a BatchNorm that, as it stands, normalizes with the mean and variance of each batch."""
        return self.family == "batch" and self.how == "class" and (self.module.training or not self.has_statistics)

    def state(self, name: str) -> Tensor | None:
        """A parameter or buffer of the module itself, or None where there is none or it has no values yet."""
        value = self.module._parameters.get(name)
        value = self.module._buffers.get(name) if value is None else value
        return None if value is None or is_lazy(value) or value.is_meta else value


def norms(model: nn.Module) -> list[Norm]:
    """Every normalization module of ``model`` in the order of its definition. One used at two paths stands once."""
    found = (recognise(path, module) for path, module in model.named_modules())
    return [norm for norm in found if norm is not None]


def recognise(path: str, module: nn.Module) -> Norm | None:
    """``module`` as a normalization, or None when it is none. What is below it does not count."""
    if type(module).__module__.startswith(_NOT_NORMS):
        return None
    family = next((family for kind, family in _BY_CLASS if isinstance(module, kind)), None)
    if family is not None:
        return Norm(path, module, family, "class")
    if is_frozen_batchnorm(module):
        return Norm(path, module, "frozen batch", "state")
    if {"running_mean", "running_var"} <= _own_state(module):
        return Norm(path, module, "batch", "state")
    family = _family_by_name(module)
    return None if family is None else Norm(path, module, family, "name")


def is_frozen_batchnorm(module: nn.Module) -> bool:
    """True where scale, shift, mean and variance are buffers and nothing can be trained, as in torchvision and DETR."""
    return not module._parameters and _own_state(module) >= _FROZEN


def _own_state(module: nn.Module) -> set[str]:
    return {name for own in (module._parameters, module._buffers) for name, value in own.items() if value is not None}


def _family_by_name(module: nn.Module) -> Family | None:
    name = type(module).__name__
    if _NORM_WORD.search(name) is None or _is_container(module):
        return None
    return next((family for pattern, family in _BY_NAME if re.search(pattern, name, re.IGNORECASE)), "other")


def _is_container(module: nn.Module) -> bool:
    """True where submodules hold weights or normalize, as in ``PreNorm``, ``AdaLayerNorm`` and ``NormMlpClassifierHead``."""
    below = list(_descendants(module))
    return any(True for child in below for _ in child.parameters(recurse=False)) or any(_is_norm(child) for child in below)


def _is_norm(module: nn.Module) -> bool:
    return isinstance(module, tuple(kind for kind, _ in _BY_CLASS)) or is_frozen_batchnorm(module)


def _descendants(module: nn.Module) -> Iterator[nn.Module]:
    return (child for child in module.modules() if child is not module)


def first_attribute(module: nn.Module, names: tuple[str, ...]) -> Any:
    """The first of ``names`` that the module has and that is not None."""
    return next((value for name in names if (value := getattr(module, name, None)) is not None), None)


def size_of(norm: Norm) -> tuple[int, ...] | None:
    """The sizes that the module says it normalizes, such as its ``normalized_shape``, or None where it says nothing."""
    value = first_attribute(norm.module, _SIZES)
    if isinstance(value, int) and not isinstance(value, bool):
        return (value,)
    if isinstance(value, list | tuple) and all(isinstance(size, int) for size in value):
        return tuple(value)
    scale = next((tensor for name in ("weight", "scale", "gamma", "g") if (tensor := norm.state(name)) is not None), None)
    return None if scale is None else tuple(scale.shape)
