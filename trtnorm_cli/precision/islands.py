"""The float32 islands of a model in a low type: nodes in float32 that read from each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.precision.operator_kinds import MOVES
from trtnorm_cli.precision.plan import name_of
from trtnorm_cli.precision.ports import Role, TypedNode
from trtnorm_cli.record import Record

# TensorRT computes one of these alone, between two casts, in the low type after all.
_ABSORBS_CASTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


@dataclass(frozen=True)
class Island(Record):
    """Nodes in float32, by the names that people know.

    ``is_undone`` where TensorRT makes them low again, because nothing but one product or convolution stands between two casts.
    """

    nodes: tuple[str, ...]
    is_undone: bool = False


def islands(nodes: Sequence[TypedNode], is_low: Mapping[str, bool]) -> tuple[Island, ...]:
    """The islands in the order of their first nodes."""
    return tuple(_island(group) for group in groups(nodes, is_low))


def groups(nodes: Sequence[TypedNode], is_low: Mapping[str, bool]) -> list[list[TypedNode]]:
    """The nodes of each island."""
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
    found: dict[str, list[TypedNode]] = {}
    for node in inside:
        found.setdefault(root(node.key), []).append(node)
    return list(found.values())


def _island(nodes: list[TypedNode]) -> Island:
    return Island(tuple(name_of(node.node) for node in nodes), absorber(nodes) is not None)


def absorber(nodes: Iterable[TypedNode]) -> TypedNode | None:
    """The one node of an island that computes, where TensorRT would compute it in the low type after all."""
    computing = [node for node in nodes if node.node.op_type not in MOVES]
    return computing[0] if len(computing) == 1 and computing[0].node.op_type in _ABSORBS_CASTS else None
