"""Evaluate the tensors behind some data as polynomials of the data and its statistics over given axes."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.rewrite.norms.polynomial import (
    COUNT,
    DATA,
    MAGNITUDE,
    Floor,
    Parameter,
    Polynomial,
    TooManyTerms,
    is_never_negative,
    mean,
)

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

    from trtnorm_cli.onnx_model.surgery import Surgery
    from trtnorm_cli.rewrite.borders import Borders

FLOATING = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE)
REDUCTIONS = ("ReduceMean", "ReduceSum", "ReduceSumSquare", "ReduceL2", "ReduceL1")
# A normalization has a dozen nodes; what is further away belongs to something else.
_MOST_NODES = 48

Shape = tuple[int | str | None, ...]


@dataclass(frozen=True)
class Known:
    """The model and what is known of its tensors."""

    surgery: Surgery
    types: Mapping[str, TensorType]
    borders: Borders

    @cached_property
    def tensors(self) -> dict[str, gs.Tensor]:
        """Every tensor that a node reads or makes, by name."""
        return {t.name: t for node in self.borders.nodes for t in (*node.inputs, *node.outputs)}

    def shape(self, tensor: gs.Tensor) -> Shape | None:
        """The shape as far as it is known; None when the rank is not."""
        if self.surgery.is_constant(tensor):
            value = self.surgery.constant(tensor)
            return None if value is None else value.shape
        kind = self.types.get(tensor.name)
        return None if kind is None else kind.shape

    def type_of(self, tensor: gs.Tensor) -> TensorType | None:
        return self.types.get(tensor.name)

    def dtype(self, tensor: gs.Tensor) -> int:
        """The element type, 0 when it is not known."""
        kind = self.types.get(tensor.name)
        return 0 if kind is None else kind.dtype

    def integers(self, tensor: gs.Tensor) -> list[int] | None:
        value = self.surgery.constant(tensor)
        return None if value is None else [int(v) for v in value.reshape(-1)]


def axes_of(node: gs.Node, known: Known) -> tuple[int, ...] | None:
    """The axes of a reduction, counted from the front; None when they or the rank are not known."""
    shape = known.shape(node.inputs[0])
    if shape is None:
        return None
    stated = node.attrs.get("axes")
    if stated is None and len(node.inputs) > 1 and node.inputs[1].name:
        stated = known.integers(node.inputs[1])
        if stated is None:
            return None
    if not stated:
        return () if node.attrs.get("noop_with_empty_axes", 0) else tuple(range(len(shape)))
    return counted(stated, len(shape))


def counted(axes: Iterable[int], rank: int) -> tuple[int, ...] | None:
    """``axes`` in order, counted from the front; None where there is no such axis."""
    stated = [int(axis) for axis in axes]
    return tuple(sorted(axis % rank for axis in stated)) if all(-rank <= axis < rank for axis in stated) else None


def pooled_axes(node: gs.Node, known: Known) -> tuple[int, ...] | None:
    """The axes over which a pooling takes the mean of the whole plane; None when it does not."""
    shape = known.shape(node.inputs[0])
    if shape is None or len(shape) < 3:
        return None
    plane = tuple(range(2, len(shape)))
    if node.op == "GlobalAveragePool":
        return plane
    kernel = node.attrs.get("kernel_shape")
    plain = not any(node.attrs.get("pads", [])) and node.attrs.get("auto_pad", "NOTSET") in ("NOTSET", "VALID", b"NOTSET")
    whole = kernel is not None and tuple(kernel) == shape[2:]
    return plane if node.op == "AveragePool" and plain and whole else None


@dataclass(frozen=True)
class Value:
    """A tensor as a polynomial. ``is_kept`` is set of a statistic whose reduced axes are there with size one."""

    polynomial: Polynomial
    is_kept: bool = True


class Opaque(Exception):
    """A node whose result cannot be written as a polynomial."""


@dataclass
class SymbolicEvaluation:
    """The tensors that come from ``data``, in terms of its statistics over ``axes``."""

    known: Known
    data: gs.Tensor
    axes: tuple[int, ...]
    values: dict[int, Value] = field(default_factory=dict)
    order: list[gs.Tensor] = field(default_factory=list)
    _fitting: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.shape = self.known.shape(self.data) or ()
        sizes = [self.shape[axis] for axis in self.axes]
        self.count = math.prod(s for s in sizes if isinstance(s, int)) if all(isinstance(s, int) for s in sizes) else None

    def run(self) -> SymbolicEvaluation:
        """Evaluate what follows the data, in the order of execution."""
        self._put(self.data, Value(Polynomial.atom(DATA)))
        positions = self.known.borders.positions
        waiting: list[tuple[int, int, gs.Node]] = []
        seen: set[int] = set()

        def push(tensor: gs.Tensor) -> None:
            for node in tensor.outputs:
                if id(node) not in seen and id(node) in positions and len(seen) < _MOST_NODES:
                    seen.add(id(node))
                    heapq.heappush(waiting, (positions[id(node)], id(node), node))

        push(self.data)
        while waiting:
            node = heapq.heappop(waiting)[2]
            value = self._evaluate(node)
            if value is not None and node.outputs:
                self._put(node.outputs[0], value)
                push(node.outputs[0])
        return self

    def value(self, tensor: gs.Tensor) -> Value | None:
        return self.values.get(id(tensor))

    def _put(self, tensor: gs.Tensor, value: Value) -> None:
        self.values[id(tensor)] = value
        self.order.append(tensor)

    def _evaluate(self, node: gs.Node) -> Value | None:
        handler = _HANDLERS.get(node.op) if node.domain in DEFAULT_DOMAINS else None
        if handler is None or not self.known.borders.are_together(node, _first_consumer(self.data)):
            return None
        try:
            return handler(self, node)
        except (Opaque, TooManyTerms, OverflowError, ZeroDivisionError):
            return None

    def operand(self, tensor: gs.Tensor) -> Value:
        """An input: known already, a constant, or a parameter."""
        if id(tensor) in self.values:
            return self.values[id(tensor)]
        number = self._number(tensor)
        if number is not None:
            return Value(Polynomial.constant(number))
        count = self._counted(tensor)
        if count is not None:
            return Value(count)
        shape = self.known.shape(tensor)
        if not tensor.name or shape is None or len(shape) > len(self.shape):
            raise Opaque
        return Value(Polynomial.atom(Parameter(tensor.name)))

    def _number(self, tensor: gs.Tensor) -> float | None:
        """The value of a constant that is one number, or one number again and again."""
        value = self.known.surgery.constant(tensor)
        if value is None or value.size == 0 or (value.dtype.kind not in "fV" and value.dtype.kind not in "iu"):
            return None
        if value.ndim > len(self.shape) or not self._spreads(value.shape):
            return None
        flat = value.reshape(-1).astype(np.float64)
        return float(flat[0]) if np.isfinite(flat[0]) and (flat == flat[0]).all() else None

    def _counted(self, tensor: gs.Tensor) -> Polynomial | None:
        """How many values are reduced, worked out at run time, or that less a constant."""
        if self._is_count(tensor):
            return Polynomial.atom(COUNT)
        node = tensor.inputs[0] if tensor.inputs else None
        if node is None or node.domain not in DEFAULT_DOMAINS or node.op not in ("Cast", "Sub"):
            return None
        whole = self._counted(node.inputs[0])
        less = self._number(node.inputs[1]) if node.op == "Sub" else 0.0
        return None if whole is None or less is None else whole - Polynomial.constant(less)

    def _is_count(self, tensor: gs.Tensor) -> bool:
        """True for the product of the sizes of the reduced axes, worked out at run time."""
        chain = _producers(tensor, ("Cast", "ReduceProd", "Gather", "Shape"))
        if chain is None:
            return False
        gather, shape = chain[-2], chain[-1]
        stated, of = self.known.integers(gather.inputs[1]), shape.inputs[0]
        if stated is None or not (of is self.data or id(of) in self.values) or not self.is_data_shaped(of):
            return False
        return counted(stated, len(self.shape)) == self.axes

    def _spreads(self, shape: Shape) -> bool:
        """True when a tensor of ``shape`` broadcasts to the shape of the data without making it larger."""
        tail = self.shape[len(self.shape) - len(shape) :]
        return len(shape) <= len(self.shape) and all(a == 1 or b is None or a == b for a, b in zip(shape, tail, strict=True))

    def is_data_shaped(self, tensor: gs.Tensor) -> bool:
        """True when ``tensor`` has the shape of the data, as far as both are known."""
        shape = self.known.shape(tensor)
        return id(tensor) in self._fitting if shape is None else _agree(shape, self.shape)

    def broadcasts(self, node: gs.Node) -> bool:
        """True when what an elementwise operator makes has the shape of the data: as stated, or as its inputs have it."""
        output = node.outputs[0]
        if self.known.shape(output) is None:
            shapes = [self.shape if self.is_data_shaped(t) else self.known.shape(t) for t in node.inputs if t.name]
            if all(shape is not None and self._spreads(shape) for shape in shapes):
                self._fitting.add(id(output))
        return self.is_data_shaped(output)

    def is_kept_shape(self, shape: Shape | None) -> bool:
        """True when ``shape`` is that of the data with size one on the reduced axes."""
        wanted = tuple(1 if axis in self.axes else size for axis, size in enumerate(self.shape))
        return shape is not None and _agree(shape, wanted)


def _agree(one: Shape, other: Shape) -> bool:
    if len(one) != len(other):
        return False
    return all(a == b or not isinstance(a, int) or not isinstance(b, int) for a, b in zip(one, other, strict=True)) and not any(
        (a == 1) != (b == 1) for a, b in zip(one, other, strict=True)
    )


def _producers(tensor: gs.Tensor, operators: tuple[str, ...]) -> list[gs.Node] | None:
    """The nodes that make ``tensor``, backwards, when they are ``operators``, of which each but the last may repeat."""
    nodes: list[gs.Node] = []
    for operator in operators:
        found = False
        while tensor.inputs and tensor.inputs[0].op == operator and tensor.inputs[0].domain in DEFAULT_DOMAINS:
            nodes.append(tensor.inputs[0])
            tensor = tensor.inputs[0].inputs[0]
            found = True
        if not found and operator in ("Gather", "Shape"):
            return None
    return nodes


def _first_consumer(tensor: gs.Tensor) -> gs.Node:
    return tensor.outputs[0]


Handler = Callable[[SymbolicEvaluation, "gs.Node"], Value]


def _with_data(value: Value) -> bool:
    return value.polynomial.has(DATA, MAGNITUDE)


def _joined(e: SymbolicEvaluation, node: gs.Node, values: list[Value], polynomial: Polynomial | None) -> Value:
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


def _binary(e: SymbolicEvaluation, node: gs.Node) -> Value:
    values = [e.operand(tensor) for tensor in node.inputs]
    left, right = (value.polynomial for value in values)
    if node.op == "Div":
        inverse = right.power(-1.0)
        return _joined(e, node, values, None if inverse is None else left * inverse)
    result = {"Add": left.__add__, "Sub": left.__sub__, "Mul": left.__mul__}[node.op](right)
    return _joined(e, node, values, result)


def _sum(e: SymbolicEvaluation, node: gs.Node) -> Value:
    values = [e.operand(tensor) for tensor in node.inputs]
    total = Polynomial()
    for value in values:
        total = total + value.polynomial
    return _joined(e, node, values, total)


def _power(e: SymbolicEvaluation, node: gs.Node) -> Value:
    value, exponent = e.operand(node.inputs[0]), e.operand(node.inputs[1]).polynomial.constant_value()
    if exponent is None:
        raise Opaque
    return _joined(e, node, [value], value.polynomial.power(exponent))


def _unary(exponent: float) -> Handler:
    def handler(e: SymbolicEvaluation, node: gs.Node) -> Value:
        value = e.operand(node.inputs[0])
        return _joined(e, node, [value], value.polynomial.power(exponent))

    return handler


def _negative(e: SymbolicEvaluation, node: gs.Node) -> Value:
    value = e.operand(node.inputs[0])
    return _joined(e, node, [value], -value.polynomial)


def _magnitude(e: SymbolicEvaluation, node: gs.Node) -> Value:
    value = e.operand(node.inputs[0])
    if value.polynomial != Polynomial.atom(DATA):
        raise Opaque
    return _joined(e, node, [value], Polynomial.atom(MAGNITUDE))


def _at_least(e: SymbolicEvaluation, node: gs.Node) -> Value:
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


def _rectified(e: SymbolicEvaluation, node: gs.Node) -> Value:
    """Relu of a statistic."""
    value = e.operand(node.inputs[0])
    if _with_data(value):
        raise Opaque
    return _at_least_nothing(e, node, value)


def _at_least_nothing(e: SymbolicEvaluation, node: gs.Node, value: Value) -> Value:
    """A lower bound of zero or less: it keeps rounding from making a variance negative, and changes nothing else."""
    if not is_never_negative(value.polynomial):
        raise Opaque
    return _joined(e, node, [value], value.polynomial)


def _clip_bounds(e: SymbolicEvaluation, node: gs.Node) -> float:
    """The lower bound of a Clip that has no upper one."""
    least, most = node.attrs.get("min"), node.attrs.get("max")
    if len(node.inputs) > 1 and node.inputs[1].name:
        least = e.operand(node.inputs[1]).polynomial.constant_value()
    if len(node.inputs) > 2 and node.inputs[2].name:
        most = e.operand(node.inputs[2]).polynomial.constant_value()
    if least is None or (most is not None and most < float(np.finfo(np.float16).max)):
        raise Opaque
    return float(least)


def _reduction(e: SymbolicEvaluation, node: gs.Node) -> Value:
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


def _pooling(e: SymbolicEvaluation, node: gs.Node) -> Value:
    value = e.operand(node.inputs[0])
    if not _with_data(value) or pooled_axes(node, e.known) != e.axes:
        raise Opaque
    polynomial = mean(value.polynomial)
    if polynomial is None:
        raise Opaque
    return Value(polynomial)


def _same(e: SymbolicEvaluation, node: gs.Node) -> Value:
    e.broadcasts(node)
    return e.operand(node.inputs[0])


def _cast(e: SymbolicEvaluation, node: gs.Node) -> Value:
    if node.attrs.get("to") not in FLOATING and onnx_type(node.attrs.get("to")) not in FLOATING:
        raise Opaque
    return _same(e, node)


def onnx_type(to: object) -> int:
    """The number of an element type that graphsurgeon gives as one of numpy."""
    if isinstance(to, int):
        return to
    try:
        return int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(to)))  # type: ignore[call-overload]
    except (KeyError, TypeError, ValueError):
        return 0


def _statistic_reshaped(e: SymbolicEvaluation, node: gs.Node) -> Value:
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


_HANDLERS: dict[str, Handler] = {
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
