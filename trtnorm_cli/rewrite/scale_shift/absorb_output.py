"""Operators that take a scale and shift of what they compute into their weights: one small function per operator.

    conv, gemm, matmul     y = W·x + b        s·y + t = (s·W)·x + (s·b + t)
    scale and shift        y = m·x, y = x + c s·(m·x) = (s·m)·x, s·(x + c) + t = s·x + (s·c + t)
    batch normalization    y = γ·x̂ + β        s·y + t = (s·γ)·x̂ + (s·β + t)

with one value of s and t per output channel (Jacob et al. 2018, §3.2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trtnorm_cli.rewrite.parts.output_weights import (
    convolution_factors,
    gemm_factors,
    scaled,
    transposed_convolution_factors,
)
from trtnorm_cli.rewrite.rule import NewConstant, NewNode
from trtnorm_cli.rewrite.scale_shift.affine import Affine, CannotMove
from trtnorm_cli.rewrite.scale_shift.carry_parts import broadcast_back
from trtnorm_cli.rewrite.scale_shift.operation import Operation, Step
from trtnorm_cli.rewrite.scale_shift.weights import (
    Weight,
    float_weight,
    has_weight,
    require_representable,
    require_scalable,
    weight_of,
)

Absorb = Callable[[Operation, Affine], Step]


def convolution(op: Operation, asked: Affine) -> Step:
    """Conv: the output channels are the first axis of W, with any number of groups."""
    weight = weight_of(op, 1, asked.rank)
    scale, shift = asked.vector(1, weight.shape[0], op.name)
    return _linear(op, weight, convolution_factors(weight.ndim, scale), scale, shift)


def transposed_convolution(op: Operation, asked: Affine) -> Step:
    """ConvTranspose: W is [C_in, C_out/G, …]; rows of group g hold its C_out/G output channels."""
    weight, groups = weight_of(op, 1, asked.rank), int(op.attr("group", 1))
    if groups < 1 or weight.shape[0] % groups:
        raise CannotMove(f"{op.name} has {weight.shape[0]} input channels in {groups} groups")
    scale, shift = asked.vector(1, weight.shape[1] * groups, op.name)
    rows = transposed_convolution_factors(weight.shape, groups, scale)
    return _linear(op, weight, rows, scale, shift)


def gemm(op: Operation, asked: Affine) -> Step:
    """Gemm: Y = α·A·B + β·C with the columns of B (its rows, when transB is set) as channels."""
    weight, transposed = weight_of(op, 1, 2), bool(op.attr("transB", 0))
    scale, shift = asked.vector(1, weight.shape[0 if transposed else 1], op.name)
    return _linear(op, weight, gemm_factors(transposed, scale), scale, shift, float(op.attr("beta", 1.0)), {"beta": 1.0})


def _linear(
    op: Operation,
    weight: Weight,
    factors: np.ndarray,
    scale: np.ndarray,
    shift: np.ndarray,
    beta: float = 1.0,
    changed: Mapping[str, float] | None = None,
) -> Step:
    """An operator with weights as input 1 and an optional bias as input 2."""
    dtype, given = weight.dtype, op.constant(2)
    if op.op != "Gemm" and given is not None and given.shape != scale.shape:
        raise CannotMove(f"the bias of {op.name} has shape {list(given.shape)}, not [{scale.size}]")
    weight.require(factors)
    bias = (beta * given.astype(np.float64) if given is not None else 0.0) * scale + shift
    require_representable(op, bias, dtype, "the folded bias")
    # Before opset 11 a Gemm has to have one.
    needs_bias = given is not None or bool(np.any(bias != 0.0))

    def build(inputs: Sequence[Any]) -> NewNode:
        tail = (NewConstant("bias", bias.astype(dtype)),) if needs_bias else ()
        attrs = {**op.node.attrs, **(changed or {})}
        operands = (inputs[0], weight.times(factors), *tail)
        return NewNode(op.op, operands, attrs, name=op.node.name, role=op.op.lower(), instead_of=op.node)

    return Step(op.node, {}, build, absorbs=True, also=weight.nodes)


def matmul(op: Operation, asked: Affine) -> Step:
    """MatMul with one constant side. It has no bias, so a shift costs an addition behind it."""
    side = 1 if has_weight(op, 1) else 0
    if asked.is_identity and has_weight(op, side):  # nothing asks for the values, which may be large
        return Step(op.node, {}, lambda inputs: product(op, inputs, last=True), absorbs=True)
    weight, across = weight_of(op, side), asked.rank - (2 if side == 1 else 1)
    lacking = asked.rank - weight.ndim
    if weight.ndim < 2 or lacking < 0:
        raise CannotMove(f"{op.name} multiplies with a vector")
    if asked.shape[across] != 1:
        raise CannotMove(
            f"scale and shift differ along axis {across} of what {op.name} makes, along which its weight is summed"
        )
    grows = any(size != 1 for size in asked.shape[:lacking])
    if grows or any(wide not in (1, size) for wide, size in zip(asked.shape[lacking:], weight.shape, strict=True)):
        raise CannotMove(
            f"scale and shift of shape {list(asked.shape)} do not fit the weight {list(weight.shape)} of {op.name}"
        )
    factors = asked.scale.reshape(asked.shape[lacking:])
    weight.require(factors)
    require_representable(op, asked.shift, weight.dtype, "the folded bias")

    def build(inputs: Sequence[Any]) -> NewNode:
        operands = list(inputs)
        if asked.scales:
            operands[side] = weight.times(factors)
        if not asked.shifts:
            return product(op, operands, last=True)
        bias = NewConstant("bias", _without_leading_ones(asked.shift, 1).astype(weight.dtype))
        return NewNode("Add", (product(op, operands, last=False), bias), role="add", instead_of=op.node)

    also = weight.nodes if asked.scales else ()
    return Step(op.node, {}, build, absorbs=True, more=int(asked.shifts), also=also)


def product(op: Operation, operands: Sequence[Any], last: bool) -> NewNode:
    """The MatMul again; ``last`` when nothing follows that takes its place."""
    place = {"instead_of": op.node} if last else {"like": op.node.outputs[0]}
    return NewNode("MatMul", tuple(operands), dict(op.node.attrs), "matmul", op.node.name, **place)


def constant_term(op: Operation, asked: Affine) -> Step:
    """Add and Sub with a constant c: s·(x + c) + t = s·x + (s·c + t), so the constant takes the shift."""
    at = _constant_side(op)
    sign = -1.0 if op.op == "Sub" and at == 1 else 1.0
    given, data = float_weight(op, at), 1 - at
    term = asked.scale * given.astype(np.float64) + sign * asked.shift
    _require_no_growth(op, term)
    require_representable(op, term, given.dtype, "the folded constant")
    wanted = broadcast_back(op, data, asked.scale_only(), op.output_shape())
    constant = _without_leading_ones(term, given.ndim).astype(given.dtype)
    return Step(op.node, {data: wanted}, _with_constant(op, at, constant, op.op), absorbs=True)


def constant_factor(op: Operation, asked: Affine) -> Step:
    """Mul and Div with a constant m: s·(m·x) = (s·m)·x. A shift has no place here."""
    at = _constant_side(op)
    if asked.shifts:
        raise CannotMove(f"{op.name} is {op.op}: it takes a scale, but no shift")
    given = float_weight(op, at)
    own = given.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = asked.scale / own if op.op == "Div" and at == 1 else asked.scale * own
    _require_no_growth(op, factor)
    require_representable(op, factor, given.dtype, "the folded constant")
    constant = _without_leading_ones(factor, given.ndim).astype(given.dtype)
    made = "Mul" if at == 1 else op.op
    return Step(op.node, {}, _with_constant(op, at, constant, made), absorbs=True)


def batch_normalization(op: Operation, asked: Affine) -> Step:
    """BatchNormalization by running statistics: its scale and bias take the scale and shift."""
    if op.attr("training_mode", 0) or sum(bool(t.name) for t in op.node.outputs) > 1:
        raise CannotMove(f"{op.name} is in training mode")
    if op.attr("spatial", 1) == 0:
        raise CannotMove(f"{op.name} has spatial=0: it normalizes each element on its own")
    gamma, beta = float_weight(op, 1, 1), float_weight(op, 2, 1)
    scale, shift = asked.vector(1, gamma.size, op.name)
    require_scalable(op, 1, scale)
    bias = beta.astype(np.float64) * scale + shift
    require_representable(op, bias, beta.dtype, "the folded bias")

    def build(inputs: Sequence[Any]) -> NewNode:
        parameters = NewConstant("scale", scaled(gamma, scale)), NewConstant("bias", bias.astype(beta.dtype))
        operands = (inputs[0], *parameters, *inputs[3:])
        return NewNode(op.op, operands, dict(op.node.attrs), name=op.node.name, role="batchnorm", instead_of=op.node)

    return Step(op.node, {}, build, absorbs=True)


def _constant_side(op: Operation) -> int:
    return 1 if op.is_constant(1) else 0


def _with_constant(op: Operation, at: int, constant: np.ndarray, made: str) -> Callable[[Sequence[Any]], NewNode]:
    def build(inputs: Sequence[Any]) -> NewNode:
        operands = list(inputs)
        operands[at] = NewConstant("constant", constant)
        return NewNode(made, tuple(operands), {}, name=op.node.name, role=made.lower(), instead_of=op.node)

    return build


def _require_no_growth(op: Operation, values: np.ndarray) -> None:
    """Raise ``CannotMove`` when ``values`` would give the output a larger shape."""
    shape = op.output_shape()
    if any(size not in (1, own) for size, own in zip(values.shape, shape, strict=True)):
        raise CannotMove(f"scale and shift of shape {list(values.shape)} do not fit what {op.name} makes")


def _without_leading_ones(values: np.ndarray, rank: int) -> np.ndarray:
    """``values`` with as few axes as they can have, at least ``rank``."""
    shape = list(values.shape)
    while len(shape) > rank and shape[0] == 1:
        del shape[0]
    return values.reshape(shape)


ABSORBERS: dict[str, Absorb] = {
    "Conv": convolution,
    "ConvTranspose": transposed_convolution,
    "Gemm": gemm,
    "MatMul": matmul,
    **dict.fromkeys(("Add", "Sub"), constant_term),
    **dict.fromkeys(("Mul", "Div"), constant_factor),
    "BatchNormalization": batch_normalization,
}
WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul", "BatchNormalization")
_ARITHMETIC = ("Add", "Sub", "Mul", "Div")


def absorber(op: Operation) -> Absorb | None:
    """The function for ``op``; None when the operator has no constant that could take anything."""
    first, second = (op.is_constant(i) if op.op in _ARITHMETIC else has_weight(op, i) for i in (0, 1))
    takes = first != second if op.op in ("MatMul", *_ARITHMETIC) else second
    return ABSORBERS.get(op.op) if takes else None
