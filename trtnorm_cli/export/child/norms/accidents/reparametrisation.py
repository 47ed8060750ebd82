"""Weights that are computed on each call, by weight normalization, spectral normalization and other parametrizations.

Weight normalization (Salimans & Kingma 2016) writes w = g · v / ‖v‖, spectral normalization (Miyato et al. 2018) w = w / σ(w).
Outside of training both are constant, so the computed weight takes their place and an exporter finds a plain weight.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, remove_spectral_norm, remove_weight_norm
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from trtnorm_cli.export.child.norms.accidents.accident import Accident
from trtnorm_cli.light_dataclass import dataclass

_KINDS = {"_WeightNorm": "weight-norm", "_SpectralNorm": "spectral-norm"}


@dataclass(frozen=True)
class ComputedTensor:
    """The tensor ``name`` of the module at ``path``, which ``what`` computes on each call, and ``remove`` takes that off.

    With a ``hook``, forward() has it computed just before.
    """

    kind: str
    path: str
    name: str
    module: nn.Module
    what: str
    remove: Callable[[Any, str], Any]
    in_training: bool
    hook: Callable[[Any, Any], Any] | None = None

    def value(self) -> Tensor:
        """The value that forward() would use. The attribute alone may be out of date."""
        if self.hook is not None:
            self.hook(self.module, None)
        value: Tensor = getattr(self.module, self.name).detach().clone()
        return value


def fold_parametrizations(model: nn.Module) -> list[Accident]:
    """Replace every parametrized tensor by its value, and check that the value is the same before and after.

    A parametrization in training mode, or whose value is another on each call, is left and reported.
    """
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # the old hooks are deprecated, and so is taking them off
        return [*_fold_registered(model), *_fold_hooks(model)]


def _fold_registered(model: nn.Module) -> Iterator[Accident]:
    for path, module in list(model.named_modules()):
        if not parametrize.is_parametrized(module):
            continue
        for name in list(module.parametrizations):
            used = [type(step).__name__ for step in module.parametrizations[name]]
            kind = _KINDS.get(used[0], "parametrization") if len(used) == 1 else "parametrization"
            in_training = any(step.training for step in module.parametrizations[name].modules())
            what = " and ".join(used)
            yield _fold(ComputedTensor(kind, path, name, module, what, _remove_registered, in_training))


def _remove_registered(module: nn.Module, name: str) -> None:
    parametrize.remove_parametrizations(module, name, leave_parametrized=True)


def _fold_hooks(model: nn.Module) -> Iterator[Accident]:
    for path, module in list(model.named_modules()):
        for hook in list(module._forward_pre_hooks.values()):
            if isinstance(hook, WeightNorm):
                computed = ComputedTensor(
                    "weight-norm", path, hook.name, module, "weight_norm", remove_weight_norm, False, hook
                )
            elif isinstance(hook, SpectralNorm):
                how = "spectral_norm", remove_spectral_norm, module.training, hook
                computed = ComputedTensor("spectral-norm", path, hook.name, module, *how)
            else:
                continue
            yield _fold(computed)


def _fold(computed: ComputedTensor) -> Accident:
    path, name, module, what = computed.path, computed.name, computed.module, computed.what
    if computed.in_training:
        return _left(path, name, f"{what} is in training mode, where it changes on each call")
    before = computed.value()
    if not torch.equal(before, computed.value()):
        return _left(path, name, f"{what} gives another value on each call")
    try:
        computed.remove(module, name)
    except Exception as error:  # parametrizations are the user's own classes
        return _left(path, name, f"{what} cannot be taken off: {error}")
    difference = _difference(before, getattr(module, name))
    message = f"{what} folded into {name} {list(before.shape)}, largest difference {difference:g}"
    return Accident(computed.kind, path, message, "fixed" if difference == 0 else "warning")


def _difference(before: Tensor, after: Tensor) -> float:
    if before.shape != after.shape or before.dtype != after.dtype:
        return float("inf")
    # NaN is a problem of the value, which another check reports; here only a change counts.
    return 0.0 if before.numel() == 0 else float((before - after).abs().nan_to_num(0.0, 0.0).max())


def _left(path: str, name: str, why: str) -> Accident:
    return Accident("parametrization-left", path, f"{name} stays computed on each call: {why}", "warning")
