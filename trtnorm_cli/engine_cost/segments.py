"""Two engines of one model held against each other, part by part.

Kernels of the two are joined where they come from common ONNX nodes, and so are the nodes that a change took away or brought
along. What is joined is a segment: at its borders both engines hand on the same tensors, so that the times of its two sides can
be compared. A kernel without nodes, a transposition say, belongs to what it stands between.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.records.cost import KernelCost
from trtnorm_cli.records.engine_parts import CompiledLayer, Kernel

# Which of the two engines, and a kernel's place in it, or a node's name.
_Key = Hashable


@dataclass(frozen=True)
class Side:
    """One of the engines: its kernels, and the estimate of each."""

    kernels: Sequence[CompiledLayer]
    costs: Sequence[KernelCost]


@dataclass(frozen=True)
class Sums:
    """The kernels of a segment in one of the engines: microseconds, launches, and bytes read and written."""

    us: float = 0.0
    launches: int = 0
    bytes: int = 0

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.us + other.us, self.launches + other.launches, self.bytes + other.bytes)


@dataclass(frozen=True)
class Segment:
    """``sites`` of changes that are decided together, with the sums of both sides."""

    sites: tuple[str, ...]
    changed: Sums
    unchanged: Sums


def segments(
    changed: Side, unchanged: Side, sites: Mapping[str, Iterable[str]], joined: Iterable[Iterable[str]] = ()
) -> list[Segment]:
    """The segments that have sites.

    ``sites`` has for each site nodes of either model, and ``joined`` further nodes that belong together.
    """
    groups = _Groups()
    for names in joined:
        groups.join([("node", name) for name in names])
    for site, names in sites.items():
        groups.join([("site", site), *(("node", name) for name in names)])
    sides = (changed, unchanged)
    for index, side in enumerate(sides):
        _join_kernels(groups, index, side)
    found: dict[_Key, list[str]] = {}
    for site in sites:
        found.setdefault(groups.of(("site", site)), []).append(site)
    sums = [_sums(groups, index, side) for index, side in enumerate(sides)]
    return [Segment(tuple(names), *(one.get(group, Sums()) for one in sums)) for group, names in found.items()]


def _join_kernels(groups: _Groups, index: int, side: Side) -> None:
    producers = {tensor.name: at for at, one in enumerate(side.kernels) if isinstance(one, Kernel) for tensor in one.outputs}
    for at, kernel in enumerate(side.kernels):
        if not isinstance(kernel, Kernel):
            continue
        groups.join([(index, at), *(("node", name) for name in kernel.onnx_nodes)])
        for tensor in kernel.inputs:
            producer = producers.get(tensor.name)
            if producer is not None and not (_has_nodes(side.kernels[producer]) and kernel.onnx_nodes):
                groups.join([(index, at), (index, producer)])


def _has_nodes(kernel: CompiledLayer) -> bool:
    return isinstance(kernel, Kernel) and bool(kernel.onnx_nodes)


def _sums(groups: _Groups, index: int, side: Side) -> dict[_Key, Sums]:
    sums: dict[_Key, Sums] = {}
    for at, cost in enumerate(side.costs):
        group = groups.of((index, at))
        sums[group] = sums.get(group, Sums()) + Sums(cost.us, 1, cost.read + cost.written)
    return sums


class _Groups:
    """Disjoint sets."""

    def __init__(self) -> None:
        self._parent: dict[_Key, _Key] = {}

    def of(self, key: _Key) -> _Key:
        path = []
        while (parent := self._parent.setdefault(key, key)) != key:
            path.append(key)
            key = parent
        for one in path:
            self._parent[one] = key
        return key

    def join(self, keys: Sequence[_Key]) -> None:
        for key in keys[1:]:
            self._parent[self.of(key)] = self.of(keys[0])
