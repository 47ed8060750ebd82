"""Elements of sequences, which TensorRT does not know, read as slices of the tensor that was split.

``torch.chunk``, ``split`` and ``unbind`` come as SplitToSequence and SequenceAt. With i known, element i of a split into
parts of size s is x[i·s : (i+1)·s], whatever the size of x; the last part ends where x ends, in a Slice as in a split.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from itertools import count

import numpy as np
import onnx_ir as ir

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.ir_walk import every_node

_END = np.iinfo(np.int64).max
_INTEGERS = (ir.DataType.INT32, ir.DataType.INT64)


def replace_sequence_elements(model: ir.Model, counts: Counter[str]) -> int:
    """Replace every SequenceAt whose element can be told by a Slice; returns how many.

    The index must be constant; the sizes of the parts constant, or one number, constant or not, that all share. What makes the
    sequence stays for other readers, and is dead when there are none.
    """
    replaced = 0
    for node in list(every_node(model.graph)):
        if node.op_type == "SequenceAt" and node.domain == "" and isinstance(node.graph, ir.Graph):
            made = Made(node.graph, node)
            element = _element(node, made)
            if element is not None:
                made.replace(element)
                replaced += 1
    counts["elements of sequences made slices"] += replaced
    return replaced


@dataclass
class Made:
    """New nodes that stand in for one node of ``graph``; they enter the graph when it is replaced."""

    graph: ir.Graph
    node: ir.Node
    nodes: list[ir.Node] = field(default_factory=list)
    constants: list[ir.Value] = field(default_factory=list)

    def constant(self, values: np.ndarray) -> ir.Value:
        tensor = ir.tensor(values)
        value = ir.Value(const_value=tensor, type=ir.TensorType(tensor.dtype), shape=ir.Shape(values.shape))
        self.constants.append(value)
        return value

    def call(self, operator: str, *inputs: ir.Value, **attributes: int) -> ir.Value:
        made = ir.Node("", operator, inputs, [ir.AttrInt64(name, value) for name, value in attributes.items()])
        made.metadata_props.update(self.node.metadata_props)
        self.nodes.append(made)
        return made.outputs[0]

    def replace(self, element: ir.Value) -> None:
        """Put ``element`` in the place of what the node gives: it takes over the name, its node that of the node."""
        old = self.node.outputs[0]
        name = old.name
        self._enter()
        old.replace_all_uses_with(element, replace_graph_outputs=True)
        self.graph.remove(self.node, safe=True)
        if self.nodes:
            self.nodes[-1].name = self.node.name
            element.name, element.type = name, ir.TensorType(_dtype(self.nodes[-1]))

    def insert(self, value: ir.Value, index: int) -> None:
        """Give ``value`` to the node as its input ``index``."""
        self._enter()
        value.type = ir.TensorType(_dtype(self.nodes[-1]))
        self.node.replace_input_with(index, value)

    def _enter(self) -> None:
        """Take the new nodes and constants into the graph, under free names."""
        stem = self.node.name or self.node.outputs[0].name or "element"
        taken = {value.name for other in every_node(self.graph) for value in other.outputs} | set(self.graph.initializers)
        for number, value in enumerate((*self.constants, *(inner.outputs[0] for inner in self.nodes))):
            value.name = next(free for n in count(number) if (free := f"{stem}_{n}") not in taken)
            taken.add(value.name)
        for value in self.constants:
            self.graph.register_initializer(value)
        self.graph.insert_before(self.node, self.nodes)


def _dtype(node: ir.Node) -> ir.DataType:
    data = node.inputs[0]
    return ir.DataType.UNDEFINED if data is None or data.dtype is None else data.dtype


def _element(node: ir.Node, made: Made) -> ir.Value | None:
    """The tensor that ``node`` takes from its sequence; None when that is not known."""
    sequence, index = node.inputs[0], integer(node.inputs[1])
    producer = None if sequence is None else sequence.producer()
    if producer is None or producer.domain != "" or index is None:
        return None
    listed = elements_behind(sequence)
    if listed is not None:
        return listed[index] if -len(listed) <= index < len(listed) else None
    return part_of_split(producer, index, made) if producer.op_type == "SplitToSequence" else None


def part_of_split(split: ir.Node, index: int, made: Made) -> ir.Value | None:
    """Element ``index`` of what SplitToSequence gives; None when it cannot be told."""
    data, axis = split.inputs[0], attribute(split, "axis", 0)
    lengths = split.inputs[1] if len(split.inputs) > 1 else None
    if data is None:
        return None
    if lengths is None:
        if not attribute(split, "keepdims", 1):
            return made.call("Gather", data, made.constant(np.array(index)), axis=axis)
        return _slice(data, (index, index + 1 if index != -1 else _END), axis, made)
    if lengths.const_value is None:
        return _part_at_run_time(data, axis, lengths, index, made)
    bounds = _bounds(lengths.const_value.numpy(), index, size_of_axis(data, axis))
    return None if bounds is None else _slice(data, bounds, axis, made)


def _bounds(lengths: np.ndarray, index: int, size: int | None) -> tuple[int, int] | None:
    """Where part ``index`` begins and ends; None where the last part, from which a negative index counts, is not known."""
    if lengths.ndim == 0:
        step = int(lengths)
        number = index if index >= 0 or size is None or step < 1 else index - (-size // step)
        return (number * step, (number + 1) * step) if number >= 0 else None
    if not -len(lengths) <= index < len(lengths):
        return None
    end = int(np.cumsum(lengths)[index])
    return end - int(lengths[index]), end


def _part_at_run_time(data: ir.Value, axis: int, length: ir.Value, index: int, made: Made) -> ir.Value | None:
    """A part whose size is known at run time: one that all share, as ``chunk`` of a dynamic dimension has them, or its own."""
    if length.shape is None or length.dtype not in _INTEGERS or index < 0:
        return None
    if len(length.shape) == 1:
        return _part_of_own_size(data, axis, length, index, made)
    if len(length.shape) != 0:
        return None
    kind = length.dtype.numpy()
    step = made.call("Reshape", length, made.constant(np.array([1])))
    start, end = (made.call("Mul", step, made.constant(np.array([factor], kind))) for factor in (index, index + 1))
    return made.call("Slice", data, start, end, made.constant(np.array([axis], kind)))


def _part_of_own_size(data: ir.Value, axis: int, lengths: ir.Value, index: int, made: Made) -> ir.Value:
    """It begins where those before it end: at the last entry of a running sum that has a zero in front."""
    sizes = lengths if lengths.dtype == ir.DataType.INT64 else made.call("Cast", lengths, to=int(ir.DataType.INT64))
    padded = made.call("Concat", made.constant(np.array([0])), _slice(sizes, (0, index + 1), 0, made), axis=0)
    ends = made.call("CumSum", padded, made.constant(np.array(0)))
    start, end = (_slice(ends, (at, at + 1), 0, made) for at in (index, index + 1))
    return made.call("Slice", data, start, end, made.constant(np.array([axis])))


def _slice(data: ir.Value, bounds: tuple[int, int], axis: int, made: Made) -> ir.Value:
    return made.call("Slice", data, *(made.constant(np.array([value])) for value in (*bounds, axis)))


def elements_behind(value: ir.Value | None) -> list[ir.Value] | None:
    """The elements of a sequence that is put together one by one; None for any other."""
    node = None if value is None else value.producer()
    if node is None or node.domain != "":
        return None
    if node.op_type == "Identity":
        return elements_behind(node.inputs[0])
    if node.op_type in ("SequenceConstruct", "SequenceEmpty"):
        return [item for item in node.inputs if item is not None]
    held = elements_behind(node.inputs[0]) if node.op_type in ("SequenceInsert", "SequenceErase") else None
    return None if held is None else _edited(node, held)


def _edited(node: ir.Node, held: list[ir.Value]) -> list[ir.Value] | None:
    """The elements after one was put in or taken out; by default at the end."""
    inserts = node.op_type == "SequenceInsert"
    at = node.inputs[2 if inserts else 1 :]
    place = len(held) - (not inserts) if not at or at[0] is None else integer(at[0])
    if place is None or not -len(held) <= place <= len(held) - (not inserts):
        return None
    place += len(held) if place < 0 else 0
    item = node.inputs[1] if inserts else None
    if inserts:
        return None if item is None else [*held[:place], item, *held[place:]]
    return [*held[:place], *held[place + 1 :]]


def attribute(node: ir.Node, name: str, default: int) -> int:
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_int()


def integer(value: ir.Value | None) -> int | None:
    """The value of a constant of one element."""
    constant = None if value is None else value.const_value
    return None if constant is None or constant.size != 1 else int(constant.numpy().reshape(()))


def size_of_axis(value: ir.Value, axis: int) -> int | None:
    if value.shape is None or not -len(value.shape) <= axis < len(value.shape):
        return None
    size = value.shape[axis]
    return size if isinstance(size, int) else None
