"""Parameters whose lengths do not fit each other, or not what the module says of itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from torch import nn

from trtnorm_cli.export.child.norms.accidents.accident import Accident
from trtnorm_cli.export.child.norms.norm_modules import Norm, norms

_PER_CHANNEL = ("weight", "bias", "running_mean", "running_var")
_COUNTS = {"batch": "num_features", "frozen batch": "num_features", "instance": "num_features", "group": "num_channels"}
_FIX = "give every tensor of the module one value a channel; a pruned model must prune all of them"


def sizes_fit(model: nn.Module) -> list[Accident]:
    """A norm's parameters and statistics have one length, the size attribute says the same, and groups divide channels."""
    return [accident for norm in norms(model) for accident in (*_lengths(norm), *_groups(norm))]


def _lengths(norm: Norm) -> Iterator[Accident]:
    if norm.how == "name":
        return  # what the tensors of an unknown class mean is not known
    if norm.family in ("layer", "rms"):
        yield from _normalized_shape(norm)
        return
    lengths = {name: tensor.numel() for name in _PER_CHANNEL if (tensor := norm.state(name)) is not None}
    if len(set(lengths.values())) > 1:
        yield Accident("parameter-length", norm.path, _disagreement(lengths), "refused", _FIX)
    elif lengths:
        yield from _attribute(norm, next(iter(lengths.values())))


def _disagreement(lengths: dict[str, int]) -> str:
    """``weight has 16 values, bias, running_mean and running_var have 64``, the odd ones first."""
    common = Counter(lengths.values()).most_common(1)[0][0]
    odd = [f"{name} has {length} values" for name, length in lengths.items() if length != common]
    rest = [name for name, length in lengths.items() if length == common]
    return f"{', '.join(odd)}, but {', '.join(rest)} {'has' if len(rest) == 1 else 'have'} {common}"


def _attribute(norm: Norm, length: int) -> Iterator[Accident]:
    name = _COUNTS.get(norm.family, "num_features")
    said = getattr(norm.module, name, None)
    if isinstance(said, int) and said != length:
        message = f"{name} is {said}, but its parameters have {length} values; PyTorch computes with the parameters"
        yield Accident("size-attribute", norm.path, message, "warning", f"set {name} to {length}")


def _normalized_shape(norm: Norm) -> Iterator[Accident]:
    said = getattr(norm.module, "normalized_shape", None)
    if not isinstance(said, tuple | list):
        return
    for name in ("weight", "bias"):
        tensor = norm.state(name)
        if tensor is not None and tuple(tensor.shape) != tuple(said):
            message = f"{name} has shape {list(tensor.shape)}, but normalized_shape is {list(said)}"
            yield Accident("parameter-length", norm.path, message, "refused", f"make {name} of shape {list(said)}")


def _groups(norm: Norm) -> Iterator[Accident]:
    groups, weight = getattr(norm.module, "num_groups", None), norm.state("weight")
    channels = weight.numel() if weight is not None else getattr(norm.module, "num_channels", None)
    if norm.family != "group" or not isinstance(groups, int) or not isinstance(channels, int):
        return
    if groups < 1 or channels % groups:
        message = f"num_groups {groups} does not divide {channels} channels"
        yield Accident("group-count", norm.path, message, "refused", f"choose a divisor of {channels}")
