"""Write weights that TensorRT cannot dequantise with signed integers and a zero point of 0, or as the floats that they are.

    (q − z) · s = q' · |s|      q' = (q − z) · sign(s)  in int8 where all of them lie in −128 … 127

and in int4 where the weights have 4 bits and −8 … 7 suffices, unless a convolution reads them: TensorRT has none of int4.
A scale of 0 becomes 1, with q' = 0. What fits into no such integers becomes the float (q − z) · s, rounded once.
Source: Jacob et al. 2018, "Quantization and Training of Neural Networks", §2.1; DequantizeLinear as in the ONNX operator
specification.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

from trtnorm_cli.rewrite.parts import quantised
from trtnorm_cli.rewrite.pattern import Const, op, optional, titled
from trtnorm_cli.rewrite.rule import Match, NewConstant, NewNode, Rule

DEQUANTIZE = op("DequantizeLinear", Const("data"), Const("scale"), optional(Const("zero")), name="dequantize")
_INT4, _INT8 = (-8, 7), (-128, 127)


def subject(m: Match) -> str | None:
    """Why TensorRT does not take the weights; None where it does."""
    node, values = m.node("dequantize"), m.value("data")
    number = int(onnx.helper.np_dtype_to_tensor_dtype(values.dtype))
    if quantised.block_size(node) and quantised.axis_of(node, values.ndim) < values.ndim - 2:
        return f"{titled(node)} has blocks along another axis than the last two"
    if number in quantised.FOUR_BITS and _feeds_convolution(m):
        return f"{titled(node)} makes weights of a convolution of 4 bits"
    return quantised.why_not_taken(titled(node), number, quantised.zero_points(m), m.value("scale"))


def scales_are_finite(m: Match) -> str | None:
    """the scales are finite floating-point numbers."""
    return quantised.unusable_scales(m, m.node("dequantize"))


def scales_fit_the_data(m: Match) -> str | None:
    """there is one scale and zero point, or one for each index along an axis, or one for each block."""
    node, shape = m.node("dequantize"), m.value("data").shape
    return quantised.misfit(node, m.value("scale"), shape) or quantised.misfit(node, quantised.zero_points(m), shape)


def _feeds_convolution(m: Match) -> bool:
    return any(reader.op in ("Conv", "ConvTranspose") for reader in m.root.outputs[0].outputs)


def _centred(m: Match) -> np.ndarray:
    """q − z, float64."""
    node, values = m.node("dequantize"), m.value("data")
    return values.astype(np.float64) - quantised.spread(node, quantised.zero_points(m), values.shape)


def _symmetric(m: Match) -> tuple[np.ndarray, np.ndarray] | None:
    """q' and |s|; None where no type of TensorRT holds q'."""
    node, scale = m.node("dequantize"), m.value("scale")
    number = int(onnx.helper.np_dtype_to_tensor_dtype(m.value("data").dtype))
    is_far = quantised.block_size(node) and quantised.axis_of(node, m.value("data").ndim) < m.value("data").ndim - 2
    if quantised.integer_range(number) is None or is_far:
        return None
    signs = quantised.spread(node, np.sign(scale.astype(np.float64)), m.value("data").shape)
    integers = _centred(m) * signs
    low, high = float(integers.min(initial=0)), float(integers.max(initial=0))
    positive = np.where(scale == 0, np.ones_like(scale), np.abs(scale)).astype(scale.dtype)
    if number in quantised.FOUR_BITS and not _feeds_convolution(m) and _INT4[0] <= low and high <= _INT4[1]:
        return integers.astype(onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.INT4)), positive
    return (integers.astype(np.int8), positive) if _INT8[0] <= low and high <= _INT8[1] else None


def symmetric(m: Match) -> NewNode:
    node, found = m.node("dequantize"), _symmetric(m)
    if found is not None:
        inputs = tuple(NewConstant(role, value) for role, value in zip(("weight", "scale"), found, strict=True))
        return NewNode("DequantizeLinear", inputs, dict(node.attrs), name=node.name, role="dequantize")
    scale = m.value("scale")
    wide = _centred(m) * quantised.spread(node, scale.astype(np.float64), m.value("data").shape)
    number = int(node.attrs.get("output_dtype", 0))
    dtype = onnx.helper.tensor_dtype_to_np_dtype(number) if number else scale.dtype
    return NewNode("Constant", (), {"value": numpy_helper.from_array(wide.astype(dtype))}, name=node.name, role="weight")


def warning(m: Match) -> str | None:
    """Tell the user of weights in floats, which are neither small nor fast."""
    if _symmetric(m) is not None:
        return None
    kind = quantised.type_name(int(onnx.helper.np_dtype_to_tensor_dtype(m.value("data").dtype)))
    return f"TensorRT does not take these weights of {kind} as they are quantised: they are floats again, of the same values"


RULE = Rule(
    name="symmetric-weights",
    pattern=DEQUANTIZE,
    preconditions=(scales_are_finite, scales_fit_the_data),
    subject=subject,
    replacement=symmetric,
    warning=warning,
    because="the zero points of weights have to be 0 for TensorRT, their integers signed and their scales positive",
    since_opset=10,
)
