"""Products of quantised tensors: TensorRT computes one in integers, and takes the scales of both sides in one type only.

So a product is made low together with the DequantizeLinear nodes that it reads, and with the products that share one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx

from trtnorm_cli.precision.connections import Connections, is_operator
from trtnorm_cli.precision.operator_kinds import HEAVY, MOVES
from trtnorm_cli.precision.plan import key_of


def quantised_products(model: onnx.ModelProto, graph: Connections) -> Iterator[tuple[onnx.NodeProto, frozenset[str]]]:
    """One of the products of each group with the keys of all nodes of it, in the order of execution."""
    groups: dict[str, dict[str, None]] = {}
    last: dict[str, onnx.NodeProto] = {}
    for node in model.graph.node:
        if not is_operator(node, *HEAVY):
            continue
        keys = dict.fromkeys(key for name in node.input for key in _dequantising(name, graph))
        if not keys:
            continue
        group = dict.fromkeys([*keys, key_of(node)])
        for key in keys:
            group |= groups.get(key, {})
        groups |= dict.fromkeys(group, group)
        last |= dict.fromkeys(group, node)
    yield from _distinct(groups, last)


def _distinct(
    groups: Mapping[str, dict[str, None]], last: Mapping[str, onnx.NodeProto]
) -> Iterator[tuple[onnx.NodeProto, frozenset[str]]]:
    seen: set[str] = set()
    for key, group in groups.items():
        if key not in seen:
            seen.update(group)
            yield last[key], frozenset(group)


def _dequantising(name: str, graph: Connections) -> list[str]:
    """The keys of the DequantizeLinear that a tensor comes from and of what moves its values; nothing where none makes it."""
    keys: list[str] = []
    while (producer := graph.producers.get(name)) is not None:
        keys.append(key_of(producer))
        if is_operator(producer, "DequantizeLinear"):
            return keys
        if not is_operator(producer, *MOVES):
            break
        name = producer.input[0]
    return []
