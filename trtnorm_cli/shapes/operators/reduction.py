"""Reductions along axes, and recurrent layers."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from trtnorm_cli.shapes.condition import maximum, minimum
from trtnorm_cli.shapes.expression import product_of
from trtnorm_cli.shapes.node import Node, like, unknown_rank
from trtnorm_cli.shapes.tensor import Shape, SymbolicTensor, objects, tensor_of

_FOLLOWED: dict[str, Callable[..., Any]] = {
    "ReduceProd": lambda *values: product_of(values),
    "ReduceSum": lambda *values: reduce(lambda a, b: a + b, values, 0),
    "ReduceMax": maximum,
    "ReduceMin": minimum,
}
_INT64 = 7
_BOOLEAN_MASK_SINCE = 10
# Gates of each recurrent layer: the hidden size is the second axis of the recurrence weight.
_RECURRENT = ("LSTM", "GRU", "RNN")


def reduction(node: Node) -> list[SymbolicTensor]:
    data = node.input(0)
    keep = bool(int(node.attributes.get("keepdims", 1)))
    if data.shape is None:
        return [like(data)]
    axes = node.integers(1, "axes")
    if axes is None and node.has(1):
        return [unknown_rank(data, len(data.shape) if keep else None)]
    if not axes and int(node.attributes.get("noop_with_empty_axes", 0)):
        return [data]
    chosen = {a % len(data.shape) for a in axes} if axes else set(range(len(data.shape)))
    made = _reduced(data.shape, chosen, keep)
    values = data.vector()
    followed = _FOLLOWED.get(node.proto.op_type)
    if followed is None or values is None or data.floating or len(chosen) < len(data.shape) or None in values or not values:
        return [like(data, made)]
    return [tensor_of(data.dtype, objects([followed(*values)]).reshape([1] * len(made)))]


def _reduced(shape: Shape, axes: set[int], keep: bool) -> Shape:
    return tuple(1 if axis in axes else size for axis, size in enumerate(shape) if keep or axis not in axes)


def arg_extreme(node: Node) -> list[SymbolicTensor]:
    data = node.input(0)
    if data.shape is None:
        return [SymbolicTensor(_INT64)]
    axis = node.axis(len(data.shape))
    return [SymbolicTensor(_INT64, _reduced(data.shape, {axis}, bool(int(node.attributes.get("keepdims", 1)))))]


def recurrent(node: Node) -> list[SymbolicTensor]:
    data, recurrence = node.input(0), node.input(2)
    both_ways = bytes(node.attributes.get("direction", b"forward")) == b"bidirectional"
    directions = 2 if both_ways else 1
    hidden = node.attributes.get("hidden_size") or (recurrence.shape[2] if recurrence.rank == 3 and recurrence.shape else None)
    first, second = data.shape[:2] if data.shape is not None and len(data.shape) == 3 else (None, None)
    if int(node.attributes.get("layout", 0)):
        sequence: Shape = (first, second, directions, hidden)
        state: Shape = (first, directions, hidden)
    else:
        sequence, state = (first, directions, second, hidden), (directions, second, hidden)
    return [like(data, sequence), like(data, state), like(data, state)][: len(node.proto.output)]


def dropped(node: Node) -> list[SymbolicTensor]:
    """Dropout: the data, and a mask of its shape, in the type of the data before opset 10."""
    mask = 9 if node.opset >= _BOOLEAN_MASK_SINCE else None
    return [like(node.input(0)), like(node.input(0), dtype=mask)][: len(node.proto.output)]


RULES: dict[str, Callable[[Node], list[SymbolicTensor]]] = {
    **{
        f"Reduce{kind}": reduction
        for kind in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")
    },
    "ArgMax": arg_extreme,
    "ArgMin": arg_extreme,
    **dict.fromkeys(_RECURRENT, recurrent),
    "Dropout": dropped,
}
