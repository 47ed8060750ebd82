"""Fold what needs no library: nodes with a kernel in ``fold_kernels.py``, and sizes that are known.

That is most of what exports compute from constants. onnxscript takes ten times as long for each: it infers the node's types by
then, writes node and constants as protobuf, and lists the names of all that a value came from.

Sizes become known one after the other: the shape of a Reshape tells the next Shape, which tells the next Reshape. So what is
found out is followed in the same pass, and the whole graph is not inferred once for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from trtnorm_cli.onnx_model.fold_kernels import has_kernel, value_of
from trtnorm_cli.onnx_model.ir_constants import ConstantMaker
from trtnorm_cli.onnx_model.ir_walk import holds_graphs
from trtnorm_cli.onnx_model.light_ir import LightSerializer
from trtnorm_cli.onnx_model.static_dimensions import Memory, picked_sizes, shape_from_arithmetic


def fold_small(
    model: ir.Model, may_fold: Callable[[ir.Node], bool], serializer: LightSerializer, constants: ConstantMaker
) -> int:
    """Replace nodes of the main graph by ``constants`` of their values, in place, in one pass; returns how many.

    Types and shapes have to be those that are certain, and become better known behind what was folded. ``may_fold`` is asked
    about nodes that depend on constants alone, and ``serializer`` is one for all passes over ``model``.
    """
    one = _Pass(model, may_fold, serializer, constants)
    for node in model.graph:
        one.visit(node)
    return one.folded


class _Pass:
    """One pass over the nodes of a graph, in their order."""

    def __init__(
        self, model: ir.Model, may_fold: Callable[[ir.Node], bool], serializer: LightSerializer, constants: ConstantMaker
    ) -> None:
        self.folded = 0
        self._graph, self._opset = model.graph, model.opset_imports.get("", 0)
        self._may_fold, self._serializer, self._constants = may_fold, serializer, constants
        self._memory: Memory = {}
        # Tensors of which more is known than when the whole graph was inferred.
        self._news: set[ir.Value] = set()

    def visit(self, node: ir.Node) -> None:
        if node.op_type == "Concat" and node.domain == "":
            self.folded += _drop_empty_operands(node)
        found = self._found(node) if node.domain == "" and len(node.outputs) == 1 and node.outputs[0].name else None
        if found is None:
            self._infer(node)
            return
        read, result = [value for value in node.inputs if value is not None], node.outputs[0]
        if isinstance(found, ir.Value):
            result.replace_all_uses_with(found)
            self._graph.remove(node, safe=True)
        else:
            self._constants.replace(node, [found])
            self._news.add(self._graph.initializers[result.name or ""])
        self._drop_unread(read)
        self.folded += 1

    def _found(self, node: ir.Node) -> np.ndarray | ir.Value | None:
        """The value of what ``node`` makes, or the tensor that it only passes on; None where neither is known."""
        if node.op_type == "Shape":
            return _sizes(node)
        if node.op_type == "Size":
            return _size(node)
        passed_on = _PASSED_ON.get(node.op_type)
        if passed_on is not None and not node.outputs[0].is_graph_output() and (value := passed_on(node)) is not None:
            return value
        if has_kernel(node.op_type) and all(value is None or _is_constant(value) for value in node.inputs):
            shape = node.outputs[0].shape
            if shape is None or not shape.is_static():
                self._infer(node)  # or whoever is asked infers the size in a model of its own
            return computed(node, self._opset) if self._may_fold(node) else None
        return picked_sizes(node, self._memory)

    def _infer(self, node: ir.Node) -> None:
        """Find out more about what ``node`` makes, where there is news about what it reads."""
        if node.domain != "" or self._news.isdisjoint(value for value in node.inputs if value is not None):
            return
        if holds_graphs(node) or not onnx.defs.has(node.op_type, self._opset, ""):
            return
        read = {value.name or "": value for value in node.inputs if value is not None}
        types = {name: _type_of(value) for name, value in read.items()}
        if any(kind is None for kind in types.values()):
            return
        constants = ((name, self._serializer.constant(value)) for name, value in read.items())
        data = {name: tensor for name, tensor in constants if isinstance(tensor, onnx.TensorProto)}
        schema = onnx.defs.get_schema(node.op_type, self._opset, "")
        try:
            found = onnx.shape_inference.infer_node_outputs(schema, self._serializer.node(node), types, data)
        except Exception:  # it has several classes of errors, and inference of the whole graph leaves such a node open too
            found = {}
        for value in node.outputs:
            if (kind := found.get(value.name or "")) is not None and kind.HasField("tensor_type"):
                self._learn(value, kind.tensor_type)
        if (shape := shape_from_arithmetic(node, self._memory)) is not None:
            self._refine(node.outputs[0], list(shape))

    def _learn(self, value: ir.Value, kind: onnx.TypeProto.Tensor) -> None:
        if value.type is None and kind.elem_type:
            value.type = ir.TensorType(ir.DataType(kind.elem_type))
            self._news.add(value)
        if kind.HasField("shape"):
            self._refine(value, [size.dim_value if size.HasField("dim_value") else None for size in kind.shape.dim])

    def _refine(self, value: ir.Value, sizes: list[Any]) -> None:
        """Add what is known of the ``sizes`` to the shape of ``value``, unless they contradict it."""
        old: list[Any] = [None] * len(sizes) if value.shape is None else list(value.shape)
        if len(old) != len(sizes):
            return
        known = [size if isinstance(size, int) else None for size in old]
        new = [size if isinstance(size, int) else None for size in sizes]
        if any(a is not None and b is not None and a != b for a, b in zip(known, new, strict=True)):
            return
        merged = [b if a is None else a for a, b in zip(known, new, strict=True)]
        if value.shape is None or merged != known:
            value.shape = ir.Shape(merged)
            self._news.add(value)

    def _drop_unread(self, values: list[ir.Value]) -> None:
        for value in values:
            if value.is_initializer() and value.graph is self._graph and not value.uses() and not value.is_graph_output():
                self._graph.initializers.pop(value.name or "", None)


def _sizes(node: ir.Node) -> np.ndarray | None:
    """The elements that a Shape gives, where they are known."""
    data = node.inputs[0] if node.inputs else None
    if data is None or data.shape is None:
        return None
    start, end = node.attributes.get("start"), node.attributes.get("end")
    sizes = data.shape[start.as_int() if start else 0 : end.as_int() if end else None]
    return np.array(sizes, np.int64) if all(isinstance(size, int) for size in sizes) else None


def _is_constant(value: ir.Value) -> bool:
    return value.const_value is not None and not value.is_graph_input()


def computed(node: ir.Node, opset: int) -> np.ndarray | None:
    """The value of ``node``, which reads constants alone; None where it is left to the library."""
    arrays = [None if value is None or value.const_value is None else value.const_value.numpy() for value in node.inputs]
    return value_of(node.op_type, opset, arrays, _python_values(node))


def _drop_empty_operands(node: ir.Node) -> bool:
    """Take operands without elements off a Concat, in place, but for one where all are such; returns whether any went."""
    axis = node.attributes.get("axis")
    if axis is None:
        return False
    kept = [value for value in node.inputs if value is None or not _is_empty_along(value, axis.as_int())] or [*node.inputs[:1]]
    if len(kept) == len(node.inputs):
        return False
    for index, value in enumerate(kept):
        node.replace_input_with(index, value)
    node.resize_inputs(len(kept))
    return True


def _is_empty_along(value: ir.Value, axis: int) -> bool:
    shape = value.shape
    return shape is not None and -len(shape) <= axis < len(shape) and shape[axis] == 0


def _size(node: ir.Node) -> np.ndarray | None:
    """The number of elements, where it is known."""
    data = node.inputs[0] if node.inputs else None
    if data is None or data.shape is None or not data.shape.is_static():
        return None
    return np.array(math.prod(data.shape.numpy()), np.int64)


def _cast_to_its_type(node: ir.Node) -> ir.Value | None:
    data, target = node.inputs[0] if node.inputs else None, node.attributes.get("to")
    if data is None or target is None:
        return None
    return data if isinstance(data.type, ir.TensorType) and data.type.dtype.value == target.as_int() else None


def _to_its_shape(node: ir.Node) -> ir.Value | None:
    """The data of a Reshape or Expand that asks for the shape which it has."""
    data, shape = node.inputs if len(node.inputs) == 2 else (None, None)
    wanted = None if shape is None else shape.const_value
    if data is None or data.shape is None or wanted is None or not data.shape.is_static() or len(wanted.shape) != 1:
        return None
    return data if len(data.shape) == wanted.size and [*data.shape] == wanted.numpy().tolist() else None


def _only_operand(node: ir.Node) -> ir.Value | None:
    return node.inputs[0] if len(node.inputs) == 1 else None


# What these only pass on, if anything.
_PASSED_ON: dict[str, Callable[[ir.Node], ir.Value | None]] = {
    "Cast": _cast_to_its_type,
    "Concat": _only_operand,
    "Expand": _to_its_shape,
    "Reshape": _to_its_shape,
}


def _python_values(node: ir.Node) -> dict[str, Any]:
    """The attributes of ``node`` as ``value_of`` takes them."""
    return {
        name: ir.serde.serialize_tensor(attribute.as_tensor()) if attribute.type == ir.AttributeType.TENSOR else attribute.value
        for name, attribute in node.attributes.items()
    }


def _type_of(value: ir.Value) -> onnx.TypeProto | None:
    """The type of a tensor with what is known of its shape; None of what is no tensor."""
    if not isinstance(value.type, ir.TensorType):
        return None
    made = onnx.TypeProto()
    tensor = made.tensor_type
    tensor.elem_type = value.type.dtype.value
    if value.shape is not None:
        tensor.shape.SetInParent()
        for size in value.shape:
            dimension = tensor.shape.dim.add()
            if isinstance(size, int):
                dimension.dim_value = size
    return made
