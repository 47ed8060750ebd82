"""Compute a matrix product or convolution of dynamically quantised activations with floats, where the user asks for it.

    y = (s_x · s_w) · float(MatMulInteger(q_x, q_w, z_x, z_w))    →    y = MatMul(x, s_w · (q_w − z_w))

and ConvInteger alike. A bias b, which quantisers of 2020 add to the integers as floor(b / (s_x · s_w)), is added to y. The
weights keep the values that they have in the file; x is not rounded to 8 bits any more, so that results change by what its
rounding did. That is done only when the build profile says `dynamic_quantization: float`: TensorRT has no integer product and
quantises no activation dynamically. It is compared with the file's own formula without rounding,
(s_x · s_w) · MatMul(x / s_x, q_w − z_w).
Source: Jacob et al. 2018, §2; DynamicQuantizeLinear, MatMulInteger and ConvInteger in the ONNX operator specification.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from trtnorm_cli.rewrite.parts import dynamic_quantization as dynamic
from trtnorm_cli.rewrite.parts.dynamic_quantization import Activation, Unrounded
from trtnorm_cli.rewrite.parts.integer_product import Bias, Product, Weights, integer_product, operands_of_product, product
from trtnorm_cli.rewrite.parts.moves import read_again
from trtnorm_cli.rewrite.pattern import Var, op
from trtnorm_cli.rewrite.rule import Match, NewConstant, NewNode, NewOutput, Rule

if TYPE_CHECKING:
    from trtnorm_cli.onnx_model.surgery import Surgery
    from trtnorm_cli.rewrite.rule import Node, Tensor


def it_is_a_rescaled_product(m: Match) -> str | None:
    """its operands are an integer product of dynamically quantised data, once the scale of each, and constants."""
    found = product(m.root, m.surgery)
    return found if isinstance(found, str) else None


def with_floats(m: Match) -> NewNode:
    found = product(m.root, m.surgery)
    assert isinstance(found, Product), "the precondition holds"
    constant = np.asarray(1.0)
    for value in found.constants:
        constant = constant * value.astype(np.float64)
    own = _scale_of_weights(found, constant)
    inputs = []
    for index, factor in enumerate(found.factors):
        if isinstance(factor, Activation):
            inputs.append(factor.floats(m.surgery))
        else:
            scale = own if own is not None and index == 1 else 1.0
            inputs.append(NewConstant("weight", dynamic.dequantised(factor.stored, scale, factor.zero)))
    made = NewNode(found.float_form, tuple(inputs), dict(found.node.attrs), role="float")
    if own is None:
        made = NewNode("Mul", (made, NewConstant("scale", constant.astype(np.float32))), role="scaled")
    if found.bias is not None:
        made = NewNode("Add", (made, found.bias.moves.after(_value(found.bias, m), m.surgery)), role="biased")
    return replace(made, name=m.root.name)


def _value(bias: Bias, m: Match) -> Tensor | NewConstant:
    value = read_again(bias.value, m.surgery)
    assert value is not None, "the divided bias has a name"
    return value


def _scale_of_weights(found: Product, constant: np.ndarray) -> np.ndarray | None:
    """``constant`` as a scale of the weights, which are the second factor; None where it is none."""
    weights = found.factors[1]
    if constant.ndim == 0 and constant == 1:
        return constant
    if not isinstance(weights, Weights) or weights.stored.ndim < 2 or constant.ndim > weights.stored.ndim:
        return None
    if constant.size == 1:
        return constant.reshape(())
    rank, kernels = weights.stored.ndim, found.is_convolution
    sizes = (1,) * (rank - constant.ndim) + constant.shape
    axis = 1 if kernels else rank - 1
    if any(size != 1 for place, size in enumerate(sizes) if place != axis):
        return None
    return constant.reshape(-1, *[1] * (rank - 1)) if kernels else constant.reshape(-1)


def without_rounding(m: Match) -> NewNode:
    """The file's own multiplications of the integer product, of which nothing is rounded."""
    found = product(m.root, m.surgery)
    assert isinstance(found, Product), "the precondition holds"
    unrounded = {id(f.quantiser): Unrounded.of(f.quantiser) for f in found.activations}
    inputs = []
    for factor in found.factors:
        if isinstance(factor, Activation):
            inputs.append(factor.moves.after(unrounded[id(factor.quantiser)].centred, m.surgery))
        else:
            inputs.append(dynamic.centred_weights(factor.stored, factor.zero))

    def again(tensor: Tensor) -> NewNode | NewOutput | NewConstant:
        if tensor is found.result:
            return total
        value, quantiser = m.surgery.constant(tensor), dynamic.scale_of(tensor)
        if value is not None:
            return NewConstant("scale", value)
        if quantiser is not None:
            return unrounded[id(quantiser)].scale
        return NewNode("Mul", tuple(map(again, tensor.inputs[0].inputs)), role="rescale")

    total = NewNode(found.float_form, tuple(inputs), dict(found.node.attrs), role="unrounded")
    if found.bias is not None:
        quotient = NewNode("Div", (_value(found.bias, m), again(found.bias.step)), role="divided")
        total = NewNode("Add", (total, found.bias.moves.after(quotient, m.surgery)), role="biased")
    return NewNode("Mul", tuple(map(again, m.root.inputs)), role="rescale")


def rescales_a_product(node: Node, surgery: Surgery) -> bool:
    """True where a refusal is worth explaining: at the product itself, and behind it where only the right factors follow."""
    if any(integer_product(tensor) is not None for tensor in node.inputs):
        return True
    others = [tensor for tensor in operands_of_product(node) if integer_product(tensor) is None]
    known = all(surgery.is_constant(tensor) or dynamic.scale_of(tensor) is not None for tensor in others)
    return known and len(others) < sum(1 for _ in operands_of_product(node))


RULE = Rule(
    name="integer-product-to-float",
    pattern=op("Mul", Var("a"), Var("b"), name="rescale"),
    preconditions=(dynamic.the_profile_asks_for_floats, it_is_a_rescaled_product),
    replacement=with_floats,
    because=dynamic.BECAUSE,
    warning=dynamic.warning,
    reference=without_rounding,
    changes_meaning=lambda m: True,
    concerns=rescales_a_product,
    since_opset=10,
)
