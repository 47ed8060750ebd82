"""Normalizations, which keep the shape and demand parameters that fit the channels."""

from __future__ import annotations

from collections.abc import Callable

from trtnorm_cli.shapes.node import Node, like
from trtnorm_cli.shapes.tensor import SymbolicTensor

_PER_GROUP_UNTIL = 20


def per_channel(node: Node) -> list[SymbolicTensor]:
    """Every parameter has one value for each channel. A single value is read as one for all of them elsewhere."""
    data = node.input(0)
    if data.shape is not None and len(data.shape) > 1:
        for index in range(1, node.count):
            parameter = node.input(index).shape
            if parameter is not None and len(parameter) == 1 and parameter[0] != 1:
                side = (f"dimension 1 of {node.name_of(0)}", data.shape[1])
                text = "there must be one parameter for each channel"
                node.require_equal(text, side, (f"the length of {node.name_of(index)}", parameter[0]))
    return [like(data)]


def in_groups(node: Node) -> list[SymbolicTensor]:
    """Up to opset 20 the parameters have one value for each group, which does not depend on the data."""
    return per_channel(node) if node.opset > _PER_GROUP_UNTIL else [like(node.input(0))]


def last_axes(node: Node) -> list[SymbolicTensor]:
    """Scale and bias are broadcast to the normalized axes."""
    data = node.input(0)
    for index in range(1, node.count):
        if node.has(index):
            node.broadcast([(node.name_of(0), data.shape), (node.name_of(index), node.input(index).shape)])
    return [like(data)]


RULES: dict[str, Callable[[Node], list[SymbolicTensor]]] = {
    "BatchNormalization": per_channel,
    "GroupNormalization": in_groups,
    "InstanceNormalization": per_channel,
    "LayerNormalization": last_axes,
    "RMSNormalization": last_axes,
}
