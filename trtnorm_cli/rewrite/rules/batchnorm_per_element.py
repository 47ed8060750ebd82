"""Turn an inference BatchNormalization whose parameters are shaped like the data into one multiplication and one addition.

    y = s·x + t      s = γ/√(σ²+ε)      t = β − μ·s

Two forms of it are legal: ``spatial=0`` of opset 7 and 8, with parameters for every element of a sample, and data with one
axis only, which ONNX takes for a batch of one channel. s and t are computed in float64; half-precision data are scaled in
float32.
Source: Ioffe & Szegedy 2015; BatchNormalization-7 and -9 in the ONNX operator specification.
"""

from __future__ import annotations

import numpy as np

from trtnorm_cli.rewrite.parts import batchnorm
from trtnorm_cli.rewrite.parts.arithmetic import arithmetic_for, data_type
from trtnorm_cli.rewrite.parts.data_channels import type_and_rank_are_known
from trtnorm_cli.rewrite.pattern import Var, describe, op
from trtnorm_cli.rewrite.rule import Match, NewNode, Rule


def is_per_element(m: Match) -> str | None:
    """the BatchNormalization has ``spatial=0`` (opset 7 and 8), or its data has one axis only."""
    if batchnorm.is_per_channel(m) is not None or m.rank("x") == 1:
        return None
    return f"{describe(m.root)} has one value per channel"


def parameters_fit_the_data(m: Match) -> str | None:
    """scale, bias, mean and variance have the shape of one sample, or one value where the data is a vector."""
    shapes = {m.value(name).shape for name in batchnorm.PARAMETER_NAMES}
    data = m.shape("x") or ()
    sample = data[1:] if len(data) > 1 else (1,)
    (own, *others) = shapes
    same = not others and len(own) == len(sample)
    if same and all(b is None or isinstance(b, str) or a == b for a, b in zip(own, sample, strict=True)):
        return None
    listed = " and ".join(str(list(shape)) for shape in sorted(shapes))
    return f"the parameters of {describe(m.root)} have the shape {listed}, a sample of its data {list(sample)}"


def scale_and_shift_are_representable(m: Match) -> str | None:
    """scale and shift stay finite in the type in which they are applied."""
    dtype = arithmetic_for(m).dtype
    scale, shift = batchnorm.scale_and_shift(m)
    return batchnorm.not_representable(scale, dtype, "the scale") or batchnorm.not_representable(shift, dtype, "the shift")


def scale_and_shift_nodes(m: Match) -> NewNode:
    a = arithmetic_for(m)
    scale, shift = (np.asarray(values) for values in batchnorm.scale_and_shift(m))
    scaled = a.binary("Mul", a.raised(m.given("x"), "to_float32"), scale, "scale")
    return a.lowered(a.binary("Add", scaled, shift, "shift"), data_type(m))


RULE = Rule(
    name="batchnorm-per-element",
    pattern=op("BatchNormalization", Var("x"), *batchnorm.PARAMETERS, name=batchnorm.BATCHNORM),
    preconditions=(
        type_and_rank_are_known,
        is_per_element,
        batchnorm.is_inference,
        parameters_fit_the_data,
        batchnorm.parameters_are_finite,
        batchnorm.variance_is_positive,
        scale_and_shift_are_representable,
    ),
    replacement=scale_and_shift_nodes,
    because="its parameters are not per channel, as TensorRT wants them, but one multiplication and one addition do the same",
)
