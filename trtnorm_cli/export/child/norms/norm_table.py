"""A model's normalization modules as the table that ``trtnorm inspect SPEC`` shows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from trtnorm_cli.export.child.norms.norm_modules import Family, Norm, norms, size_of

Statistics = Literal["none", "tracked", "untouched", "frozen"]


@dataclass(frozen=True)
class NormRow:
    """One normalization module, JSON-serialisable.

    ``shape`` is what the module says that it normalizes, ``affine`` whether it scales, ``dtypes`` the types of its parameters
    and statistics, ``momentum`` None for a cumulative average and for modules without. ``mean`` and ``variance`` are the
    smallest and largest running statistic.
    """

    path: str
    type: str
    family: Family
    recognised_by: str
    shape: tuple[int, ...] | None
    groups: int | None
    epsilon: float | None
    affine: bool
    momentum: float | None
    dtypes: tuple[str, ...]
    statistics: Statistics
    mean: tuple[float, float] | None
    variance: tuple[float, float] | None
    training: bool


def norm_rows(model: nn.Module) -> list[NormRow]:
    """One row for each normalization module of ``model``, in the order of its definition."""
    return [_row(norm) for norm in norms(model)]


def norms_json(model: nn.Module) -> list[dict[str, object]]:
    """The rows as JSON can say them."""
    return [asdict(row) for row in norm_rows(model)]


def _row(norm: Norm) -> NormRow:
    module = norm.module
    groups, momentum = getattr(module, "num_groups", None), getattr(module, "momentum", None)
    return NormRow(
        path=norm.path,
        type=norm.type_name,
        family=norm.family,
        recognised_by=norm.how,
        shape=size_of(norm),
        groups=groups if isinstance(groups, int) else None,
        epsilon=norm.epsilon,
        affine=any(True for _ in module.parameters(recurse=False)) or norm.family == "frozen batch",
        momentum=float(momentum) if isinstance(momentum, int | float) else None,
        dtypes=tuple(sorted(floating_dtypes(module))),
        statistics=statistics_of(norm),
        mean=_range(norm.state("running_mean")),
        variance=_range(norm.state("running_var")),
        training=module.training,
    )


def floating_dtypes(module: nn.Module) -> set[str]:
    """The floating-point types of a module's own parameters and buffers, such as ``{"float32"}``."""
    own = [*module._parameters.values(), *module._buffers.values()]
    return {str(tensor.dtype).removeprefix("torch.") for tensor in own if tensor is not None and tensor.is_floating_point()}


def statistics_of(norm: Norm) -> Statistics:
    """The state of the module's running statistics, which says whether there are any and whether data ever reached them."""
    if not norm.has_statistics:
        return "none"
    if untouched(norm):
        return "untouched"
    return "frozen" if norm.family == "frozen batch" else "tracked"


def untouched(norm: Norm) -> bool:
    """True for statistics as the constructor left them, with mean 0 and variance 1 everywhere and no batch counted."""
    mean, variance, batches = (norm.state(name) for name in ("running_mean", "running_var", "num_batches_tracked"))
    if mean is None or variance is None or (batches is not None and int(batches) > 0):
        return False
    return bool((mean == 0).all()) and bool((variance == 1).all())


def _range(values: Tensor | None) -> tuple[float, float] | None:
    if values is None or values.numel() == 0:
        return None
    low, high = torch.aminmax(values.detach().float())
    return float(low), float(high)
