"""Shapes of all tensors of a model as expressions of its inputs' symbols, and what the nodes demand of them.

Where something is not known (an operator without a rule, sizes that depend on data), it stays unknown and nothing is demanded.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace

import numpy as np
import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS, default_opset
from trtnorm_cli.onnx_model.functions import with_functions_inlined
from trtnorm_cli.onnx_model.placeholders import names_nothing
from trtnorm_cli.shapes.condition import choice, either, negation
from trtnorm_cli.shapes.constraint import Constraint
from trtnorm_cli.shapes.expression import Expr, Size, apply, symbol
from trtnorm_cli.shapes.inference import infer_with_onnx
from trtnorm_cli.shapes.node import Node
from trtnorm_cli.shapes.operators import OPERATORS, contributed
from trtnorm_cli.shapes.symbols import axis_symbol, value_symbol
from trtnorm_cli.shapes.tensor import MOST_ELEMENTS, UNKNOWN, SymbolicTensor, constant, objects, tensor_of

# A shape tensor that an input can be has few elements: at most as many as a tensor has axes, or a few bounds.
_MOST_INPUT_VALUES = 64
_INTEGER_INPUTS = (onnx.TensorProto.INT64, onnx.TensorProto.INT32)
_KEEP_ELEMENTS = frozenset({"Identity", "Cast", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Expand", "Transpose", "Tile"})
_SIZES_TYPES = frozenset({1, 6, 7, 9, 10, 11})


@dataclass
class Propagation:
    """Symbolic types of the top-level tensors by name, and all constraints in the order of the graph.

    ``unread`` are the nodes of whose outputs nothing is known, because the operator has no rule or data decide the sizes.
    ``decisions`` are conditions on sizes between branches whose results differ in rank. TensorRT wants them settled. ``broken``
    are demands that no symbol is part of and that are not met, in words, and ``unmet`` are the results of nodes that make them.
    """

    tensors: Mapping[str, SymbolicTensor] = field(default_factory=dict)
    constraints: list[Constraint] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    decisions: list[Expr] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    unmet: set[str] = field(default_factory=set)


# Gives the outputs of a node, where they are not to be what its rule says, by all tensors so far.
Instead = Callable[[onnx.NodeProto, Mapping[str, SymbolicTensor]], Sequence[SymbolicTensor] | None]


def propagate(
    model: onnx.ModelProto,
    lows: Mapping[str, int] | None = None,
    instead: Instead | None = None,
    ends_at: Callable[[onnx.NodeProto], bool] = lambda node: False,
) -> Propagation:
    """Follow shapes and sizes from the inputs of ``model`` to its outputs.

    Symbols are the names of the inputs' dimensions, ``x[2]`` for those without a name, and ``x.values[0]`` for the elements
    of integer inputs that could hold sizes. Each is at least 1, or what ``lows`` says. The weights are not read. ``instead``
    is asked before the rule of each node of the main graph, and ``ends_at`` of those whose demands are broken: whether nobody
    needs to know more.
    """
    model = with_functions_inlined(model)
    walk = _Walk(model, default_opset(model.opset_import) or 1, instead, ends_at)
    walk.enter(model.graph, lows or {})
    walk.run(model.graph)
    constraints = list(dict.fromkeys(walk.constraints))
    return Propagation(walk.tensors, constraints, walk.unread, walk.decisions, walk.broken, walk.unmet)


class _Walk:
    def __init__(
        self, model: onnx.ModelProto, opset: int, instead: Instead | None, ends_at: Callable[[onnx.NodeProto], bool]
    ) -> None:
        self._model, self._opset, self._instead, self._ends_at = model, opset, instead, ends_at
        self.tensors: ChainMap[str, SymbolicTensor] = ChainMap()
        self.constraints: list[Constraint] = []
        self.unread: list[str] = []
        self.decisions: list[Expr] = []
        self.broken: list[str] = []
        self.unmet: set[str] = set()
        # Constraints hold where this does; None where they may not be demanded at all.
        self._guard: Size | None = 1

    def enter(self, graph: onnx.GraphProto, lows: Mapping[str, int]) -> None:
        initializers = {tensor.name for tensor in graph.initializer}
        for value in graph.input:
            if value.name not in initializers:
                self.tensors[value.name] = _input(value, lows)

    def run(self, graph: onnx.GraphProto) -> None:
        """Propagate through every node of ``graph``, in order, so that its inputs are known."""
        for tensor in graph.initializer:
            self.tensors[tensor.name] = _stored(tensor)
        for sparse in graph.sparse_initializer:
            self.tensors[sparse.values.name] = SymbolicTensor(sparse.values.data_type, tuple(sparse.dims))
        for node in graph.node:
            broken = len(self.broken)
            other = None if self._instead is None or self._is_inside else self._instead(node, self.tensors)
            outputs = self._outputs(node) if other is None else other
            for name, made in zip(node.output, [*outputs, *[UNKNOWN] * len(node.output)], strict=False):
                if name:
                    self.tensors[name] = made
            if len(self.broken) > broken and not self._is_inside and self._ends_at(node):
                return

    @property
    def _is_inside(self) -> bool:
        """True in a graph within a node."""
        return len(self.tensors.maps) > 1

    def _outputs(self, node: onnx.NodeProto) -> Sequence[SymbolicTensor]:
        inputs, broken = [self.tensors.get(name) if name else None for name in node.input], len(self.broken)
        try:
            made = self._rule(node, inputs)
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
            # A malformed node: what is wrong with it is for the checker and TensorRT to say.
            made = []
        if not made or (made[0].shape is None and made[0].items is None):
            self.unread.append(f"{node.name or '-> ' + ', '.join(node.output)} ({node.op_type})")
        if len(self.broken) > broken:
            self.unmet.update(node.output)
        return made

    def _rule(self, node: onnx.NodeProto, inputs: list[SymbolicTensor | None]) -> Sequence[SymbolicTensor]:
        if node.domain in DEFAULT_DOMAINS:
            if node.op_type == "Constant":
                return [_constant_node(node)]
            if node.op_type == "If":
                return self._if(node, inputs)
            if node.op_type == "Loop":
                return self._loop(node, inputs)
            if node.op_type == "Scan":
                return []
            if node.op_type in OPERATORS:
                made = OPERATORS[node.op_type](Node(node, inputs, self._opset, self._report, on_break=self._break))
                return _with_largest(node, inputs, made)
        if node.domain == contributed.DOMAIN and node.op_type in contributed.CONTRIBUTED:
            return contributed.CONTRIBUTED[node.op_type](Node(node, inputs, self._opset, self._report, on_break=self._break))
        return infer_with_onnx(node, inputs, self._model)

    def _break(self, words: str) -> None:
        if self._guard == 1:
            self.broken.append(words)

    def _report(self, constraint: Constraint) -> None:
        if self._guard is None:
            return
        condition = either(negation(self._guard), constraint.condition)
        if isinstance(condition, Expr):
            self.constraints.append(replace(constraint, condition=condition))

    def _body(self, graph: onnx.GraphProto, given: Iterable[SymbolicTensor], guard: Size | None) -> list[SymbolicTensor]:
        """The outputs of a subgraph whose inputs are ``given``. Its demands count where ``guard`` holds."""
        outer_tensors, outer_guard = self.tensors, self._guard
        self.tensors = outer_tensors.new_child()
        self._guard = None if guard is None or outer_guard is None else _both(outer_guard, guard)
        try:
            for value, tensor in zip(graph.input, given, strict=False):
                self.tensors[value.name] = tensor
            self.run(graph)
            return [self.tensors.get(output.name, UNKNOWN) for output in graph.output]
        finally:
            self.tensors, self._guard = outer_tensors, outer_guard

    def _if(self, node: onnx.NodeProto, inputs: list[SymbolicTensor | None]) -> list[SymbolicTensor]:
        branches = {a.name: a.g for a in node.attribute}
        values = inputs[0].vector() if inputs[0] is not None else None
        condition: Size | None = values[0] if values else None
        if isinstance(condition, int):
            return self._body(branches["then_branch" if condition else "else_branch"], (), 1)
        then = self._body(branches["then_branch"], (), condition)
        otherwise = self._body(branches["else_branch"], (), None if condition is None else negation(condition))
        pairs = list(zip(then, otherwise, strict=True))
        if isinstance(condition, Expr) and any(a.shape and b.shape and len(a.shape) != len(b.shape) for a, b in pairs):
            self.decisions.append(condition)
        return [_merged(a, b, condition) for a, b in pairs]

    def _loop(self, node: onnx.NodeProto, inputs: list[SymbolicTensor | None]) -> list[SymbolicTensor]:
        body = next(a.g for a in node.attribute if a.name == "body")
        carried = [t or UNKNOWN for t in inputs[2:]]
        # What an iteration changes is not known in the next one; once nothing more changes, it holds in all of them.
        for _ in range(4):
            made = self._body(body, [_counter(), _counter(9), *carried], None)
            widened = [_merged(a, b, None) for a, b in zip(carried, made[1:], strict=False)]
            if widened == carried:
                break
            carried = widened
        else:
            carried = [SymbolicTensor(t.dtype) for t in carried]
        trips = inputs[0].vector() if inputs and inputs[0] is not None else None
        count = trips[0] if trips and len(inputs) > 1 and inputs[1] is None else None
        runs = count if isinstance(count, int) and count > 0 else None
        made = self._body(body, [_counter(), _counter(9), *carried], 1 if runs else None)
        scanned = made[1 + len(carried) :]
        stacked = [SymbolicTensor(t.dtype, None if t.shape is None else (count, *t.shape)) for t in scanned]
        return [*carried, *stacked]


def _with_largest(
    node: onnx.NodeProto, inputs: list[SymbolicTensor | None], made: Sequence[SymbolicTensor]
) -> Sequence[SymbolicTensor]:
    """Carry the greatest element through operators that keep every element."""
    source = inputs[0] if inputs else None
    if node.op_type not in _KEEP_ELEMENTS or source is None or source.largest is None or not made:
        return made
    return [replace(made[0], largest=source.largest if made[0].dtype in _INTEGER_INPUTS else None)]


def _both(a: Size, b: Size) -> Size:
    return negation(either(negation(a), negation(b)))


def _counter(dtype: int = 7) -> SymbolicTensor:
    return SymbolicTensor(dtype, ())


def _input(value: onnx.ValueInfoProto, lows: Mapping[str, int]) -> SymbolicTensor:
    if not value.type.HasField("tensor_type"):
        return UNKNOWN
    kind = value.type.tensor_type
    if not kind.HasField("shape"):
        return SymbolicTensor(kind.elem_type)
    shape = tuple(_input_size(value.name, axis, dim, lows) for axis, dim in enumerate(kind.shape.dim))
    count = int(np.prod([s if isinstance(s, int) else _MOST_INPUT_VALUES + 1 for s in shape]))
    if kind.elem_type not in _INTEGER_INPUTS or len(shape) > 1 or count > _MOST_INPUT_VALUES:
        return SymbolicTensor(kind.elem_type, shape)
    values = objects([apply("symbol", value_symbol(value.name, index)) for index in range(count)])
    return SymbolicTensor(kind.elem_type, shape, values.reshape([int(s) for s in shape if isinstance(s, int)]))


def _input_size(tensor: str, axis: int, dim: onnx.TensorShapeProto.Dimension, lows: Mapping[str, int]) -> Size:
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return int(dim.dim_value)
    name = axis_symbol(tensor, axis) if names_nothing(dim.dim_param) else dim.dim_param
    return symbol(name, lows.get(name, 1))


def _stored(tensor: onnx.TensorProto) -> SymbolicTensor:
    external = tensor.data_location == onnx.TensorProto.EXTERNAL
    count = int(np.prod(tensor.dims, dtype=np.float64))
    if external or count > MOST_ELEMENTS or tensor.data_type not in _SIZES_TYPES:
        return SymbolicTensor(tensor.data_type, tuple(int(size) for size in tensor.dims))
    return constant(onnx.numpy_helper.to_array(tensor), tensor.data_type)


def _constant_node(node: onnx.NodeProto) -> SymbolicTensor:
    attribute = node.attribute[0]
    value = onnx.helper.get_attribute_value(attribute)
    if attribute.name == "value":
        return _stored(value)
    if attribute.name in ("value_int", "value_float"):
        number = objects([int(value) if attribute.name == "value_int" else float(value)])
        return tensor_of(7 if attribute.name == "value_int" else 1, number.reshape(()))
    if attribute.name in ("value_ints", "value_floats"):
        return tensor_of(7 if attribute.name == "value_ints" else 1, objects(list(value)))
    return UNKNOWN


def _merged(a: SymbolicTensor, b: SymbolicTensor, condition: Size | None) -> SymbolicTensor:
    """The facts about a tensor that is ``a`` where ``condition`` holds and else ``b``.

    Without a condition, they are those of both.
    """
    dtype = a.dtype if a.dtype == b.dtype else 0
    if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
        return SymbolicTensor(dtype)
    shape = tuple(_merged_size(x, y, condition) for x, y in zip(a.shape, b.shape, strict=True))
    equal = a.elements is not None and b.elements is not None and a.elements.tolist() == b.elements.tolist()
    return SymbolicTensor(dtype, shape, a.elements if equal and a.shape == b.shape else None)


def _merged_size(a: Size | None, b: Size | None, condition: Size | None) -> Size | None:
    if a is None or b is None:
        return None
    if a == b:
        return a
    return None if condition is None else choice(condition, a, b)
