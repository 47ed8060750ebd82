"""The float32 islands of a model in a low type: nodes in float32 that read from each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trtnorm_cli.precision.plan import name_of
from trtnorm_cli.precision.ports import Role, TypedNode
from trtnorm_cli.record import Record

# TensorRT computes one of these alone, between two casts, in the low type after all.
_ABSORBS_CASTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


@dataclass(frozen=True)
class Island(Record):
    """Nodes in float32, by the names that people know. ``is_undone`` where TensorRT makes them low again."""

    nodes: tuple[str, ...]
    is_undone: bool = False


def islands(nodes: Sequence[TypedNode], is_low: Mapping[str, bool]) -> tuple[Island, ...]:
    """The islands in the order of their first nodes."""
    inside = [node for node in nodes if node.role in (Role.TYPED, Role.FIXED) and not is_low[node.key]]
    makers = {name: node.key for node in inside for name in node.node.output if name}
    parent = {node.key: node.key for node in inside}

    def root(key: str) -> str:
        while parent[key] != key:
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    for node in inside:
        for name in (*node.names(node.reads | node.reads_float), *node.captured):
            if name in makers:
                parent[root(node.key)] = root(makers[name])
    groups: dict[str, list[TypedNode]] = {}
    for node in inside:
        groups.setdefault(root(node.key), []).append(node)
    return tuple(_island(group) for group in groups.values())


def _island(nodes: list[TypedNode]) -> Island:
    computing = [node.node.op_type for node in nodes]
    return Island(tuple(name_of(node.node) for node in nodes), len(computing) == 1 and computing[0] in _ABSORBS_CASTS)
