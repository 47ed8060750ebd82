"""Values that cannot be right, such as NaN and infinity, negative and zero variances, and scales of zero."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from trtnorm_cli.export.child.norms.accidents.accident import Accident
from trtnorm_cli.export.child.norms.norm_modules import Norm, norms
from trtnorm_cli.records.export import Severity
from trtnorm_cli.suggest import listing

_LOAD = "load the trained weights, with --weights or in the callable; retrain or clip what overflowed"
_HALF_MAX = 65504


def tensors_are_finite(model: nn.Module) -> list[Accident]:
    """Every parameter, and the statistics of every normalization, is a finite number.

    Minus infinity in other tensors is a mask as a rule and is let pass, as is what is in buffers that are not a
    normalization's, except for NaN.
    """
    of_norms = {id(norm.module) for norm in norms(model)}
    return [
        accident
        for path, module in model.named_modules()
        for name, tensor, is_parameter in _own_tensors(module)
        for accident in _tensor_is_finite(path, name, tensor, is_parameter, id(module) in of_norms)
    ]


def _own_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor, bool]]:
    for is_parameter, own in ((True, module._parameters), (False, module._buffers)):
        for name, tensor in own.items():
            if tensor is not None and not is_lazy(tensor):
                yield name, tensor, is_parameter


def _tensor_is_finite(path: str, name: str, tensor: Tensor, is_parameter: bool, of_norm: bool) -> Iterator[Accident]:
    if tensor.is_meta:
        message = f"{name} {list(tensor.shape)} is on the meta device: it has no values"
        yield Accident("no-values", path, message, "refused", _LOAD)
        return
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return
    low, high = torch.aminmax(tensor.detach() if tensor.element_size() > 1 else tensor.detach().float())
    if bool(low.isfinite()) and bool(high.isfinite()):
        return  # aminmax passes NaN on, and this needs no copy of the tensor
    has_nan, is_mask = bool(low.isnan()), bool(high < torch.inf)
    if has_nan or of_norm or (is_parameter and not is_mask):
        severity: Severity = "refused" if is_parameter or of_norm else "warning"
        yield Accident("not-finite", path, f"{name}: {_where(tensor, ~tensor.isfinite())}", severity, _hint(tensor, has_nan))


def _hint(tensor: Tensor, has_nan: bool) -> str:
    if tensor.dtype == torch.float16 and not has_nan:
        return f"float16 holds values up to {_HALF_MAX}: keep this module in float32, or use bfloat16"
    return _LOAD


def _where(tensor: Tensor, wrong: Tensor) -> str:
    """``NaN at [3], 2 of 64 values`` for the first element that is wrong."""
    index = [int(position) for position in wrong.nonzero()[0]]
    value = float(tensor.detach()[tuple(index)])
    return f"{value:g} at {index}, {int(wrong.sum())} of {tensor.numel()} values"


def variances_are_positive(model: nn.Module) -> list[Accident]:
    """No running variance is negative, none adds up to 0 with epsilon, and none is 0."""
    return [accident for norm in norms(model) for accident in _variance(norm)]


def _variance(norm: Norm) -> Iterator[Accident]:
    variance, epsilon = norm.state("running_var"), norm.epsilon
    if variance is None or not bool(variance.isfinite().all()):
        return
    if bool((variance < 0).any()):
        message = f"running_var: {_where(variance, variance < 0)}; a variance is never negative"
        yield Accident("negative-variance", norm.path, message, "refused", _LOAD)
    elif bool((variance == 0).any()):
        yield _zero_variance(norm.path, variance, epsilon)


def _zero_variance(path: str, variance: Tensor, epsilon: float | None) -> Accident:
    channels = (variance == 0).nonzero().flatten().tolist()
    which = f"running_var is 0 in channels {listing(map(str, channels))} ({len(channels)} of {variance.numel()})"
    if epsilon is not None and epsilon <= 0:
        return Accident("division-by-zero", path, f"{which} and epsilon is {epsilon:g}: a division by 0", "refused", _LOAD)
    if len(channels) == variance.numel():
        message = f"{which}: no data has this; the statistics were cleared or never set"
        return Accident("zero-variance", path, message, "refused", _LOAD)
    factor = "" if epsilon is None else f", which multiplies whatever is there by {epsilon**-0.5:.0f}"
    message = f"{which}: the channel never changed in training{factor}"
    return Accident("zero-variance", path, message, "warning", "right where the channel is dead; else train them again")


def scales_are_not_zero(model: nn.Module) -> list[Accident]:
    """No normalization scales all of its channels by 0, as one that was set so for the start of training and never trained.

    Only known classes are looked at. Others may scale by 1 + weight, or add their input (Gemma's RMSNorm, GRN).
    """
    message = "weight is 0 in every channel: the module gives its bias whatever comes in"
    scales = [(norm.path, norm.state("weight")) for norm in norms(model) if norm.how != "name"]
    zero = [path for path, scale in scales if scale is not None and scale.numel() and not bool(scale.any())]
    return [Accident("zero-scale", path, message, "warning") for path in zero]
