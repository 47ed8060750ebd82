"""Wrappers that training and compilation put around a model."""

from __future__ import annotations

from torch import nn

from trtnorm_cli.export.child.norms.accidents.accident import Accident

# The attribute of each wrapper that holds the model; by name, because torch._dynamo need not be imported for it.
_INNER = {"DataParallel": "module", "DistributedDataParallel": "module", "OptimizedModule": "_orig_mod"}


def unwrap(model: nn.Module) -> tuple[nn.Module, list[Accident]]:
    """The model inside DataParallel, DistributedDataParallel and torch.compile, which change neither values nor weights."""
    accidents = []
    while (inner := _inner(model)) is not None:
        message = f"{type(model).__name__} taken off: it computes the same, and puts a prefix before each name"
        accidents.append(Accident("wrapper", "", message, "fixed"))
        model = inner
    return model, accidents


def _inner(model: nn.Module) -> nn.Module | None:
    name = _INNER.get(type(model).__name__)
    if name is None or not type(model).__module__.startswith("torch."):
        return None
    inner = getattr(model, name, None)
    return inner if isinstance(inner, nn.Module) else None
