"""Modules left in training mode.

In training mode BatchNorm uses the statistics of the batch and Dropout drops values. PyTorch's dynamo exporter writes such a
BatchNorm as one with running statistics, which computes something else.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from trtnorm_cli.export.child.norms.accidents.accident import Accident
from trtnorm_cli.export.child.norms.norm_modules import norms, recognise
from trtnorm_cli.records.export import Severity
from trtnorm_cli.suggest import listing

_OF_A_PROGRAM = "comes from an exported program, whose mode is that in which it was exported"


def leave_training_mode(model: nn.Module, keep_training: bool) -> list[Accident]:
    """Call ``eval()`` where something is in training mode, and list what that concerns.

    With ``keep_training``, list what is kept.
    """
    left = list(_topmost_in_training(model))
    if not left:
        return []
    if keep_training:
        return list(_kept(model, "kept in training mode (--keep-training)"))
    fixed = [Accident("training-mode", path, _left_message(module), "fixed") for path, module in left]
    try:
        model.eval()
    except NotImplementedError:  # what ExportedProgram.module() gives refuses it, and keeps the mode of its export
        return [Accident("stays-in-training", "", _OF_A_PROGRAM, "warning", "let the callable return the exported program")]
    return [*fixed, *_kept(model, "still in training mode after eval(): a train() of its own prevents it")]


def _topmost_in_training(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Modules in training mode below none that is. Leaves on which the mode has no effect are passed over."""
    below: tuple[str, ...] = ()
    for path, module in model.named_modules():
        if module.training and not (path.startswith(below) and below):
            if not any(module.children()) and not changes_with_training(module):
                continue
            yield path, module
            if not path:
                return
            below += (path + ".",)


def _left_message(module: nn.Module) -> str:
    concerned = [path or type(module).__name__ for path, below in module.named_modules() if changes_with_training(below)]
    if not concerned:
        return "left in training mode; eval() applied"
    return f"left in training mode; eval() applied, which changes what these compute: {listing(concerned)}"


def changes_with_training(module: nn.Module) -> bool:
    """True for a BatchNorm, an InstanceNorm with running statistics and an active Dropout or drop path in training mode."""
    if not module.training:
        return False
    norm = recognise("", module)
    uses_them = norm is not None and norm.family in ("batch", "instance") and norm.has_statistics
    return uses_them or drop_probability(module) > 0


def drop_probability(module: nn.Module) -> float:
    """The share of values that a Dropout, DropPath or StochasticDepth drops in training, or 0 for other modules."""
    if not isinstance(module, _DropoutNd) and type(module).__name__ not in ("DropPath", "StochasticDepth", "DropBlock2d"):
        return 0.0
    found = next((getattr(module, name) for name in ("p", "drop_prob") if hasattr(module, name)), 0.0)
    return float(found or 0.0)


def _kept(model: nn.Module, why: str) -> Iterator[Accident]:
    for norm in norms(model):
        if norm.module.training and norm.has_statistics and norm.family in ("batch", "instance"):
            yield _kept_norm(norm.path, norm.family, why)
    for path, module in model.named_modules():
        if module.training and drop_probability(module) > 0:
            message = f"{why}: it drops {drop_probability(module):.0%} of its values at random, which no engine does"
            yield Accident("dropout-active", path, message, "warning")


def _kept_norm(path: str, family: str, why: str) -> Accident:
    of_what = "batch" if family == "batch" else "image"
    severity: Severity = "warning"
    message = f"{why}: it normalizes with the mean and variance of each {of_what}, not with its running statistics"
    return Accident("stays-in-training", path, message, severity)
