"""Operators that take a scale and shift of what they read into their weights: one small function per operator.

    W·(s·x + t) + b = (W·s)·x + (b + W·t)      with one value of s and t per input channel

Zeros that an operator pads are not shifted, so a padded convolution takes a scale, but no shift.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.rewrite.parts.output_weights import scaled
from trtnorm_cli.rewrite.rule import NewConstant, NewNode
from trtnorm_cli.rewrite.scale_shift.absorb_output import product
from trtnorm_cli.rewrite.scale_shift.affine import Affine, CannotMove
from trtnorm_cli.rewrite.scale_shift.operation import Operation, Step, again
from trtnorm_cli.rewrite.scale_shift.weights import (
    float_weight,
    magnitude,
    require_representable,
    require_scalable,
)

Absorb = Callable[[Operation, Mapping[int, Affine]], Step]
Term = Callable[[], np.ndarray]


def convolution(op: Operation, given: Mapping[int, Affine]) -> Step:
    """Conv: the weight is [C_out, C_in/G, …], and group g reads its own C_in/G channels."""
    side = _only_data(op, given)
    weight, groups = float_weight(op, 1, side.rank), int(op.attr("group", 1))
    if groups < 1 or weight.shape[0] % groups:
        raise CannotMove(f"{op.name} has {weight.shape[0]} output channels in {groups} groups")
    scale, shift = side.vector(1, weight.shape[1] * groups, op.name)
    if side.shifts and _may_pad(op):
        raise CannotMove(
            f"{op.name} pads with zeros, and the shift is not zero (channel {int(np.flatnonzero(shift)[0])}: "
            f"{float(shift[np.flatnonzero(shift)[0]]):g}): the border would need other values than the plane"
        )
    rows = _by_output(scale, groups, weight.shape[0])
    spatial = [1] * (weight.ndim - 2)
    factors = rows.reshape(*rows.shape, *spatial)

    def term() -> np.ndarray:
        taps = op.weight(1).astype(np.float64).sum(axis=tuple(range(2, weight.ndim)))
        return np.asarray((taps * _by_output(shift, groups, weight.shape[0])).sum(axis=1))

    return _linear(op, factors, term if side.shifts else None, weight.shape[0], shift)


def transposed_convolution(op: Operation, given: Mapping[int, Affine]) -> Step:
    """ConvTranspose: W is [C_in, C_out/G, …]. Only a kernel of one element with stride 1 spreads a shift evenly."""
    side = _only_data(op, given)
    weight, groups = float_weight(op, 1, side.rank), int(op.attr("group", 1))
    scale, shift = side.vector(1, weight.shape[0], op.name)
    if side.shifts and not _is_pointwise(op, weight):
        raise CannotMove(f"{op.name} is a ConvTranspose: a shift of its input does not reach all of its output alike")
    outputs = weight.shape[1] * groups
    factors = scale.reshape(-1, *[1] * (weight.ndim - 1))

    def term() -> np.ndarray:
        taps = op.weight(1).astype(np.float64).reshape(groups, -1, weight.shape[1])
        return np.asarray((taps * shift.reshape(groups, -1, 1)).sum(axis=1).reshape(outputs))

    return _linear(op, factors, term if side.shifts else None, outputs, shift)


def gemm(op: Operation, given: Mapping[int, Affine]) -> Step:
    """Gemm: Y = α·A·B + β·C, with the channels on the columns of A (its rows, when transA is set)."""
    side, weight = _only_data(op, given), float_weight(op, 1, 2)
    transposed = bool(op.attr("transB", 0))
    axis = 0 if op.attr("transA", 0) else 1
    inner, outer = (1, 0) if transposed else (0, 1)
    scale, shift = side.vector(axis, weight.shape[inner], op.name)
    factors = scale[None, :] if transposed else scale[:, None]

    def term() -> np.ndarray:
        columns = op.weight(1).astype(np.float64)
        return float(op.attr("alpha", 1.0)) * (columns @ shift if transposed else shift @ columns)

    return _linear(op, factors, term if side.shifts else None, weight.shape[outer], shift)


def matmul(op: Operation, given: Mapping[int, Affine]) -> Step:
    """MatMul with one constant side. A shift goes into the constant that is added behind it, or becomes one."""
    ((data, side),) = given.items()
    weight = float_weight(op, 1 - data)
    if weight.ndim < 2 or side.rank < 2:
        raise CannotMove(f"{op.name} multiplies with a vector")
    summed, own = (side.rank - 1, -2) if data == 0 else (side.rank - 2, -1)
    scale, shift = side.vector(summed, weight.shape[own], op.name)
    factors = scale[:, None] if data == 0 else scale[None, :]
    factors = factors.reshape(*[1] * (weight.ndim - 2), *factors.shape)
    require_scalable(op, 1 - data, factors)
    behind = _added_constant(op) if side.shifts else None

    def term() -> np.ndarray:
        matrix = op.weight(1 - data).astype(np.float64)
        return shift @ matrix if data == 0 else (matrix @ shift)[..., None]

    def build(inputs: Sequence[Any]) -> NewNode:
        operands = list(inputs)
        operands[1 - data] = NewConstant("weight", scaled(op.weight(1 - data), factors))
        if not side.shifts:
            return product(op, operands, last=True)
        added = term() if data == 1 or weight.ndim == 2 else term()[..., None, :]
        if behind is not None:
            return _with_more(behind, product(op, operands, last=True), added)
        bias = NewConstant("bias", added.astype(weight.dtype))
        return NewNode("Add", (product(op, operands, last=False), bias), role="add", instead_of=op.node)

    if side.shifts:
        _require_sum_fits(op, 1 - data, scale.size, shift, 0.0)
    more = int(side.shifts and behind is None)
    return Step(op.node, {}, build, more=more, also=() if behind is None else (behind.node,))


def _added_constant(op: Operation) -> Operation | None:
    """The addition of a constant, if nothing else reads what ``op`` makes."""
    readers = op.node.outputs[0].outputs
    if len(readers) != 1 or op.match.borders.leaves(op.node.outputs[0]):
        return None
    found = Operation(readers[0], op.match)
    adds = found.op == "Add" and found.node.domain in DEFAULT_DOMAINS
    return found if adds and found.is_constant(0) != found.is_constant(1) else None


def _with_more(addition: Operation, before: NewNode, term: np.ndarray) -> NewNode:
    at = 0 if addition.is_constant(0) else 1
    constant = addition.weight(at)
    value = NewConstant("bias", np.asarray(constant.astype(np.float64) + term).astype(constant.dtype))
    return NewNode("Add", (before, value), {}, name=addition.node.name, role="add", instead_of=addition.node)


def recurrent(op: Operation, given: Mapping[int, Affine]) -> Step:
    """LSTM, GRU, RNN: W is [directions, gates·hidden, C_in]; the first half of the bias is added to W·x."""
    side, weight = _only_data(op, given), float_weight(op, 1, 3)
    scale, shift = side.vector(2, weight.shape[2], op.name)
    factors = scale.reshape(1, 1, -1)
    require_scalable(op, 1, factors)
    directions, gates = (int(size) for size in weight.shape[:2])
    old = op.constant(3) if side.shifts else None
    rest = np.zeros((directions, 2 * gates)) if old is None else old.astype(np.float64)
    if side.shifts:
        _require_sum_fits(op, 1, scale.size, shift, float(np.max(np.abs(rest))))
    outputs = again(op)(op.node.inputs).outputs

    def build(inputs: Sequence[Any]) -> NewNode:
        operands = [*inputs, *[None] * (4 - len(inputs))]
        operands[1] = NewConstant("weight", scaled(op.weight(1), factors))
        if side.shifts:
            bias = rest.copy()
            bias[:, :gates] += op.weight(1).astype(np.float64) @ shift
            operands[3] = NewConstant("bias", bias.astype(weight.dtype))
        attrs, role = dict(op.node.attrs), op.op.lower()
        return NewNode(op.op, tuple(operands), attrs, role, op.node.name, instead_of=op.node, outputs=outputs)

    return Step(op.node, {}, build)


def _linear(op: Operation, factors: np.ndarray, term: Term | None, outputs: int, shift: np.ndarray) -> Step:
    """An operator with weights as input 1 and an optional bias as input 2; ``term`` is what the shift adds to the bias."""
    dtype, old = op.weight(1).dtype, op.constant(2)
    is_gemm = op.op == "Gemm"
    if not is_gemm and old is not None and old.shape != (outputs,):
        raise CannotMove(f"the bias of {op.name} has shape {list(old.shape)}, not [{outputs}]")
    require_scalable(op, 1, factors)
    beta = float(op.attr("beta", 1.0)) if is_gemm else 1.0
    rest = np.zeros(()) if old is None else beta * old.astype(np.float64)
    if term is not None:
        summed = op.weight(1).size // outputs * abs(float(op.attr("alpha", 1.0)))
        _require_sum_fits(op, 1, summed, shift, float(np.max(np.abs(rest))))

    def build(inputs: Sequence[Any]) -> NewNode:
        operands, attrs = list(inputs), dict(op.node.attrs)
        operands[1] = NewConstant("weight", scaled(op.weight(1), factors))
        if term is not None:
            operands[2:] = [NewConstant("bias", np.asarray(rest + term()).astype(dtype))]
            attrs.update({"beta": 1.0} if is_gemm else {})
        return NewNode(op.op, tuple(operands), attrs, name=op.node.name, role=op.op.lower(), instead_of=op.node)

    return Step(op.node, {}, build)


def _require_sum_fits(op: Operation, index: int, summed: float, shift: np.ndarray, rest: float) -> None:
    """Raise ``CannotMove`` when weights times shift, ``summed`` of them, could leave the type of input ``index``."""
    dtype = op.weight(index).dtype
    bound = np.asarray(float(magnitude(op, index).max()) * float(np.max(np.abs(shift))) * summed + rest)
    require_representable(op, bound, dtype, "the folded bias")


def _only_data(op: Operation, given: Mapping[int, Affine]) -> Affine:
    if set(given) != {0}:
        raise CannotMove(f"the scale and shift reaches the weights of {op.name}")
    return given[0]


def _by_output(values: np.ndarray, groups: int, outputs: int) -> np.ndarray:
    """[C_in] as [C_out, C_in/G], or as [1, C_in/G] where all groups have the same."""
    rows = values.reshape(groups, -1)
    return rows[:1] if np.all(rows == rows[:1]) else np.repeat(rows, outputs // groups, axis=0)


def _may_pad(op: Operation) -> bool:
    auto = op.text("auto_pad", "NOTSET")
    if auto.startswith("SAME"):
        # A window of one element that starts at every place it can never needs more than there is.
        return any(size != 1 for size in op.weight(1).shape[2:])
    return auto == "NOTSET" and any(op.attr("pads", ()))


def _is_pointwise(op: Operation, weight: np.ndarray) -> bool:
    plain = all(size == 1 for size in (*weight.shape[2:], *op.attr("strides", ())))
    return plain and not any((*op.attr("pads", ()), *op.attr("output_padding", ()))) and not op.attr("output_shape")


ABSORBERS: dict[str, Absorb] = {
    "Conv": convolution,
    "ConvTranspose": transposed_convolution,
    "Gemm": gemm,
    "MatMul": matmul,
    **dict.fromkeys(("LSTM", "GRU", "RNN"), recurrent),
}


def absorber(op: Operation) -> Absorb | None:
    """The function for ``op``; None when the operator has no constant weight."""
    takes = op.is_constant(0) != op.is_constant(1) if op.op == "MatMul" else op.is_constant(1)
    return ABSORBERS.get(op.op) if takes else None
