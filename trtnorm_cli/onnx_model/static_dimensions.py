"""Follow single dimensions through shape arithmetic, where other dimensions of the same shape are not known.

ONNX data propagation does this for recent opsets only: up to opset 12 its Unsqueeze stops it, and with it every rank after.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from trtnorm_cli.onnx_model.ir_constants import ConstantMaker
from trtnorm_cli.onnx_model.ir_walk import every_node

_SHAPE_TYPES = (ir.DataType.INT64, ir.DataType.INT32)
_MOST_ELEMENTS = 64

_Elements = list[int | None]
# The elements that are known of tensors already, which stay right as long as no shape before them changes.
Memory = dict[ir.Value, _Elements | None]


def static_dimensions(model: ir.Model, constants: ConstantMaker) -> int:
    """Replace Gather and Slice of partly known shapes by ``constants`` where what they pick is known; returns how many.

    ``Shape(x)[1]`` of an ``x`` with a dynamic batch and 64 channels is 64. The library folds this for one form of Gather only.
    """
    replaced = 0
    memory: Memory = {}
    for node in list(every_node(model.graph)):
        array = picked_sizes(node, memory)
        if array is not None and node.graph is not None:
            constants.replace(node, [array])
            replaced += 1
    return replaced


def picked_sizes(node: ir.Node, memory: Memory) -> np.ndarray | None:
    """The sizes that a Gather or Slice picks from a shape that is known there; None of other nodes."""
    if node.domain != "" or node.op_type not in ("Gather", "Slice") or node.outputs[0].is_graph_output():
        return None
    value, elements = node.outputs[0], _elements(node.outputs[0], memory)
    if elements is None or None in elements or value.shape is None or value.dtype not in _SHAPE_TYPES:
        return None
    array = np.array(elements, dtype=value.dtype.numpy())
    return array.reshape(()) if len(value.shape) == 0 else array


def shapes_from_arithmetic(model: ir.Model) -> dict[ir.Value, ir.Shape]:
    """Shapes of what Reshape, Expand and ConstantOfShape make, as far as the elements of their shape input are known."""
    memory: Memory = {}
    shapes = ((node, shape_from_arithmetic(node, memory)) for node in every_node(model.graph))
    return {node.outputs[0]: shape for node, shape in shapes if shape is not None}


def shape_from_arithmetic(node: ir.Node, memory: Memory) -> ir.Shape | None:
    """The shape of what a Reshape, Expand or ConstantOfShape makes; None of other nodes, and where nothing of it is known."""
    rule = _SHAPE_RULES.get(node.op_type) if node.domain == "" else None
    elements = _elements(node.inputs[-1], memory) if rule is not None else None
    shape = rule(node, elements) if rule is not None and elements is not None else None
    return None if shape is None else ir.Shape(shape)


def _sizes(value: ir.Value | None) -> _Elements | None:
    if value is None or value.shape is None:
        return None
    return [size if isinstance(size, int) else None for size in value.shape]


def _reshaped(node: ir.Node, wanted: _Elements) -> _Elements:
    """The sizes that stand in ``wanted``. What -1 comes to is known only where ONNX inference knows it as well."""
    data = _sizes(node.inputs[0]) or []
    allow_zero = node.attributes.get("allowzero")
    copies = allow_zero is None or allow_zero.as_int() == 0
    copied = [(data[i] if i < len(data) else None) if size == 0 and copies else size for i, size in enumerate(wanted)]
    return [None if size == -1 else size for size in copied]


def _expanded(node: ir.Node, wanted: _Elements) -> _Elements | None:
    data = _sizes(node.inputs[0])
    if data is None:
        return None
    rank = max(len(data), len(wanted))
    pairs = zip([1] * (rank - len(data)) + data, [1] * (rank - len(wanted)) + wanted, strict=True)
    return [_broadcast(a, b) for a, b in pairs]


def _broadcast(a: int | None, b: int | None) -> int | None:
    known = [size for size in (a, b) if size is not None and size != 1]
    if known:
        return known[0]
    return 1 if a == b == 1 else None


_SHAPE_RULES: dict[str, Callable[[ir.Node, _Elements], _Elements | None]] = {
    "Reshape": _reshaped,
    "Expand": _expanded,
    "ConstantOfShape": lambda node, wanted: list(wanted),
}


def _elements(value: ir.Value | None, memory: Memory) -> _Elements | None:
    """The elements of an integer scalar or vector, None for each that is unknown; None when the length is unknown."""
    if value is None:
        return None
    if value not in memory:
        memory[value] = None
        memory[value] = _constant_elements(value) if value.const_value is not None else _computed(value, memory)
    return memory[value]


def _constant_elements(value: ir.Value) -> _Elements | None:
    tensor = value.const_value
    if tensor is None or tensor.dtype not in _SHAPE_TYPES or len(tensor.shape) > 1 or tensor.size > _MOST_ELEMENTS:
        return None
    return [int(element) for element in tensor.numpy().reshape(-1)]


def _computed(value: ir.Value, memory: Memory) -> _Elements | None:
    node = value.producer()
    if node is None or node.domain != "" or value.shape is None or len(value.shape) > 1:
        return None
    if node.op_type == "Shape":
        return _shape(node)
    if node.op_type in ("Gather", "Slice"):
        data = _elements(node.inputs[0], memory)
        pick = _gather if node.op_type == "Gather" else _slice
        return None if data is None else pick(node, data)
    if node.op_type == "Concat":
        parts = [_elements(part, memory) for part in node.inputs]
        return None if any(part is None for part in parts) else [element for part in parts for element in part or ()]
    if node.op_type in ("Squeeze", "Unsqueeze", "Reshape") or (node.op_type == "Cast" and value.dtype in _SHAPE_TYPES):
        return _elements(node.inputs[0], memory)
    return None


def _shape(node: ir.Node) -> _Elements | None:
    data = node.inputs[0]
    if data is None or data.shape is None:
        return None
    sizes = _sizes(data) or []
    start, end = node.attributes.get("start"), node.attributes.get("end")
    return sizes[start.as_int() if start else 0 : end.as_int() if end else None]


def _gather(node: ir.Node, data: _Elements) -> _Elements | None:
    indices = _constant_elements(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] is not None else None
    axis = node.attributes.get("axis")
    if indices is None or (axis is not None and axis.as_int() not in (0, -1)):
        return None
    inside = all(index is not None and -len(data) <= index < len(data) for index in indices)
    return [data[index] for index in indices if index is not None] if inside else None


def _slice(node: ir.Node, data: _Elements) -> _Elements | None:
    bounds = [_bound(node, position, name) for position, name in ((1, "starts"), (2, "ends"), (3, "axes"), (4, "steps"))]
    starts, ends, axes, steps = bounds
    if starts is None or ends is None or axes is None or steps is None or len(starts) != 1 or len(ends) != 1:
        return None
    if axes not in ([], [0], [-1]) or steps not in ([], [1]):
        return None
    return data[starts[0] : ends[0]]


def _bound(node: ir.Node, position: int, name: str) -> list[int] | None:
    """An argument of Slice, which is an attribute up to opset 9 and an input afterwards; empty when it is left out."""
    if name in node.attributes:
        return list(node.attributes[name].as_ints())
    value = node.inputs[position] if position < len(node.inputs) else None
    if value is None:
        return []
    elements = _constant_elements(value)
    return None if elements is None else [element for element in elements if element is not None]
