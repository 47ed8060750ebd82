"""Evaluate the tensors behind some data as polynomials of the data and its statistics over given axes."""

from __future__ import annotations

import heapq
import math
from dataclasses import field, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.rewrite.norms.formula import Formula
from trtnorm_cli.rewrite.norms.known import Known, Shape, counted
from trtnorm_cli.rewrite.norms.operators import HANDLERS, Opaque, Value
from trtnorm_cli.rewrite.norms.polynomial import COUNT, DATA, Parameter, Polynomial, TooManyTerms

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

# A normalization has a dozen nodes; what is further away belongs to something else.
_MOST_NODES = 48


@dataclass
class SymbolicEvaluation:
    """The tensors that come from ``data``, in terms of its statistics over ``axes``.

    Parameters are numbered in the order in which they come, so that norms that are alike have the same polynomials, which are
    worked out once. ``named`` gives them their names.
    """

    known: Known
    data: gs.Tensor
    axes: tuple[int, ...]
    values: dict[int, Value] = field(default_factory=dict)
    order: list[gs.Tensor] = field(default_factory=list)
    _fitting: set[int] = field(default_factory=set)
    names: dict[str, str] = field(default_factory=dict)
    _numbers: dict[str, str] = field(default_factory=dict)

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
        handler = HANDLERS.get(node.op) if node.domain in DEFAULT_DOMAINS else None
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
        value = self._number(tensor)
        if value is not None:
            return Value(Polynomial.constant(value))
        count = self._counted(tensor)
        if count is not None:
            return Value(count)
        shape = self.known.shape(tensor)
        if not tensor.name or shape is None or len(shape) > len(self.shape):
            raise Opaque
        number = self._numbers.setdefault(tensor.name, f"#{len(self._numbers)}")
        self.names[number] = tensor.name
        return Value(_parameter(number))

    def named(self, polynomial: Polynomial) -> Polynomial:
        """``polynomial`` with the names of its parameters."""
        return polynomial.renamed(self.names)

    def named_formula(self, formula: Formula) -> Formula:
        """``formula`` with the names of its parameters."""
        scale = tuple(sorted((self.names[number], exponent) for number, exponent in formula.scale))
        return replace(formula, scale=scale, shift=formula.shift.renamed(self.names))

    def is_residual(self, tensor: gs.Tensor) -> bool:
        """True for a tensor of run time as large as the data that does not come from them: to add it ends a normalization."""
        kind = self.known.types.get(tensor.name)
        return id(tensor) not in self.values and kind is not None and kind.shape == self.shape

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


@cache
def _parameter(number: str) -> Polynomial:
    return Polynomial.atom(Parameter(number))


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
