"""Write quantised activations that TensorRT does not take with a zero point of 0, or as the arithmetic on floats that they are.

    uint8, z = 128:   clamp(round(x/s) + 128, 0, 255) − 128  =  clamp(round(x/s), −128, 127)      which is int8, z = 0
    otherwise:        (clamp(round(x/s) + z, low, high) − z) · s  =  clamp(round(x/s), low − z, high − z) · s

for the whole numbers low … high of the quantised type, in float32, which holds all of them. The second is exact and has no
speed of int8. TensorRT reads uint8 as int8: z = 0 would lose all above 127.
Source: Jacob et al. 2018, "Quantization and Training of Neural Networks", §2.1; QuantizeLinear as in the ONNX operator
specification.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.rewrite.parts import quantised
from trtnorm_cli.rewrite.parts.arithmetic import Arithmetic, arithmetic_for
from trtnorm_cli.rewrite.pattern import Const, Var, describe, op, optional, titled
from trtnorm_cli.rewrite.rule import Extent, Match, NewConstant, NewNode, NewTensors, Rule

if TYPE_CHECKING:
    from trtnorm_cli.rewrite.rule import Node

QUANTIZE = op("QuantizeLinear", Var("x"), Const("scale"), optional(Const("zero")), name="quantize")
_SIGNED_ZERO = 128
_LARGEST_EXACT = 2.0**24


@dataclass(frozen=True)
class Reader:
    """A DequantizeLinear of the quantised data, with its scales."""

    node: Node
    scale: np.ndarray


def subject(m: Match) -> str | None:
    """Why TensorRT does not take it; None where it does."""
    return quantised.why_not_taken(titled(m.node("quantize")), _quantised_type(m), quantised.zero_points(m), m.value("scale"))


def quantises_to_integers(m: Match) -> str | None:
    """the data are quantised to integers of at most 16 bits."""
    limits = quantised.integer_range(_quantised_type(m))
    if limits is not None and max(map(abs, limits)) < _LARGEST_EXACT:
        return None
    return f"{titled(m.node('quantize'))} quantises to {quantised.type_name(_quantised_type(m))}"


def scales_are_positive(m: Match) -> str | None:
    """the scales are finite and above zero."""
    if not np.all(m.value("scale").astype(np.float64) > 0):
        return f"{titled(m.node('quantize'))} has scales that are not positive"
    return quantised.unusable_scales(m, m.node("quantize"))


def scales_lie_along_an_axis(m: Match) -> str | None:
    """there is one scale, or one for each index along an axis of data of known rank."""
    return quantised.scales_without_axis(m, m.node("quantize"))


def extent(m: Match) -> Extent | str:
    """everything that reads the quantised data is a DequantizeLinear with the same zero points."""
    node, readers = m.node("quantize"), []
    for reader in node.outputs[0].outputs:
        found = _reader(m, reader)
        if isinstance(found, str):
            return found
        readers.append(found)
    if not readers:
        return f"{node.outputs[0].name} is an output of the graph"
    nodes = sorted((r.node for r in readers), key=lambda one: m.borders.positions[id(one)], reverse=True)
    others = tuple(one.outputs[0] for one in nodes[1:])
    return Extent(nodes[0], (*nodes, node), others, tuple(readers))


def _reader(m: Match, node: Node) -> Reader | str:
    if (
        node.op != "DequantizeLinear"
        or node.domain not in DEFAULT_DOMAINS
        or node.inputs[0] is not m.node("quantize").outputs[0]
    ):
        return f"{m.node('quantize').outputs[0].name} is also used by {describe(node)}"
    scale = m.surgery.constant(node.inputs[1])
    zero = m.surgery.constant(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2].name else np.zeros(())
    if scale is None or zero is None or quantised.block_size(node):
        return f"scale or zero point of {titled(node)} are computed at run time, or it has blocks"
    if not _are_equal(quantised.zero_points(m), zero.astype(np.float64)):
        return f"{titled(node)} has other zero points than {titled(m.node('quantize'))}"
    if scale.size > 1 and m.rank("x") is None:
        return f"the rank of {m.given('x').name} is not known"
    return Reader(node, scale)


def _are_equal(one: np.ndarray, other: np.ndarray) -> bool:
    """One value for all may be written once, or again for each index."""
    return (one.size == other.size or 1 in (one.size, other.size)) and bool(np.all(one.reshape(-1) == other.reshape(-1)))


def _quantised_type(m: Match) -> int:
    """The type of the zero points, else the one that is stated, else uint8."""
    if m.has("zero"):
        return int(onnx.helper.np_dtype_to_tensor_dtype(m.value("zero").dtype))
    return int(m.node("quantize").attrs.get("output_dtype", 0)) or onnx.TensorProto.UINT8


def _is_signed_with_an_offset(m: Match) -> bool:
    return _quantised_type(m) == onnx.TensorProto.UINT8 and bool(np.all(quantised.zero_points(m) == _SIGNED_ZERO))


def symmetric(m: Match) -> NewTensors:
    return _signed(m) if _is_signed_with_an_offset(m) else _in_float(m)


def _readers(m: Match) -> tuple[Reader, ...]:
    assert m.extent is not None, "the rule has an extent"
    plan: tuple[Reader, ...] = m.extent.plan
    return plan


def _signed(m: Match) -> NewTensors:
    node = m.node("quantize")
    attrs = {key: value for key, value in node.attrs.items() if key != "output_dtype"}
    zero = NewConstant("zero_point", np.zeros(m.value("zero").shape, np.int8))
    quantise = NewNode(node.op, (m.given("x"), m.tensor("scale"), zero), attrs, "quantize", node.name)
    made = []
    for reader in _readers(m):
        old = reader.node
        again = NewConstant("zero_point", np.zeros(reader.scale.shape, np.int8))
        made.append(
            (old.outputs[0], NewNode(old.op, (quantise, old.inputs[1], again), dict(old.attrs), "dequantize", old.name))
        )
    return NewTensors(tuple(made))


def _in_float(m: Match) -> NewTensors:
    node, a, limits = m.node("quantize"), arithmetic_for(m), quantised.integer_range(_quantised_type(m))
    assert limits is not None, "it quantises to integers"
    zeros = quantised.zero_points(m)
    scaled = a.binary("Div", a.raised(m.given("x"), "to_float32"), quantised.broadcast(m, node, m.value("scale")), "steps")
    rounded = NewNode("Round", (a.operand(scaled, "steps"),), role="round")
    low = NewConstant("lowest", np.asarray(quantised.broadcast(m, node, limits[0] - zeros)).astype(a.dtype))
    high = NewConstant("highest", np.asarray(quantised.broadcast(m, node, limits[1] - zeros)).astype(a.dtype))
    clamped = NewNode("Min", (NewNode("Max", (rounded, low), role="at_least"), high), role="at_most")
    return NewTensors(tuple((r.node.outputs[0], _dequantised(m, a, r, clamped)) for r in _readers(m)))


def _dequantised(m: Match, a: Arithmetic, reader: Reader, steps: NewNode) -> NewNode:
    made = a.binary("Mul", steps, quantised.broadcast(m, reader.node, reader.scale), "dequantized")
    number = int(reader.node.attrs.get("output_dtype", 0)) or int(onnx.helper.np_dtype_to_tensor_dtype(reader.scale.dtype))
    return a.lowered(made, number)


def warning(m: Match) -> str | None:
    """Tell the user that floats have no speed of int8."""
    if _is_signed_with_an_offset(m):
        return None
    kind = quantised.type_name(_quantised_type(m))
    return (
        f"TensorRT does not take activations quantised to {kind} like these: they are rounded in floating point, exactly as "
        "the model says, and what reads them computes without the speed of int8\n"
        "for that, quantise to int8 with zero points of 0: quantize_static with activation_type=QInt8 and ActivationSymmetric"
    )


RULE = Rule(
    name="symmetric-activations",
    pattern=QUANTIZE,
    preconditions=(quantises_to_integers, scales_are_positive, scales_lie_along_an_axis),
    subject=subject,
    extent=extent,
    replacement=symmetric,
    warning=warning,
    because="activations have to be quantised to signed integers with zero points of 0 for TensorRT",
    since_opset=11,
)
