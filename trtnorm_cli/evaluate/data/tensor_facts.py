"""Shape and bounds of every tensor of a model, in any of its graphs, when the inputs have given sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import NamedTuple

import numpy as np
import onnx

from trtnorm_cli.evaluate.data.value_sets import Number
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.stored import is_within_the_model, tensor_array
from trtnorm_cli.onnx_model.walk import subgraphs
from trtnorm_cli.shapes.evaluate import values_at
from trtnorm_cli.shapes.propagate import propagate
from trtnorm_cli.shapes.symbols import axis_symbol, value_symbol
from trtnorm_cli.shapes.tensor import UNKNOWN, SymbolicTensor

Bounds = tuple[Number, Number]

# Operators whose output holds nothing but elements of their first input.
KEEPS_ELEMENTS = frozenset({
    "Identity", "Cast", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Expand", "Transpose", "Tile", "Slice", "Split",
    "DequantizeLinear", "QuantizeLinear",
})  # fmt: skip
# Larger constants are tables of weights, whose bounds nobody asks for.
_MOST_ELEMENTS = 1 << 20
_MOST_STEPS = 64


@dataclass(eq=False)
class Scope:
    """One graph and those around it. ``bound`` says which outer tensor an input of a Loop's or Scan's body stands for."""

    graph: onnx.GraphProto
    parent: Scope | None = None
    bound: Mapping[str, str] = field(default_factory=dict)
    scanned: frozenset[str] = frozenset()
    _initializers: dict[str, onnx.TensorProto] | None = None
    _producers: dict[str, tuple[int, onnx.NodeProto]] | None = None

    @property
    def initializers(self) -> dict[str, onnx.TensorProto]:
        if self._initializers is None:
            self._initializers = {tensor.name: tensor for tensor in self.graph.initializer}
        return self._initializers

    @property
    def producers(self) -> dict[str, tuple[int, onnx.NodeProto]]:
        if self._producers is None:
            self._producers = {name: (i, node) for i, node in enumerate(self.graph.node) for name in node.output if name}
        return self._producers

    def owner(self, name: str) -> Scope:
        """The innermost graph that has a tensor of this name, or the outermost where none does."""
        scope = self
        while scope.parent is not None and not scope._has(name):
            scope = scope.parent
        return scope

    def _has(self, name: str) -> bool:
        return name in self.initializers or name in self.producers or any(value.name == name for value in self.graph.input)


class Tensor(NamedTuple):
    """A tensor by name and the graph that it belongs to."""

    scope: Scope
    name: str


class Facts:
    """Shapes and bounds of tensors. ``tensors`` are the symbolic ones of the outermost graph, where they are known already."""

    def __init__(self, model: onnx.ModelProto, tensors: Mapping[str, SymbolicTensor] | None = None) -> None:
        self._model, self._given = model, tensors
        self._inner: dict[Scope, Mapping[str, SymbolicTensor]] = {}
        self._sizes: dict[str, int] = {}
        self._constants: dict[int, Bounds | None] = {}
        self._known: dict[Tensor, Bounds | None] = {}

    def at(self, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, tuple[int, ...]]) -> None:
        """Answer for these shapes of the inputs, and these elements of those that hold sizes, from now on."""
        sizes: dict[str, int] = {}
        initializers = {tensor.name for tensor in self._model.graph.initializer}
        for value in self._model.graph.input:
            if value.name in shapes and value.name not in initializers:
                dims = value.type.tensor_type.shape.dim
                for axis, size in enumerate(shapes[value.name]):
                    name = dims[axis].dim_param if axis < len(dims) else ""
                    sizes[name or axis_symbol(value.name, axis)] = sizes[axis_symbol(value.name, axis)] = size
        for name, elements in values.items():
            sizes |= {value_symbol(name, index): element for index, element in enumerate(elements)}
        self._sizes = sizes
        self._known = {}

    def shape(self, scope: Scope, name: str) -> tuple[int | None, ...] | None:
        """The sizes, each of them None where it is not known, or None where the rank is not known."""
        owner = scope.owner(name)
        if name in owner.initializers:
            return tuple(int(size) for size in owner.initializers[name].dims)
        symbolic = self._symbolic(owner, name)
        if symbolic.shape is None:
            return None
        known = iter(values_at([size for size in symbolic.shape if size is not None], self._sizes))
        return tuple(None if size is None else next(known) for size in symbolic.shape)

    def bounds(self, scope: Scope, name: str, steps: int = _MOST_STEPS) -> Bounds | None:
        """The least and greatest element, or None where they are not known, or there are no elements."""
        owner = scope.owner(name)
        key = Tensor(owner, name)
        if key not in self._known:
            self._known[key] = self._bounds(owner, name, steps)
        return self._known[key]

    def _bounds(self, owner: Scope, name: str, steps: int) -> Bounds | None:
        if name in owner.initializers:
            return self._constant(owner.initializers[name])
        produced = owner.producers.get(name)
        if produced is not None and produced[1].op_type == "Constant":
            return _bounds_of_constant(produced[1])
        symbolic = self._symbolic(owner, name)
        vector = symbolic.vector()
        if vector and all(element is not None for element in vector):
            elements = [element if isinstance(element, float) else None for element in vector]
            sizes = values_at([0 if isinstance(element, float) else element for element in vector], self._sizes)
            known = [e if e is not None else s for e, s in zip(elements, sizes, strict=True)]
            if all(value is not None for value in known):
                numbers = [value for value in known if value is not None]
                return min(numbers), max(numbers)
        if symbolic.largest is not None:
            largest = values_at([symbolic.largest], self._sizes)[0]
            return None if largest is None or largest < 0 else (0, largest)
        if produced is None or steps == 0:
            outer = owner.bound.get(name)
            return self.bounds(owner.parent, outer, steps - 1) if outer and owner.parent and steps else None
        return self._computed(owner, produced[1], steps - 1)

    def _computed(self, scope: Scope, node: onnx.NodeProto, steps: int) -> Bounds | None:
        """Bounds of what ``node`` makes, from those of its operands."""
        if node.op_type in KEEPS_ELEMENTS:
            return None if node.op_type.endswith("Linear") else self.bounds(scope, node.input[0], steps)
        if node.op_type in ("Add", "Sub", "Mul"):
            a, b = (self.bounds(scope, name, steps) for name in node.input)
            return None if a is None or b is None else _arithmetic(node.op_type, a, b)
        if node.op_type == "NonZero":
            shape = self.shape(scope, node.input[0])
            return (0, shape[0] - 1) if shape and len(shape) == 1 and shape[0] else None
        if node.op_type == "Range":
            ends = [self.bounds(scope, name, steps) for name in node.input]
            if all(end is not None and end[0] == end[1] for end in ends):
                start, limit, delta = (end[0] for end in ends if end is not None)
                return (start, limit - delta) if delta > 0 and limit - delta >= start else None
        return None

    def origin(self, scope: Scope, name: str) -> Tensor:
        """The tensor that the elements of a tensor come from, back through operators that only move or convert them."""
        for _ in range(_MOST_STEPS):
            scope = scope.owner(name)
            produced = scope.producers.get(name)
            if produced is not None and produced[1].op_type in KEEPS_ELEMENTS:
                name = produced[1].input[0]
            elif produced is None and name in scope.bound and scope.parent is not None:
                scope, name = scope.parent, scope.bound[name]
            else:
                break
        return Tensor(scope, name)

    def is_size(self, tensor: Tensor) -> bool:
        """True where the elements follow from the sizes of the inputs."""
        vector = self._symbolic(tensor.scope.owner(tensor.name), tensor.name).vector()
        return bool(vector) and all(element is not None for element in vector or ())

    def producer(self, tensor: Tensor) -> onnx.NodeProto | None:
        found = tensor.scope.owner(tensor.name).producers.get(tensor.name)
        return None if found is None else found[1]

    def _constant(self, tensor: onnx.TensorProto) -> Bounds | None:
        if id(tensor) not in self._constants:
            self._constants[id(tensor)] = _bounds_of_tensor(tensor)
        return self._constants[id(tensor)]

    def _symbolic(self, scope: Scope, name: str) -> SymbolicTensor:
        if scope.parent is None:
            if self._given is None:
                self._given = propagate(self._model).tensors
            return self._given.get(name, UNKNOWN)
        if scope not in self._inner:
            self._inner[scope] = propagate(_flattened(self._model, scope)).tensors
        return self._inner[scope].get(name, UNKNOWN)


def _flattened(model: onnx.ModelProto, scope: Scope) -> onnx.ModelProto:
    """The nodes of ``scope`` and what they are made from, as one graph. A body stands for its first iteration."""
    chain = [scope]
    while chain[-1].parent is not None:
        chain.append(chain[-1].parent)
    chain.reverse()
    wanted: set[str] = {name for node in scope.graph.node for name in _read(node)}
    parts: list[list[onnx.NodeProto]] = []
    for level in reversed(chain):
        kept = []
        for node in reversed(level.graph.node):
            if level is scope or not wanted.isdisjoint(node.output):
                kept.append(node)
                wanted.update(_read(node))
        parts.append([*_entering(level), *reversed(kept)])
        wanted.update(level.bound.values())
    flat = onnx.ModelProto(ir_version=max(model.ir_version, 4))
    flat.opset_import.extend(model.opset_import)
    flat.graph.name = "slice"
    flat.graph.input.extend(model.graph.input)
    for level in chain:
        for tensor in level.graph.initializer:
            if tensor.name in wanted:
                _add_light(flat.graph, tensor)
    for part in reversed(parts):
        flat.graph.node.extend(part)
    return flat


def _entering(scope: Scope) -> Iterator[onnx.NodeProto]:
    """The outer tensors that stand for the inputs of a body, without the scanned axis where there is one."""
    for inner, outer in scope.bound.items():
        if inner not in scope.scanned:
            yield onnx.helper.make_node("Identity", [outer], [inner])


def _read(node: onnx.NodeProto) -> Iterator[str]:
    """The tensors that ``node`` reads, those that its subgraphs capture included."""
    yield from node.input
    for graph in subgraphs(node):
        for inner in graph.node:
            yield from _read(inner)


def _add_light(graph: onnx.GraphProto, tensor: onnx.TensorProto) -> None:
    if int(np.prod(tensor.dims, dtype=np.float64)) > 1024 or tensor.data_location == onnx.TensorProto.EXTERNAL:
        graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    else:
        graph.initializer.append(tensor)


def _bounds_of_constant(node: onnx.NodeProto) -> Bounds | None:
    attribute = node.attribute[0] if node.attribute else None
    if attribute is None or attribute.name == "sparse_value" or "string" in attribute.name:
        return None
    value = onnx.helper.get_attribute_value(attribute)
    return _bounds_of_tensor(value) if attribute.name == "value" else _bounds_of_array(np.asarray(value))


def _bounds_of_tensor(tensor: onnx.TensorProto) -> Bounds | None:
    elsewhere = not is_within_the_model(tensor)
    if elsewhere or tensor.data_type == onnx.TensorProto.STRING or np.prod(tensor.dims, dtype=np.float64) > _MOST_ELEMENTS:
        return None
    try:
        return _bounds_of_array(tensor_array(tensor))
    except (ValueError, TypeError):  # bytes that do not fit its shape: the checker says so elsewhere
        return None


def _bounds_of_array(array: np.ndarray) -> Bounds | None:
    if array.size == 0 or array.dtype.kind == "c":
        return None
    whole = array.dtype.kind in "iub"
    low, high = array.min(), array.max()
    return (int(low), int(high)) if whole else (float(low), float(high))


def _arithmetic(operator: str, a: Bounds, b: Bounds) -> Bounds:
    if operator == "Add":
        return a[0] + b[0], a[1] + b[1]
    if operator == "Sub":
        return a[0] - b[1], a[1] - b[0]
    products = [x * y for x in a for y in b]
    return min(products), max(products)
