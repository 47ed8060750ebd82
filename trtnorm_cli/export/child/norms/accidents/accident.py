"""Accidents, which are faults of a model's normalization before it is exported, with what was done about them."""

from __future__ import annotations

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.records.export import AccidentRecord

# Every kind of accident, as the manifest and `--accept` name it.
KINDS = {
    "wrapper": "the model was wrapped for training or compilation",
    "lazy-module": "a module took its sizes from the example inputs",
    "lazy-module-uninitialised": "a module has no sizes, and nothing to take them from",
    "no-values": "a tensor has no values (meta device)",
    "training-mode": "modules were left in training mode",
    "stays-in-training": "modules are in training mode when exported",
    "dropout-active": "Dropout drops values at random when exported",
    "sync-batchnorm": "a SyncBatchNorm was converted",
    "weight-norm": "weight normalization was folded into the weight",
    "spectral-norm": "spectral normalization was folded into the weight",
    "parametrization": "a parametrization was folded into the tensor that it computes",
    "parametrization-left": "a parametrization could not be folded",
    "not-finite": "a parameter or statistic is NaN or infinite",
    "negative-variance": "a running variance is negative",
    "division-by-zero": "a running variance and epsilon add up to 0",
    "zero-variance": "a running variance is 0",
    "zero-scale": "a scale is 0 in every channel",
    "parameter-length": "a parameter has another length than the module's other tensors",
    "size-attribute": "a size attribute is not the size of the parameters",
    "group-count": "the number of groups does not divide the channels",
    "batch-statistics": "a BatchNorm without running statistics",
    "untouched-statistics": "running statistics as the constructor left them",
    "instance-running-statistics": "an InstanceNorm that uses running statistics",
    "mixed-types": "a normalization of another type than the model",
}


@dataclass(frozen=True)
class Accident(AccidentRecord):
    """One fault found at one module, of one of ``KINDS``."""

    def __post_init__(self) -> None:
        assert self.kind in KINDS, self.kind

    @property
    def where(self) -> str:
        return self.module or "the model"

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"
