"""A node as the rules of its operator see it: attributes, symbolic inputs, and a place to say what it demands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx

from trtnorm_cli.shapes.condition import at_most, broadcast_size, either, equal
from trtnorm_cli.shapes.constraint import Constraint
from trtnorm_cli.shapes.expression import Expr, Size
from trtnorm_cli.shapes.tensor import UNKNOWN, Shape, SymbolicTensor

Report = Callable[[Constraint], None]
Break = Callable[[str], None]


class Node:
    """One node of the default domain. ``opset`` is that domain's version.

    ``report`` is told of demands on symbols, and ``on_break`` in words of those that numbers break.
    """

    def __init__(
        self,
        proto: onnx.NodeProto,
        inputs: Sequence[SymbolicTensor | None],
        opset: int,
        report: Report,
        names: Sequence[str] | None = None,
        on_break: Break | None = None,
    ) -> None:
        self.proto, self.opset, self._report, self._on_break = proto, opset, report, on_break
        self._inputs = inputs
        self._names = proto.input if names is None else names
        self.attributes: dict[str, Any] = {a.name: onnx.helper.get_attribute_value(a) for a in proto.attribute}

    @property
    def label(self) -> str:
        return self.proto.name or f"-> {next((name for name in self.proto.output if name), '?')}"

    @property
    def count(self) -> int:
        return len(self._inputs)

    def has(self, index: int) -> bool:
        """True where the input is given."""
        return index < len(self._inputs) and self._inputs[index] is not None

    def input(self, index: int) -> SymbolicTensor:
        """An input, or ``UNKNOWN`` where it is left out or nothing is known of it."""
        found = self._inputs[index] if index < len(self._inputs) else None
        return UNKNOWN if found is None else found

    def inputs(self) -> list[SymbolicTensor]:
        return [self.input(index) for index in range(self.count)]

    def name_of(self, index: int) -> str:
        return str(self._names[index])

    def with_inputs(self, inputs: Sequence[SymbolicTensor], names: Sequence[str]) -> Node:
        """The same node with other inputs, which are called ``names``."""
        return Node(self.proto, inputs, self.opset, self._report, names, self._on_break)

    def integers(self, index: int, attribute: str) -> list[int] | None:
        """An argument that was an attribute in old opsets and is an input since, or None if it is not a known constant."""
        if attribute in self.attributes:
            value = self.attributes[attribute]
            return [int(v) for v in value] if isinstance(value, (list, tuple)) else [int(value)]
        return self.input(index).integers() if self.has(index) else None

    def axis(self, rank: int, default: int = 0, name: str = "axis") -> int:
        value = int(self.attributes.get(name, default))
        return value + rank if value < 0 else value

    def require(self, condition: Size, demand: str, *sides: tuple[str, Size | None]) -> None:
        """Say that ``condition`` must hold. One without a symbol is the model's own affair and not recorded."""
        if condition == 0 and self._on_break is not None:
            self._on_break(f"node {self.label} ({self.proto.op_type}): {demand}")
        if isinstance(condition, Expr):
            known = tuple((name, side) for name, side in sides if side is not None)
            self._report(Constraint(condition, self.label, self.proto.op_type, demand, known))

    def require_equal(self, demand: str, a: tuple[str, Size | None], b: tuple[str, Size | None]) -> Size | None:
        """Say that two sizes must be equal. Returns what is known of both."""
        if a[1] is None or b[1] is None:
            return a[1] if b[1] is None else b[1]
        self.require(equal(a[1], b[1]), demand, a, b)
        return b[1] if isinstance(b[1], int) else a[1]

    def require_at_least(self, demand: str, a: tuple[str, Size | None], least: Size) -> None:
        if a[1] is not None:
            self.require(at_most(least, a[1]), demand, a)

    def broadcast(self, shapes: Sequence[tuple[str, Shape | None]]) -> Shape | None:
        """The shape that ``shapes`` (with the names of their tensors) are broadcast to."""
        ranks = [len(shape) for _, shape in shapes if shape is not None]
        if len(ranks) < len(shapes):
            return None
        rank = max(ranks, default=0)
        result: list[Size | None] = [1] * rank
        names = [""] * rank
        for name, shape in shapes:
            assert shape is not None
            for axis, size in enumerate(shape, rank - len(shape)):
                result[axis], names[axis] = self._broadcast_axis(axis, (names[axis], result[axis]), (name, size))
        return tuple(result)

    def _broadcast_axis(self, axis: int, a: tuple[str, Size | None], b: tuple[str, Size | None]) -> tuple[Size | None, str]:
        if a[1] is None or b[1] is None:
            # An unknown size is 1 or equal to a known one that is larger.
            known = next((s for s in (a[1], b[1]) if isinstance(s, int) and s > 1), None)
            return known, a[0] or b[0]
        if a[1] != b[1] and a[1] != 1 and b[1] != 1:
            condition = either(equal(a[1], b[1]), equal(a[1], 1), equal(b[1], 1))
            self.require(condition, f"dimension {axis} of its inputs must be equal, or 1", a, b)
        return broadcast_size(a[1], b[1]), b[0] if a[1] == 1 else a[0]

    def named_shapes(self, indices: Sequence[int] | None = None) -> list[tuple[str, Shape | None]]:
        chosen = range(self.count) if indices is None else indices
        return [(self.name_of(i), self.input(i).shape) for i in chosen if self.has(i)]


def like(tensor: SymbolicTensor, shape: Shape | None = None, dtype: int | None = None) -> SymbolicTensor:
    """A tensor of the same type, and of the same shape unless one is given. Its elements are not known."""
    return SymbolicTensor(tensor.dtype if dtype is None else dtype, tensor.shape if shape is None else shape)


def unknown_rank(tensor: SymbolicTensor, rank: int | None) -> SymbolicTensor:
    """A tensor of the same type of which at most the rank is known."""
    return SymbolicTensor(tensor.dtype, None if rank is None else (None,) * rank)


def elementwise(function: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    """``function`` of broadcast object arrays, element by element. An element is None where an argument is None."""

    def known(*args: Any) -> Any:
        return None if any(a is None for a in args) else function(*args)

    result = np.frompyfunc(known, len(arrays), 1)(*arrays)
    if isinstance(result, np.ndarray):
        return result
    scalar = np.empty((), dtype=object)
    scalar[()] = result
    return scalar
