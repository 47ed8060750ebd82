"""Sequences that are put together again, or counted: Concat of their elements, the tensor that was split, or a number.

TorchScript writes them for Python lists, and for loops over the result of ``split``. Sequences that go through a loop, into a
branch's output, or into an output of the model stay.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx_ir as ir

from trtnorm_cli.onnx_model.ir_walk import every_node
from trtnorm_cli.onnx_model.sequences import Made, attribute, elements_behind, integer, part_of_split, size_of_axis

# Unsqueeze takes its axes as an input from here on.
_NEEDED_OPSET = 13
_MOST_ELEMENTS = 256


def replace_joined_sequences(model: ir.Model, counts: Counter[str]) -> int:
    """Replace ConcatFromSequence and SequenceLength where the elements can be told; returns how many."""
    replaced = 0
    opset = model.opset_imports.get("", 0)
    for node in list(every_node(model.graph)):
        if node.domain != "" or node.op_type not in _JOINERS or not isinstance(node.graph, ir.Graph):
            continue
        made = Made(node.graph, node)
        found = _JOINERS[node.op_type](node, made) if opset >= _NEEDED_OPSET else None
        if found is not None:
            made.replace(found)
            replaced += 1
    counts["sequences joined directly"] += replaced
    return replaced


def _concatenated(node: ir.Node, made: Made) -> ir.Value | None:
    axis, stacks = attribute(node, "axis", 0), attribute(node, "new_axis", 0) == 1
    split = _split_behind(node)
    if split is not None and _undoes(split, axis, stacks):
        return split.inputs[0]
    held = elements_behind(node.inputs[0]) if split is None else _parts(split, made)
    if not held:
        return None
    if stacks:
        held = [made.call("Unsqueeze", item, made.constant(np.array([axis]))) for item in held]
    return made.call("Concat", *held, axis=axis)


def _length(node: ir.Node, made: Made) -> ir.Value | None:
    split, held = _split_behind(node), elements_behind(node.inputs[0])
    number = len(held) if held is not None else None if split is None else _number_of_parts(split)
    return None if number is None else made.constant(np.array(number))


_JOINERS = {"ConcatFromSequence": _concatenated, "SequenceLength": _length}


def _split_behind(node: ir.Node) -> ir.Node | None:
    producer = None if node.inputs[0] is None else node.inputs[0].producer()
    is_split = producer is not None and producer.op_type == "SplitToSequence" and producer.domain == ""
    return producer if is_split else None


def _undoes(split: ir.Node, axis: int, stacks: bool) -> bool:
    """The parts are joined along the axis that they were split along, so that nothing changes."""
    data, own = split.inputs[0], attribute(split, "axis", 0)
    rank = None if data is None or data.shape is None else len(data.shape)
    same = axis == own or (rank is not None and axis % rank == own % rank)
    drops_axis = len(split.inputs) < 2 and not attribute(split, "keepdims", 1)
    return same and drops_axis == stacks


def _parts(split: ir.Node, made: Made) -> list[ir.Value] | None:
    number = _number_of_parts(split)
    if number is None or number > _MOST_ELEMENTS:
        return None
    parts = [part_of_split(split, index, made) for index in range(number)]
    return None if None in parts else [part for part in parts if part is not None]


def _number_of_parts(split: ir.Node) -> int | None:
    data, lengths = split.inputs[0], split.inputs[1] if len(split.inputs) > 1 else None
    size = None if data is None else size_of_axis(data, attribute(split, "axis", 0))
    if lengths is None:
        return size
    shape = lengths.const_value.shape if lengths.const_value is not None else lengths.shape
    if shape is not None and len(shape) == 1:
        return shape[0] if isinstance(shape[0], int) else None
    step = integer(lengths)
    return -(-size // step) if size is not None and step else None
