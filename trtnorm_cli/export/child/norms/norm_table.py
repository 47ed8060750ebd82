"""A model's normalization modules as the table that ``trtnorm inspect SPEC`` shows."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trtnorm_cli.export.child.norms.norm_modules import Norm, norms, size_of
from trtnorm_cli.records.export import NormModule, Statistics


def norm_rows(model: nn.Module) -> list[NormModule]:
    """One row for each normalization module of ``model``, in the order of its definition."""
    return [_row(norm) for norm in norms(model)]


def _row(norm: Norm) -> NormModule:
    module = norm.module
    groups, momentum = getattr(module, "num_groups", None), getattr(module, "momentum", None)
    return NormModule(
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
