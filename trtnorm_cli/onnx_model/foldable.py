"""Tell whether anything in a model can be folded at all, without the library, which takes long to import."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from trtnorm_cli.onnx_model.ir_walk import holds_graphs

# The library replaces these by what it knows of sequences and branches; the others below only under a condition. What it knows
# of sizes alone, Shape and Size, is folded before it looks, and so it is no reason to ask.
_LOOKED_INTO = frozenset(
    ("CastLike", "ConcatFromSequence", "Dropout", "If", "SequenceAt", "SequenceConstruct", "SplitToSequence")
)
_SIZE_TYPES = (ir.DataType.INT64, ir.DataType.INT32)


def can_be_folded(model: ir.Model, may_fold: Callable[[ir.Node], bool]) -> bool:
    """False when the library would leave every node of ``model`` as it is, and learn nothing of any.

    It infers node by node, and knows the types of some operators that inference of the whole graph leaves open, such as
    GroupNormalization since opset 21.
    """
    return any(_is_open(node) or _can_change(node, may_fold) for node in model.graph)


def _is_open(node: ir.Node) -> bool:
    """True where type or rank of an output of a standard operator is not known."""
    return node.domain == "" and any(value.name and (value.type is None or value.shape is None) for value in node.outputs)


def _can_change(node: ir.Node, may_fold: Callable[[ir.Node], bool]) -> bool:
    if holds_graphs(node):
        return True
    if node.domain == "":
        if node.op_type in _LOOKED_INTO:
            return True
        condition = _CONDITIONS.get(node.op_type)
        if condition is not None and condition(node):
            return True
    # It computes no values of nodes with several outputs.
    is_constant = all(value is None or _source(value).const_value is not None for value in node.inputs)
    return is_constant and len(node.outputs) == 1 and may_fold(node)


def _source(value: ir.Value) -> ir.Value:
    """The source of ``value``, behind nodes that pass it on unchanged."""
    producer = value.producer()
    while producer is not None and producer.op_type == "Identity" and producer.domain == "" and producer.inputs[0] is not None:
        value = producer.inputs[0]
        producer = value.producer()
    return value


def _keeps_type(node: ir.Node) -> bool:
    data, target = node.inputs[0], node.attributes.get("to")
    return data is None or data.dtype is None or target is None or data.dtype.value == target.as_int()


def _keeps_shape(node: ir.Node) -> bool:
    """True where a Reshape or Expand may ask for the shape that its data has."""
    data, shape = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
    wanted = None if shape is None else _source(shape).const_value
    if data is None or data.shape is None or wanted is None:
        return False
    return data.shape.is_static() and [*data.shape] == wanted.numpy().reshape(-1).tolist()


def _drops_an_operand(node: ir.Node) -> bool:
    return len(node.inputs) < 2 or any(
        value is not None and value.shape is not None and 0 in value.shape for value in node.inputs
    )


def _is_of_integers(node: ir.Node) -> bool:
    """True of an Abs that may be of sizes, which are positive."""
    return any(value is not None and (value.dtype is None or value.dtype in _SIZE_TYPES) for value in node.inputs)


_CONDITIONS: dict[str, Callable[[ir.Node], bool]] = {
    "Abs": _is_of_integers,
    "Cast": _keeps_type,
    "Concat": _drops_an_operand,
    "Expand": _keeps_shape,
    "Reshape": _keeps_shape,
}


def computes_sizes(model: ir.Model) -> bool:
    """True when a node of ``model`` computes integers, which may be sizes; only such does data propagation follow."""
    return any(
        value.dtype is None or value.dtype in _SIZE_TYPES for node in model.graph for value in node.outputs if value.name
    )
