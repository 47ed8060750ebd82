"""Give a MeanVarianceNormalization the type and the axes with which TensorRT takes it.

    y = cast(MVN(cast(x)))      axes = those of [0, 2, 3] that the data has

TensorRT adds a float32 constant to half-precision data and refuses its own sum; the default axes mean data of four axes to it.
ONNX Runtime leaves an axis out that the data does not have.
Source: MeanVarianceNormalization-13 in the ONNX operator specification, onnx/onnx 2024.
"""

from __future__ import annotations

import onnx

from trtnorm_cli.rewrite.parts.arithmetic import HALF_TYPES, Arithmetic, data_type
from trtnorm_cli.rewrite.parts.data_channels import type_and_rank_are_known
from trtnorm_cli.rewrite.pattern import Var, describe, op
from trtnorm_cli.rewrite.rule import Match, NewNode, Rule

_DEFAULT_AXES = (0, 2, 3)


def tensorrt_does_not_take_it(m: Match) -> str | None:
    """the data are of half precision, or have fewer axes than the default wants."""
    if data_type(m) in HALF_TYPES or _axes_are_missing(m):
        return None
    return f"{describe(m.root)} has data and axes that TensorRT takes"


def _axes_are_missing(m: Match) -> bool:
    return not m.root.attrs.get("axes") and len(m.shape("x") or ()) <= max(_DEFAULT_AXES)


def with_type_and_axes(m: Match) -> NewNode:
    half = data_type(m) in HALF_TYPES
    a = Arithmetic(m, onnx.TensorProto.FLOAT if half else data_type(m))
    rank = len(m.shape("x") or ())
    axes = m.root.attrs.get("axes") or [axis for axis in _DEFAULT_AXES if axis < rank]
    data = a.operand(a.raised(m.given("x"), "to_float32"), "data")
    node = NewNode(m.root.op, (data,), {"axes": list(axes)}, name=m.root.name, role="normalized")
    return a.lowered(node, data_type(m))


RULE = Rule(
    name="mean-variance-normalization",
    pattern=op("MeanVarianceNormalization", Var("x"), name="normalization"),
    preconditions=(type_and_rank_are_known, tensorrt_does_not_take_it),
    replacement=with_type_and_axes,
    because="a MeanVarianceNormalization has to be in float32 and over axes that exist for TensorRT",
    since_opset=9,
)
