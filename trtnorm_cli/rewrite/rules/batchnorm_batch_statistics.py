"""Write a BatchNormalization in training mode with explicit reductions, as TensorRT does not take the mode.

    μ = mean(x)      σ² = mean((x − μ)²)      y = (x − μ) · γ/√(σ²+ε) + β

over all axes but the channels', and running statistics r' = m·r + (1 − m)·(μ or σ²) where somebody uses them. With a batch of
one and more than one position, the batch is the instance and one InstanceNormalization does the same. Half-precision data are
reduced in float32.
Source: Ioffe & Szegedy 2015, algorithm 1; BatchNormalization-9 and -14 in the ONNX operator specification.
"""

from __future__ import annotations

import math

import numpy as np
import onnx

from trtnorm_cli.rewrite.parts import batchnorm, training
from trtnorm_cli.rewrite.parts.arithmetic import Arithmetic, Operand, arithmetic_for, data_type
from trtnorm_cli.rewrite.parts.data_channels import along_channels, misfit, type_and_rank_are_known
from trtnorm_cli.rewrite.pattern import Var, describe, op
from trtnorm_cli.rewrite.rule import Match, NewNode, NewOutputs, Rule

_SAVED_VARIANCE = 4


def the_batch_is_meant(m: Match) -> str | None:
    """the build profile keeps training mode as it is written, or there are no running statistics to use instead."""
    policy = m.settings.training_mode
    if policy == "as-written" or training.has_running_statistics(m) is not None:
        return None
    return f"the build profile says training_mode: {policy}"


def scale_and_bias_fit(m: Match) -> str | None:
    """scale and bias are vectors with one value per channel, as far as the counts are known."""
    return misfit(m, ("scale", "shift"))


def saved_variance_is_not_used(m: Match) -> str | None:
    """the fifth output of opset 7 to 13 is not used: the specification calls it a variance, ONNX Runtime gives 1/√(σ²+ε)."""
    if _SAVED_VARIANCE not in m.used_outputs:
        return None
    return f"{m.root.outputs[_SAVED_VARIANCE].name}, the saved variance of {describe(m.root)}, is used"


def warning(m: Match) -> str | None:
    if training.has_running_statistics(m) is not None:
        return None
    return (
        f"normalizes with the statistics of each batch, as the file has it ({training.how_it_says_so(m)}): a sample's result "
        "depends on the others of its batch. That is usually a model exported without model.eval(). To use the running "
        "statistics instead, write this line in the build profile:\ntraining_mode: eval"
    )


def with_batch_statistics(m: Match) -> NewOutputs:
    if m.used_outputs == (0,) and _is_one_instance(m):
        return NewOutputs({0: _instance_normalization(m)})
    a, shape = arithmetic_for(m), m.shape("x")
    assert shape is not None, "type_and_rank_are_known holds"
    axes = training.batch_axes(len(shape))
    data = a.raised(m.given("x"), "to_float32")
    mean = a.mean(data, axes, role="mean")
    centred = a.binary("Sub", data, mean, "centred")
    variance = a.mean(a.binary("Mul", centred, centred, "squared"), axes, role="variance")
    nodes = {0: _normalized(m, a, centred, variance)}
    for number, statistic in zip((1, 2, 3), (mean, variance, mean), strict=True):
        if number in m.used_outputs:
            nodes[number] = _statistic(m, a, number, statistic)
    return NewOutputs(nodes)


def _normalized(m: Match, a: Arithmetic, centred: Operand, variance: NewNode) -> NewNode:
    along = along_channels(m)
    scale, shift = (a.reshape(a.raised(m.given(name)), along, f"{name}_per_channel") for name in ("scale", "shift"))
    deviation = a.sqrt(a.binary("Add", variance, np.full(1, batchnorm.epsilon(m)), "epsilon"))
    scaled = a.binary("Mul", centred, a.binary("Div", scale, deviation, "factor"), "scaled")
    return a.lowered(a.binary("Add", scaled, shift, "shifted"), data_type(m))


def _statistic(m: Match, a: Arithmetic, number: int, of_batch: NewNode) -> NewNode:
    """Running mean or variance (outputs 1 and 2), or the mean of the batch (3), as a vector."""
    name = training.STATISTICS[(number - 1) % 2]
    vector = a.reshape(of_batch, (-1,), f"batch_{name}")
    if number <= len(training.STATISTICS):
        keep = training.momentum(m)
        kept = a.binary("Mul", a.raised(m.given(name)), np.full(1, keep), f"kept_{name}")
        vector = a.binary("Add", kept, a.binary("Mul", vector, np.full(1, 1 - keep)), f"running_{name}")
    return a.lowered(vector, data_type(m, name) or a.data_type)


def _is_one_instance(m: Match) -> bool:
    """True when batch size and positions are known, and are one and more than one: TensorRT refuses a single element.

    Neither ONNX Runtime nor TensorRT normalizes instances in float64.
    """
    shape = m.shape("x") or ()
    if arithmetic_for(m).data_type != onnx.TensorProto.FLOAT:
        return False
    positions = [size for size in shape[2:] if isinstance(size, int)]
    return shape[:1] == (1,) and len(shape) > 2 and len(positions) == len(shape) - 2 and math.prod(positions) > 1


def _instance_normalization(m: Match) -> NewNode:
    a = arithmetic_for(m)
    names = {"x": "to_float32", "scale": "scale", "shift": "shift"}
    inputs = tuple(a.operand(a.raised(m.given(name), role), role) for name, role in names.items())
    node = NewNode("InstanceNormalization", inputs, {"epsilon": batchnorm.epsilon(m)}, role="instance")
    return a.lowered(node, data_type(m))


RULE = Rule(
    name="batchnorm-batch-statistics",
    pattern=op("BatchNormalization", Var("x"), *batchnorm.ANY_PARAMETERS, name=batchnorm.BATCHNORM),
    preconditions=(
        training.is_training,
        the_batch_is_meant,
        batchnorm.is_per_channel,
        type_and_rank_are_known,
        scale_and_bias_fit,
        saved_variance_is_not_used,
    ),
    replacement=with_batch_statistics,
    because="the mode does not exist in TensorRT, and the same statistics can be written as reductions",
    replaces_further_outputs=True,
    warning=warning,
)
