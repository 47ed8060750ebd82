"""BatchNorm and InstanceNorm whose statistics are not what inference expects."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from trtnorm_cli.export.child.norms.accidents.accident import Accident
from trtnorm_cli.export.child.norms.norm_modules import Norm, norms
from trtnorm_cli.export.child.norms.norm_table import untouched

_TRAIN_THEM = "train with track_running_stats=True; or use InstanceNorm, where the batch is always 1"
_NO_STATISTICS = (
    "has no running statistics: it normalizes with the mean and variance of each batch, so that a result depends on what else "
    "is in the batch"
)
_UNTOUCHED = "running statistics are untouched: mean 0 and variance 1 everywhere, and no batch was ever counted"
_LOAD = "load the trained weights, with --weights or in the callable"


def statistics_are_there(model: nn.Module) -> list[Accident]:
    """Every BatchNorm has running statistics that some data reached. For an InstanceNorm with any, it is said what it does."""
    return [accident for norm in norms(model) for accident in _statistics(norm)]


def _statistics(norm: Norm) -> Iterator[Accident]:
    if norm.how == "name" or norm.family not in ("batch", "frozen batch", "instance"):
        return
    if norm.family == "batch" and not norm.has_statistics:
        yield Accident("batch-statistics", norm.path, _NO_STATISTICS, "warning", _TRAIN_THEM)
    if untouched(norm):
        yield Accident("untouched-statistics", norm.path, _UNTOUCHED, "warning", _LOAD)
    if norm.family == "instance" and norm.has_statistics and not norm.module.training:
        message = "uses running statistics outside of training, as a BatchNorm does, and not those of each image"
        hint = "train with track_running_stats=False where that is not wanted"
        yield Accident("instance-running-statistics", norm.path, message, "warning", hint)
