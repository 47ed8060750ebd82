"""Sequences of tensors, which exporters write for split, chunk and unbind."""

from __future__ import annotations

from collections.abc import Callable

from trtnorm_cli.shapes.node import Node, like, unknown_rank
from trtnorm_cli.shapes.operators.movement import concat
from trtnorm_cli.shapes.tensor import SymbolicTensor


def split_to_sequence(node: Node) -> list[SymbolicTensor]:
    source = node.input(0)
    if source.shape is None:
        return [SymbolicTensor(source.dtype)]
    axis = node.axis(len(source.shape))
    keep = bool(int(node.attributes.get("keepdims", 1)))
    size = source.shape[axis]
    if not node.has(1):
        rest = (*source.shape[:axis], *([1] if keep else []), *source.shape[axis + 1 :])
        return [_sequence([like(source, rest)] * size if isinstance(size, int) else None, source)]
    parts = node.input(1).integers()
    if parts is not None and node.input(1).rank == 0:
        if not isinstance(size, int):
            return [_sequence(None, source)]
        parts = [min(parts[0], size - begin) for begin in range(0, size, parts[0])]
    elif parts is not None:
        side = (f"dimension {axis} of {node.name_of(0)}", size)
        node.require_equal(f"dimension {axis} must be the sum of the parts", side, ("the sum", sum(parts)))
    if parts is None:
        return [_sequence(None, source)]
    return [_sequence([like(source, (*source.shape[:axis], part, *source.shape[axis + 1 :])) for part in parts], source)]


def _sequence(items: list[SymbolicTensor] | None, source: SymbolicTensor) -> SymbolicTensor:
    return SymbolicTensor(source.dtype, None, None, None if items is None else tuple(items))


def construct(node: Node) -> list[SymbolicTensor]:
    return [_sequence(node.inputs(), node.input(0))]


def at(node: Node) -> list[SymbolicTensor]:
    items, position = node.input(0).items, node.input(1).integers()
    if items is None or position is None or not -len(items) <= position[0] < len(items):
        return [unknown_rank(node.input(0), None)]
    return [items[position[0]]]


def from_sequence(node: Node) -> list[SymbolicTensor]:
    """ConcatFromSequence along an axis that is there. Stacking along a new one is not followed."""
    items = node.input(0).items
    if not items or int(node.attributes.get("new_axis", 0)):
        return [unknown_rank(node.input(0), None)]
    return concat(node.with_inputs(items, [f"item {index} of {node.name_of(0)}" for index in range(len(items))]))


RULES: dict[str, Callable[[Node], list[SymbolicTensor]]] = {
    "SplitToSequence": split_to_sequence,
    "SequenceConstruct": construct,
    "SequenceAt": at,
    "ConcatFromSequence": from_sequence,
}
