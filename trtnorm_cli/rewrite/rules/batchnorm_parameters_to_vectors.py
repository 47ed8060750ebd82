"""Give the parameters of a BatchNormalization the one axis that ONNX and TensorRT want.

    [1, C, 1, 1], [C, 1, 1], [1, C], … = [C]      [], [1], [1, 1], … = one value for all C channels

Only where it can mean nothing else: all axes but one are of length 1, and the number of values is that of the channels, or one.
ONNX Runtime and TensorRT refuse such a model as it is.
Source: Ioffe & Szegedy 2015 (one scale, shift, mean and variance per channel); broadcasting in the ONNX specification.
"""

from __future__ import annotations

import numpy as np

from trtnorm_cli.rewrite.audit.diagnosis import listed
from trtnorm_cli.rewrite.parts import batchnorm
from trtnorm_cli.rewrite.parts.data_channels import ROLES, channel_count, type_and_rank_are_known
from trtnorm_cli.rewrite.parts.definition import definition, given_parameters
from trtnorm_cli.rewrite.pattern import Var, describe, op
from trtnorm_cli.rewrite.rule import Match, NewConstant, NewNode, Rule


def parameters_are_not_vectors(m: Match) -> str | None:
    """scale, bias, mean or variance has another number of axes than one, or one value for several channels."""
    shapes = {m.value(name).shape for name in batchnorm.PARAMETER_NAMES}
    if any(len(shape) != 1 for shape in shapes) or ((1,) in shapes and channel_count(m) not in (1, None)):
        return None
    return f"the parameters of {describe(m.root)} are vectors already"


def one_reading_is_possible(m: Match) -> str | None:
    """at most one axis of each parameter is longer than one, and it is as long as the data has channels."""
    channels = channel_count(m)
    if channels is None:
        return f"the number of channels of the data of {describe(m.root)} is not known"
    for name in batchnorm.PARAMETER_NAMES:
        shape = m.value(name).shape
        if m.value(name).size not in (1, channels) or max(shape, default=1) != m.value(name).size:
            return f"{m.given(name).name} has shape {list(shape)}, but the data of {describe(m.root)} has {channels} channels"
    return None


def warning(m: Match) -> str | None:
    single = [ROLES[name] for name in batchnorm.PARAMETER_NAMES if m.value(name).size == 1]
    if channel_count(m) == 1 or not single:
        return None
    return f"has one value for {channel_count(m)} channels in {listed(single)}; it is used for every channel"


def with_vectors(m: Match) -> NewNode:
    channels = channel_count(m)
    assert channels is not None, "one_reading_is_possible holds"
    values = {name: np.broadcast_to(m.value(name).reshape(-1), (channels,)) for name in batchnorm.PARAMETER_NAMES}
    parameters = (NewConstant(name, np.array(value)) for name, value in values.items())
    return batchnorm.with_parameters(m, parameters, "vectors")


def as_broadcasting_reads_them(m: Match) -> NewNode:
    return definition(m, given_parameters(m))


RULE = Rule(
    name="batchnorm-parameters-to-vectors",
    pattern=op("BatchNormalization", Var("x"), *batchnorm.PARAMETERS, name=batchnorm.BATCHNORM),
    preconditions=(
        parameters_are_not_vectors,
        batchnorm.is_per_channel,
        type_and_rank_are_known,
        one_reading_is_possible,
    ),
    replacement=with_vectors,
    because="scale, bias, mean and variance of a BatchNormalization are vectors, and can be read in one way only",
    warning=warning,
    reference=as_broadcasting_reads_them,
)
