"""Operators that are a scale and shift of their data: multiplication with and addition of a constant."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.rewrite.scale_shift.affine import Affine, CannotMove, affine
from trtnorm_cli.rewrite.scale_shift.operation import Operation
from trtnorm_cli.rewrite.scale_shift.weights import FLOATS, float_weight

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

    from trtnorm_cli.onnx_model.surgery import Surgery

_SCALES = "scales and shifts"
ARITHMETIC = ("Mul", "Div", "Add", "Sub")


def has_one_constant(node: gs.Node, surgery: Surgery) -> bool:
    """True for a multiplication, division, addition or subtraction of data and a constant of a floating type."""
    if node.op not in ARITHMETIC or node.domain not in DEFAULT_DOMAINS or len(node.inputs) != 2:
        return False
    constant = [surgery.is_constant(tensor) for tensor in node.inputs]
    if constant[0] == constant[1] or (node.op == "Div" and constant[0]):
        return False
    value = surgery.constant(node.inputs[0 if constant[0] else 1])
    return value is not None and value.dtype in FLOATS


def has_one_number(node: gs.Node, surgery: Surgery) -> bool:
    """True where an input of ``node`` is a constant of one element."""
    kinds = [surgery.constant_kind(tensor) for tensor in node.inputs]
    return any(kind is not None and math.prod(kind.shape) == 1 for kind in kinds)


def data_of(node: gs.Node, surgery: Surgery) -> gs.Tensor:
    """The input of ``node`` that is not constant."""
    return node.inputs[1 if surgery.is_constant(node.inputs[0]) else 0]


def scale_and_shift_of(op: Operation) -> Affine:
    """Scale and shift of an operator that ``has_one_constant``. Raises ``CannotMove`` unless it is one value per channel.

    Every walk past the operator asks, so the answer is kept until the graph changes.
    """
    known, key = op.match.cache.of_graph, (_SCALES, id(op.node))
    if key not in known:
        try:
            known[key] = _found(op)
        except CannotMove as refusal:
            known[key] = str(refusal)
    if isinstance(found := known[key], str):
        raise CannotMove(found)
    meaning: Affine = found
    return meaning


def _found(op: Operation) -> Affine:
    at = 0 if op.is_constant(0) else 1
    shape, value = op.input_shape(1 - at), float_weight(op, at).astype(np.float64)
    if value.ndim > len(shape) or sum(size > 1 for size in value.shape) > 1:
        raise CannotMove(f"the constant of {op.name} has shape {list(value.shape)}, not one value per channel")
    sizes: list[int] = [1] * (len(shape) - value.ndim) + list(value.shape)
    value = value.reshape(sizes)
    if any(size not in (1, shape[axis]) for axis, size in enumerate(sizes)):
        raise CannotMove(
            f"the constant of {op.name} has shape {list(value.shape)}, but it is not known that the data has as many"
        )
    if not np.all(np.isfinite(value)):
        raise CannotMove(f"the constant of {op.name} is not finite")
    return _meaning(op, value, at)


def _meaning(op: Operation, value: np.ndarray, at: int) -> Affine:
    zero, one = np.zeros_like(value), np.ones_like(value)
    if op.op == "Mul":
        return affine(value, zero)
    if op.op == "Div":
        if np.any(value == 0):
            raise CannotMove(f"{op.name} divides by zero")
        return affine(one / value, zero)
    if op.op == "Add":
        return affine(one, value)
    return affine(-one, value) if at == 0 else affine(one, -value)
