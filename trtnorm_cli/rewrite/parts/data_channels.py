"""The channel axis of the data, and whether parameters fit it."""

from __future__ import annotations

from trtnorm_cli.onnx_model.normalization_nodes import PARAMETERS
from trtnorm_cli.rewrite.parts import batchnorm
from trtnorm_cli.rewrite.parts.arithmetic import data_type
from trtnorm_cli.rewrite.pattern import describe
from trtnorm_cli.rewrite.rule import Match

# A pattern calls the bias of a normalization "shift", because a convolution has a bias too.
ROLES = dict(zip(batchnorm.PARAMETER_NAMES, PARAMETERS["BatchNormalization"], strict=True))


def type_and_rank_are_known(m: Match) -> str | None:
    """the element type and the rank of the data are known."""
    if data_type(m) and m.shape("x"):
        return None
    return f"type or rank of the data of {describe(m.root)} is not known"


def channel_count(m: Match) -> int | None:
    """The size of axis 1 of the data, None when it is not known. A vector has 1: ONNX takes its elements for a batch."""
    shape = m.shape("x")
    if shape is None or len(shape) == 0:
        return None
    size = shape[1] if len(shape) > 1 else 1
    return size if isinstance(size, int) else None


def misfit(m: Match, names: tuple[str, ...]) -> str | None:
    """None when the parameters ``names`` are vectors with one value per channel, as far as the counts are known."""
    channels = channel_count(m)
    for name in names:
        shape = m.shape(name)
        if shape is None:
            return f"the shape of {m.given(name).name} is not known"
        if len(shape) != 1:
            return f"{m.given(name).name} has shape {list(shape)}, not one axis"
        if isinstance(channels, int) and isinstance(shape[0], int) and channels != shape[0]:
            return f"{m.given(name).name} has {shape[0]} values, but the data of {describe(m.root)} has {channels} channels"
    return None


def along_channels(m: Match) -> tuple[int, ...]:
    """The shape that lets a vector with one value per channel broadcast over the data, whose rank is known."""
    shape = m.shape("x")
    assert shape is not None, "type_and_rank_are_known holds"
    return (-1, *[1] * (len(shape) - 2))
