"""Normalizations of another floating-point type than the model, or of several types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from torch import nn
from torch.nn.parameter import is_lazy

from trtnorm_cli.export.child.norms.accidents.accident import Accident
from trtnorm_cli.export.child.norms.norm_modules import Norm, norms
from trtnorm_cli.export.child.norms.norm_table import floating_dtypes


def types_agree(model: nn.Module) -> list[Accident]:
    """Every normalization has one floating-point type, that of most of the model's parameters."""
    found = norms(model)
    usual = usual_dtype(model, {id(norm.module) for norm in found})
    return [accident for norm in found for accident in _types(norm, usual)]


def usual_dtype(model: nn.Module, left_out: set[int]) -> str | None:
    """The floating-point type of most parameter values outside of the modules ``left_out``, or None where there are none."""
    counted: Counter[str] = Counter()
    for module in model.modules():
        for parameter in module.parameters(recurse=False) if id(module) not in left_out else ():
            if parameter.is_floating_point() and not is_lazy(parameter):
                counted[str(parameter.dtype).removeprefix("torch.")] += parameter.numel()
    return counted.most_common(1)[0][0] if counted else None


def _types(norm: Norm, usual: str | None) -> Iterator[Accident]:
    own = floating_dtypes(norm.module)
    if len(own) > 1:
        each = [f"{name} {str(t.dtype).removeprefix('torch.')}" for name, t in _tensors(norm) if t.is_floating_point()]
        yield Accident("mixed-types", norm.path, f"holds tensors of several types: {', '.join(each)}", "warning")
    elif usual is not None and own and own != {usual}:
        message = f"is {own.pop()} in a model that is mostly {usual}; TensorRT wants one type, so casts are put around it"
        yield Accident("mixed-types", norm.path, message, "warning", "right where it was meant so for precision")


def _tensors(norm: Norm) -> Iterator[tuple[str, nn.Parameter]]:
    for own in (norm.module._parameters, norm.module._buffers):
        yield from ((name, tensor) for name, tensor in own.items() if tensor is not None)
