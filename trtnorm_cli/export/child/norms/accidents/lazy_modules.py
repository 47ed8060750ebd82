"""Lazy modules, whose parameters have no sizes before the first input, or a checkpoint, gives them some."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin

from trtnorm_cli.errors import ModelError
from trtnorm_cli.export.child.norms.accidents.accident import Accident

_HOW = "let the callable return (model, example_inputs), or run the model once before returning it"


def initialise_lazy_modules(model: nn.Module, args: Sequence[Any] | None, kwargs: Mapping[str, Any]) -> list[Accident]:
    """Run the example inputs once, which gives every lazy module its sizes.

    The run is in evaluation mode, so that it moves no running statistics. Without example inputs the modules stay as they are
    and are refused. Raises ``ModelError`` when the model does not take its example inputs.
    """
    lazy = dict(_lazy(model))
    if not lazy:
        return []
    if args is None:
        return [
            Accident("lazy-module-uninitialised", path, _no_inputs(module), "refused", _HOW) for path, module in lazy.items()
        ]
    without_values = {path for path, module in lazy.items() if module.has_uninitialized_params()}
    _run(model, args, kwargs)
    left = dict(_lazy(model))
    return [_outcome(path, type(model.get_submodule(path)).__name__, path in left, path in without_values) for path in lazy]


def _lazy(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Modules that still wait. They stop being of this class once their sizes are known."""
    for path, module in model.named_modules():
        if isinstance(module, LazyModuleMixin) and hasattr(module, "_infer_parameters"):
            yield path, module


def _run(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            model(*args, **kwargs)
    except Exception as error:  # whatever the user's forward() raises
        reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        summary = f"the model does not take its example inputs, from which lazy modules get their sizes: {reason}"
        raise ModelError(summary, hint=_HOW) from error
    finally:
        for module, mode in training.items():
            module.training = mode
    for norm in model.modules():
        # A lazy norm whose values came from a checkpoint is never told its number of features.
        if getattr(norm, "num_features", None) == 0 and isinstance(getattr(norm, "weight", None), torch.Tensor):
            norm.num_features = norm.weight.numel()


def _outcome(path: str, name: str, still_lazy: bool, random: bool) -> Accident:
    if still_lazy:
        message = f"{name} was not reached by the example inputs and has no sizes"
        return Accident("lazy-module-uninitialised", path, message, "refused", _HOW)
    if not random:
        return Accident("lazy-module", path, f"became {name}, with the values that were loaded", "fixed")
    message = f"became {name}, with sizes from the example inputs and initial values, not trained ones"
    return Accident("lazy-module", path, message, "warning", "give trained values with --weights")


def _no_inputs(module: nn.Module) -> str:
    return f"{type(module).__name__} gets its sizes from the first input, and there are no example inputs"
