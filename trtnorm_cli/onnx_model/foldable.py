"""Tell whether anything in a model can be folded at all, without the library, which takes long to import."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from trtnorm_cli.onnx_model.ir_walk import holds_graphs

# The library replaces these by what it knows of sequences and branches. What it knows of sizes and of nodes that change nothing
# is folded before (``fold_small.py``), but that Abs of sizes is the identity.
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
        if node.op_type == "Abs" and _is_of_integers(node):
            return True
    # It computes no values of nodes with several outputs.
    is_constant = all(value is None or value.const_value is not None for value in node.inputs)
    return is_constant and len(node.outputs) == 1 and may_fold(node)


def _is_of_integers(node: ir.Node) -> bool:
    return any(value is not None and (value.dtype is None or value.dtype in _SIZE_TYPES) for value in node.inputs)


def computes_sizes(model: ir.Model) -> bool:
    """True when a node of ``model`` computes integers, which may be sizes; only such does data propagation follow."""
    return any(
        value.dtype is None or value.dtype in _SIZE_TYPES for node in model.graph for value in node.outputs if value.name
    )
