"""Compute ONNX Runtime's matrix product with quantised weights with floats, where the user asks for it.

    y = DynamicQuantizeMatMul(x, q_w, s_w, z_w, b)                         →    y = MatMul(x, s_w · (q_w − z_w)) + b
    y = MatMulIntegerToFloat(q_x, q_w, s_x, s_w, z_x, z_w, b)              →    the same, where q_x, s_x, z_x are made of x

by DynamicQuantizeLinear. Nothing is rounded to 8 bits at run time any more, so that results change by what that did. It is
applied only when the build profile says `dynamic_quantization: float`: TensorRT does not know the operators.
Source: Jacob et al. 2018, §2; both in the contributed operators of ONNX Runtime, 2020.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.rewrite.parts import dynamic_quantization as dynamic
from trtnorm_cli.rewrite.parts.dynamic_quantization import Activation, Unrounded
from trtnorm_cli.rewrite.pattern import Var, describe, op, optional
from trtnorm_cli.rewrite.rule import Match, NewConstant, NewNode, Rule

if TYPE_CHECKING:
    from trtnorm_cli.rewrite.rule import Tensor


@dataclass(frozen=True)
class _Places:
    """Numbers of the inputs; data are floats where there is no ``scale`` of them."""

    scale: int | None
    zero: int | None
    weight_scale: int
    weight_zero: int
    bias: int


_PLACES = {"DynamicQuantizeMatMul": _Places(None, None, 2, 3, 4), "MatMulIntegerToFloat": _Places(2, 4, 3, 5, 6)}


def weights_are_constants(m: Match) -> str | None:
    """weights, their scale and their zero point stand in the file, one value of each for all or for each column."""
    places = _PLACES[m.root.op]
    for index in (1, places.weight_scale, places.weight_zero):
        tensor = dynamic.given(m.root, index)
        value = None if tensor is None else m.surgery.constant(tensor)
        if tensor is None and index == places.weight_zero:
            continue
        if value is None:
            return f"input {index} of {describe(m.root)} is computed at run time"
        columns = _constant(m, 1).shape[-1]
        if index != 1 and value.size != 1 and value.shape != (columns,):
            return f"{tensor.name} has shape {list(value.shape)}, for {columns} columns"  # type: ignore[union-attr]
    return None


def data_are_quantised_dynamically(m: Match) -> str | None:
    """its data are floats, or integers that DynamicQuantizeLinear made of floats."""
    found = _activation(m)
    return found if isinstance(found, str) else None


def _activation(m: Match) -> Activation | str | None:
    """The activation; None where the operator itself quantises its data."""
    places = _PLACES[m.root.op]
    if places.scale is None or places.zero is None:
        return None
    found = dynamic.activation(m.root.inputs[0], dynamic.given(m.root, places.zero))
    if isinstance(found, str):
        return found
    if dynamic.scale_of(m.root.inputs[places.scale]) is not found.quantiser:
        return f"{m.root.inputs[places.scale].name} is not the scale of {describe(found.quantiser)}"
    return found


def _constant(m: Match, index: int) -> np.ndarray:
    value = m.surgery.constant(m.root.inputs[index])
    assert value is not None, "the precondition holds"
    return value


def _parameters(m: Match) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Weights, and a scale and a zero point that broadcast over them."""
    places = _PLACES[m.root.op]
    scale = _constant(m, places.weight_scale)
    zero = None if dynamic.given(m.root, places.weight_zero) is None else _constant(m, places.weight_zero)
    single = (scale.reshape(()) if scale.size == 1 else scale, zero)
    return _constant(m, 1), single[0], zero.reshape(()) if zero is not None and zero.size == 1 else zero


def _with_bias(m: Match, made: NewNode) -> NewNode:
    bias = dynamic.given(m.root, _PLACES[m.root.op].bias)
    return made if bias is None else NewNode("Add", (made, bias), role="bias")


def _data(m: Match) -> Tensor | NewNode:
    found = _activation(m)
    return found.floats(m.surgery) if isinstance(found, Activation) else m.root.inputs[0]


def with_floats(m: Match) -> NewNode:
    weights, scale, zero = _parameters(m)
    weight = NewConstant("weight", dynamic.dequantised(weights, scale, zero))
    name = m.root.name if dynamic.given(m.root, _PLACES[m.root.op].bias) is None else ""
    return _with_bias(m, NewNode("MatMul", (_data(m), weight), name=name, role="float"))


def without_rounding(m: Match) -> NewNode:
    """The file's formula, in which the integers of the data are not rounded."""
    weights, scale, zero = _parameters(m)
    found, centred = _activation(m), dynamic.centred_weights(weights, zero)
    if not isinstance(found, Activation):
        scaled = NewNode("Mul", (centred, NewConstant("scale", scale)), role="scale_weight")
        return _with_bias(m, NewNode("MatMul", (m.root.inputs[0], scaled), role="unrounded"))
    unrounded = Unrounded.of(found.quantiser)
    core = NewNode("MatMul", (found.moves.after(unrounded.centred, m.surgery), centred), role="unrounded")
    by_data = NewNode("Mul", (core, unrounded.scale), role="rescale")
    return _with_bias(m, NewNode("Mul", (by_data, NewConstant("scale", scale)), role="rescale_weight"))


RULE = Rule(
    name="dynamic-matmul-to-float",
    pattern=op(
        tuple(_PLACES),
        *(optional(Var(name)) for name in ("x", "weight", "third", "fourth", "fifth", "sixth", "seventh")),
        name="product",
        domain="com.microsoft",
    ),
    preconditions=(dynamic.the_profile_asks_for_floats, weights_are_constants, data_are_quantised_dynamically),
    replacement=with_floats,
    because=dynamic.BECAUSE,
    warning=dynamic.warning,
    reference=without_rounding,
    changes_meaning=lambda m: True,
)
