"""Write a quantisation that TensorRT does not have, and its dequantisation, as one that it has, or in operators on floats.

    s · (clip(round(x / s) + z, low, high) − z)    =    s · clip(round(x / s), low − z, high − z)

TensorRT has signed integers of 8 bits without a zero point alone. It takes unsigned ones with a zero point of 0, and computes
with signed ones that end at 127, not 255. Unsigned ones with a zero point of 128 are signed ones with 0. All others become
Div, Round, Clip and Mul, which have the values of the file, and no kernel on integers.
Source: QuantizeLinear-10 to -23 and DequantizeLinear in the ONNX operator specification; Jacob et al. 2018, §2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx

from trtnorm_cli.rewrite.parts.dynamic_quantization import given, producer
from trtnorm_cli.rewrite.parts.moves import Moved, moved, read_again
from trtnorm_cli.rewrite.pattern import Const, Var, describe, op, optional
from trtnorm_cli.rewrite.rule import Match, NewConstant, NewNode, Rule

if TYPE_CHECKING:
    from trtnorm_cli.rewrite.rule import Node, Tensor

_INTEGERS = tuple(np.dtype(kind) for kind in (np.int8, np.uint8, np.int16, np.uint16))
_MIDDLE = 128


def its_data_are_quantised_with_constants(m: Match) -> str | None:
    """its data are integers of 8 or 16 bits that QuantizeLinear makes with a scale and a zero point of the file."""
    found = _quantiser(m)
    if found is None:
        return f"{_moves(m).source.name} is not made by QuantizeLinear"
    for tensor in (given(found, 1), given(found, 2)):
        if tensor is not None and m.surgery.constant(tensor) is None:
            return f"{tensor.name}, a parameter of {describe(found)}, is computed at run time"
    kind = _zero(m, found).dtype
    return None if kind in _INTEGERS else f"{describe(found)} quantises to {kind}"


def tensorrt_does_not_have_it(m: Match) -> str | None:
    """the integers are unsigned or of 16 bits, or a zero point is not 0."""
    found = _quantiser(m)
    assert found is not None, "the first precondition holds"
    zeros = (_zero(m, found), _own_zero(m))
    is_taken = zeros[0].dtype == np.int8 and not any(zero.any() for zero in zeros)
    return f"TensorRT has the quantisation of {describe(found)}" if is_taken else None


def parameters_are_of_float32(m: Match) -> str | None:
    """scales are float32 and not of blocks, and single numbers where elements are moved."""
    found = _quantiser(m)
    assert found is not None, "the first precondition holds"
    scales = (_value(m, found, 1), m.value("scale"))
    if any(scale.dtype != np.float32 for scale in scales):
        return f"a scale of {describe(m.root)} is of type {next(s.dtype for s in scales if s.dtype != np.float32)}"
    if any(node.attrs.get("block_size", 0) for node in (found, m.root)):
        return f"{describe(m.root)} has a scale for each block"
    sizes = [parameter.size for parameter in (*scales, _zero(m, found), _own_zero(m))]
    if _moves(m).nodes and max(sizes) > 1:
        return f"{describe(m.root)} has {max(sizes)} scales for what is moved"
    if max(sizes) > 1 and not m.rank("x"):
        state = "is not known" if m.rank("x") is None else "is 0, and its quantisation is along an axis"
        return f"the rank of {m.given('x').name} {state}"
    return None


def _moves(m: Match) -> Moved:
    return moved(m.given("x"))


def _quantiser(m: Match) -> Node | None:
    return producer(_moves(m).source, "QuantizeLinear")


def _value(m: Match, node: Node, index: int) -> np.ndarray:
    value = m.surgery.constant(node.inputs[index])
    assert value is not None, "the first precondition holds"
    return value


def _zero(m: Match, quantiser: Node) -> np.ndarray:
    """The zero point, which says the type."""
    if given(quantiser, 2) is not None:
        return _value(m, quantiser, 2)
    stated = quantiser.attrs.get("output_dtype", 0)
    return np.zeros((), onnx.helper.tensor_dtype_to_np_dtype(stated) if stated else np.uint8)


def _own_zero(m: Match) -> np.ndarray:
    return m.value("zero") if m.has("zero") else np.zeros((), np.int8)


def _data(m: Match, quantiser: Node) -> Tensor | NewConstant:
    data = read_again(quantiser.inputs[0], m.surgery)
    assert data is not None, "QuantizeLinear has data"
    return data


def in_what_tensorrt_has(m: Match) -> NewNode:
    quantiser = _quantiser(m)
    assert quantiser is not None, "the first precondition holds"
    zero, own = _zero(m, quantiser), _own_zero(m)
    if zero.dtype == np.uint8 and (zero == _MIDDLE).all() and (own == _MIDDLE).all():
        return _signed(m, quantiser)
    return _in_floats(m, quantiser, zero.astype(np.int64), own.astype(np.int64))


def _signed(m: Match, quantiser: Node) -> NewNode:
    """Each integer less 128."""
    axis = {"axis": quantiser.attrs["axis"]} if "axis" in quantiser.attrs else {}
    scale, own = _value(m, quantiser, 1), m.value("scale")
    inputs = (_data(m, quantiser), NewConstant("scale", scale), NewConstant("zero", np.zeros(scale.shape, np.int8)))
    steps = NewNode("QuantizeLinear", inputs, axis, role="quantise")
    parameters = (NewConstant("own_scale", own), NewConstant("own_zero", np.zeros(own.shape, np.int8)))
    axis = {"axis": m.root.attrs["axis"]} if "axis" in m.root.attrs else {}
    return NewNode("DequantizeLinear", (_moves(m).after(steps, m.surgery), *parameters), axis, name=m.root.name)


def _in_floats(m: Match, quantiser: Node, zero: np.ndarray, own: np.ndarray) -> NewNode:
    def spread(parameter: np.ndarray, node: Node, role: str) -> NewConstant:
        value = np.asarray(parameter, np.float32)
        if value.size == 1:
            return NewConstant(role, value.reshape(()))
        rank = m.rank("x")
        assert rank is not None, "the last precondition holds"
        axis = int(node.attrs.get("axis", 1)) % rank
        return NewConstant(role, value.reshape(-1, *[1] * (rank - axis - 1)))

    limits = np.iinfo(_zero(m, quantiser).dtype)
    quotient = NewNode("Div", (_data(m, quantiser), spread(_value(m, quantiser, 1), quantiser, "scale")), role="divided")
    steps = NewNode("Round", (quotient,), role="rounded")
    low, high = spread(limits.min - zero, quantiser, "low"), spread(limits.max - zero, quantiser, "high")
    if zero.size == 1:
        steps = NewNode("Clip", (steps, low, high), role="clipped")
    else:
        steps = NewNode("Min", (NewNode("Max", (steps, low), role="not_below"), high), role="not_above")
    result = _moves(m).after(steps, m.surgery)
    assert isinstance(result, NewNode), "it is computed"
    if (zero != own).any():
        result = NewNode("Add", (result, spread(zero - own, m.root, "further")), role="shifted")
    return NewNode("Mul", (result, spread(m.value("scale"), m.root, "own_scale")), name=m.root.name, role="scaled")


def as_the_file_has_it(m: Match) -> NewNode:
    quantiser = _quantiser(m)
    assert quantiser is not None, "the first precondition holds"
    further = tuple(read_again(tensor, m.surgery) for tensor in quantiser.inputs[1:])
    steps = NewNode("QuantizeLinear", (_data(m, quantiser), *further), dict(quantiser.attrs), role="quantise")
    own = tuple(read_again(tensor, m.surgery) for tensor in m.root.inputs[1:])
    return NewNode("DequantizeLinear", (_moves(m).after(steps, m.surgery), *own), dict(m.root.attrs), role="dequantise")


def warning(m: Match) -> str | None:
    quantiser = _quantiser(m)
    assert quantiser is not None, "the first precondition holds"
    zero, own = _zero(m, quantiser), _own_zero(m)
    if zero.dtype == np.uint8 and (zero == _MIDDLE).all() and (own == _MIDDLE).all():
        return None
    return (
        "is computed with floats, rounded to the steps that the file has: TensorRT's kernels on integers want int8 with zero "
        "points of 0. Quantise symmetrically to get these"
    )


RULE = Rule(
    name="asymmetric-quantization",
    pattern=op("DequantizeLinear", Var("x"), Const("scale"), optional(Const("zero")), name="dequantise"),
    preconditions=(its_data_are_quantised_with_constants, tensorrt_does_not_have_it, parameters_are_of_float32),
    replacement=in_what_tensorrt_has,
    because="the only quantised activations of TensorRT are signed, of 8 bits, and without a zero point",
    warning=warning,
    reference=as_the_file_has_it,
    restates=True,
    subject=_quantiser,
    since_opset=11,
)
