"""The results of operators on polynomials of some data and its statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import numpy as np
import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.rewrite.norms.known import axes_of, pooled_axes
from trtnorm_cli.rewrite.norms.polynomial import COUNT, DATA, MAGNITUDE, Floor, Polynomial, is_never_negative, mean

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

    from trtnorm_cli.rewrite.norms.known import Known, Shape

FLOATING = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE)
REDUCTIONS = ("ReduceMean", "ReduceSum", "ReduceSumSquare", "ReduceL2", "ReduceL1")


@dataclass(frozen=True)
class Value:
    """A tensor as a polynomial. ``is_kept`` is set of a statistic whose reduced axes are there with size one."""

    polynomial: Polynomial
    is_kept: bool = True


class Opaque(Exception):
    """A node whose result cannot be written as a polynomial."""


class Evaluation(Protocol):
    """The questions of an operator to the evaluation it is part of (:class:`norms.evaluation.SymbolicEvaluation`)."""

    known: Known
    axes: tuple[int, ...]
    count: int | None

    def operand(self, tensor: gs.Tensor) -> Value:
        """An input: known already, a constant, or a parameter."""

    def broadcasts(self, node: gs.Node) -> bool:
        """True when what an elementwise operator makes has the shape of the data."""

    def is_data_shaped(self, tensor: gs.Tensor) -> bool:
        """True when ``tensor`` has the shape of the data, as far as both are known."""

    def is_kept_shape(self, shape: Shape | None) -> bool:
        """True when ``shape`` is that of the data with size one on the reduced axes."""

    def is_residual(self, tensor: gs.Tensor) -> bool:
        """True for a tensor of run time as large as the data that does not come from them."""


Handler = Callable[[Evaluation, "gs.Node"], Value]


def _with_data(value: Value) -> bool:
    return value.polynomial.has(DATA, MAGNITUDE)


def _joined(e: Evaluation, node: gs.Node, values: list[Value], polynomial: Polynomial | None) -> Value:
    """The result of an elementwise operator on ``values``."""
    if polynomial is None:
        raise Opaque
    dropped = [not v.is_kept for v in values]
    constants = [v.polynomial.constant_value() is not None for v in values]
    if any(dropped):
        if not all(d or c for d, c in zip(dropped, constants, strict=True)):
            raise Opaque
        return Value(polynomial, is_kept=False)
    if any(map(_with_data, values)) and not e.broadcasts(node):
        raise Opaque
    return Value(polynomial)


def _binary(e: Evaluation, node: gs.Node) -> Value:
    if node.op in ("Add", "Sub") and any(map(e.is_residual, node.inputs)):
        raise Opaque
    values = [e.operand(tensor) for tensor in node.inputs]
    left, right = (value.polynomial for value in values)
    if node.op == "Div":
        inverse = right.power(-1.0)
        return _joined(e, node, values, None if inverse is None else left * inverse)
    result = {"Add": left.__add__, "Sub": left.__sub__, "Mul": left.__mul__}[node.op](right)
    return _joined(e, node, values, result)


def _sum(e: Evaluation, node: gs.Node) -> Value:
    if any(map(e.is_residual, node.inputs)):
        raise Opaque
    values = [e.operand(tensor) for tensor in node.inputs]
    total = Polynomial()
    for value in values:
        total = total + value.polynomial
    return _joined(e, node, values, total)


def _power(e: Evaluation, node: gs.Node) -> Value:
    value, exponent = e.operand(node.inputs[0]), e.operand(node.inputs[1]).polynomial.constant_value()
    if exponent is None:
        raise Opaque
    return _joined(e, node, [value], value.polynomial.power(exponent))


def _unary(exponent: float) -> Handler:
    def handler(e: Evaluation, node: gs.Node) -> Value:
        value = e.operand(node.inputs[0])
        return _joined(e, node, [value], value.polynomial.power(exponent))

    return handler


def _negative(e: Evaluation, node: gs.Node) -> Value:
    value = e.operand(node.inputs[0])
    return _joined(e, node, [value], -value.polynomial)


def _magnitude(e: Evaluation, node: gs.Node) -> Value:
    value = e.operand(node.inputs[0])
    if value.polynomial != Polynomial.atom(DATA):
        raise Opaque
    return _joined(e, node, [value], Polynomial.atom(MAGNITUDE))


def _at_least(e: Evaluation, node: gs.Node) -> Value:
    """Max with a constant, or Clip without an upper bound."""
    bounds = [tensor for tensor in node.inputs if tensor.name]
    values = [e.operand(tensor) for tensor in bounds]
    if node.op == "Clip":
        least = _clip_bounds(e, node)
        value = values[0]
    else:
        numbers = [v.polynomial.constant_value() for v in values]
        others = [v for v, number in zip(values, numbers, strict=True) if number is None]
        stated = [number for number in numbers if number is not None]
        if len(others) != 1 or len(stated) != 1:
            raise Opaque
        value, least = others[0], stated[0]
    if _with_data(value):
        raise Opaque
    if least <= 0:
        return _at_least_nothing(e, node, value)
    return _joined(e, node, [value], Polynomial.atom(Floor(value.polynomial, least)))


def _rectified(e: Evaluation, node: gs.Node) -> Value:
    """Relu of a statistic."""
    value = e.operand(node.inputs[0])
    if _with_data(value):
        raise Opaque
    return _at_least_nothing(e, node, value)


def _at_least_nothing(e: Evaluation, node: gs.Node, value: Value) -> Value:
    """A lower bound of zero or less: it keeps rounding from making a variance negative, and changes nothing else."""
    if not is_never_negative(value.polynomial):
        raise Opaque
    return _joined(e, node, [value], value.polynomial)


def _clip_bounds(e: Evaluation, node: gs.Node) -> float:
    """The lower bound of a Clip that has no upper one."""
    least, most = node.attrs.get("min"), node.attrs.get("max")
    if len(node.inputs) > 1 and node.inputs[1].name:
        least = e.operand(node.inputs[1]).polynomial.constant_value()
    if len(node.inputs) > 2 and node.inputs[2].name:
        most = e.operand(node.inputs[2]).polynomial.constant_value()
    if least is None or (most is not None and most < float(np.finfo(np.float16).max)):
        raise Opaque
    return float(least)


def _reduction(e: Evaluation, node: gs.Node) -> Value:
    value = e.operand(node.inputs[0])
    if not _with_data(value) or axes_of(node, e.known) != e.axes or not e.is_data_shaped(node.inputs[0]):
        raise Opaque
    polynomial: Polynomial | None = value.polynomial
    assert polynomial is not None
    if node.op in ("ReduceSumSquare", "ReduceL2"):
        polynomial = polynomial * polynomial
    elif node.op == "ReduceL1":
        if polynomial != Polynomial.atom(DATA):
            raise Opaque
        polynomial = Polynomial.atom(MAGNITUDE)
    polynomial = mean(polynomial)
    if polynomial is not None and node.op != "ReduceMean":
        polynomial = polynomial * (Polynomial.atom(COUNT) if e.count is None else Polynomial.constant(float(e.count)))
    if polynomial is not None and node.op == "ReduceL2":
        polynomial = polynomial.power(0.5)
    if polynomial is None:
        raise Opaque
    return Value(polynomial, is_kept=bool(node.attrs.get("keepdims", 1)))


def _pooling(e: Evaluation, node: gs.Node) -> Value:
    value = e.operand(node.inputs[0])
    if not _with_data(value) or pooled_axes(node, e.known) != e.axes:
        raise Opaque
    polynomial = mean(value.polynomial)
    if polynomial is None:
        raise Opaque
    return Value(polynomial)


def _same(e: Evaluation, node: gs.Node) -> Value:
    e.broadcasts(node)
    return e.operand(node.inputs[0])


def _cast(e: Evaluation, node: gs.Node) -> Value:
    if node.attrs.get("to") not in FLOATING and _onnx_type(node.attrs.get("to")) not in FLOATING:
        raise Opaque
    return _same(e, node)


def _onnx_type(to: object) -> int:
    """The number of an element type that graphsurgeon gives as one of numpy."""
    if isinstance(to, int):
        return to
    try:
        return int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(to)))  # type: ignore[call-overload]
    except (KeyError, TypeError, ValueError):
        return 0


def _statistic_reshaped(e: Evaluation, node: gs.Node) -> Value:
    """Unsqueeze, Squeeze, Reshape, Flatten, Expand and Tile of a statistic."""
    value = e.operand(node.inputs[0])
    if _with_data(value):
        raise Opaque
    shape = e.known.shape(node.outputs[0])
    if e.is_kept_shape(shape):
        return Value(value.polynomial)
    if node.op in ("Expand", "Tile") and value.is_kept and e.is_data_shaped(node.outputs[0]):
        return Value(value.polynomial)
    raise Opaque


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), _binary),
    "Sum": _sum,
    "Pow": _power,
    "Sqrt": _unary(0.5),
    "Reciprocal": _unary(-1.0),
    "Neg": _negative,
    "Abs": _magnitude,
    "Max": _at_least,
    "Clip": _at_least,
    "Relu": _rectified,
    **dict.fromkeys(REDUCTIONS, _reduction),
    **dict.fromkeys(("GlobalAveragePool", "AveragePool"), _pooling),
    "Identity": _same,
    "Cast": _cast,
    **dict.fromkeys(("Unsqueeze", "Squeeze", "Reshape", "Flatten", "Expand", "Tile"), _statistic_reshaped),
}
